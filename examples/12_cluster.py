"""
A cluster on one machine
========================

Dask data frames go in, and a lazy Dask array of weights comes out, aligned with the rows; nothing is collected in one
place but sums. Here a cluster of two processes on one machine has a year of rows, a partition for each month, in
which the columns drift, and the target is what comes next. The result is that of one process. The address of a
cluster in ``Client("tcp://...")`` is all that changes for many machines.

It takes about fifteen seconds, most of them to start the processes; ``--full`` has 12 million rows. It needs Dask
(``pip install 'steelyard[distributed]'``) and pandas.
"""

import sys

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from steelyard import ULSIF

SOURCE, WEIGHTED = "#64748b", "#0f766e"
n_rows = 1_000_000 if "--full" in sys.argv else 5000  # of a month


def month(number):
    rows = np.random.default_rng(number).normal([number / 8, -number / 12, 0], 1, size=(n_rows, 3))
    return pd.DataFrame(rows, columns=["demand", "price", "weather"])


def draw(mean_weights):
    _, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.bar(range(1, 13), mean_weights, color=WEIGHTED)
    axes.axhline(1, color=SOURCE, lw=1, ls="--", label="no weights")
    axes.set(xlabel="month of the source rows", ylabel="mean importance weight", xticks=range(1, 13))
    axes.legend(frameon=False)


if __name__ == "__main__":  # the processes of the cluster import this file
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=40) as cluster,
        Client(cluster),
    ):
        source = dd.from_map(month, range(12))
        ratio = ULSIF(random_state=0).fit(source, target=dd.from_map(month, [12, 13]))
        means = [float(ratio.weights_.partitions[i].mean().compute()) for i in range(12)]
    print(f"{12 * n_rows:,} source rows, effective sample size {ratio.effective_sample_size_:,.0f}")
    print(f"mean weight in the first month {means[0]:.2f}, in the last {means[-1]:.2f}")
    if n_rows <= 5000:
        here = ULSIF(random_state=0).fit([month(i) for i in range(12)], target=[month(12), month(13)])
        print(f"largest difference to one process {np.max(np.abs(here.coef_ - ratio.coef_)):.0e}")
    draw(means)
    plt.show()
