"""
A biased split: estimated weights beside the true ones
======================================================

Rows come into the training set with a probability that depends on their columns: somebody recorded mostly cases of
one kind. The split is made by us, so the true importance weights are known, (1 − p) / p for a row that was selected
with probability p. A linear model of the selected rows is wrong for the others, because the truth is curved.
Estimated weights, which know the columns alone, mend it as well as the true ones; only the largest weights are
underestimated.

It takes about five seconds; ``--full`` has ten splits of 5000 rows.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.datasets import make_friedman1
from sklearn.linear_model import LinearRegression

from steelyard import Target, WeightedRegressor, effective_sample_size
from steelyard.datasets import biased_split

SOURCE, WEIGHTED = "#64748b", "#0f766e"
n_rows, n_splits = (5000, 10) if "--full" in sys.argv else (2000, 3)
direction = np.array([0.5, 0, 1, 0, 0])  # rows with large values in the third column are selected
errors = []
for seed in range(n_splits):
    X, y = make_friedman1(n_rows, 5, noise=1.0, random_state=seed)
    source, target = biased_split(X, direction=direction, slope=1.5, random_state=seed)
    along = (X - X.mean(axis=0)) / X.std(axis=0) @ direction
    p = expit(1.5 * along / along.std())[source]
    true = (1 - p) / p / np.mean((1 - p) / p)
    weighted = WeightedRegressor(LinearRegression()).fit(X[source], y[source], target=Target(X[target]))
    by_truth = LinearRegression().fit(X[source], y[source], sample_weight=true)
    plain = LinearRegression().fit(X[source], y[source])
    errors.append([np.mean((model.predict(X[target]) - y[target]) ** 2) for model in (plain, weighted, by_truth)])

names = ("no weights", "estimated weights", "true weights")
for name, found in zip(names, np.mean(errors, axis=0), strict=True):
    print(f"{name:18} mean squared error on the target {found:5.2f}")
print(f"Effective sample size, estimated {weighted.effective_sample_size_:.0f}, ", end="")
print(f"true {effective_sample_size(true):.0f}, of {len(source)} selected rows (last split).")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", width_ratios=[3, 2])
left.scatter(true, weighted.weights_, s=10, color=WEIGHTED, alpha=0.4, lw=0)
top = true.max()
left.plot([0.02, top], [0.02, top], color=SOURCE, lw=1, ls="--", label="equal")
left.set(xscale="log", yscale="log", xlabel="true importance weight", ylabel="estimated importance weight")
left.legend(frameon=False)
right.bar(names, np.mean(errors, axis=0), color=[SOURCE, WEIGHTED, WEIGHTED], alpha=0.85, width=0.6)
right.plot(range(3), np.transpose(errors), "o", color="black", ms=3, alpha=0.5)  # one dot for each split
right.set(ylabel="mean squared error on the target")
right.tick_params(axis="x", labelsize=8)
plt.show()
