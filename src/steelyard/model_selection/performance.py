"""How good will this model be on the target? An estimate with an interval, without target labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import _safe_indexing

from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._numerics.kernels import blocks
from steelyard._splits.rows import folds_of_table
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_count, check_labels, check_range, generator, match_columns
from steelyard.errors import InputError, InputTypeError, SteelyardWarning
from steelyard.model_selection._scoring import row_scores
from steelyard.ratio import ClassifierRatio
from steelyard.target import Target
from steelyard.weights import effective_sample_size

N_BOOTSTRAP = 500
DRAWN_AT_ONCE = 1_000_000  # rows of all samples that are in memory together
LEAST_ROWS = 10  # for an interval
MOST_LEVELS = 10  # of a column that is taken apart into its levels


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval, None where there are too few rows for one."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Performance:
    """Scores of a fitted model, greater is better: on the target as estimated, and on the source rows themselves."""

    target: Interval
    source: Interval
    scoring: str
    effective_sample_size: float  # what the weights leave of the labeled rows
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
    """The score of a fitted model on the target, estimated from labeled source rows that it has not seen.

    A row's score is weighted by its importance, fitted without the row (cross-fitted weights). What a row's score can
    be guessed from its columns is taken over the target rows directly, and only the rest is weighted: the estimate is
    right if either the weights or the guess are, and its interval is shorter than that of the weighted mean alone. The
    interval is that of the studentized bootstrap; with very heavy tails (noise that grows exponentially along the
    shift) a nominal 95 % covers about 85 %.

    Parameters
    ----------
    model : fitted estimator
    X, y : labeled source rows that the model was not fitted on
        On rows it was fitted on, every estimate is too good.
    target : Target or table
        The rows to predict.
    scoring : str or callable, default=None
        As in `iwcv_score`: a mean over rows.
    ratio : ratio estimator with ``predict``, default=None
        Where the weights come from; None is a `ClassifierRatio` with linear log-odds, which has less bias in several
        columns than a sum of Gaussians; what it misses is left to the guess.
    level : float, default=0.95
        Of the interval.
    cv : int, default=5
        Folds of the cross-fitting.
    random_state : int or Generator, default=0
        For the folds.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from steelyard import Target, target_performance
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(1000, 500, random_state=0)
    >>> model = Ridge().fit(X[:500], y[:500])
    >>> found = target_performance(model, X[500:], y[500:], target=Target(X_target))
    >>> bool(found.target.mean < found.source.mean)  # worse over there
    True
    """
    check_range("level", level, 0, 1, open_low=True)
    check_count("cv", cv, 2)
    check_labels(model, X, y)
    goal = match_columns(target, X)
    judge = linear_ratio() if ratio is None else ratio
    if not hasattr(judge, "predict"):
        raise InputTypeError(
            f"Cross-fitted weights need a ratio that can be evaluated on new rows; {type(judge).__name__} has no "
            "predict. Use ULSIF, RULSIF, LSIF, KLIEP or ClassifierRatio."
        )
    scores = row_scores(scoring, model)(model, X, y)
    if len(scores) < 2 * cv:
        raise InputError(f"{len(scores)} labeled rows are too few for {cv} folds; at least {2 * cv} are needed.")
    rng = generator(random_state)
    name = scoring if isinstance(scoring, str) else "the row score" if scoring is not None else "default"
    columns = table_columns(X, y)
    fold, units = folds_of_table(columns, cv, rng), units_of_rows(columns)
    return expected_score(scores, X, goal, judge, fold, rng, name, level, units)


def expected_score(
    scores: FloatArray,
    X: Any,
    goal: Any,
    judge: Any,
    fold: IntArray,
    rng: np.random.Generator,
    scoring: str = "the row score",
    level: float = 0.95,
    units: IntArray | None = None,
) -> Performance:
    """The mean score on the target, from rows that were scored by models which have not seen them.

    Parameters
    ----------
    units : which source rows the bootstrap draws together, as `units_of_rows` numbers them; None: each by itself.
    """
    weights, guess, on_target = _cross_fitted(X, goal, scores, fold, judge)
    weights = weights / weights.mean()
    return Performance(
        bootstrap_t(scores - guess, weights, rng, on_target, level, units, units_of_rows(table_columns(goal))),
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
    """mean(on_target) + Σ w·rest / Σ w, with the studentized bootstrap's interval.

    Losses are skewed, weighted ones more so: the normal interval around such a mean misses on one side. The bootstrap
    learns the skew from the rows themselves. It draws units, so that duplicates do not count as evidence twice.
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
            again = rng.integers(len(values), size=(draw.stop - draw.start, len(values)))
            drawn.append((values[again], mass[again]))
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
    """The sum of weighted means and its standard error; values and weights for each of B draws, (B, n)."""
    mean, variance = np.zeros(len(samples[0][0])), np.zeros(len(samples[0][0]))
    for values, mass in samples:
        total = mass.sum(axis=1)
        own = np.einsum("bn,bn->b", mass, values) / total
        mean += own
        variance += np.sum(np.square(mass * (values - own[:, None])), axis=1) / np.square(total)
    return mean, np.sqrt(variance)


def _cross_fitted(
    X: Any, goal: Any, scores: FloatArray, fold: IntArray, judge: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight and guessed score of each source row, by models that have not seen it, and guesses on the target."""
    rows, goal_rows = np.asarray(X, dtype=np.float64), np.asarray(goal, dtype=np.float64)
    weights, guess = np.empty(len(scores)), np.empty(len(scores))
    on_target = np.zeros(len(goal_rows))
    n_folds = int(fold.max()) + 1
    for f in range(n_folds):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        with warnings.catch_warnings(), one_blas_thread():
            warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the interval
            fitted = clone(judge).fit(_safe_indexing(X, train), target=Target(goal))
        weights[test] = fitted.predict(_safe_indexing(X, test))
        predict = _guesser(rows[train], scores[train])
        guess[test] = predict(rows[test])
        on_target += predict(goal_rows) / n_folds
    return weights, guess, on_target


def linear_ratio() -> ClassifierRatio:
    """A ratio whose logarithm is linear in the columns, and in the levels of columns that have few."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(LevelsApart(), StandardScaler(), LogisticRegression(max_iter=1000))
    return ClassifierRatio(model, random_state=0)


class LevelsApart(TransformerMixin, BaseEstimator):
    """The columns, and one more of zeros and ones for each level of a column of 3 to 10 levels.

    Between the answers to a questionnaire neither a density ratio nor a score need change smoothly.
    """

    def fit(self, rows: FloatArray, y: Any = None) -> LevelsApart:
        """Find the columns of few levels."""
        from sklearn.preprocessing import OneHotEncoder

        n_levels = np.array([len(np.unique(column)) for column in rows.T])
        self.few_ = np.flatnonzero((n_levels > 2) & (n_levels <= MOST_LEVELS))
        if len(self.few_):
            self.encoder_ = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(rows[:, self.few_])
        return self

    def transform(self, rows: FloatArray) -> FloatArray:
        """The columns, and those of the levels; a level that was not there before has none."""
        if not len(self.few_):
            return rows
        return np.column_stack([rows, self.encoder_.transform(rows[:, self.few_])])


def _guesser(rows: FloatArray, scores: FloatArray) -> Any:
    """A smooth regression of the score on the columns, their levels, squares and products (up to 30 columns)."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    levels = LevelsApart().fit(rows)
    degree = 2 if levels.transform(rows[:1]).shape[1] <= 30 else 1
    steps = StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler()
    return make_pipeline(levels, *steps, RidgeCV(np.logspace(-1, 5, 13))).fit(rows, scores).predict
