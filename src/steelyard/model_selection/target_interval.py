"""Which score to promise on the target: an interval that also allows for what the source cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._splits.rows import folds_of_table
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray, IntArray
from steelyard.model_selection.bootstrap import LEAST_ROWS, Interval, bootstrap_t
from steelyard.model_selection.performance import linear_classifier, predicted_scores
from steelyard.ratio.classifier import LARGEST_LOGIT, calibration_line
from steelyard.weights import effective_sample_size

N_FOLDS = 5
FEW_ROWS, N_ASSIGNMENTS = 500, 3  # of at most this many source rows, the assignment to folds is drawn three times
ENOUGH = 30.0  # weights are bounded so that their effective sample size is at least this
# The models behind held-out scores share most of their rows, so that the mean of these scores varies more than that of
# as many independent ones, and they have four fifths of the rows of the model whose score is promised. On trials that
# are not reported estimates were off by 1.2 to 1.4 of their standard errors.
STRETCH = 1.35
GUESSED_DEVIATIONS = 2.0


@dataclass(frozen=True)
class ScoreRange:
    """The mean score of a guess, and the best possible score; which of them is greater says whether greater is better.

    Parameters
    ----------
    guess : float
        Mean score of a guess: what is feared of target rows that the source says nothing about.
    best : float
        The best possible score.
    """

    guess: float
    best: float

    @classmethod
    def of_accuracy(cls, n_classes: int) -> ScoreRange:
        """Accuracy: a guess is right in one of `n_classes` rows.

        Parameters
        ----------
        n_classes : int
            Number of classes.

        Returns
        -------
        ScoreRange
        """
        return cls(1 / n_classes, 1.0)

    @classmethod
    def of_squared_error(cls, labels: FloatArray) -> ScoreRange:
        """Squared error: a guess is off by two standard deviations of the labels.

        So far off on average is a prediction of one end of their range, if they are uniform. Two standard deviations
        were chosen on trials that are not reported, to hold on tables whose labels, given x, differ between source and
        target.

        Parameters
        ----------
        labels : array of shape (n_source,)
            Labels of the source rows.

        Returns
        -------
        ScoreRange
        """
        return cls(GUESSED_DEVIATIONS**2 * float(np.var(labels)), 0.0)


@dataclass(frozen=True, eq=False)
class Overlap:
    """How far source and target overlap, by a domain classifier on held-out rows of both.

    Parameters
    ----------
    weights : array of shape (n_source,)
        Importance weights of the source rows with an upper bound, mean one.
    excess : float
        Share of the target that exceeds the source: the total variation distance that the classifier sees.
    uncovered : float
        Share of the target that weights with this bound leave uncovered.
    folds : list of arrays of shape (n_source,)
        The assignments of the source rows to folds.
    """

    weights: FloatArray
    excess: float
    uncovered: float
    folds: list[IntArray]

    @classmethod
    def estimate(cls, rows: FloatArray, target_rows: FloatArray, rng: np.random.Generator) -> Overlap:
        """How far source and target overlap, by a linear domain classifier on held-out rows.

        Parameters
        ----------
        rows : array of shape (n_source, n_columns)
            Source rows.
        target_rows : array of shape (n_target, n_columns)
            Target rows.
        rng : Generator
            For the folds.

        Returns
        -------
        Overlap
            Means over three assignments to folds, or of one where there are more than 500 source rows.
        """
        columns, target_columns = table_columns(rows), table_columns(target_rows)
        folds, found = [], []
        for _ in range(N_ASSIGNMENTS if len(rows) <= FEW_ROWS else 1):
            fold, target_fold = (folds_of_table(each, N_FOLDS, rng) for each in (columns, target_columns))
            folds.append(fold)
            found.append(cls._held_out_ratio(rows, target_rows, fold, target_fold))
        excess = float(np.mean([np.mean(on_target > 1) - np.mean(on_source > 1) for on_source, on_target in found]))
        ratio, target_ratio = (np.mean(each, axis=0) for each in zip(*found, strict=True))
        bound = largest_bound(ratio)
        weights = np.minimum(ratio, bound)
        uncovered = 1 - float(np.mean(np.minimum(1, bound / target_ratio)))
        return cls(weights / weights.mean(), max(0.0, excess), uncovered, folds)

    @staticmethod
    def _held_out_ratio(
        rows: FloatArray, target_rows: FloatArray, fold: IntArray, target_fold: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """The density ratio at source and target rows, by a classifier without their fold and calibrated on them."""
        both, held = np.concatenate([rows, target_rows]), np.concatenate([fold, target_fold])
        domain = np.repeat([0.0, 1.0], [len(rows), len(target_rows)])
        log_odds = np.empty(len(both))
        with one_blas_thread():
            for f in range(N_FOLDS):
                model = linear_classifier().fit(both[held != f], domain[held != f])
                log_odds[held == f] = model.decision_function(both[held == f])
            mass = np.where(domain == 1, len(both) / len(target_rows), len(both) / len(rows)) / 2
            slope, intercept = calibration_line(log_odds, domain, mass)
        ratio = np.exp(np.clip(slope * log_odds + intercept, -LARGEST_LOGIT, LARGEST_LOGIT))
        return ratio[domain == 0], ratio[domain == 1]


def target_intervals(
    scores: Sequence[FloatArray],
    rows: FloatArray,
    target_rows: FloatArray,
    *,
    score_range: ScoreRange,
    rng: np.random.Generator,
    units: IntArray | None = None,
    level: float = 0.95,
) -> list[Interval | None]:
    """The mean score of each model on the target, from held-out scores of source rows, with an interval.

    The estimate is that of `target_performance`: doubly robust, cross-fitted, with the studentized bootstrap. Beside
    sampling, its interval allows for three things. Held-out scores are not independent, and belong to models of four
    fifths of the rows, so it is stretched by 1.35. The importance weights have an upper bound under which their
    effective sample size is at least 30; the target that they leave uncovered is at best scored like the source. And no
    source row can vouch for more of the target than it is of the source: the share of the target in excess of the
    source is at worst scored like a guess. Where labels given x are the same in both domains, the last makes the
    interval too wide on its bad side. But on tables whose domains differ by nature they never were, and nobody can see
    it without target labels; the change is feared in proportion to the shift that is seen. What the bad side then
    hardly uses of the probability of a miss, the good side has in addition.

    Parameters
    ----------
    scores : sequence of arrays of shape (n_source,)
        For each model, the score of each source row by fits of the model on the other four fifths of the rows.
    rows : array of shape (n_source, n_columns)
        Encoded source rows.
    target_rows : array of shape (n_target, n_columns)
        Encoded target rows.
    score_range : ScoreRange
        Score of a guess, and best score.
    rng : Generator
        For folds and bootstrap.
    units : array of shape (n_source,), default=None
        Source rows of the same number are drawn together; see `units_of_rows`. None finds duplicates among `rows`.
    level : float, default=0.95
        Confidence level.

    Returns
    -------
    list of Interval or None
        One for each model: without ends where all scores are equal or too few rows are distinct, None where one of the
        domains has fewer than ten rows.
    """
    if min(len(rows), len(target_rows)) < LEAST_ROWS:
        return [None] * len(scores)
    units = units_of_rows(table_columns(rows)) if units is None else units
    target_units = units_of_rows(table_columns(target_rows))
    overlap = Overlap.estimate(rows, target_rows, rng)
    found: list[Interval | None] = []
    for values in scores:
        outcomes = []
        for fold in overlap.folds:
            on_source, on_target = predicted_scores(values, rows, target_rows, fold)
            # No extrapolation: predictions for the target stay within those for the source.
            outcomes.append((on_source, np.clip(on_target, on_source.min(), on_source.max())))
        predicted, on_target = (np.mean(each, axis=0) for each in zip(*outcomes, strict=True))
        estimate = bootstrap_t(values - predicted, overlap.weights, rng, on_target, level, units, target_units)
        source = bootstrap_t(values, np.ones(len(values)), rng, level=level, units=units)
        found.append(promise(estimate, source, overlap.excess, overlap.uncovered, score_range, level))
    return found


def promise(
    estimate: Interval,
    source: Interval,
    excess: float,
    uncovered: float,
    score_range: ScoreRange,
    level: float = 0.95,
) -> Interval:
    """The interval of the estimate, stretched and widened for what the source cannot tell.

    The bad end is feared to be worse than sampling explains, so that it is missed less often than its half of the
    level allows, as long as labels given x are the same. The good end has the rest: together both are missed as often
    as the level says.

    Parameters
    ----------
    estimate, source : Interval
        Mean score as estimated for the target, and on the source.
    excess, uncovered : float
        See `Overlap`.
    score_range : ScoreRange
        Score of a guess, and best score.
    level : float, default=0.95
        Confidence level of the intervals.

    Returns
    -------
    Interval
        It contains the estimate.
    """
    if estimate.low is None or source.low is None:
        return Interval(estimate.mean, None, None)
    sign = 1.0 if score_range.best > score_range.guess else -1.0  # from here on greater is better
    mean = sign * estimate.mean
    stretched_bad, good = _stretched(estimate, sign)
    bad = (1 - excess) * stretched_bad + excess * min(stretched_bad, sign * score_range.guess)
    half = float(ndtri((1 + level) / 2))
    distance = (mean - bad) / max(mean - stretched_bad, 1e-300)  # of the bad end, in halves of the stretched interval
    missed = float(ndtr(-half * max(distance, 1.0)))
    shrink = float(ndtri(level + missed)) / half
    good, good_source = mean + shrink * (good - mean), sign * source.mean
    good_source += shrink * (_stretched(source, sign)[1] - good_source)
    good = (1 - uncovered) * good + uncovered * max(good, good_source)
    good = min(good, sign * score_range.best)
    low, high = sorted((sign * bad, sign * good))
    return Interval(float(np.clip(estimate.mean, low, high)), low, high)


def _stretched(found: Interval, sign: float) -> tuple[float, float]:
    """The ends of an interval, the worse one first, both away from the mean by the stretch."""
    assert found.low is not None
    assert found.high is not None
    low, high = (found.mean + STRETCH * (end - found.mean) for end in (found.low, found.high))
    return min(sign * low, sign * high), max(sign * low, sign * high)


def largest_bound(weights: FloatArray) -> float:
    """The largest upper bound under which weights have an effective sample size of 30, or of half their number.

    Parameters
    ----------
    weights : array of shape (n,)
        Positive weights.

    Returns
    -------
    float
        Infinite where the weights need no bound.
    """
    least = min(ENOUGH, len(weights) / 2)
    if effective_sample_size(weights) >= least:
        return np.inf
    low, high = np.log(weights.min()), np.log(weights.max())  # all weights are equal under the lower bound
    for _ in range(40):
        middle = (low + high) / 2
        enough = effective_sample_size(np.minimum(weights, np.exp(middle))) >= least
        low, high = (middle, high) if enough else (low, middle)
    return float(np.exp(low))
