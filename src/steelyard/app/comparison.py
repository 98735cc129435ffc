"""Which method? Plain, flattened, relative and one-step fits, compared for the target; ERM unless one is better.

Losses of held-out rows are weighted to represent the target (importance-weighted cross-validation). ERM, the learner
that is best on the source without weights, is kept unless another fit is better by more than one standard error of the
paired difference.
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
from steelyard.app.held_out import (
    ONE_STEP,
    PLAIN,
    WEIGHTINGS,
    HeldOut,
    assign_table_folds,
    fit_on_all,
    fit_ratios,
    predict_held_out,
    sample_rows,
)
from steelyard.errors import SteelyardWarning
from steelyard.model_selection.bootstrap import Interval, bootstrap_t
from steelyard.model_selection.performance import cross_fitted_weights, expected_score, linear_ratio
from steelyard.target import Target
from steelyard.weights import effective_sample_size, normalize

ENOUGH = 30.0  # effective sample size of the linear ratio from which on the target score has an interval
SEPARABLE = 2.0  # effective sample size of the linear ratio below which source and target are all but separable
VALIDATION_ETA = 0.1  # of the relative density ratio behind the validation weights
# How often `fit_best` calls `advance`, at most.
N_STEPS = 3 * len(WEIGHTINGS) + 5
NOTHING_SHARED = (
    "Source and target hardly overlap, so no method can be evaluated for the target: the plain fit is kept, and its "
    "score on the target cannot be estimated."
)


@dataclass(frozen=True)
class ComparedMethod:
    """One learner under one weighting, evaluated on held-out rows.

    Attributes
    ----------
    name, learner, weighting : str
        What it is.
    loss : float
        Importance-weighted mean of the held-out losses: squared error, or Brier score.
    source_loss : float
        Their unweighted mean.
    gain : float
        ERM's loss minus this one, importance-weighted row by row.
    gain_error : float
        Standard error of the gain.
    effective_sample_size : float
        Of the method's own weights of the compared rows.
    shares : tuple of (str, float)
        Of a combination of methods: the share of each, the largest first. Empty for a single method.
    """

    name: str
    learner: str
    weighting: str
    loss: float
    source_loss: float
    gain: float
    gain_error: float
    effective_sample_size: float
    shares: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What the comparison of methods found, as plain numbers.

    Attributes
    ----------
    methods : tuple of ComparedMethod
        Every method that was tried.
    chosen, plain : int
        Positions of the chosen method and of ERM.
    validation_sample_size : float
        Effective sample size of the validation weights; 0 without any.
    compared_rows : int
        Number of source rows that were compared.
    reason : str
        Why the method was chosen.
    classes : tuple
        The classes; empty for regression.
    performance : dict of Interval
        "source": ERM's score on the source; "plain" and "chosen": the scores expected on the target, if known.
    measure : str
        "accuracy" or "squared error".
    rough : bool
        Whether the scores expected on the target have no interval.
    weights_used : bool
        Whether importance weights enter the chosen method, or the shares of its parts.
    failed : tuple of str
        Learners that could not be fitted and were left out, each with the reason.
    """

    methods: tuple[ComparedMethod, ...]
    chosen: int
    plain: int
    validation_sample_size: float
    compared_rows: int
    reason: str
    classes: tuple[Any, ...]
    performance: dict[str, Interval]
    measure: str
    rough: bool = True
    weights_used: bool = False
    failed: tuple[str, ...] = ()

    @property
    def kept_plain(self) -> bool:
        """Whether ERM was kept."""
        return self.chosen == self.plain


@dataclass(frozen=True, eq=False)
class BestFit:
    """The chosen model and ERM, fitted on all rows.

    Attributes
    ----------
    comparison : Comparison
        How the methods compared.
    model, plain_model : estimators
        The chosen model, and ERM.
    weights : array of shape (n_source,)
        The weights that the chosen model was fitted with.
    compared_rows : pair of integer arrays
        The source and target rows that methods were compared on.
    importance : array or None
        Importance weights of the compared source rows; None where source and target do not overlap.
    """

    comparison: Comparison
    model: Any
    plain_model: Any
    weights: FloatArray
    compared_rows: tuple[IntArray, IntArray]
    importance: FloatArray | None


