"""Which method? Plain, flattened, relative and one-step fits, compared for the target, and ERM where nothing is sure.

Losses of held-out rows are weighted to look like the target (IWCV). ERM, the learner that is best on the source as it
is, stays unless another fit is better by more than one standard error of the paired difference.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone

from steelyard.arrays import FloatArray, IntArray, one_blas_thread, one_openmp_thread
from steelyard.copies import as_good_as_continuous
from steelyard.errors import InputError, NoOverlapError, SteelyardWarning
from steelyard.folds import deal_at_random
from steelyard.onestep import OneStepClassifier, OneStepRegressor
from steelyard.performance import Interval, bootstrap_t, expected_score, linear_judge
from steelyard.ratio import RULSIF, ULSIF
from steelyard.target import Target
from steelyard.weighted import WeightedClassifier, WeightedRegressor
from steelyard.weights import effective_sample_size, flatten, normalise

COMPARED_ROWS = 3000  # of each domain; all rows serve the final fit
N_FOLDS = 5
# On few rows much of a difference is how the folds fell: they are dealt three times.
FEW_ROWS, N_DEALS = 500, 3
MANY_CLASSES = 10  # from here on once
ENOUGH = 30.0  # effective rows of the linear ratio from which on the target score has an interval
SEPARABLE = 2.0  # effective rows of the linear ratio below which source and target are all but separable
N_GAUSSIANS = 100
ENOUGH_FOR_PROCESSES = 20_000  # numbers of the source table
ONE_STEP = "one-step"
JUDGE_ETA = 0.1, 0.5  # of the two ratios that judge: linear and smooth


@dataclass(frozen=True)
class Weighting:
    """A way to weigh the source rows: by a ratio, flattened."""

    name: str
    eta: float = 0.0
    flattening: float = 1.0

    def ratio(self) -> Any:
        """The ratio estimator."""
        return RULSIF(self.eta, random_state=0) if self.eta else ULSIF(random_state=0)


PLAIN = Weighting("no weights", flattening=0.0)
WEIGHTINGS = (
    PLAIN,
    Weighting("flattened, γ=½", flattening=0.5),
    Weighting("relative, η=½", eta=0.5),
)


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
    effective_rows: float  # what the method's own weights leave of the compared rows


@dataclass(frozen=True)
class Comparison:
    """What the comparison found. Plain numbers but for the models."""

    methods: tuple[Method, ...]
    chosen: int
    plain: int  # which of the methods is ERM
    judge_rows: float  # what the judging weights leave of the compared rows
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


def learners(classify: bool, n_rows: int, n_columns: int) -> dict[str, Any]:
    """The learners that are tried: one straight, one smooth, one made of steps."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Half the mean squared distance of standardised rows is the number of columns: the customary width.
    gaussians = Nystroem(gamma=0.5 / n_columns, n_components=min(N_GAUSSIANS, n_rows), random_state=0)
    if classify:
        return {
            "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
            "smooth": make_pipeline(StandardScaler(), gaussians, LogisticRegression(C=10.0, max_iter=2000)),
            "boosting": HistGradientBoostingClassifier(random_state=0),
        }
    penalties = np.logspace(-3, 3, 13)
    return {
        "linear": make_pipeline(StandardScaler(), RidgeCV(penalties)),
        "smooth": make_pipeline(StandardScaler(), gaussians, RidgeCV(penalties)),
        "boosting": HistGradientBoostingRegressor(random_state=0),
    }


