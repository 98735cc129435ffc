"""
Choosing flattening: which cross-validation can see the target?
===============================================================

Weights to the power γ, the flattening, trade the bias of a plain fit (γ = 0) for the variance of a weighted one (1).
Which γ is best cannot be read from plain cross-validation: its held-out rows are source rows, so it prefers no
weights however large the shift is. Importance-weighted cross-validation weights the held-out rows, too, and its curve
has the shape of the true one, although no target label is used. It is a noisy estimate, and its best γ varies between
draws.

It takes about six seconds; ``--full`` has twenty draws.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV

from steelyard import ClassifierRatio, ImportanceWeightedSearchCV, Target, WeightedRegressor
from steelyard.datasets import gaussian_pair

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_draws = 20 if "--full" in sys.argv else 3
flattening = np.linspace(0, 1, 6)
model = WeightedRegressor(LinearRegression(), ClassifierRatio(random_state=0))
grid, score = {"flattening": flattening}, "neg_mean_squared_error"
curves = {"plain cross-validation": [], "importance-weighted cross-validation": [], "truth, on the target": []}
for seed in range(n_draws):
    pair, rng = gaussian_pair(300, 300, 3, shift=0.8, scale=0.8, random_state=seed), np.random.default_rng(seed)
    y = (pair.X**2).sum(axis=1) / 2 + rng.normal(size=300)
    target = Target(pair.X_target)
    X_new = gaussian_pair(1, 20_000, 3, shift=0.8, scale=0.8, random_state=1000 + seed).X_target
    y_new = (X_new**2).sum(axis=1) / 2 + rng.normal(size=20_000)

    plain = GridSearchCV(model, grid, scoring=score).fit(pair.X, y, target=target)
    weighted = ImportanceWeightedSearchCV(model, grid, ratio=ClassifierRatio(random_state=0))
    weighted.fit(pair.X, y, target=target)
    fits = (model.set_params(flattening=power).fit(pair.X, y, target=target) for power in flattening)
    errors = [np.mean((fit.predict(X_new) - y_new) ** 2) for fit in fits]
    for curve, found in zip(curves.values(), (plain, weighted, None), strict=True):
        curve.append(errors if found is None else -found.cv_results_["mean_test_score"])
    for name, found in (("plain", plain), ("importance-weighted", weighted)):
        chosen = found.best_params_["flattening"]
        print(f"draw {seed}: {name} cross-validation chose {chosen:.1f}, ", end="")
        print(f"error on the target {errors[list(flattening).index(chosen)]:.2f}")

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
for (name, curve), color in zip(curves.items(), (SOURCE, WEIGHTED, TARGET), strict=True):
    axes.plot(flattening, np.transpose(curve), color=color, lw=0.8, alpha=0.25)
    axes.plot(flattening, np.mean(curve, axis=0), "o-", color=color, lw=2, ms=4, label=name)
axes.set(xlabel="flattening γ", ylabel="mean squared error")
axes.legend(frameon=False)
plt.show()
