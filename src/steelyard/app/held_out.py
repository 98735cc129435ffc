"""Every method fitted without the rows it predicts, and on all rows: learners under weightings, and one-step."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from steelyard._numerics.duplicates import units_of_rows
from steelyard._splits.rows import folds_of_table
from steelyard._threads import one_blas_thread, one_openmp_thread
from steelyard._typing import FloatArray, IntArray
from steelyard._weight_parameter import require_weight_parameter
from steelyard.errors import InputError, NoOverlapError, SteelyardWarning
from steelyard.one_step import OneStepClassifier, OneStepRegressor
from steelyard.ratio import RULSIF, default_ratio
from steelyard.target import Target
from steelyard.weighted import WeightedClassifier, WeightedRegressor
from steelyard.weights import effective_sample_size, flatten, normalize

COMPARED_ROWS = 3000  # of each domain; all rows serve the final fit
N_FOLDS = 5
# On few rows much of a difference is due to the assignment to folds: it is drawn three times.
FEW_ROWS, N_ASSIGNMENTS = 500, 3
MANY_CLASSES = 10  # from this number of classes on it is drawn once
N_GAUSSIANS = 100
ENOUGH_FOR_PROCESSES = 20_000  # numbers of the source table
ONE_STEP = "one-step"


@dataclass(frozen=True)
class Weighting:
    """A way to weight the source rows: by a density ratio (`AutoRatio` for η = 0, otherwise RuLSIF), flattened."""

    name: str
    eta: float = 0.0
    flattening: float = 1.0

    def ratio(self) -> Any:
        """The ratio estimator, not fitted."""
        return RULSIF(self.eta, random_state=0) if self.eta else default_ratio()


PLAIN = Weighting("no weights", flattening=0.0)
WEIGHTINGS = (
    PLAIN,
    Weighting("flattened, γ=½", flattening=0.5),
    Weighting("relative, η=½", eta=0.5),
)


def learners(classify: bool, n_rows: int, n_columns: int) -> dict[str, Any]:
    """The learners that are tried: a linear one, a kernel one and boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Half the mean squared distance of standardized rows is the number of columns: the customary kernel width.
    kernel_features = Nystroem(gamma=0.5 / n_columns, n_components=min(N_GAUSSIANS, n_rows), random_state=0)
    if classify:
        return {
            "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
            "kernel": make_pipeline(StandardScaler(), kernel_features, LogisticRegression(C=10.0, max_iter=2000)),
            "boosted trees": HistGradientBoostingClassifier(random_state=0),
        }
    regs = np.logspace(-3, 3, 13)
    return {
        "linear": make_pipeline(StandardScaler(), RidgeCV(regs)),
        "kernel": make_pipeline(StandardScaler(), kernel_features, RidgeCV(regs)),
        "boosted trees": HistGradientBoostingRegressor(random_state=0),
    }


def one_step(classify: bool) -> Any:
    """The one-step estimator."""
    return OneStepClassifier(random_state=0) if classify else OneStepRegressor(random_state=0)


def sample_rows(n_rows: int, rng: np.random.Generator, codes: IntArray | None = None) -> IntArray:
    """At most `COMPARED_ROWS` rows to compare methods on; of each class enough for the folds, if there are."""
    order = rng.permutation(n_rows)
    if codes is None or n_rows <= COMPARED_ROWS:
        return np.sort(order[:COMPARED_ROWS])
    wanted = [np.flatnonzero(codes[order] == c)[: 2 * N_FOLDS] for c in range(codes.max() + 1)]
    first = order[np.concatenate(wanted)]
    rest = order[~np.isin(order, first)][: max(0, COMPARED_ROWS - len(first))]
    return np.sort(np.concatenate([first, rest]))


@dataclass(frozen=True, eq=False)
class Ratios:
    """The density ratios of the weightings, each fitted once on the compared rows; None where there is no overlap."""

    by_eta: dict[float, Any]

    @property
    def importance(self) -> FloatArray | None:
        """Importance weights of the compared source rows by `AutoRatio`."""
        return None if self.by_eta[0.0] is None else np.asarray(self.by_eta[0.0].weights_)

    def weights(self, weighting: Weighting, n_rows: int) -> FloatArray | None:
        """Weights of the compared source rows; None where there is no such weighting."""
        if weighting is PLAIN:
            return np.ones(n_rows)
        ratio = self.by_eta[weighting.eta]
        return None if ratio is None else flatten(np.asarray(ratio.weights_), weighting.flattening)


def fit_ratios(rows: FloatArray, target_rows: FloatArray) -> Ratios:
    """Fit the density ratio of every weighting."""
    found: dict[float, Any] = {}
    for weighting in WEIGHTINGS:
        if weighting is PLAIN:
            continue
        try:
            found[weighting.eta] = weighting.ratio().fit(rows, target=Target(target_rows))
        except NoOverlapError:
            found[weighting.eta] = None
    if found[0.0] is None:  # without importance weights nothing can be evaluated for the target
        found = dict.fromkeys(found)
    return Ratios(found)


