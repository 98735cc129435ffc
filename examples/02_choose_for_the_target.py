"""Which model will do best over there? Plain cross-validation cannot say; the weighted one can."""

from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from steelyard import ULSIF, ImportanceWeightedSearchCV, Target, WeightedRegressor
from steelyard.datasets import sinc_toy

X, y, X_target, y_target = sinc_toy(500, 500, random_state=1)
model = WeightedRegressor(Ridge(), ULSIF(random_state=0))
grid = {"flattening": [0, 0.5, 1], "estimator__alpha": [0.1, 1, 10]}

plain = GridSearchCV(model, grid, scoring="neg_mean_squared_error").fit(X, y, target=Target(X_target))
weighted = ImportanceWeightedSearchCV(model, grid, ratio=ULSIF(random_state=0)).fit(X, y, target=Target(X_target))

for name, search in (("GridSearchCV", plain), ("ImportanceWeightedSearchCV", weighted)):
    error = ((search.predict(X_target) - y_target) ** 2).mean()
    print(f"{name}: chose {search.best_params_}, promised {-search.best_score_:.3f}, got {error:.3f} on the target")
