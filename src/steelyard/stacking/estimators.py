"""Importance-weighted stacking: several learners combined by their held-out predictions, weighted for the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d

from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._progress import track
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_labels, check_range, check_weights, forget_fit, generator
from steelyard.errors import InputError, LearnerFailedWarning, ParameterError, warn_user
from steelyard.ratio.table_rows import ReadsTables
from steelyard.report.notebook import ShowsWeights
from steelyard.stacking.held_out import (
    Data,
    Learner,
    better_of_both,
    both_ways,
    draw_folds,
    losses_of_rows,
    outputs,
    predict_held_out,
)
from steelyard.stacking.learners import default_learners
from steelyard.stacking.shares import fit_shares
from steelyard.tables.rows import count_rows, take_rows
from steelyard.weighted import flattened_weights
from steelyard.weights import effective_sample_size, multiply_counts

# Whole sample weights are counts: rows are repeated, up to so many in all. Above, they are weights of the fits.
MOST_REPEATED = 1_000_000


class _Stacked(ShowsWeights, ReadsTables, MetaEstimatorMixin, BaseEstimator):
    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name that scikit-learn looks for)

    def __init__(
        self,
        estimators: Any = None,
        ratio: Any = None,
        flattening: float = 0.5,
        *,
        preprocess: Any = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        progress: bool = True,
    ) -> None:
        self.estimators = estimators
        self.ratio = ratio
        self.flattening = flattening
        self.preprocess = preprocess
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress

    @property
    def _reader(self) -> Any:
        return self

    def fit(self, X: Any, y: Any, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit every learner, and their shares by held-out predictions under importance weights.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Labels of the source rows.
        target : Target or table of shape (n_target, n_columns), default=None
            Target rows; their labels are not used. Data frames are matched by column name. Without a target this is
            ordinary stacking, with a `NoTargetWarning`.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts; multiplied with the importance weights.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        check_range("flattening", self.flattening, 0, 1)
        forget_fit(self)
        check_labels(self, X, y)
        named = self._named_learners(count_rows(X))
        rows, numeric, target_rows = self._prepare(X, target)
        counts = check_weights(sample_weight, count_rows(rows))
        labels, codes = self._encode(y)
        self.weights_ = flattened_weights(self, numeric, target_rows, counts)
        self.effective_sample_size_ = effective_sample_size(multiply_counts(self.weights_, counts))
        order, repeated = _in_order(table_columns(rows, codes), counts)
        data = Data(
            take_rows(rows, order),
            labels[order],
            target_rows,
            # Rounded, since a tree decides ties by the last bits, which depend on how equal rows were merged.
            np.round(self.weights_[order], 9),
            self._classes,
            None if repeated or counts is None else counts[order],
        )
        self._combine(data, codes[order], both_ways(named, data))
        return self

    def _combine(self, data: Data, codes: NDArray[Any], learners: Sequence[Learner]) -> None:
        columns = table_columns(data.X, codes)
        groups = codes if len(self._classes) else None
        folds = draw_folds(columns, groups, units_of_rows(columns), generator(self.random_state))
        found = track(
            predict_held_out(learners, data, folds, n_jobs=self.n_jobs),
            len(learners),
            "predicting held-out rows",
            shown=self.progress,
        )
        tried = sorted(found, key=lambda each: [learner.label for learner in learners].index(each.learner.label))
        self.failed_ = {each.learner.label: each.failed for each in tried if each.failed}
        _say_failures(self.failed_, len(tried))
        fitted = [each for each in tried if not each.failed]
        truth, used = data.truth, data.used_weights
        losses = {each.learner.label: losses_of_rows(each.predictions, truth) for each in fitted}
        kept = better_of_both(fitted, losses, used)
        shares = fit_shares(np.stack([each.predictions - truth for each in kept], axis=1), used, folds)
        self.shrinkage_ = shares.shrinkage
        self.losses_ = {label: float(loss @ used / used.sum()) for label, loss in losses.items()}
        self.shares_ = {each.learner.label: float(share) for each, share in zip(kept, shares.values, strict=True)}
        self.estimators_ = [
            (label, each.learner.fit(data)) for each in kept if self.shares_[label := each.learner.label]
        ]

    def _named_learners(self, n_rows: int) -> list[tuple[str, Any]]:
        if self.estimators is None:
            return default_learners(isinstance(self, ClassifierMixin), n_rows)
        named = list(self.estimators)
        if not named or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in named):
            raise ParameterError(
                f"estimators must be a list of (name, estimator) pairs, or None for the default ones; got {named!r}."
            )
        names = [name for name, _ in named]
        if len(set(names)) < len(names):
            raise ParameterError(f"Every learner needs a name of its own; got {names}.")
        return named

    def _outputs(self, X: Any) -> FloatArray:
        check_is_fitted(self, "estimators_")
        rows = self._rows(X)
        return np.asarray(
            sum(self.shares_[name] * outputs(model, rows, self._classes) for name, model in self.estimators_)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def assemble(
    fitted: Sequence[tuple[str, Any]],
    shares: Mapping[str, float],
    weights: FloatArray,
    classes: NDArray[Any],
    n_columns: int,
) -> StackedRegressor | StackedClassifier:
    """A fitted combination, from learners and shares that were found elsewhere.

    Parameters
    ----------
    fitted : sequence of (str, estimator)
        Fitted learners.
    shares : dict of float
        Share of each of them.
    weights : array of shape (n_source,)
        The importance weights that they, or the shares, were fitted with.
    classes : array
        The classes; empty for regression.
    n_columns : int
        Number of columns.

    Returns
    -------
    StackedRegressor or StackedClassifier
    """
    model: Any = StackedRegressor()
    if len(classes):
        model = StackedClassifier()
        model.classes_ = classes
    model.estimators_, model.shares_, model.weights_ = list(fitted), dict(shares), weights
    model.effective_sample_size_ = effective_sample_size(weights)
    model.n_features_in_ = n_columns
    return model


def _say_failures(failed: dict[str, str], n_learners: int) -> None:
    """Warn of learners that were left out; an error where none is left."""
    reasons = "; ".join(f"{label}: {reason}" for label, reason in failed.items())
    if len(failed) == n_learners:
        raise InputError(f"No learner could be fitted to these rows. {reasons}")
    if failed:
        warn_user(f"Learners that could not be fitted were left out. {reasons}", LearnerFailedWarning)


def _in_order(columns: Sequence[NDArray[Any]], counts: FloatArray | None) -> tuple[IntArray, bool]:
    """Numbers of the rows in sort order, each as often as it counts, and whether they are repeated.

    In this order, neither the order of the table nor weighting instead of repeating changes a fit that draws rows.
    """
    order = np.argsort(units_of_rows(columns), kind="stable")
    if counts is None:
        return order, False
    order = order[counts[order] > 0]
    if np.all(counts == np.round(counts)) and counts.sum() <= MOST_REPEATED:
        return np.repeat(order, counts[order].astype(np.intp)), True
    return order, False


class StackedRegressor(RegressorMixin, _Stacked):
    """Regression by a combination f = Σ_k β_k f_k of learners for the target: importance-weighted stacking.

    Every learner f_k predicts held-out rows (five folds; two draws of the folds on up to 500 rows). The shares β ≥ 0,
    Σβ = 1, minimize the squared error of the combined held-out predictions under the flattened importance weights
    w_i^γ, shrunk towards equal shares as far as held-out rows prefer. With γ = 1 their limit is the combination that is
    best on the target under covariate shift (survey, section 3.1; a super learner); smaller γ reduces the variance
    (section 4.1). Each learner is also fitted with these weights, and that fit takes its place where its own weighted
    held-out error is smaller.

    Parameters
    ----------
    estimators : list of (str, regressor), default=None
        The learners, of any kind. None takes a linear model, kernel ridge regression with Gaussians, boosted trees and
        a forest, each with its hyperparameters chosen by itself, and `OneStepRegressor`. A learner whose ``fit`` takes
        a `target` gets it; one that takes no sample weights is used without.
    ratio : ratio estimator, default=None
        Estimator of the importance weights; None is ``AutoRatio(random_state=0)``.
    flattening : float in [0, 1], default=0.5
        γ, the power of the weights: 0 is ordinary stacking.
    preprocess : transformer, default=None
        Fitted on the source rows and applied to source and target before ratio and learners, as in `WeightedRegressor`.
    random_state : int or Generator, default=0
        For the folds.
    n_jobs : int, default=None
        Learners that are fitted in parallel, as in joblib.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal and the fit takes more than two seconds.

    Attributes
    ----------
    estimators_ : list of (str, regressor)
        The fitted learners with a positive share.
    shares_ : dict of float
        Share of each learner, by its name; that of a learner with weights is followed by ", weighted".
    losses_ : dict of float
        Weighted mean of the squared held-out errors of each learner.
    failed_ : dict of str
        Learners that could not be fitted to one of the folds and were left out, and why.
    shrinkage_ : float
        Strength of the shrinkage towards equal shares; infinity means equal shares.
    weights_ : array of shape (n_source,)
        Flattened importance weight of each source row, with mean one.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of these weights.
    ratio_ : ratio estimator
        The fitted ratio estimator; absent with flattening=0 or without a target.
    preprocess_ : transformer
        The fitted transformer; absent without `preprocess`.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Notes
    -----
    ``sample_weight`` says how often a source row counts: weighting a row by two and repeating it are the same fit, also
    for trees and forests, because rows with whole weights are repeated. Other weights are passed on to the learners.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from steelyard import StackedRegressor, Target
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(200, 200, random_state=0)
    >>> learners = [("linear", Ridge()), ("tree", DecisionTreeRegressor(min_samples_leaf=5, random_state=0))]
    >>> model = StackedRegressor(learners).fit(X, y, target=Target(X_target))
    >>> round(sum(model.shares_.values()), 6), len(model.predict(X_target))
    (1.0, 200)
    """

    _classes: Any = np.zeros(0)

    def _encode(self, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        labels = column_or_1d(y, warn=True).astype(np.float64)
        assert_all_finite(labels, input_name="y")
        return labels, labels

    def predict(self, X: Any) -> FloatArray:
        """Predict by the combination.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            The prediction for each row.
        """
        return self._outputs(X)[:, 0]


class StackedClassifier(ClassifierMixin, _Stacked):
    """Classification by a combination p = Σ_k β_k p_k of the probabilities of learners: importance-weighted stacking.

    Every learner predicts the class probabilities p_k of held-out rows (up to five folds, stratified; two draws of
    the folds on up to 500 rows). The shares β ≥ 0, Σβ = 1, minimize the Brier score of the combined probabilities, a
    proper loss, under the flattened importance weights w_i^γ, shrunk towards equal shares as far as held-out rows
    prefer. With γ = 1 their limit is the combination that is best on the target under covariate shift (survey, section
    3.1; a super learner); smaller γ reduces the variance (section 4.1). Each learner is also fitted with these weights,
    and that fit takes its place where its own weighted held-out score is better.

    Parameters
    ----------
    estimators : list of (str, classifier), default=None
        The learners, of any kind; without probabilities, decision values between −1 and 1 or predictions serve. None
        takes logistic regression, kernel ridge regression with Gaussians, boosted trees and a forest, each with its
        hyperparameters chosen by itself, and `OneStepClassifier`. A learner whose ``fit`` takes a `target` gets it; one
        that takes no sample weights is used without.
    ratio : ratio estimator, default=None
        Estimator of the importance weights; None is ``AutoRatio(random_state=0)``.
    flattening : float in [0, 1], default=0.5
        γ, the power of the weights: 0 is ordinary stacking.
    preprocess : transformer, default=None
        Fitted on the source rows and applied to source and target before ratio and learners, as in
        `WeightedClassifier`.
    random_state : int or Generator, default=0
        For the folds.
    n_jobs : int, default=None
        Learners that are fitted in parallel, as in joblib.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal and the fit takes more than two seconds.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The class labels, in the order of the columns of ``predict_proba``.
    estimators_ : list of (str, classifier)
        The fitted learners with a positive share.
    shares_ : dict of float
        Share of each learner, by its name; that of a learner with weights is followed by ", weighted".
    losses_ : dict of float
        Weighted mean of the held-out Brier score of each learner.
    failed_ : dict of str
        Learners that could not be fitted to one of the folds and were left out, and why.
    shrinkage_ : float
        Strength of the shrinkage towards equal shares; infinity means equal shares.
    weights_ : array of shape (n_source,)
        Flattened importance weight of each source row, with mean one.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of these weights.
    ratio_ : ratio estimator
        The fitted ratio estimator; absent with flattening=0 or without a target.
    preprocess_ : transformer
        The fitted transformer; absent without `preprocess`.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Notes
    -----
    ``sample_weight`` says how often a source row counts: weighting a row by two and repeating it are the same fit, also
    for trees and forests, because rows with whole weights are repeated. Other weights are passed on to the learners.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from steelyard import StackedClassifier, Target
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (200, 2)), rng.normal(0.5, 0.8, (100, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] ** 2, "yes", "no")
    >>> learners = [("linear", LogisticRegression()), ("naive Bayes", GaussianNB())]
    >>> model = StackedClassifier(learners).fit(X, y, target=Target(X_target))
    >>> model.predict_proba(X_target).shape
    (100, 2)
    """

    @property
    def _classes(self) -> Any:
        return self.classes_

    def _encode(self, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return labels, codes

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities of the combination.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows, n_classes)
            The probability of each class, for each row.
        """
        return self._outputs(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            The class of each row.
        """
        found = self._outputs(X)
        return np.asarray(self.classes_[found.argmax(axis=1)])
