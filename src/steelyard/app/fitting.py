"""The heart of `steelyard fit`: every method compared on held-out rows, and the chosen one fitted to all rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._typing import FloatArray, IntArray
from steelyard.app.candidates import Candidate, combinations
from steelyard.app.comparison import Comparison, compare
from steelyard.errors import InputError, NoOverlapError, SteelyardWarning
from steelyard.model_selection.bootstrap import Interval, bootstrap_t
from steelyard.model_selection.performance import linear_ratio
from steelyard.model_selection.target_interval import ScoreRange, target_intervals
from steelyard.ratio import default_ratio
from steelyard.stacking.estimators import StackedClassifier, StackedRegressor
from steelyard.stacking.held_out import (
    N_FOLDS,
    Data,
    Learner,
    both_ways,
    draw_folds,
    losses_of_rows,
    predict_held_out,
)
from steelyard.stacking.learners import choose_learners, default_learners
from steelyard.target import Target
from steelyard.weights import effective_sample_size, flatten, normalize

COMPARED_ROWS = 3000  # of each domain; all rows serve the final fit
FLATTENING = 0.5  # of the weights that learners and shares are fitted with
SEPARABLE = 2.0  # effective sample size of the linear ratio below which source and target are all but separable
VALIDATION_ETA = 0.1  # of the relative density ratio behind the validation weights
ENOUGH_FOR_PROCESSES = 20_000  # numbers of the source table
# Each process imports scikit-learn anew, and there are at most nine learners of different lengths.
MOST_PROCESSES = 4
# How often `advance` is called with the default learners, at most: 9 comparisons, 6 fits, 2 other steps.
N_STEPS = 17


@dataclass(frozen=True, eq=False)
class BestFit:
    """The chosen model and the plain one, fitted on all rows.

    Attributes
    ----------
    comparison : Comparison
        How the methods compared.
    model, plain_model : estimators
        The chosen model, and the plain one.
    weights : array of shape (n_source,)
        The weights that the chosen model was fitted with; where it uses none, the estimated importance weights.
    compared_rows : pair of integer arrays
        The source and target rows that methods were compared on.
    importance : array or None
        Importance weights of all source rows; None where source and target do not overlap.
    """

    comparison: Comparison
    model: Any
    plain_model: Any
    weights: FloatArray
    compared_rows: tuple[IntArray, IntArray]
    importance: FloatArray | None


@dataclass(frozen=True, eq=False)
class Compared:
    """Every method with its held-out predictions, before anything is fitted to all rows.

    Attributes
    ----------
    comparison : Comparison
        How the methods compared.
    candidates : list of Candidate
        The methods, in the same order.
    data : Data
        All source rows, with the weights that learners are fitted with.
    rows : pair of integer arrays
        The source and target rows that methods were compared on.
    importance : array or None
        Importance weights of all source rows; None where source and target do not overlap.
    """

    comparison: Comparison
    candidates: list[Candidate]
    data: Data
    rows: tuple[IntArray, IntArray]
    importance: FloatArray | None

    def fit(self, advance: Callable[[str], None] = lambda _: None) -> BestFit:
        """The chosen model and the plain one, fitted to all rows; a learner in both is fitted once."""
        comparison, data, fitted = self.comparison, self.data, {}
        chosen, plain = (self.candidates[i] for i in (comparison.chosen, comparison.plain))
        for part, _ in [*chosen.used, *plain.used]:
            if part.learner.label not in fitted:
                advance(f"fitting to all rows: {part.learner.label}")
                fitted[part.learner.label] = part.learner.fit(data)
        model: Any = fitted.get(chosen.name)
        if chosen.is_combination:
            shares = {part.learner.label: share for part, share in chosen.used}
            parts = [(label, fitted[label]) for label in shares]
            model = StackedRegressor()
            if len(data.classes):
                model = StackedClassifier()
                model.classes_ = data.classes
            model.assemble(parts, shares, data.weights, data.X.shape[1])
        weights, flattening = data.weights, None
        if comparison.weights_used and hasattr(model, "weights_") and not chosen.is_combination:
            weights = model.weights_  # one-step has weights of its own
        elif comparison.weights_used:
            flattening = FLATTENING
        elif self.importance is not None:
            weights, flattening = self.importance, 1.0
        return BestFit(
            replace(comparison, flattening=flattening), model, fitted[plain.name], weights, self.rows, self.importance
        )


def compare_methods(
    X: FloatArray,
    y: NDArray[Any],
    X_target: FloatArray,
    *,
    classify: bool,
    shifted: bool,
    overlap: bool = True,
    learners: Sequence[str] = (),
    random_state: int = 0,
    advance: Callable[[str], None] = lambda _: None,
) -> Compared:
    """Compare every method on encoded rows, choose one, and estimate its score on the target.

    Parameters
    ----------
    X, y : arrays
        Labeled source rows without missing values.
    X_target : array
        Target rows.
    classify : bool
        Whether labels are classes.
    shifted : bool
        Whether the diagnosis found a shift; without one no method with weights is tried.
    overlap : bool, default=True
        Whether most target rows lie within the source's support; otherwise no method with weights is tried either.
    learners : sequence of str, default=()
        Names of the learners that are tried; all of `default_learners` where there are none.
    random_state : int, default=0
        Seed of sampling and folds.
    advance : callable, default=None
        Called before each step with its name.

    Returns
    -------
    Compared
    """
    rng = np.random.default_rng(random_state)
    compared = (
        sample_rows(len(X), rng, np.unique(y, return_inverse=True)[1] if classify else None),
        sample_rows(len(X_target), rng),
    )
    rows, labels, target_rows = X[compared[0]], y[compared[0]], X_target[compared[1]]
    classes = np.unique(labels) if classify else np.zeros(0)
    folds, units = _assign_folds(rows, labels, classes, rng)
    advance("estimating importance weights")
    ratio, importance = None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the standard errors
        with suppress(NoOverlapError):  # then there is no ratio
            ratio = default_ratio().fit(rows, target=Target(target_rows))
            importance = np.asarray(ratio.weights_)
        validation = validation_weights(rows, target_rows, importance) if overlap else None
    helpful = shifted and validation is not None
    data = Data(rows, labels, target_rows, _fit_weights(importance, helpful, len(rows)), classes)
    named = choose_learners(learners, default_learners(classify, len(X)))
    tried = [each for each in both_ways(named, data) if helpful or not each.takes_target]
    candidates, failed = _held_out(tried, data, folds, advance)
    advance("estimating the score on the target")
    comparison = compare(candidates, data, validation, shifted)
    compared_models = dict.fromkeys((comparison.plain, comparison.chosen))  # one where the plain method was kept
    scores = [candidates[i].scores(data) for i in compared_models]
    performance = _performance(scores, data, importance is not None, units, rng)
    rough = any(interval.low is None for interval in performance.values())
    comparison = replace(comparison, failed=failed, performance=performance, rough=rough)
    if ratio is not None and len(rows) < len(X):
        importance = normalize(ratio.predict(X))
    everything = Data(X, y, X_target, _fit_weights(importance, helpful, len(X)), classes)
    return Compared(comparison, candidates, everything, compared, importance)


def _fit_weights(importance: FloatArray | None, helpful: bool, n_rows: int) -> FloatArray:
    """The weights that learners and shares are fitted with."""
    return flatten(importance, FLATTENING) if helpful and importance is not None else np.ones(n_rows)


def _assign_folds(
    rows: FloatArray, labels: NDArray[Any], classes: NDArray[Any], rng: np.random.Generator
) -> tuple[list[IntArray], IntArray]:
    """The folds of each draw, and the unit of each row; an error where there are too few rows to compare methods."""
    codes = np.searchsorted(classes, labels) if len(classes) else None
    columns = table_columns(rows, labels if codes is None else codes.astype(np.float64))
    units = units_of_rows(columns)
    _, first = np.unique(units, return_index=True)
    rarest = len(first) if codes is None else int(np.bincount(codes[first]).min())
    if rarest < 2 or len(first) < 2 * N_FOLDS:
        few = "" if codes is None else f", {rarest} of the rarest class"
        raise InputError(
            f"The source has {len(first)} labeled rows that are not duplicates of one another{few}: too few to "
            f"compare methods. At least {2 * N_FOLDS} are needed, and two of each class."
        )
    return draw_folds(columns, codes, units, rng), units


def _held_out(
    learners: Sequence[Learner], data: Data, folds: Sequence[IntArray], advance: Callable[[str], None]
) -> tuple[list[Candidate], tuple[str, ...]]:
    """Every candidate with its held-out predictions, and sentences on the learners that failed."""
    # Other processes take seconds to start; small tables are done by then.
    n_jobs = min(joblib.cpu_count(), MOST_PROCESSES, len(learners)) if data.X.size >= ENOUGH_FOR_PROCESSES else 1
    found = []
    for each in predict_held_out(learners, data, folds, n_jobs=n_jobs):
        found.append(each)
        advance(f"comparing methods: {each.learner.label} is done")
    order = [learner.label for learner in learners]
    found.sort(key=lambda each: order.index(each.learner.label))
    failed = tuple(f"The learner {each.learner.label} was left out: {each.failed}." for each in found if each.failed)
    fitted = [each for each in found if not each.failed]
    if not any(not each.learner.adapts for each in fitted):
        raise InputError(f"No learner could be fitted without weights. {' '.join(failed)}")
    losses = {each.learner.label: losses_of_rows(each.predictions, data.truth) for each in fitted}
    singles = [
        Candidate(each.learner.label, (each,), np.ones(1), each.predictions, each.learner.adapts) for each in fitted
    ]
    return [*singles, *combinations(fitted, losses, data, folds)], failed


def sample_rows(n_rows: int, rng: np.random.Generator, codes: IntArray | None = None) -> IntArray:
    """At most `COMPARED_ROWS` rows to compare methods on; of each class enough for the folds, if there are."""
    order = rng.permutation(n_rows)
    if codes is None or n_rows <= COMPARED_ROWS:
        return np.sort(order[:COMPARED_ROWS])
    wanted = [np.flatnonzero(codes[order] == c)[: 2 * N_FOLDS] for c in range(codes.max() + 1)]
    first = order[np.concatenate(wanted)]
    rest = order[~np.isin(order, first)][: max(0, COMPARED_ROWS - len(first))]
    return np.sort(np.concatenate([first, rest]))


def validation_weights(rows: FloatArray, target_rows: FloatArray, importance: FloatArray | None) -> FloatArray | None:
    """The importance weights bounded as w/(1 − η + ηw): with unbounded ones a handful of rows would decide.

    Parameters
    ----------
    rows, target_rows : arrays
        Source and target rows.
    importance : array or None
        Importance weights of the source rows.

    Returns
    -------
    array or None
        None where source and target do not overlap, or are all but separable.
    """
    if importance is None:
        return None
    size = effective_sample_size(linear_ratio().fit(rows, target=Target(target_rows)).weights_)
    if size < SEPARABLE:
        return None
    return normalize(importance / (1 - VALIDATION_ETA + VALIDATION_ETA * importance))


def _performance(
    scores: list[FloatArray],
    data: Data,
    overlap: bool,
    units: IntArray,
    rng: np.random.Generator,
) -> dict[str, Interval]:
    """Scores of the plain and the chosen method, on the source and, where source and target overlap, on the target.

    `scores` has one array for each of them, or one for both.
    """
    found = {"source": bootstrap_t(scores[0], np.ones(len(scores[0])), rng, units=units)}
    if not overlap:
        return found
    n_classes = len(data.classes)
    score_range = ScoreRange.of_accuracy(n_classes) if n_classes else ScoreRange.of_squared_error(data.y)
    intervals = target_intervals(scores, data.X, data.X_target, score_range=score_range, units=units, rng=rng)
    known = zip(("plain", "chosen"), (intervals[0], intervals[-1]), strict=True)
    return found | {name: interval for name, interval in known if interval is not None}
