"""Importance-weighted empirical risk minimization: ERM, IWERM, EIWERM and RIWERM in one class."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from steelyard._numerics.written import written
from steelyard._typing import FloatArray
from steelyard._validation import (
    check_labels,
    check_range,
    check_weights,
    forget_fit,
    warn_without_target,
)
from steelyard._weight_parameter import require_weight_parameter
from steelyard.errors import InputTypeError
from steelyard.ratio import default_ratio
from steelyard.ratio.fitting import fit_ratio, require_target_parameter
from steelyard.ratio.table_rows import ReadsTables
from steelyard.report.notebook import ShowsFit
from steelyard.tables.streams import is_dask
from steelyard.weights import effective_sample_size, effective_sample_size_of_sums, flatten, multiply_counts


def _estimator_has(method: str) -> Any:
    def check(self: _Weighted) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)  # its AttributeError is the message
        return True

    return check


def flattened_weights(estimator: Any, rows: Any, target_rows: Any, counts: FloatArray | None) -> FloatArray:
    """The importance weights w^γ of an estimator with the parameters `ratio` and `flattening`, which keeps ``ratio_``.

    Ones without a target, with a warning.
    """
    even = np.ones(len(rows))
    if target_rows is None:
        warn_without_target(f"{type(estimator).__name__}.fit", "every weight is 1 and no shift is corrected")
        return even
    if estimator.flattening == 0:
        return even
    estimator.ratio_ = fit_ratio(estimator.ratio, rows, target_rows, counts)
    if np.all(estimator.ratio_.weights_ == 1):
        return even
    return flatten(estimator.ratio_.weights_, estimator.flattening, counts)


class _Weighted(ShowsFit, ReadsTables, MetaEstimatorMixin, BaseEstimator):
    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name that scikit-learn looks for)

    def __init__(self, estimator: Any, ratio: Any = None, flattening: float = 1.0, preprocess: Any = None) -> None:
        self.estimator = estimator
        self.ratio = ratio
        self.flattening = flattening
        self.preprocess = preprocess

    def fit(self, X: Any, y: Any, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the estimator to labeled source rows under importance weights.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows. A Dask array or data frame goes to the estimator as it is, which then has to train from Dask
            data, such as those of ``xgboost.dask``; its weights are a lazy Dask array.
        y : array of shape (n_source,)
            Labels of the source rows.
        target : Target or table of shape (n_target, n_columns), default=None
            Target rows; their labels are not used. Data frames are matched by column name. Without a target every
            weight is one, with a `NoTargetWarning`.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts; multiplied with the importance weights.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        name = require_weight_parameter(self.estimator)
        check_range("flattening", self.flattening, 0, 1)
        forget_fit(self)
        if is_dask(X):
            return self._fit_dask(X, y, target, sample_weight, name)
        check_labels(self, X, y)
        rows, numeric, target_rows = self._prepare(X, target)
        counts = check_weights(sample_weight, len(rows))
        self.weights_ = flattened_weights(self, numeric, target_rows, counts)
        self.effective_sample_size_ = effective_sample_size(multiply_counts(self.weights_, counts))
        # Equal weights must give exactly the fit without weights, and for some estimators (a forest's bootstrap)
        # weights of one are not equivalent to no weights.
        weights = counts if np.all(self.weights_ == 1) else self.weights_ * (1.0 if counts is None else counts)
        keywords = {} if weights is None else {name: weights}
        self.estimator_ = clone(self.estimator)
        # With metadata routing, every inner step would have to request the keyword; its full name works without.
        with config_context(enable_metadata_routing=False):
            self.estimator_.fit(rows, y, **keywords)
        return self

    _found_after = "estimator_"

    def _found(self) -> dict[str, str]:
        own = vars(self)
        ratio: Any = own.get("ratio_")
        found = {} if ratio is None else {"density ratio": type(ratio).__name__}
        if hasattr(ratio, "balance_"):  # of the whole weights, before they are flattened
            found["mean difference of the columns by that ratio"] = ratio.balance_.in_words
        if "effective_sample_size_" in own:
            found["effective sample size of the weights"] = written(own["effective_sample_size_"])
        return found

    def _fit_dask(self, X: Any, y: Any, target: Any, sample_weight: Any, name: str) -> Self:
        """Fit an estimator that trains from Dask data; the weights are a lazy array that is aligned with the rows."""
        if sample_weight is not None or self.preprocess is not None:
            raise InputTypeError("Dask data take no sample_weight and no preprocess: transform the data first.")
        keywords: dict[str, Any] = {}
        if target is None:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected")
        elif self.flattening:
            self.ratio_ = default_ratio() if self.ratio is None else clone(self.ratio)
            require_target_parameter(self.ratio_)
            self.ratio_.fit(X, target=target)
            self.weights_, self.effective_sample_size_ = _flattened_lazily(self.ratio_, self.flattening)
            self.n_features_in_ = self.ratio_.n_features_in_
            keywords = {name: self.weights_}
        self.estimator_ = clone(self.estimator)
        with config_context(enable_metadata_routing=False):
            self.estimator_.fit(X, y, **keywords)
        return self

    @property
    def _reader(self) -> Any:
        return self.estimator

    def predict(self, X: Any) -> Any:
        """Predict with the fitted estimator.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            The prediction for each row.
        """
        rows = self._new_rows(X)  # first: before a fit there is no estimator to ask
        return self.estimator_.predict(rows)

    def _new_rows(self, X: Any) -> Any:
        """New rows for the fitted estimator; a Dask collection goes to it as it is."""
        check_is_fitted(self, "estimator_")
        return X if is_dask(X) else self._rows(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.target_tags = deepcopy(inner.target_tags)
        tags.target_tags.required = True
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.classifier_tags = deepcopy(inner.classifier_tags)
        tags.regressor_tags = deepcopy(inner.regressor_tags)
        return tags


def _flattened_lazily(ratio: Any, flattening: float) -> tuple[Any, float]:
    """A lazy array of flattened weights with mean one, and their effective sample size."""
    if flattening == 1:
        return ratio.weights_, ratio.effective_sample_size_
    from steelyard.tables.dask_rows import computed  # imported here: Dask is optional

    flattened = ratio.weights_**flattening
    sums = [computed(values.sum()) for values in (flattened, flattened**2)]
    return flattened * (len(flattened) / sums[0]), effective_sample_size_of_sums(*sums)


class WeightedRegressor(RegressorMixin, _Weighted):
    """Regression under covariate shift: min_f Σ w(x_i)^γ ℓ(f(x_i), y_i) with w = p_target / p_source.

    Importance-weighted empirical risk minimization (survey, sections 3.1 and 4). One class for ERM (γ = 0), IWERM
    (γ = 1), EIWERM (0 < γ < 1) and RIWERM (``ratio=RULSIF(eta)``).

    Parameters
    ----------
    estimator : scikit-learn regressor whose ``fit`` takes sample weights
        The predictor f: a plain estimator, a Pipeline, a search or a TransformedTargetRegressor. An estimator that
        takes no weights is an error.
    ratio : ratio estimator, default=None
        Estimator of the importance weights; None takes ``AutoRatio(random_state=0)``, which averages several
        estimators. ``RULSIF(eta)`` gives RIWERM. A ratio that was already fitted on these source rows can be reused by
        wrapping it in scikit-learn's ``FrozenEstimator``.
    flattening : float in [0, 1], default=1.0
        γ, the power of the weights: 1 is IWERM, values between are EIWERM, 0 is plain ERM.
    preprocess : transformer, default=None
        Fitted on the source rows and applied to source and target before ratio and estimator. Preprocessing belongs
        here: as an earlier step of a Pipeline it would transform the source but not the target. (An inner Pipeline as
        `estimator` is fine; it serves the predictor alone. Where it starts with a ColumnTransformer, it reads text
        columns and missing values of a data frame itself, and the ratio has an encoding of its own: indicators of the
        levels, and medians where numbers are missing.)

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    ratio_ : ratio estimator
        The fitted ratio estimator; absent with flattening=0 or without a target.
    weights_ : array of shape (n_source,)
        Flattened importance weight of each source row, with mean one; exactly one with flattening=0.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    preprocess_ : transformer
        The fitted transformer; absent without `preprocess`.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Notes
    -----
    flattening=0 and RULSIF(eta=1) are exactly the plain fit: the estimator is then called without weights.

    ``sample_weight`` says how often a source row counts: weighting a row by two and repeating it are the same fit
    (except for `preprocess`, which is fitted without weights).

    Choose the hyperparameters `flattening` and `ratio__eta` and those of the estimator with
    `ImportanceWeightedSearchCV`. Plain ``GridSearchCV`` scores on unweighted source rows, where weighting cannot look
    better than no weighting: it chooses flattening=0 however large the shift.

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

    Importance-weighted empirical risk minimization (survey, sections 3.1 and 4). One class for ERM (γ = 0), IWERM
    (γ = 1), EIWERM (0 < γ < 1) and RIWERM (``ratio=RULSIF(eta)``). Labels may be strings, of any number of classes.

    Parameters
    ----------
    estimator : scikit-learn classifier whose ``fit`` takes sample weights
        The predictor f: a plain estimator, a Pipeline or a search. An estimator that takes no weights is an error.
    ratio : ratio estimator, default=None
        Estimator of the importance weights; None takes ``AutoRatio(random_state=0)``, which averages several
        estimators. ``RULSIF(eta)`` gives RIWERM. A ratio that was already fitted on these source rows can be reused by
        wrapping it in scikit-learn's ``FrozenEstimator``.
    flattening : float in [0, 1], default=1.0
        γ, the power of the weights: 1 is IWERM, values between are EIWERM, 0 is plain ERM.
    preprocess : transformer, default=None
        Fitted on the source rows and applied to source and target before ratio and estimator. Preprocessing belongs
        here: as an earlier step of a Pipeline it would transform the source but not the target. (An inner Pipeline as
        `estimator` is fine; it serves the predictor alone. Where it starts with a ColumnTransformer, it reads text
        columns and missing values of a data frame itself, and the ratio has an encoding of its own: indicators of the
        levels, and medians where numbers are missing.)

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    classes_ : array of shape (n_classes,)
        The class labels, in the order of the columns of ``predict_proba``.
    ratio_ : ratio estimator
        The fitted ratio estimator; absent with flattening=0 or without a target.
    weights_ : array of shape (n_source,)
        Flattened importance weight of each source row, with mean one; exactly one with flattening=0.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    preprocess_ : transformer
        The fitted transformer; absent without `preprocess`.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Notes
    -----
    flattening=0 and RULSIF(eta=1) are exactly the plain fit: the estimator is then called without weights.

    ``sample_weight`` says how often a source row counts: weighting a row by two and repeating it are the same fit
    (except for `preprocess`, which is fitted without weights).

    Choose the hyperparameters `flattening` and `ratio__eta` and those of the estimator with
    `ImportanceWeightedSearchCV`. Plain ``GridSearchCV`` scores on unweighted source rows, where weighting cannot look
    better than no weighting: it chooses flattening=0 however large the shift.

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
        """The class labels, in the order of the columns of ``predict_proba``.

        Returns
        -------
        array of shape (n_classes,)
            The labels.
        """
        return self.estimator_.classes_

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities of the fitted estimator.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows, n_classes)
            The probability of each class, for each row.
        """
        rows = self._new_rows(X)  # first: before a fit there is no estimator to ask
        return self.estimator_.predict_proba(rows)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Decision values of the fitted estimator.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,) or (n_rows, n_classes)
            The decision values of each row.
        """
        rows = self._new_rows(X)  # first: before a fit there is no estimator to ask
        return self.estimator_.decision_function(rows)