def fit_best(
    X: FloatArray,
    y: NDArray[Any],
    X_target: FloatArray,
    *,
    classify: bool,
    shifted: bool,
    random_state: int = 0,
    advance: Callable[[str], None] = lambda _: None,
) -> BestFit:
    """Compare every method on encoded rows, choose one, and fit it and ERM on all rows.

    Parameters
    ----------
    X, y : arrays
        Labeled source rows without missing values.
    X_target : array
        Target rows.
    classify : bool
        Whether labels are classes.
    shifted : bool
        Whether the diagnosis found a shift; without one ERM is kept.
    random_state : int, default=0
        Seed of sampling and folds.
    advance : callable, default=None
        Called before each step with its name.

    Returns
    -------
    BestFit
    """
    rng = np.random.default_rng(random_state)
    compared = (
        sample_rows(len(X), rng, np.unique(y, return_inverse=True)[1] if classify else None),
        sample_rows(len(X_target), rng),
    )
    rows, labels, target_rows = X[compared[0]], y[compared[0]], X_target[compared[1]]
    classes, codes = np.unique(labels, return_inverse=True) if classify else (np.zeros(0), None)
    folds = assign_table_folds(rows, labels, codes, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the standard errors
        advance("estimating importance weights")
        ratios = fit_ratios(rows, target_rows)
        weights, enough = validation_weights(rows, target_rows, ratios.importance)
        tried = predict_held_out(rows, labels, target_rows, ratios, folds, classes, advance)
        comparison = compare(tried, weights, shifted, classes, labels)
        scores = [
            _readable(tried[i].predictions, _as_numbers(labels, classes)) for i in (comparison.plain, comparison.chosen)
        ]
        performance = _expected_scores(scores, rows, labels, target_rows, folds[0], weights, enough, rng)
        comparison = replace(comparison, performance=performance, rough=not enough)
        reusable = ratios if len(rows) == len(X) and len(target_rows) == len(X_target) else None
        advance("fitting the chosen model on all rows")
        chosen, erm = (comparison.methods[i] for i in (comparison.chosen, comparison.plain))
        model = fit_on_all(chosen.learner, chosen.weighting, X, y, X_target, classify, reusable)
        advance("fitting the plain model on all rows")
        plain = model
        if not comparison.kept_plain:
            plain = fit_on_all(erm.learner, erm.weighting, X, y, X_target, classify, reusable)
    return BestFit(comparison, model, plain, np.asarray(model.weights_), compared, ratios.importance)


def validation_weights(
    rows: FloatArray, target_rows: FloatArray, importance: FloatArray | None
) -> tuple[FloatArray | None, bool]:
    """The importance weights bounded as w/(1 − η + ηw): with unbounded ones a handful of rows would decide.

    Parameters
    ----------
    rows, target_rows : arrays
        Source and target rows.
    importance : array or None
        Importance weights of the source rows.

    Returns
    -------
    weights : array or None
        None where source and target do not overlap, or hardly do.
    enough : bool
        Whether an unbounded linear ratio has an effective sample size that allows an estimate with an interval.
    """
    if importance is None:
        return None, False
    size = effective_sample_size(linear_ratio().fit(rows, target=Target(target_rows)).weights_)
    if size < SEPARABLE:
        return None, False
    return normalize(importance / (1 - VALIDATION_ETA + VALIDATION_ETA * importance)), size >= ENOUGH


def paired_gain(losses: FloatArray, others: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Weighted mean of the row-wise difference ``losses - others``, and its standard error.

    The usual sum of squares around a weighted mean is too small where few rows carry the weight, and zero where one
    does; it is divided by its expectation for independent rows of equal variance.

    Parameters
    ----------
    losses, others : arrays of shape (n,)
        Losses of two methods on the same rows.
    weights : array of shape (n,)
        Weight of each row.

    Returns
    -------
    gain, error : float
    """
    shares = weights / weights.sum()
    difference = losses - others
    gain = float(shares @ difference)
    squares = float(np.sum(np.square(shares)))
    left = squares - 2 * float(np.sum(shares**3)) + squares**2
    if left < 1e-12 * squares:
        return gain, np.inf
    return gain, float(np.sqrt(np.sum(np.square(shares * (difference - gain))) * squares / left))


def compare(
    tried: list[HeldOut], weights: FloatArray | None, shifted: bool, classes: NDArray[Any], labels: NDArray[Any]
) -> Comparison:
    """Held-out losses of every method, the gain over ERM, and the choice.

    Parameters
    ----------
    tried : list of HeldOut
        Held-out predictions of every method.
    weights : array or None
        Validation weights of the rows; None where no evaluation for the target is possible.
    shifted : bool
        Whether there is a shift.
    classes, labels : arrays
        The classes (none for regression), and the label of each row.

    Returns
    -------
    Comparison
    """
    truth = _as_numbers(labels, classes)
    losses = np.array([_losses(found.predictions, truth) for found in tried])
    unweighted = [i for i, found in enumerate(tried) if found.weighting == PLAIN.name]
    plain = min(unweighted, key=lambda i: float(losses[i].mean()))
    used = np.ones(len(labels)) if weights is None else weights
    methods = tuple(
        ComparedMethod(
            found.learner if found.learner == ONE_STEP else f"{found.learner}, {found.weighting}",
            found.learner,
            found.weighting,
            float(loss @ used / used.sum()),
            float(loss.mean()),
            *paired_gain(losses[plain], loss, used),
            found.effective_sample_size,
        )
        for found, loss in zip(tried, losses, strict=True)
    )
    best = max(range(len(methods)), key=lambda i: methods[i].gain)
    chosen, reason = (plain, NOTHING_SHARED) if weights is None else choose(methods, plain, best, shifted)
    return Comparison(
        methods,
        chosen,
        plain,
        0.0 if weights is None else effective_sample_size(weights),
        len(labels),
        reason,
        tuple(classes.tolist()),
        {},
        "accuracy" if len(classes) else "squared error",
    )


def choose(methods: tuple[ComparedMethod, ...], plain: int, best: int, shifted: bool) -> tuple[int, str]:
    """ERM, or the best method where its gain is more than one standard error; and the reason in words."""
    if not shifted:
        return plain, "The tests find no shift, so the plain fit is kept: weighting would only add noise."
    rival = methods[best]
    if best == plain:
        return plain, "In importance-weighted cross-validation no method is better than the plain fit."
    share = rival.gain / methods[plain].loss if methods[plain].loss > 0 else 0.0
    said = f"In importance-weighted cross-validation {rival.name} has {share:.0%} less loss than the plain fit"
    if rival.gain <= rival.gain_error:
        return plain, f"{said}, which is within one standard error: the plain fit is kept."
    return best, f"{said}, by {rival.gain / max(rival.gain_error, 1e-300):.1f} standard errors."


def _expected_scores(
    scores: list[FloatArray],
    rows: FloatArray,
    labels: NDArray[Any],
    target_rows: FloatArray,
    fold: IntArray,
    weights: FloatArray | None,
    enough: bool,
    rng: np.random.Generator,
) -> dict[str, Interval]:
    """Scores of the plain and the chosen method, on the source and as expected on the target.

    With enough overlap these are the estimates of `target_performance`. With less, its corrections are unreliable: then
    the mean under the bounded validation weights, which is optimistic, and no interval.
    """
    plain, chosen = scores
    units = units_of_rows(table_columns(rows, labels))
    found = {"source": bootstrap_t(plain, np.ones(len(plain)), rng, units=units)}
    if weights is None:
        return found
    held_out = cross_fitted_weights(rows, target_rows, linear_ratio(), fold) if enough else weights
    for name, values in (("plain", plain), ("chosen", chosen)):
        if name == "chosen" and np.array_equal(plain, chosen):
            found[name] = found["plain"]
        elif enough:
            found[name] = expected_score(values, held_out, rows, target_rows, fold, rng, units=units).target
        else:
            found[name] = Interval(float(values @ weights / weights.sum()), None, None)
    return found


def _as_numbers(labels: NDArray[Any], classes: NDArray[Any]) -> FloatArray:
    """Labels as numbers, or one column of zeros and ones per class."""
    return (labels[:, None] == classes).astype(np.float64) if len(classes) else labels.astype(np.float64)


def _losses(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """Squared error of each row, averaged over the assignments to folds; summed over classes it is the Brier score."""
    squares = np.square(predictions - truth).mean(axis=0)
    return np.asarray(squares.sum(axis=1) if squares.ndim == 2 else squares)


def _readable(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """The score of each row that people read: right or wrong, or the squared error."""
    if predictions.ndim == 3:
        return np.asarray((predictions.argmax(axis=2) == truth.argmax(axis=1)).mean(axis=0))
    return _losses(predictions, truth)
