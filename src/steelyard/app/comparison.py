"""Which method? Plain, flattened, relative and one-step fits, compared for the target, and ERM where nothing is sure.

Losses of held-out rows are weighted to look like the target (IWCV). ERM, the learner that is best on the source as it
is, stays unless another fit is better by more than one standard error of the paired difference.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._typing import FloatArray, IntArray
from steelyard.app.held_out import ONE_STEP, PLAIN, WEIGHTINGS, HeldOut, assign_table_folds, draw, fit_on_all, held_out
from steelyard.errors import NoOverlapError, SteelyardWarning
from steelyard.model_selection.performance import Interval, bootstrap_t, expected_score, linear_ratio
from steelyard.ratio import default_ratio
from steelyard.target import Target
from steelyard.weights import effective_sample_size, normalize

ENOUGH = 30.0  # effective rows of the linear ratio from which on the target score has an interval
SEPARABLE = 2.0  # effective rows of the linear ratio below which source and target are all but separable
VALIDATION_ETA = 0.1  # of the relative density ratio that judges


@dataclass(frozen=True)
class Method:
    """One learner under one weighting, as it did on held-out rows."""

    name: str
    learner: str
    weighting: str
    loss: float  # weighted mean of the held-out losses: squared error, or Brier score
    source_loss: float  # their plain mean
    gain: float  # ERM's loss less this one, weighted row by row
    gain_error: float  # its standard error
    effective_sample_size: float  # what the method's own weights leave of the compared rows


@dataclass(frozen=True)
class Comparison:
    """What the comparison found. Plain numbers but for the models."""

    methods: tuple[Method, ...]
    chosen: int
    plain: int  # which of the methods is ERM
    validation_sample_size: float  # what the judging weights leave of the compared rows
    compared_rows: int
    reason: str
    classes: tuple[Any, ...]  # empty for regression
    performance: dict[str, Interval]  # "source": ERM's on the source; "plain", "chosen": on the target, if it is known
    measure: str
    rough: bool = True  # whether the scores expected on the target come without an interval

    @property
    def kept_plain(self) -> bool:
        """Whether ERM was kept."""
        return self.chosen == self.plain


@dataclass(frozen=True, eq=False)
class Fitted:
    """The chosen model, ERM, and the weights the chosen one was fitted with."""

    comparison: Comparison
    model: Any
    plain_model: Any
    weights: FloatArray


NOTHING_SHARED = (
    "Source and target share next to no region, so nothing can be judged for the target: the plain fit is kept, and "
    "how good it is there is not known."
)
# How often `fit_best` calls `advance`, at most.
N_STEPS = 3 * len(WEIGHTINGS) + 5


def fit_best(
    X: FloatArray,
    y: NDArray[Any],
    goal: FloatArray,
    *,
    classify: bool,
    shifted: bool,
    random_state: int = 0,
    advance: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Compare every method on numbers without gaps, choose, and fit the chosen one and ERM on all rows.

    Parameters
    ----------
    X, y : labeled source rows.
    goal : target rows.
    classify : whether y are classes.
    shifted : whether the diagnosis found a shift; without one ERM is kept.
    advance : called before each step with its name.
    """
    rng = np.random.default_rng(random_state)
    near = draw(len(X), rng, np.unique(y, return_inverse=True)[1] if classify else None)
    far = draw(len(goal), rng)
    rows, labels, goal_rows = X[near], y[near], goal[far]
    classes, codes = np.unique(labels, return_inverse=True) if classify else (np.zeros(0), None)
    folds = assign_table_folds(rows, labels, codes, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the standard errors
        advance("weighing")
        importance = estimate_importance(rows, goal_rows)
        judge, enough = validation_weights(rows, goal_rows, importance)
        tried = held_out(rows, labels, goal_rows, importance, folds, classes, advance)
        comparison = _choose(tried, judge, shifted, classes, labels)
        scores = [
            _readable(tried[i].predictions, _truth(labels, classes)) for i in (comparison.plain, comparison.chosen)
        ]
        units = units_of_rows(table_columns(rows, labels))
        performance = _expected(scores, rows, goal_rows, folds[0], units, judge, enough, rng)
        comparison = replace(comparison, performance=performance, rough=not enough)
        advance("fitting the chosen model on all rows")
        chosen, erm = (comparison.methods[i] for i in (comparison.chosen, comparison.plain))
        model = fit_on_all(chosen.learner, chosen.weighting, X, y, goal, classify)
        advance("fitting the plain model on all rows")
        plain = model
        if not comparison.kept_plain:
            plain = fit_on_all(erm.learner, erm.weighting, X, y, goal, classify)
    return Fitted(comparison, model, plain, np.asarray(model.weights_))


def estimate_importance(rows: FloatArray, goal: FloatArray) -> FloatArray | None:
    """Importance weights of the source rows by `AutoRatio`; None where source and target share no region."""
    try:
        return np.asarray(default_ratio().fit(rows, target=Target(goal)).weights_)
    except NoOverlapError:
        return None


def validation_weights(
    rows: FloatArray, goal: FloatArray, importance: FloatArray | None
) -> tuple[FloatArray | None, bool]:
    """The importance weights bounded as w/(1 − η + ηw): plain ones would let a handful of rows decide.

    None where source and target share no region, or next to none: there is nothing to judge by. And whether a linear
    ratio, unbounded, rests on enough rows for an estimate with an interval.
    """
    if importance is None:
        return None, False
    size = effective_sample_size(linear_ratio().fit(rows, target=Target(goal)).weights_)
    if size < SEPARABLE:
        return None, False
    return normalize(importance / (1 - VALIDATION_ETA + VALIDATION_ETA * importance)), size >= ENOUGH


def paired_gain(losses: FloatArray, others: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Weighted mean of the difference row by row, and its standard error.

    The usual sum of squares around a weighted mean is too small where few rows carry the weight, and zero where one
    does; it is divided by what it is expected to be for independent rows of equal variance.
    """
    shares = weights / weights.sum()
    difference = losses - others
    gain = float(shares @ difference)
    squares = float(np.sum(np.square(shares)))
    left = squares - 2 * float(np.sum(shares**3)) + squares**2
    if left < 1e-12 * squares:
        return gain, np.inf
    return gain, float(np.sqrt(np.sum(np.square(shares * (difference - gain))) * squares / left))


def _choose(
    tried: list[HeldOut],
    judge: FloatArray | None,
    shifted: bool,
    classes: NDArray[Any],
    labels: NDArray[Any],
) -> Comparison:
    truth = _truth(labels, classes)
    losses = np.array([_losses(h.predictions, truth) for h in tried])
    plain = min((i for i, h in enumerate(tried) if h.weighting == PLAIN.name), key=lambda i: float(losses[i].mean()))
    weights = np.ones(len(labels)) if judge is None else judge
    gains = [paired_gain(losses[plain], loss, weights) for loss in losses]
    methods = tuple(
        Method(
            h.learner if h.learner == ONE_STEP else f"{h.learner}, {h.weighting}",
            h.learner,
            h.weighting,
            float(losses[i] @ weights / weights.sum()),
            float(losses[i].mean()),
            gain,
            error,
            h.effective_sample_size,
        )
        for i, (h, (gain, error)) in enumerate(zip(tried, gains, strict=True))
    )
    best = max(range(len(methods)), key=lambda i: methods[i].gain)
    chosen, reason = (plain, NOTHING_SHARED) if judge is None else choose(methods, plain, best, shifted)
    return Comparison(
        methods,
        chosen,
        plain,
        0.0 if judge is None else effective_sample_size(judge),
        len(labels),
        reason,
        tuple(classes.tolist()),
        {},
        "accuracy" if len(classes) else "squared error",
    )


def _truth(labels: NDArray[Any], classes: NDArray[Any]) -> FloatArray:
    return (labels[:, None] == classes).astype(np.float64) if len(classes) else labels.astype(np.float64)


def _expected(
    scores: list[FloatArray],
    rows: FloatArray,
    goal: FloatArray,
    fold: IntArray,
    units: IntArray,
    judge: FloatArray | None,
    enough: bool,
    rng: np.random.Generator,
) -> dict[str, Interval]:
    """Scores of the plain and the chosen method, on the source and as expected on the target.

    With enough rows in common the estimate of `target_performance`. With fewer its corrections run wild: then the mean
    under the bounded judge, which is too good rather than too bad, and no interval.
    """
    plain, chosen = scores
    found = {"source": bootstrap_t(plain, np.ones(len(plain)), rng, units=units)}
    if judge is None:
        return found
    same = np.array_equal(plain, chosen)
    for name, values in (("plain", plain), ("chosen", chosen)):
        if name == "chosen" and same:
            found[name] = found["plain"]
        elif enough:
            found[name] = expected_score(values, rows, goal, linear_ratio(), fold, rng, units=units).target
        else:
            mean = float(values @ judge / judge.sum())
            found[name] = Interval(mean, None, None)
    return found


def choose(methods: tuple[Method, ...], plain: int, best: int, shifted: bool) -> tuple[int, str]:
    """ERM, or the best where its gain is more than one standard error; and why."""
    if not shifted:
        return plain, "The tests see no shift, so the plain fit is kept: weighting would only add noise."
    rival = methods[best]
    if best == plain:
        return plain, "Judged for the target, no method is better than the plain fit."
    share = rival.gain / methods[plain].loss if methods[plain].loss > 0 else 0.0
    said = f"Judged for the target, {rival.name} has {share:.0%} less loss than the plain fit"
    if rival.gain <= rival.gain_error:
        return plain, f"{said}, which is within one standard error: the plain fit is kept."
    return best, f"{said}, by {rival.gain / max(rival.gain_error, 1e-300):.1f} standard errors."


def _losses(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """Squared error of each row, averaged over the deals; over the classes, that is the Brier score."""
    squares = np.square(predictions - truth).mean(axis=0)
    return np.asarray(squares.sum(axis=1) if squares.ndim == 2 else squares)


def _readable(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """What people read, row by row: right or wrong, or the squared error."""
    if predictions.ndim == 3:
        return np.asarray((predictions.argmax(axis=2) == truth.argmax(axis=1)).mean(axis=0))
    return _losses(predictions, truth)
