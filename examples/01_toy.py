"""
The toy: a line that must fit somewhere else
============================================

Source and target overlap, their centers differ, and the truth is a curve. A line can follow it in one place only: a
plain fit where the source rows are, a weighted fit where the target rows are. Each source row counts by its
importance weight, and the weighted source looks like the target. Target labels are used for the comparison alone.

It takes about two seconds; ``--full`` has 20,000 rows of each.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from steelyard import Target, WeightedRegressor
from steelyard.datasets import sinc_toy

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_rows = 20_000 if "--full" in sys.argv else 500
X, y, X_target, y_target = sinc_toy(n_rows, n_rows, random_state=0)

plain = Ridge().fit(X, y)
weighted = WeightedRegressor(Ridge()).fit(X, y, target=Target(X_target))  # importance weights by AutoRatio
weights = weighted.weights_
for name, model in (("plain", plain), ("weighted", weighted)):
    print(f"{name:8} mean squared error on the target {np.mean((model.predict(X_target) - y_target) ** 2):.3f}")
print(f"The noise alone is 0.010. Effective sample size: {weighted.effective_sample_size_:.0f} of {n_rows} rows.")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
some = slice(None, None, n_rows // 500)
size = 8 + 12 * weights[some]
left.scatter(X[some], y[some], s=size, color=SOURCE, alpha=0.4, lw=0, label="source, sized by weight")
left.scatter(X_target[some], y_target[some], s=8, color=TARGET, alpha=0.4, lw=0, label="target")
line = np.linspace(-0.5, 2.9, 50)[:, None]
left.plot(line, np.sinc(line), color="black", lw=1, ls=":", label="truth")
left.plot(line, plain.predict(line), color=SOURCE, lw=2, label="plain fit")
left.plot(line, weighted.predict(line), color=WEIGHTED, lw=2, label="weighted fit")
left.set(xlabel="x", ylabel="y", xlim=(-1, 3.2), ylim=(-0.7, 1.6))
left.legend(frameon=False, fontsize=8, ncols=2).legend_handles[0].set_sizes([20])

bins = {"bins": np.linspace(-1, 3, 31), "density": True, "histtype": "step", "lw": 2}
right.hist(X[:, 0], color=SOURCE, label="source", **bins)
right.hist(X_target[:, 0], color=TARGET, label="target", **bins)
right.hist(X[:, 0], weights=weights, color=WEIGHTED, label="source, weighted", **bins)
right.set(xlabel="x", ylabel="density")
right.legend(frameon=False, fontsize=8)
plt.show()
