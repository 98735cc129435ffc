"""
How good will my model be there?
================================

A model was tested where it was made. It is now asked how well it will do on the target, whose labels are not known
yet. ``target_performance`` answers with a confidence interval, from labeled source rows and unlabeled target rows.
Here the target moves away step by step, and the true accuracy, which only a made-up example knows, lies beside the
promise. The farther the target, the fewer source rows resemble it, and the wider the interval. It accounts for
sampling alone, and holds where labels given x are the same in both domains.

It takes about four seconds; ``--full`` has 20,000 rows and nine steps.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from steelyard import Target, target_performance

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_rows, n_steps = (20_000, 9) if "--full" in sys.argv else (1000, 5)
rng = np.random.default_rng(0)


def rows(n, shift):
    X = rng.normal([shift, 0, 0], 1, size=(n, 3))
    score = X[:, 1] + 0.5 * X[:, 0] ** 2 + 0.7 * rng.normal(size=n)  # a linear model misses the square
    return X, (score > 0.5).astype(int)


model = LogisticRegression().fit(*rows(n_rows, 0))
X, y = rows(n_rows, 0)  # labeled source rows that the model has not seen
shifts = np.linspace(0, 1.6, n_steps)
truths, found = [], []
for shift in shifts:
    X_target, _ = rows(n_rows, shift)
    truths.append(model.score(*rows(100_000, shift)))
    found.append(target_performance(model, X, y, target=Target(X_target)))
    promised = found[-1].target
    print(f"shift {shift:.1f}: promised {promised.mean:.3f} ({promised.low:.3f} to {promised.high:.3f}), ", end="")
    print(f"true {truths[-1]:.3f}, on the source {found[-1].source.mean:.3f}")

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
means = np.array([each.target.mean for each in found])
ends = np.abs([[each.target.low, each.target.high] for each in found] - means[:, None])
axes.axhline(found[0].source.mean, color=SOURCE, lw=2, label="accuracy on the source")
axes.plot(shifts, truths, "o-", color=TARGET, lw=2, ms=4, label="true accuracy on the target")
label = "promised accuracy on the target, 95 % interval"
axes.errorbar(shifts + 0.02, means, ends.T, fmt="s", color=WEIGHTED, capsize=4, ms=5, label=label)
axes.set(xlabel="shift of the first column, standard deviations", ylabel="accuracy")
axes.legend(frameon=False)
plt.show()
