"""Learners fitted without the rows that they predict: held-out predictions, computed once for all combinations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from steelyard._numerics.weighted_means import paired_gain
from steelyard._splits.rows import folds_of_table
from steelyard._threads import one_blas_thread, one_openmp_thread
from steelyard._typing import FloatArray, IntArray
from steelyard._weight_parameter import weight_parameter
from steelyard.tables.rows import count_rows, take_rows
from steelyard.target import Target
from steelyard.weights import normalize

N_FOLDS = 5
# On few rows much of a difference is due to the assignment to folds: it is drawn twice.
FEW_ROWS, N_DRAWS = 500, 2
MANY_CLASSES = 10  # from this number of classes on it is drawn once


@dataclass(frozen=True, eq=False)
class Learner:
    """A learner, with or without importance weights.

    Attributes
    ----------
    name : str
        Name of the learner.
    estimator : estimator
        Not fitted.
    weighted : bool
        Whether it is fitted with the importance weights.
    """

    name: str
    estimator: Any
    weighted: bool = False

    @property
    def label(self) -> str:
        """The name, and whether there are weights."""
        return f"{self.name}, weighted" if self.weighted else self.name

    @property
    def takes_target(self) -> bool:
        """Whether it adapts to the target by itself, as one-step does."""
        return bool(has_fit_parameter(self.estimator, "target"))

    @property
    def adapts(self) -> bool:
        """Whether the fit depends on the target."""
        return self.weighted or self.takes_target

    def fit(self, data: Data, rows: IntArray | slice = slice(None)) -> Any:
        """The estimator, fitted on some rows."""
        X, y = (data.X, data.y) if isinstance(rows, slice) else (take_rows(data.X, rows), data.y[rows])
        weights = None if data.counts is None else data.counts[rows]
        if self.weighted:
            weights = data.weights[rows] * (1.0 if weights is None else weights)
        keywords: dict[str, Any] = {}
        # Equal weights must be the fit without weights, bit for bit.
        if weights is not None and np.ptp(weights) > 0:
            name = weight_parameter(self.estimator)
            if name is not None:
                keywords[name] = normalize(weights)
        if self.takes_target and data.X_target is not None:
            keywords["target"] = Target(data.X_target)
        with warnings.catch_warnings(), one_blas_thread(), one_openmp_thread():
            warnings.simplefilter("ignore")  # what a warning of a fit on some rows means shows in the held-out losses
            return clone(self.estimator).fit(X, y, **keywords)


@dataclass(frozen=True, eq=False)
class Data:
    """What learners are fitted to.

    Attributes
    ----------
    X, y : table and array
        Source rows and labels.
    X_target : table or None
        Target rows.
    weights : array of shape (n_rows,)
        Importance weights of the source rows.
    classes : array
        The classes; empty for regression.
    counts : array of shape (n_rows,) or None
        How often each row counts, in addition to its importance.
    """

    X: Any
    y: NDArray[Any]
    X_target: Any
    weights: FloatArray
    classes: NDArray[Any]
    counts: FloatArray | None = None

    @property
    def used_weights(self) -> FloatArray:
        """Importance times count of each row."""
        return self.weights if self.counts is None else self.weights * self.counts

    @property
    def truth(self) -> FloatArray:
        """Labels as one column of numbers, or one column of zeros and ones per class."""
        if len(self.classes):
            return (self.y[:, None] == self.classes).astype(np.float64)
        return np.asarray(self.y, dtype=np.float64).reshape(len(self.y), -1)


def both_ways(named: Sequence[tuple[str, Any]], data: Data) -> list[Learner]:
    """Each learner without importance weights, and with them where there are any and it takes them.

    A learner that adapts to the target by itself is not weighted in addition.

    Parameters
    ----------
    named : sequence of (str, estimator)
        The learners.
    data : Data
        What they are fitted to.

    Returns
    -------
    list of Learner
    """
    learners = [Learner(name, estimator) for name, estimator in named]
    if np.ptp(data.weights) == 0:
        return learners
    weighted = [
        Learner(each.name, each.estimator, weighted=True)
        for each in learners
        if not each.takes_target and weight_parameter(each.estimator) is not None
    ]
    return learners + weighted


def draw_folds(
    columns: Sequence[NDArray[Any]], codes: IntArray | None, units: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """The fold of each row, for one or two draws; duplicates share a fold, classes are spread over the folds.

    Parameters
    ----------
    columns : sequence of arrays of shape (n_rows,)
        The columns of the table and the labels.
    codes : array of shape (n_rows,) or None
        The number of the class of each row; None for regression.
    units : array of shape (n_rows,)
        The unit of each row; see `units_of_rows`.
    rng : Generator
        For the folds.

    Returns
    -------
    list of arrays of shape (n_rows,)
    """
    _, first = np.unique(units, return_index=True)
    n_folds = min(N_FOLDS, len(first))
    if codes is not None:
        n_folds = max(2, min(n_folds, int(np.bincount(codes[first]).min())))
    # Every additional class is another tree, or another column, in every fit.
    many_classes = codes is not None and codes.max() >= MANY_CLASSES
    n_draws = N_DRAWS if len(units) <= FEW_ROWS and not many_classes else 1
    return [folds_of_table(columns, n_folds, rng, codes) for _ in range(n_draws)]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A learner's predictions for rows that it was not fitted on.

    Attributes
    ----------
    learner : Learner
        The learner.
    predictions : array of shape (n_draws, n_rows, n_outputs)
        Numbers, or probabilities of the classes, for each draw of the folds.
    failed : str
        Why the learner could not be fitted to one of the folds; empty where it could.
    """

    learner: Learner
    predictions: FloatArray
    failed: str = ""


