"""The performance of a model on the target: an estimate with a confidence interval, without target labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone

from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._numerics.kernels import blocks
from steelyard._splits.rows import folds_of_table
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_count, check_labels, check_range, generator, match_columns
from steelyard.errors import InputError, InputTypeError, SteelyardWarning
from steelyard.model_selection._rows import take_rows
from steelyard.model_selection._scoring import row_scores
from steelyard.ratio import ClassifierRatio
from steelyard.target import Target
from steelyard.weights import effective_sample_size

N_BOOTSTRAP = 500
DRAWN_AT_ONCE = 1_000_000  # rows of the bootstrap samples that are in memory at a time
LEAST_ROWS = 10  # with fewer rows there is no interval
MOST_LEVELS = 10  # a column of at most this many levels is also encoded by its levels


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval.

    Parameters
    ----------
    mean : float
        The estimate.
    low : float or None
        Lower end of the interval; None where there are too few rows for an interval.
    high : float or None
        Upper end of the interval; None where there are too few rows for an interval.

    Examples
    --------
    >>> from steelyard.model_selection import Interval
    >>> Interval(0.8, 0.7, 0.85).low
    0.7
    """

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Performance:
    """The scores of a fitted model on target and source; greater is better.

    It is returned by `target_performance`.

    Parameters
    ----------
    target : Interval
        The estimated mean score on the target.
    source : Interval
        The mean score on the labeled source rows.
    scoring : str
        Name of the score.
    effective_sample_size : float
        Effective sample size (ESS) of the weights of the labeled rows.
    level : float
        Confidence level of the intervals.

    Examples
    --------
    >>> from steelyard.model_selection import Interval, Performance
    >>> found = Performance(Interval(0.7, 0.6, 0.8), Interval(0.9, 0.85, 0.95), "accuracy", 120.0, 0.95)
    >>> found.target.mean < found.source.mean
    True
    """

    target: Interval
    source: Interval
    scoring: str
    effective_sample_size: float
    level: float


def target_performance(
    model: Any,
    X: Any,
    y: Any,
    *,
    target: Any,
    scoring: Any = None,
    ratio: Any = None,
    level: float = 0.95,
    cv: int = 5,
    random_state: Any = 0,
) -> Performance:
    """Estimate the score of a fitted model on the target from labeled source rows that it was not fitted on.

    The estimate is doubly robust. An outcome model, fitted to the scores of the source rows, predicts the score of a
    row from its columns. The estimate is the mean of these predictions over the target rows, plus the
    importance-weighted mean of the residuals over the source rows. It is consistent if the importance weights or the
    outcome model are right, and its interval is shorter than that of the importance-weighted mean alone. Importance
    weights and outcome model are cross-fitted: each source row is evaluated by fits on the other folds.

    The interval is that of the studentized bootstrap. With very heavy tails (noise that grows exponentially along the
    shift) an interval of nominal level 95 % has a coverage of about 85 %.

    Parameters
    ----------
    model : fitted estimator
        The model to evaluate.
    X : table of shape (n_source, n_columns)
        Labeled source rows that the model was not fitted on. On its training rows the estimate would be too optimistic.
    y : array of shape (n_source,)
        Labels of these rows.
    target : Target or table of shape (n_target, n_columns)
        Target rows.
    scoring : str or callable, default=None
        "neg_mean_squared_error" (default for regressors), "neg_mean_absolute_error", "accuracy" (default for
        classifiers), "neg_log_loss", "neg_brier_score", or a function (estimator, X, y) that returns one score for each
        row. A score must be a mean over rows.
    ratio : ratio estimator with ``predict``, default=None
        Estimates the density ratio. None is a `ClassifierRatio` with linear log-odds. In several columns it has less
        bias than a sum of Gaussians; the outcome model accounts for what it misses.
    level : float, default=0.95
        Confidence level of the intervals.
    cv : int, default=5
        Number of folds of the cross-fitting.
    random_state : int or Generator, default=0
        Seed of the folds and the bootstrap.

    Returns
    -------
    Performance
        Estimated score on the target and score on the source rows, with their intervals.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from steelyard import Target, target_performance
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(1000, 500, random_state=0)
    >>> model = Ridge().fit(X[:500], y[:500])
    >>> found = target_performance(model, X[500:], y[500:], target=Target(X_target))
    >>> bool(found.target.mean < found.source.mean)  # the model is worse on the target
    True
    """
    check_range("level", level, 0, 1, open_low=True)
    check_count("cv", cv, 2)
    check_labels(model, X, y)
    X_target = match_columns(target, X)
    ratio = linear_ratio() if ratio is None else ratio
    if not hasattr(ratio, "predict"):
        raise InputTypeError(
            f"Cross-fitted weights need a ratio that can be evaluated on new rows; {type(ratio).__name__} has no "
            "predict. Use ULSIF, RULSIF, LSIF, KLIEP or ClassifierRatio."
        )
    scores = row_scores(scoring, model)(model, X, y)
    if len(scores) < 2 * cv:
        raise InputError(f"{len(scores)} labeled rows are too few for {cv} folds; at least {2 * cv} are needed.")
    rng = generator(random_state)
    name = scoring if isinstance(scoring, str) else "the row score" if scoring is not None else "default"
    columns = table_columns(X, y)
    fold, units = folds_of_table(columns, cv, rng), units_of_rows(columns)
    weights = cross_fitted_weights(X, X_target, ratio, fold)
    return expected_score(scores, weights, X, X_target, fold, rng, name, level, units)


