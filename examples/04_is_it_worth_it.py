"""Two tables and a doubt: is there a shift, and how good will my model be over there?"""

import numpy as np
from sklearn.linear_model import LinearRegression

from steelyard import Target, diagnose, target_performance

rng = np.random.default_rng(0)
X, X_target = rng.normal(0, 1, (1000, 3)), rng.normal([0.7, 0, 0], 1, (800, 3))
y = X[:, 0] ** 2 + X[:, 1] + 0.3 * rng.normal(size=1000)

found = diagnose(X, target=X_target)  # shows itself as a table in a notebook
print(found.recommendation, "-", found.reason, found.advice)

model = LinearRegression().fit(X[:500], y[:500])
score = target_performance(model, X[500:], y[500:], target=Target(X_target))
print(f"mean squared error on the source {-score.source.mean:.2f}")
print(f"on the target {-score.target.mean:.2f}, 95 %: {-score.target.high:.2f} to {-score.target.low:.2f}")