def predict_held_out(
    learners: Sequence[Learner], data: Data, folds: Sequence[IntArray], *, n_jobs: int | None = None
) -> Iterator[HeldOut]:
    """Every learner's predictions for rows that it was not fitted on, as they are computed, in no fixed order.

    Parameters
    ----------
    learners : sequence of Learner
        The learners.
    data : Data
        What they are fitted to.
    folds : sequence of arrays of shape (n_rows,)
        The fold of each row, for each draw.
    n_jobs : int, default=None
        Learners that are fitted in parallel, as in joblib.

    Yields
    ------
    HeldOut
    """
    jobs = (delayed(_held_out)(learner, data, folds) for learner in learners)
    yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered")(jobs)


def _held_out(learner: Learner, data: Data, folds: Sequence[IntArray]) -> HeldOut:
    predictions = np.zeros((len(folds), len(data.y), max(1, len(data.classes))))
    for draw, fold in enumerate(folds):
        for f in np.unique(fold):
            test = np.flatnonzero(fold == f)
            try:
                model = learner.fit(data, np.flatnonzero(fold != f))
                predictions[draw, test] = outputs(model, take_rows(data.X, test), data.classes)
            except Exception as error:  # a learner may be anyone's, and raise anything; it is left out and named
                return HeldOut(learner, predictions, f"{type(error).__name__}: {error}")
    finite = np.isfinite(predictions).all()
    return HeldOut(learner, predictions, "" if finite else "it predicts NaN or infinity")


def outputs(model: Any, X: Any, classes: NDArray[Any]) -> FloatArray:
    """Predictions as one column of numbers, or as probabilities with one column per class.

    Parameters
    ----------
    model : fitted estimator
        Any regressor or classifier.
    X : table of shape (n_rows, n_columns)
        Rows.
    classes : array
        The classes; empty for regression.

    Returns
    -------
    array of shape (n_rows, n_outputs)
    """
    # With several threads boosted trees take a hundred times as long for a few rows.
    with one_blas_thread(), one_openmp_thread():
        if not len(classes):
            return np.asarray(model.predict(X), dtype=np.float64).reshape(count_rows(X), -1)
        shares = np.zeros((count_rows(X), len(classes)))
        # A fold may lack a class.
        shares[:, np.searchsorted(classes, model.classes_)] = class_probabilities(model, X)
        return shares


def class_probabilities(model: Any, X: Any) -> FloatArray:
    """Probabilities of the classes of a model.

    With decision values alone, they are clipped to those of −1 and 1, between which f of the squared loss is one; with
    predictions alone, they are 0 and 1.

    Parameters
    ----------
    model : fitted classifier
        Any classifier.
    X : table of shape (n_rows, n_columns)
        Rows.

    Returns
    -------
    array of shape (n_rows, n_classes)
    """
    if len(model.classes_) == 1:  # some learners then give two columns all the same
        return np.ones((count_rows(X), 1))
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X), dtype=np.float64)
    if not hasattr(model, "decision_function"):
        return (np.asarray(model.predict(X))[:, None] == model.classes_).astype(np.float64)
    values = np.clip((np.asarray(model.decision_function(X)) + 1) / 2, 0, 1)
    if values.ndim == 1:
        return np.column_stack([1 - values, values])
    values = values + 1e-12  # all clipped to zero: nothing is known
    return np.asarray(values / values.sum(axis=1, keepdims=True))


def losses_of_rows(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """Squared error of each row, averaged over draws; summed over the classes it is the Brier score.

    Parameters
    ----------
    predictions : array of shape (n_draws, n_rows, n_outputs)
        Held-out predictions.
    truth : array of shape (n_rows, n_outputs)
        Labels as numbers; see `Data.truth`.

    Returns
    -------
    array of shape (n_rows,)
    """
    return np.asarray(np.square(predictions - truth).sum(axis=2).mean(axis=0))


def better_of_both(tried: Sequence[HeldOut], losses: Mapping[str, FloatArray], weights: FloatArray) -> list[HeldOut]:
    """Each learner once: with importance weights where its held-out loss is then smaller by a standard error.

    The loss is weighted, and the standard error is that of the difference, row by row: weights make every fit more
    variable, so they must show that they help.

    Parameters
    ----------
    tried : sequence of HeldOut
        Learners without weights, followed by those with weights.
    losses : dict of arrays of shape (n_rows,)
        Held-out loss of each row, by the label of the learner.
    weights : array of shape (n_rows,)
        Weight of each row.

    Returns
    -------
    list of HeldOut
    """
    best: dict[str, HeldOut] = {}
    for each in tried:
        name = each.learner.name
        if name in best:
            gain, error = paired_gain(losses[best[name].learner.label], losses[each.learner.label], weights)
        if name not in best or gain > error:
            best[name] = each
    return list(best.values())
