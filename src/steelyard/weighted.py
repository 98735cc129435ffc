"""Empirical risk minimization under importance weights: ERM, EIWERM, IWERM and RIWERM in one class."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from steelyard._typing import FloatArray
from steelyard._validation import (
    check_labels,
    check_new_rows,
    check_range,
    check_source,
    check_target,
    check_weights,
    forget_fit,
    match_columns,
    preprocessed,
    warn_without_target,
)
from steelyard._weight_parameter import require_weight_parameter
from steelyard.errors import InputTypeError
from steelyard.ratio import default_ratio
from steelyard.report.notebook import ShowsWeights
from steelyard.target import Target
from steelyard.weights import counted, effective_sample_size, flatten


def _estimator_has(method: str) -> Any:
    def check(self: _Weighted) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)  # its AttributeError is the message
        return True

    return check


class _Weighted(ShowsWeights, MetaEstimatorMixin, BaseEstimator):
    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name scikit-learn looks for)

    def __init__(self, estimator: Any, ratio: Any = None, flattening: float = 1.0, preprocess: Any = None) -> None:
        self.estimator = estimator
        self.ratio = ratio
        self.flattening = flattening
        self.preprocess = preprocess

    def fit(self, X: Any, y: Any, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit on labeled source rows, weighted to look like the target.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Their labels.
        target : Target or table of shape (n_target, n_columns), default=None
            Rows to predict; labels are not needed and not looked at. Data frames are matched by column name.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts; multiplies the importance.
        """
        name = require_weight_parameter(self.estimator)
        check_range("flattening", self.flattening, 0, 1)
        forget_fit(self)
        check_labels(self, X, y)
        rows, numeric, goal = self._prepare(X, target)
        counts = check_weights(sample_weight, len(rows))
        self.weights_ = self._importance(numeric, goal, counts)
        self.effective_sample_size_ = effective_sample_size(counted(self.weights_, counts))
        # Equal weights must give the very fit that no weights give, and for some estimators (a forest's bootstrap)
        # weights of one are not the same as none.
        weights = counts if np.all(self.weights_ == 1) else self.weights_ * (1.0 if counts is None else counts)
        keywords = {} if weights is None else {name: weights}
        self.estimator_ = clone(self.estimator)
        # With routing on, the keyword would need a request on every step inside; by its full name it always arrives.
        with config_context(enable_metadata_routing=False):
            self.estimator_.fit(rows, y, **keywords)
        return self

    def _prepare(self, X: Any, target: Any) -> tuple[Any, Any, Any]:
        """Source rows for the estimator, source rows for the ratio, and target rows (None without a target)."""
        if self.preprocess is None:
            numeric = check_source(self, X)
            goal = None if target is None else check_target(self, target, X)
            # A frame goes on as a frame, for inner steps that ask for columns by name.
            return (X if hasattr(X, "columns") else numeric), numeric, goal
        # What comes in need not be numeric: the transformer is there to make it so.
        validate_data(self, X, skip_check_array=True)
        goal = None if target is None else match_columns(target, X)
        self.preprocess_ = clone(self.preprocess).fit(X)
        rows = preprocessed(self.preprocess_, X)
        return rows, rows, None if goal is None else preprocessed(self.preprocess_, goal)

    def _importance(self, rows: Any, goal: Any, counts: FloatArray | None) -> FloatArray:
        even = np.ones(len(rows))
        if goal is None:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected", 3)
            return even
        if self.flattening == 0:
            return even
        self.ratio_ = clone(default_ratio() if self.ratio is None else self.ratio)
        if not has_fit_parameter(self.ratio_, "target"):
            raise InputTypeError(
                f"ratio must be a ratio estimator such as ULSIF(), whose fit takes a target; "
                f"got {type(self.ratio).__name__}."
            )
        self.ratio_.fit(rows, target=Target(goal), sample_weight=counts)
        if np.all(self.ratio_.weights_ == 1):
            return even
        return flatten(self.ratio_.weights_, self.flattening, counts)

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        if self.preprocess is None:
            rows = check_new_rows(self, X)
            return X if hasattr(X, "columns") else rows
        validate_data(self, X, reset=False, skip_check_array=True)
        return preprocessed(self.preprocess_, X)

    def predict(self, X: Any) -> Any:
        """Predictions of the weighted fit."""
        rows = self._rows(X)
        return self.estimator_.predict(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.target_tags = deepcopy(inner.target_tags)
        tags.target_tags.required = True
        tags.classifier_tags = deepcopy(inner.classifier_tags)
        tags.regressor_tags = deepcopy(inner.regressor_tags)
        return tags


class WeightedRegressor(RegressorMixin, _Weighted):
    """Regression under covariate shift: min_f Σ w(x_i)^γ ℓ(f(x_i), y_i) with w = p_target / p_source.

    One class for ERM (γ = 0), IWERM (γ = 1), EIWERM (γ between) and RIWERM (``ratio=RULSIF(eta)``); survey, sections
    3.1 and 4.

    Parameters
    ----------
    estimator : scikit-learn estimator whose ``fit`` takes row weights
        Plain, a Pipeline, a search or a TransformedTargetRegressor. One that takes no weights is refused by name.
    ratio : ratio estimator, default=None
        Where the weights come from; None is ``AutoRatio(random_state=0)``, which takes the estimator that fits the
        table. ``RULSIF(eta)`` gives RIWERM.
    flattening : float in [0, 1], default=1.0
        γ, the power the weights are raised to: 1 is IWERM, values between are EIWERM, 0 is plain ERM.
    preprocess : transformer, default=None
        Fitted on the source rows, applied to source and target alike, before ratio and estimator. Preprocessing
        belongs here: as a later step of a Pipeline this estimator would see the source transformed and the target
        raw. (An inner Pipeline as `estimator` is fine; it serves the predictor alone.)

    Attributes
    ----------
    estimator_ : the fitted estimator.
    ratio_ : the fitted ratio estimator (absent with flattening=0 or without a target).
    weights_ : flattened importance of each source row, mean one; exactly one with flattening=0.
    effective_sample_size_ : what the weights are worth in equally weighted rows.
    preprocess_ : the fitted transformer (absent without `preprocess`).

    Notes
    -----
    flattening=0, and RULSIF(eta=1), equal the plain fit bit for bit: the estimator is then called without weights.

    ``sample_weight`` says how often a source row counts: weighting a row by two and repeating it are the same fit
    (`preprocess` apart, which is fitted without the weights).

    Choose `flattening`, `ratio__eta` and the estimator's own parameters with `ImportanceWeightedSearchCV`. Plain
    ``GridSearchCV`` scores on source rows, where no weighting can look better than none: it answers flattening=0
    however large the shift.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from steelyard import Target, WeightedRegressor
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(500, 500, random_state=0)
    >>> plain = WeightedRegressor(Ridge(), flattening=0).fit(X, y, target=Target(X_target))
    >>> weighted = WeightedRegressor(Ridge()).fit(X, y, target=Target(X_target))
    >>> weighted.score(X_target, y_target) > plain.score(X_target, y_target)
    True
    """


class WeightedClassifier(ClassifierMixin, _Weighted):
    """Classification under covariate shift: min_f Σ w(x_i)^γ ℓ(f(x_i), y_i) with w = p_target / p_source.

    Labels may be strings, and of any number of classes. Parameters, attributes and notes are those of
    `WeightedRegressor` (survey, sections 3.1 and 4).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from steelyard import Target, WeightedClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (200, 2)), rng.normal(0.5, 0.8, (100, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] ** 2, "yes", "no")
    >>> model = WeightedClassifier(LogisticRegression()).fit(X, y, target=Target(X_target))
    >>> model.predict_proba(X_target).shape
    (100, 2)
    """

    @property
    def classes_(self) -> Any:
        """The labels, in the order of the columns of ``predict_proba``."""
        return self.estimator_.classes_

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities of the weighted fit."""
        rows = self._rows(X)
        return self.estimator_.predict_proba(rows)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Decision values of the weighted fit."""
        rows = self._rows(X)
        return self.estimator_.decision_function(rows)
