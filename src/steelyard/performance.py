"""How good will this model be on the target? An estimate with an interval, without target labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from steelyard.arrays import FloatArray, IntArray, one_blas_thread
from steelyard.check import check_count, check_labels, check_range, generator, match_columns
from steelyard.errors import InputError, InputTypeError, SteelyardWarning
from steelyard.folds import deal_at_random
from steelyard.kernels import blocks
from steelyard.ratio import ClassifierRatio
from steelyard.scores import row_scores
from steelyard.target import Target
from steelyard.weights import effective_sample_size

N_BOOTSTRAP = 500
DRAWN_AT_ONCE = 1_000_000  # rows of all samples that are in memory together
LEAST_ROWS = 10  # for an interval


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
    effective_rows: float  # what the weights leave of the labelled rows
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
    """The score of a fitted model on the target, estimated from labelled source rows that it has not seen.

    A row's score is weighted by its importance, fitted without the row (cross-fitted weights). What a row's score can
    be guessed from its columns is taken over the target rows directly, and only the rest is weighted: the estimate is
    right if either the weights or the guess are, and its interval is shorter than that of the weighted mean alone. The
    interval is that of the studentised bootstrap; with very heavy tails (noise that grows exponentially along the
    shift) a nominal 95 % covers about 85 %.

    Parameters
    ----------
    model : fitted estimator
    X, y : labelled source rows that the model was not fitted on
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
    >>> from steelyard.data import sinc_toy
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
    judge = linear_judge() if ratio is None else ratio
    if not hasattr(judge, "predict"):
        raise InputTypeError(
            f"Cross-fitted weights need a ratio that can be evaluated on new rows; {type(judge).__name__} has no "
            "predict. Use ULSIF, RULSIF, LSIF, KLIEP or ClassifierRatio."
        )
    scores = row_scores(scoring, model)(model, X, y)
    if len(scores) < 2 * cv:
        raise InputError(f"{len(scores)} labelled rows are too few for {cv} folds; at least {2 * cv} are needed.")
    rng = generator(random_state)
    name = scoring if isinstance(scoring, str) else "the row score" if scoring is not None else "default"
    fold = deal_at_random(len(scores), cv, rng)
    return expected_score(scores, X, goal, judge, fold, rng, name, level)


def expected_score(
    scores: FloatArray,
    X: Any,
    goal: Any,
    judge: Any,
    fold: IntArray,
    rng: np.random.Generator,
    scoring: str = "the row score",
    level: float = 0.95,
) -> Performance:
    """The mean score on the target, from rows that were scored by models which have not seen them."""
    weights, guess, on_target = _cross_fitted(X, goal, scores, fold, judge)
    weights = weights / weights.mean()
    return Performance(
        bootstrap_t(scores - guess, weights, rng, on_target, level),
        bootstrap_t(scores, np.ones(len(scores)), rng, level=level),
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
) -> Interval:
    """mean(on_target) + Σ w·rest / Σ w, with the studentised bootstrap's interval.

    Losses are skewed, weighted ones more so: the normal interval around such a mean misses on one side. The bootstrap
    learns the skew from the rows themselves.
    """
    on_target = np.zeros(2) if on_target is None else on_target
    mean, error = _mean_and_error(rest[None], weights[None], on_target[None])
    if len(rest) < LEAST_ROWS or not error[0] > 0:
        return Interval(float(mean[0]), None, None)
    means, errors = np.empty(N_BOOTSTRAP), np.empty(N_BOOTSTRAP)
    for draw in blocks(N_BOOTSTRAP, max(1, DRAWN_AT_ONCE // max(len(rest), len(on_target)))):
        n_draws = draw.stop - draw.start
        again = rng.integers(len(rest), size=(n_draws, len(rest)))
        target_again = rng.integers(len(on_target), size=(n_draws, len(on_target)))
        means[draw], errors[draw] = _mean_and_error(rest[again], weights[again], on_target[target_again])
    usable = errors > 0
    t = (means[usable] - mean[0]) / errors[usable]
    low, high = np.quantile(t, [(1 + level) / 2, (1 - level) / 2])
    return Interval(float(mean[0]), float(mean[0] - low * error[0]), float(mean[0] - high * error[0]))


def _mean_and_error(rest: FloatArray, weights: FloatArray, on_target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The estimate and its standard error, for each of B samples (B, n)."""
    total = weights.sum(axis=1)
    correction = np.einsum("bn,bn->b", weights, rest) / total
    spread = np.sum(np.square(weights * (rest - correction[:, None])), axis=1) / np.square(total)
    spread = spread + on_target.var(axis=1) / on_target.shape[1]
    return on_target.mean(axis=1) + correction, np.sqrt(spread)


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


def linear_judge() -> ClassifierRatio:
    """A ratio whose logarithm is linear in the columns."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return ClassifierRatio(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), random_state=0)


def _guesser(rows: FloatArray, scores: FloatArray) -> Any:
    """A smooth regression of the score on the columns, their squares and products (up to 30 columns)."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    degree = 2 if rows.shape[1] <= 30 else 1
    steps = StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler()
    return make_pipeline(*steps, RidgeCV(np.logspace(-1, 5, 13))).fit(rows, scores).predict
