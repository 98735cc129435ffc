"""One call instead of two steps: weights and predictor from one objective, and what outlying labels do to it."""

import numpy as np
from sklearn.kernel_ridge import KernelRidge

from steelyard import OneStepRegressor, Target
from steelyard.datasets import sinc_toy

X, y, X_target, y_target = sinc_toy(random_state=0)
rng = np.random.default_rng(0)
spoiled = rng.random(len(y)) < 0.1
y = np.where(spoiled, y + rng.normal(0, 2, len(y)), y)  # one label in ten is far off


def error(model: object) -> float:
    return float(np.mean((model.predict(X_target) - y_target) ** 2))


print(f"kernel ridge, no weights  {error(KernelRidge(kernel='rbf', gamma=2).fit(X, y)):.4f}")
for loss in ("squared", "tukey"):
    model = OneStepRegressor(loss, random_state=0).fit(X, y, target=Target(X_target))
    print(f"one-step, {loss:8}        {error(model):.4f}   m = {model.loss_bound_:g}")
print("The noise alone is 0.0100. Tukey's loss stops growing, so a label that is far off has no say.")