def cross_fitted_weights(X: Any, X_target: Any, ratio: Any, fold: IntArray) -> FloatArray:
    """Importance weight of each source row by a density ratio that was fitted without the row's fold, mean one.

    Parameters
    ----------
    X : table of shape (n_source, n_columns)
        Source rows.
    X_target : table of shape (n_target, n_columns)
        Target rows.
    ratio : ratio estimator with ``predict``
        Estimates the density ratio.
    fold : array of shape (n_source,)
        Number of the fold of each source row.

    Returns
    -------
    array of shape (n_source,)
    """
    weights = np.empty(len(fold))
    for f in range(int(fold.max()) + 1):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        with warnings.catch_warnings(), one_blas_thread():
            warnings.simplefilter("ignore", SteelyardWarning)  # uncertain weights widen the interval
            fitted = clone(ratio).fit(take_rows(X, train), target=Target(X_target))
        weights[test] = fitted.predict(take_rows(X, test))
    return np.asarray(weights / weights.mean())


def expected_score(
    scores: FloatArray,
    weights: FloatArray,
    X: Any,
    X_target: Any,
    fold: IntArray,
    rng: np.random.Generator,
    scoring: str = "the row score",
    level: float = 0.95,
    units: IntArray | None = None,
) -> Performance:
    """The mean score on the target, from the scores of source rows by models that were not fitted on them.

    Parameters
    ----------
    scores : array of shape (n_source,)
        Score of each source row.
    weights : array of shape (n_source,)
        Importance weight of each source row, from `cross_fitted_weights`.
    X : table of shape (n_source, n_columns)
        Source rows.
    X_target : table of shape (n_target, n_columns)
        Target rows.
    fold : array of shape (n_source,)
        Number of the fold of each source row.
    rng : Generator
        For the bootstrap.
    scoring : str, default="the row score"
        Name of the score.
    level : float, default=0.95
        Confidence level of the intervals.
    units : array of shape (n_source,), default=None
        The bootstrap draws source rows of the same number together; see `units_of_rows`. None draws each row by itself.

    Returns
    -------
    Performance
        Scores on target and source.
    """
    rows, target_rows = np.asarray(X, dtype=np.float64), np.asarray(X_target, dtype=np.float64)
    predicted, on_target, n_folds = np.empty(len(scores)), np.zeros(len(target_rows)), int(fold.max()) + 1
    with one_blas_thread():
        for f in range(n_folds):
            train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            outcome = _outcome_model(rows[train], scores[train])
            predicted[test] = outcome.predict(rows[test])
            on_target += outcome.predict(target_rows) / n_folds
    target_units = units_of_rows(table_columns(X_target))
    return Performance(
        bootstrap_t(scores - predicted, weights, rng, on_target, level, units, target_units),
        bootstrap_t(scores, np.ones(len(scores)), rng, level=level, units=units),
        scoring,
        effective_sample_size(weights),
        level,
    )


