"""The base class of the baselines: they learn from source rows and a few labeled target rows."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from steelyard._few_shot.domains import check_few_shot, scale_of
from steelyard._numerics.written import written
from steelyard._typing import FloatArray
from steelyard._validation import check_new_rows, forget_fit
from steelyard.report.notebook import ShowsFit
from steelyard.target import Target


class FewShotRegressor(ShowsFit, RegressorMixin, BaseEstimator):
    """A regressor that is fitted by fit(X, y, domain=..., target=Target(X_target, y_target)).

    A subclass writes ``_learn(X, y, X_target, y_target)``, which sets ``model_``, an object with ``predict``. Columns
    and label are standardized by the source rows if `standardize` is True.
    """

    standardize: bool

    def fit(self, X: Any, y: Any, *, domain: Any = None, target: Target | None = None) -> Any:
        """Fit on source rows and a few labeled target rows.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Labels of the source rows.
        domain : ignored
            Present for the interface of `CausalTransferRegressor`: the baselines pool all source domains.
        target : Target
            ``Target(X_target, y_target)``: at least two labeled target rows.

        Returns
        -------
        self : estimator
            The fitted regressor.
        """
        forget_fit(self)
        source, target_rows = check_few_shot(self, X, y, target)
        self.scale_ = scale_of(source, self.standardize)
        source, target_rows = self.scale_.standardize(source), self.scale_.standardize(target_rows)
        self._learn(source[:, :-1], source[:, -1], target_rows[:, :-1], target_rows[:, -1])
        return self

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        raise NotImplementedError

    _found_after = "model_"

    def _found(self) -> dict[str, str]:
        """The chosen parameters of the model, where it is the kernel regression of these methods."""
        own = vars(self.model_)
        names = {"kernel width": "width_", "regularization strength": "reg_"}
        return {name: written(own[key]) for name, key in names.items() if key in own}

    def predict(self, X: Any) -> FloatArray:
        """Predict the labels of target rows.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            Predictions.
        """
        check_is_fitted(self)
        X = check_new_rows(self, X)
        return self.scale_.restore_labels(self.model_.predict(self.scale_.standardize_inputs(X)))