NO_JUDGE = (
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
    X, y : labelled source rows.
    goal : target rows.
    classify : whether y are classes.
    shifted : whether the diagnosis found a shift; without one ERM is kept.
    advance : called before each step with its name.
    """
    rng = np.random.default_rng(random_state)
    near = _draw(len(X), rng, np.unique(y, return_inverse=True)[1] if classify else None)
    far = _draw(len(goal), rng)
    rows, labels, goal_rows = X[near], y[near], goal[far]
    classes, codes = np.unique(labels, return_inverse=True) if classify else (np.zeros(0), None)
    folds = deal_without_copies(rows, labels, codes, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the standard errors
        advance("weighing")
        judge, enough = judging_weights(rows, goal_rows)
        held_out = _held_out(rows, labels, goal_rows, folds, classes, advance)
        comparison = _choose(held_out, judge, shifted, classes, labels, rng)
        scores = [
            _readable(held_out[i].predictions, _truth(labels, classes)) for i in (comparison.plain, comparison.chosen)
        ]
        performance = _expected(scores, rows, goal_rows, folds[0], judge, enough, rng)
        comparison = replace(comparison, performance=performance, rough=not enough)
        advance("fitting the chosen model on all rows")
        model = _final(comparison.methods[comparison.chosen], X, y, goal, classify)
        advance("fitting the plain model on all rows")
        plain = model
        if not comparison.kept_plain:
            plain = _final(comparison.methods[comparison.plain], X, y, goal, classify)
    return Fitted(comparison, model, plain, np.asarray(model.weights_))


def _draw(n_rows: int, rng: np.random.Generator, codes: IntArray | None = None) -> IntArray:
    """Rows to compare on; of each class enough for the folds, if there are."""
    order = rng.permutation(n_rows)
    if codes is None or n_rows <= COMPARED_ROWS:
        return np.sort(order[:COMPARED_ROWS])
    wanted = [np.flatnonzero(codes[order] == c)[: 2 * N_FOLDS] for c in range(codes.max() + 1)]
    first = order[np.concatenate(wanted)]
    rest = order[~np.isin(order, first)][: max(0, COMPARED_ROWS - len(first))]
    return np.sort(np.concatenate([first, rest]))


def deal_without_copies(
    rows: FloatArray, labels: NDArray[Any], codes: IntArray | None, rng: np.random.Generator
) -> list[IntArray]:
    """Folds of the rows, dealt once or three times. Copies of a row share its fold, or a fit would know the answer."""
    first = copy_of = np.arange(len(rows))
    columns = [*rows.T, labels] if codes is None else [*rows.T]
    if any(as_good_as_continuous(column) for column in columns):
        _, first, copy_of = np.unique(np.column_stack([rows, labels]), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # distinct rows in the order of the table
    place = np.empty(len(first), dtype=np.intp)
    place[order] = np.arange(len(first))
    groups = None if codes is None else codes[first[order]]
    n_folds = N_FOLDS if groups is None else int(min(N_FOLDS, np.bincount(groups).min()))
    if n_folds < 2 or len(first) < 2 * N_FOLDS:
        few = "" if groups is None else f", {n_folds} of the rarest class"
        raise InputError(
            f"The source has {len(first)} distinct labelled rows{few}: too few to compare methods. At least "
            f"{2 * N_FOLDS} are needed, and two of each class."
        )
    # Every class more is another tree, or another column, in every fit.
    many_classes = codes is not None and codes.max() >= MANY_CLASSES
    n_deals = N_DEALS if len(rows) <= FEW_ROWS and not many_classes else 1
    dealt = [deal_at_random(len(first), n_folds, rng, groups) for _ in range(n_deals)]
    return [fold[place[copy_of]] for fold in dealt]


def judging_weights(rows: FloatArray, goal: FloatArray) -> tuple[FloatArray | None, bool]:
    """The mean of two bounded ratios, which err in different ways.

    One has linear log-odds, which sees shifts along many columns at once, the other is a sum of Gaussians, which sees
    curved ones. Plain ratios would let a handful of rows decide. None where source and target share no region, or
    next to none: there is nothing to judge by. And whether the linear ratio, unbounded, rests on enough rows for an
    estimate with an interval.
    """
    try:
        linear = linear_judge().fit(rows, target=Target(goal)).weights_
        smooth = RULSIF(JUDGE_ETA[1], random_state=0).fit(rows, target=Target(goal)).weights_
    except NoOverlapError:
        return None, False
    size = effective_sample_size(linear)
    if size < SEPARABLE:
        return None, False
    bounded = normalise(linear / (1 - JUDGE_ETA[0] + JUDGE_ETA[0] * linear))
    return np.asarray((bounded + smooth) / 2), size >= ENOUGH


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """What a method predicts for rows it has not seen: numbers, or probabilities of the classes."""

    learner: str
    weighting: str
    predictions: FloatArray  # deal of the folds by row, and by class
    effective_rows: float


def _held_out(
    rows: FloatArray,
    labels: NDArray[Any],
    goal: FloatArray,
    folds: list[IntArray],
    classes: NDArray[Any],
    advance: Callable[[str], None],
) -> list[_HeldOut]:
    weights = {weighting: _weights(weighting, rows, goal) for weighting in WEIGHTINGS}
    least = int(min(np.sum(fold != f) for fold in folds for f in range(fold.max() + 1)))
    tried = learners(len(classes) > 0, least, rows.shape[1])
    jobs = [
        delayed(_weighted_method)(rows, labels, folds, classes, name, model, weighting.name, found)
        for weighting, found in weights.items()
        for name, model in tried.items()
        if found is not None  # where source and target share no region there is no such weighting
    ]
    # The slowest first, so that no processor waits for it at the end.
    jobs.insert(0, delayed(_one_step_method)(rows, labels, goal, folds, classes))
    advance("comparing methods")
    # Other processes take seconds to start; small tables are done by then.
    n_jobs = (os.cpu_count() or 1) if len(rows) * rows.shape[1] >= ENOUGH_FOR_PROCESSES else 1
    found = []
    for result in Parallel(n_jobs=n_jobs, return_as="generator_unordered")(jobs):
        if result is not None:
            found.append(result)
            advance("comparing methods")
    order = [*(w.name for w in WEIGHTINGS), ONE_STEP]
    return sorted(found, key=lambda h: (order.index(h.weighting), [*tried, ONE_STEP].index(h.learner)))


def _weighted_method(
    rows: FloatArray,
    labels: NDArray[Any],
    folds: list[IntArray],
    classes: NDArray[Any],
    learner: str,
    model: Any,
    weighting: str,
    weights: FloatArray,
) -> _HeldOut:
    def fit(train: IntArray) -> Any:
        return _fit_weighted(model, rows[train], labels[train], weights[train])

    return _HeldOut(learner, weighting, _predict_folds(fit, rows, folds, classes), effective_sample_size(weights))


def _one_step_method(
    rows: FloatArray, labels: NDArray[Any], goal: FloatArray, folds: list[IntArray], classes: NDArray[Any]
) -> _HeldOut | None:
    """None where source and target share no region."""
    model = OneStepClassifier(random_state=0) if len(classes) else OneStepRegressor(random_state=0)
    effective = []

    def fit(train: IntArray) -> Any:
        fitted = clone(model).fit(rows[train], labels[train], target=Target(goal))
        effective.append(fitted.effective_sample_size_ / len(train))
        return fitted

    try:
        predictions = _predict_folds(fit, rows, folds, classes)
    except NoOverlapError:
        return None
    return _HeldOut(ONE_STEP, ONE_STEP, predictions, float(np.mean(effective)) * len(rows))


def _weights(weighting: Weighting, rows: FloatArray, goal: FloatArray) -> FloatArray | None:
    if weighting is PLAIN:
        return np.ones(len(rows))
    try:
        found = weighting.ratio().fit(rows, target=Target(goal)).weights_
    except NoOverlapError:
        return None
    return flatten(found, weighting.flattening)


def _fit_weighted(model: Any, rows: FloatArray, labels: NDArray[Any], weights: FloatArray) -> Any:
    fitted = clone(model)
    name = f"{fitted.steps[-1][0]}__sample_weight" if hasattr(fitted, "steps") else "sample_weight"
    keywords = {} if np.all(weights == 1) else {name: normalise(weights)}
    return fitted.fit(rows, labels, **keywords)


def _predict_folds(
    fit: Callable[[IntArray], Any], rows: FloatArray, folds: list[IntArray], classes: NDArray[Any]
) -> FloatArray:
    """(deals, n) numbers, or (deals, n, C) probabilities."""
    predictions = np.zeros((len(folds), len(rows), len(classes)) if len(classes) else (len(folds), len(rows)))
    for deal, fold in enumerate(folds):
        for f in range(fold.max() + 1):
            train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            with warnings.catch_warnings(), one_blas_thread(), one_openmp_thread():
                warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the standard errors
                model = fit(train)
                found = probabilities(model, rows[test]) if len(classes) else model.predict(rows[test])
            predictions[deal, test] = found
    return predictions


def probabilities(model: Any, rows: FloatArray) -> FloatArray:
    """Class probabilities; for squared loss f lies between −1 and 1 where it is a probability."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows))
    values = np.clip((model.decision_function(rows) + 1) / 2, 0, 1)
    if values.ndim == 1:
        return np.column_stack([1 - values, values])
    values = values + 1e-12  # all clipped to zero: nothing is known
    return np.asarray(values / values.sum(axis=1, keepdims=True))


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
    held_out: list[_HeldOut],
    judge: FloatArray | None,
    shifted: bool,
    classes: NDArray[Any],
    labels: NDArray[Any],
    rng: np.random.Generator,
) -> Comparison:
    truth = _truth(labels, classes)
    losses = np.array([_losses(h.predictions, truth) for h in held_out])
    plain = min((i for i, h in enumerate(held_out) if h.weighting == PLAIN.name), key=lambda i: float(losses[i].mean()))
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
            h.effective_rows,
        )
        for i, (h, (gain, error)) in enumerate(zip(held_out, gains, strict=True))
    )
    best = max(range(len(methods)), key=lambda i: methods[i].gain)
    chosen, reason = (plain, NO_JUDGE) if judge is None else choose(methods, plain, best, shifted)
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
    judge: FloatArray | None,
    enough: bool,
    rng: np.random.Generator,
) -> dict[str, Interval]:
    """Scores of the plain and the chosen method, on the source and as expected on the target.

    With enough rows in common the estimate of `target_performance`. With fewer its corrections run wild: then the mean
    under the bounded judge, which is too good rather than too bad, and no interval.
    """
    plain, chosen = scores
    found = {"source": bootstrap_t(plain, np.ones(len(plain)), rng)}
    if judge is None:
        return found
    same = np.array_equal(plain, chosen)
    for name, values in (("plain", plain), ("chosen", chosen)):
        if name == "chosen" and same:
            found[name] = found["plain"]
        elif enough:
            found[name] = expected_score(values, rows, goal, linear_judge(), fold, rng).target
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


def _final(method: Method, X: FloatArray, y: NDArray[Any], goal: FloatArray, classify: bool) -> Any:
    """The method, fitted on all rows."""
    if method.learner == ONE_STEP:
        model = OneStepClassifier(random_state=0) if classify else OneStepRegressor(random_state=0)
    else:
        weighting = next(w for w in WEIGHTINGS if w.name == method.weighting)
        learner = learners(classify, len(X), X.shape[1])[method.learner]
        wrapper = WeightedClassifier if classify else WeightedRegressor
        model = wrapper(learner, weighting.ratio(), weighting.flattening)
    with one_blas_thread():
        return model.fit(X, y, target=Target(goal))
