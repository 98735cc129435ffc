"""
The toy: a line that must fit somewhere else
============================================

Source and target overlap, but their centers differ, and the truth is a curve. A line can follow it in one place only: a
plain fit chooses the place where the source rows are, a weighted fit the place where the target rows are. The density
ratio says how much more frequent a row is in the target than in the source; its values at the source rows are the
importance weights. This is the toy problem of the survey (section 5.3.1). Target labels are used for the comparison alone.

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
for name, model in (("plain", plain), ("weighted", weighted)):
    print(f"{name:8} mean squared error on the target {np.mean((model.predict(X_target) - y_target) ** 2):.3f}")
print(f"The noise alone is 0.010. Effective sample size: {weighted.effective_sample_size_:.0f} of {n_rows} rows.")

# %%
# The lines, and what the weights do: each source row counts by its weight, and the weighted source looks like the target.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
shown = slice(None, None, n_rows // 500)
left.scatter(
    X[shown],
    y[shown],
    s=8 + 12 * weighted.weights_[shown],
    color=SOURCE,
    alpha=0.4,
    lw=0,
    label="source, sized by weight",
)
left.scatter(X_target[shown], y_target[shown], s=8, color=TARGET, alpha=0.4, lw=0, label="target")
line = np.linspace(-0.5, 2.9, 50)[:, None]
left.plot(line, np.sinc(line), color="black", lw=1, ls=":", label="truth")
left.plot(line, plain.predict(line), color=SOURCE, lw=2, label="plain fit")
left.plot(line, weighted.predict(line), color=WEIGHTED, lw=2, label="weighted fit")
left.set(xlabel="x", ylabel="y", ylim=(-0.7, 1.5))
left.legend(frameon=False, fontsize=8, ncols=2).legend_handles[0].set_sizes([20])
for rows, weights, color, label in (
    (X, None, SOURCE, "source"),
    (X_target, None, TARGET, "target"),
    (X, weighted.weights_, WEIGHTED, "source, weighted"),
):
    right.hist(
        rows[:, 0],
        np.linspace(-1, 3, 31),
        density=True,
        weights=weights,
        histtype="step",
        lw=2,
        color=color,
        label=label,
    )
right.set(xlabel="x", ylabel="density")
right.legend(frameon=False, fontsize=8)
plt.show()
