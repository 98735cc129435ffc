"""What the baselines share: source rows, a few labeled rows of the target, and a prediction for the target."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from steelyard._few_shot.domains import check_few_shot, scale_of
from steelyard._typing import FloatArray
from steelyard._validation import check_new_rows, forget_fit
from steelyard.target import Target


class FewShotRegressor(RegressorMixin, BaseEstimator):
    """fit(X, y, domain=..., target=Target(X, y)), where the target has a few labeled rows.

    Subclasses learn in `_learn` from standardized columns and leave a `model_` that predicts; columns and label are
    standardized by the source rows where `standardize` is set.
    """

    standardize: bool

    def fit(self, X: Any, y: Any, *, domain: Any = None, target: Target | None = None) -> Any:
        """Learn from source rows and the labeled rows of the target; the domains of source rows are not used."""
        forget_fit(self)
        source, few = check_few_shot(self, X, y, target)
        self.scale_ = scale_of(source, self.standardize)
        source, few = self.scale_.to(source), self.scale_.to(few)
        self._learn(source[:, :-1], source[:, -1], few[:, :-1], few[:, -1])
        return self

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        raise NotImplementedError

    def predict(self, X: Any) -> FloatArray:
        """Predicted labels of rows of the target."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        return self.scale_.labels_back(self.model_.predict(self.scale_.inputs_to(X)))