def assign_table_folds(
    rows: FloatArray, labels: NDArray[Any], codes: IntArray | None, rng: np.random.Generator
) -> list[IntArray]:
    """Folds of the rows, drawn once or three times. Duplicates share a fold, or a fit would have seen the answer."""
    columns = [*rows.T, labels] if codes is None else [*rows.T, codes.astype(np.float64)]
    units = units_of_rows(columns)
    _, first = np.unique(units, return_index=True)
    n_folds = N_FOLDS if codes is None else int(min(N_FOLDS, np.bincount(codes[first]).min()))
    if n_folds < 2 or len(first) < 2 * N_FOLDS:
        few = "" if codes is None else f", {n_folds} of the rarest class"
        raise InputError(
            f"The source has {len(first)} labeled rows that are not duplicates of one another{few}: too few to "
            f"compare methods. At least {2 * N_FOLDS} are needed, and two of each class."
        )
    # Every additional class is another tree, or another column, in every fit.
    many_classes = codes is not None and codes.max() >= MANY_CLASSES
    n_assignments = N_ASSIGNMENTS if len(rows) <= FEW_ROWS and not many_classes else 1
    return [folds_of_table(columns, n_folds, rng, codes) for _ in range(n_assignments)]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of a method for rows that it was not fitted on: numbers, or probabilities of the classes.

    Attributes
    ----------
    learner, weighting : str
        The method.
    predictions : array of shape (n_assignments, n_rows) or (n_assignments, n_rows, n_classes)
        One set of predictions for each assignment of the rows to folds.
    effective_sample_size : float
        Of the method's weights.
    """

    learner: str
    weighting: str
    predictions: FloatArray
    effective_sample_size: float


def predict_held_out(
    rows: FloatArray,
    labels: NDArray[Any],
    target_rows: FloatArray,
    ratios: Ratios,
    folds: list[IntArray],
    classes: NDArray[Any],
    advance: Callable[[str], None],
) -> list[HeldOut]:
    """Every method's held-out predictions, in parallel processes where the table is large enough for that to pay."""
    least = int(min(np.sum(fold != f) for fold in folds for f in range(fold.max() + 1)))
    tried = learners(len(classes) > 0, least, rows.shape[1])
    weights = {weighting: ratios.weights(weighting, len(rows)) for weighting in WEIGHTINGS}
    jobs = [
        delayed(_weighted_method)(rows, labels, folds, classes, name, model, weighting.name, found)
        for weighting, found in weights.items()
        for name, model in tried.items()
        if found is not None
    ]
    # The slowest first, so that no processor waits for it at the end.
    jobs.insert(0, delayed(_one_step_method)(rows, labels, target_rows, folds, classes))
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
) -> HeldOut:
    def fit(train: IntArray) -> Any:
        fitted, used = clone(model), weights[train]
        keywords = {} if np.all(used == 1) else {require_weight_parameter(fitted): normalize(used)}
        return fitted.fit(rows[train], labels[train], **keywords)

    return HeldOut(learner, weighting, _predict_folds(fit, rows, folds, classes), effective_sample_size(weights))


def _one_step_method(
    rows: FloatArray, labels: NDArray[Any], target_rows: FloatArray, folds: list[IntArray], classes: NDArray[Any]
) -> HeldOut | None:
    """None where source and target do not overlap."""
    model = one_step(len(classes) > 0)
    effective = []

    def fit(train: IntArray) -> Any:
        fitted = clone(model).fit(rows[train], labels[train], target=Target(target_rows))
        effective.append(fitted.effective_sample_size_ / len(train))
        return fitted

    try:
        predictions = _predict_folds(fit, rows, folds, classes)
    except NoOverlapError:
        return None
    return HeldOut(ONE_STEP, ONE_STEP, predictions, float(np.mean(effective)) * len(rows))


def _predict_folds(
    fit: Callable[[IntArray], Any], rows: FloatArray, folds: list[IntArray], classes: NDArray[Any]
) -> FloatArray:
    """Numbers (assignments, n), or probabilities (assignments, n, classes)."""
    predictions = np.zeros((len(folds), len(rows), len(classes)) if len(classes) else (len(folds), len(rows)))
    for draw, fold in enumerate(folds):
        for f in range(fold.max() + 1):
            train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            with warnings.catch_warnings(), one_blas_thread(), one_openmp_thread():
                warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the standard errors
                model = fit(train)
                found = probabilities(model, rows[test]) if len(classes) else model.predict(rows[test])
            predictions[draw, test] = found
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


def fit_on_all(
    learner: str,
    weighting: str,
    X: FloatArray,
    y: NDArray[Any],
    X_target: FloatArray,
    classify: bool,
    fitted: Ratios | None = None,
) -> Any:
    """A method, fitted on all rows; `fitted` are the ratios of these very rows, where they are known already."""
    if learner == ONE_STEP:
        model = one_step(classify)
    else:
        named = next(w for w in WEIGHTINGS if w.name == weighting)
        ratio = named.ratio() if fitted is None or named is PLAIN else FrozenEstimator(fitted.by_eta[named.eta])
        plain = learners(classify, len(X), X.shape[1])[learner]
        model = (WeightedClassifier if classify else WeightedRegressor)(plain, ratio, named.flattening)
    with one_blas_thread():
        return model.fit(X, y, target=Target(X_target))