def bootstrap_t(
    rest: FloatArray,
    weights: FloatArray,
    rng: np.random.Generator,
    on_target: FloatArray | None = None,
    level: float = 0.95,
    units: IntArray | None = None,
    target_units: IntArray | None = None,
) -> Interval:
    """mean(on_target) + Σ w·rest / Σ w, with the interval of the studentized bootstrap.

    Losses are skewed, and weighted losses even more, so a normal interval would be off on one side. The bootstrap
    estimates the skewness from the rows. It draws units of rows, so that duplicates do not count as independent rows.

    Parameters
    ----------
    rest : array of shape (n_source,)
        Scores of the source rows, or their residuals where `on_target` is given.
    weights : array of shape (n_source,)
        Importance weights of the source rows.
    rng : Generator
        For the bootstrap.
    on_target : array of shape (n_target,), default=None
        Predicted scores of the target rows.
    level : float, default=0.95
        Confidence level.
    units : array of shape (n_source,), default=None
        Source rows of the same number are drawn together.
    target_units : array of shape (n_target,), default=None
        Target rows of the same number are drawn together.

    Returns
    -------
    Interval
        The estimate and its interval, which is None for too few rows or equal scores.
    """
    samples = [_unit_means(rest, weights, units)]
    if on_target is not None:
        samples.append(_unit_means(on_target, np.ones(len(on_target)), target_units))
    mean, error = _mean_and_error([(values[None], mass[None]) for values, mass in samples])
    if len(samples[0][0]) < LEAST_ROWS or not error[0] > 0:
        return Interval(float(mean[0]), None, None)
    means, errors = np.empty(N_BOOTSTRAP), np.empty(N_BOOTSTRAP)
    for draw in blocks(N_BOOTSTRAP, max(1, DRAWN_AT_ONCE // max(len(values) for values, _ in samples))):
        drawn = []
        for values, mass in samples:
            chosen = rng.integers(len(values), size=(draw.stop - draw.start, len(values)))
            drawn.append((values[chosen], mass[chosen]))
        means[draw], errors[draw] = _mean_and_error(drawn)
    usable = errors > 0
    t = (means[usable] - mean[0]) / errors[usable]
    low, high = np.quantile(t, [(1 + level) / 2, (1 - level) / 2])
    return Interval(float(mean[0]), float(mean[0] - low * error[0]), float(mean[0] - high * error[0]))


def _unit_means(values: FloatArray, mass: FloatArray, units: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """The weighted mean and the total weight of each unit."""
    if units is None:
        return values, mass
    _, number = np.unique(units, return_inverse=True)
    total = np.bincount(number, mass).astype(np.float64)
    return np.bincount(number, mass * values) / np.where(total > 0, total, 1), total


def _mean_and_error(samples: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """The sum of the weighted means of several samples and its standard error, for each of B draws.

    A sample is a pair of arrays (B, n): values and weights.
    """
    mean, variance = np.zeros(len(samples[0][0])), np.zeros(len(samples[0][0]))
    for values, mass in samples:
        total = mass.sum(axis=1)
        sample_mean = np.einsum("bn,bn->b", mass, values) / total
        mean += sample_mean
        variance += np.sum(np.square(mass * (values - sample_mean[:, None])), axis=1) / np.square(total)
    return mean, np.sqrt(variance)


def linear_ratio() -> ClassifierRatio:
    """A density ratio whose logarithm is linear in the columns and in the levels of columns of few levels."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(LevelIndicators(), StandardScaler(), LogisticRegression(max_iter=1000))
    return ClassifierRatio(model, random_state=0)


class LevelIndicators(TransformerMixin, BaseEstimator):
    """The columns, followed by one indicator column for each level of the columns of 3 to 10 levels.

    From one answer of a questionnaire to the next, neither a density ratio nor a score need change smoothly.
    """

    def fit(self, rows: FloatArray, y: Any = None) -> LevelIndicators:
        """Find the columns of few levels."""
        from sklearn.preprocessing import OneHotEncoder

        n_levels = np.array([len(np.unique(column)) for column in rows.T])
        self.few_ = np.flatnonzero((n_levels > 2) & (n_levels <= MOST_LEVELS))
        if len(self.few_):
            self.encoder_ = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(rows[:, self.few_])
        return self

    def transform(self, rows: FloatArray) -> FloatArray:
        """The columns and the indicators of their levels; a level that `fit` has not seen has none."""
        if not len(self.few_):
            return rows
        return np.column_stack([rows, self.encoder_.transform(rows[:, self.few_])])


def _outcome_model(rows: FloatArray, scores: FloatArray) -> Any:
    """A ridge regression of the score on the columns and levels and, up to 30 of these, their squares and products."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    levels = LevelIndicators().fit(rows)
    degree = 2 if levels.transform(rows[:1]).shape[1] <= 30 else 1
    steps = StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler()
    return make_pipeline(levels, *steps, RidgeCV(np.logspace(-1, 5, 13))).fit(rows, scores)
