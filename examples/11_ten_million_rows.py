"""
Ten million rows from Parquet
=============================

Tables that do not fit into memory are given by their paths. The fit reads them a few times, by blocks, in memory that
does not grow with the rows, and its result does not depend on how the rows are cut into blocks. The weights are read
block by block, too. In ten columns a sum of a hundred Gaussians moves the means only part of the way to the target.
What the whole size costs in time and memory is measured on the page on scale.

It takes about three seconds with 200,000 rows of each; ``--full`` has ten million of each, for which it writes files
of 2 GB into a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from steelyard import ULSIF, TableBlocks

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_rows, block, names = 10_000_000 if "--full" in sys.argv else 200_000, 100_000, [f"x{i}" for i in range(10)]


def write(path, mean, sd, seed):
    rng = np.random.default_rng(seed)
    with parquet.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in names])) as writer:
        for _ in range(n_rows // block):
            writer.write_table(pa.table(dict(zip(names, mean + sd * rng.standard_normal((10, block)), strict=True))))


with tempfile.TemporaryDirectory() as folder:
    source, target = Path(folder, "source.parquet"), Path(folder, "target.parquet")
    means = np.linspace(0, 0.5, 10)[:, None]  # the last columns have moved the most
    write(source, 0 * means, 1.0, seed=0)
    write(target, means, 0.9, seed=1)
    size = (source.stat().st_size + target.stat().st_size) / 1e6
    ratio = ULSIF(random_state=0).fit(source, target=target)

    sums, top, counts = np.zeros(10), 8.0, np.zeros(64)
    for weights, rows in zip(ratio.weights_, TableBlocks(source), strict=True):  # never more than one block in memory
        sums += weights @ rows.to_pandas().to_numpy()
        counts += np.histogram(weights, np.linspace(0, top, 65))[0]

print(f"{n_rows:,} rows of each, {size:,.0f} MB of files, {n_rows // block} blocks")
print(f"effective sample size {ratio.effective_sample_size_:,.0f}")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.scatter(range(10), np.zeros(10), color=SOURCE, label="source")
left.scatter(range(10), means[:, 0], color=TARGET, label="target")
left.scatter(range(10), sums / n_rows, color=WEIGHTED, marker="x", s=60, label="source, weighted")
left.set(xticks=range(10), xticklabels=names, ylabel="mean of the column")
left.legend(frameon=False)
right.stairs(counts / n_rows, np.linspace(0, top, 65), fill=True, color=WEIGHTED)
right.set(xlabel="importance weight", ylabel="share of the source rows")
plt.show()
