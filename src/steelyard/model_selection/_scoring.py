"""Scores of a model on each row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from steelyard._typing import FloatArray
from steelyard.errors import InputError, ParameterError

RowScores = Callable[[Any, Any, Any], FloatArray]

# Each is a mean over rows, so that every row can have an importance weight. R² is not one.
SCORINGS = ("accuracy", "neg_brier_score", "neg_log_loss", "neg_mean_absolute_error", "neg_mean_squared_error")


def row_scores(scoring: Any, estimator: Any) -> RowScores:
    """The function (model, X, y) that scores each row; greater is better."""
    scoring = score_name(None, estimator) if scoring is None else scoring
    if callable(scoring):
        return partial(_own_row_scores, scoring)
    if scoring not in SCORINGS:
        raise ParameterError(
            f"scoring={scoring!r} is not a mean over rows that can be importance-weighted. Choose one of "
            f"{list(SCORINGS)}, or give a function (estimator, X, y) that returns one score for each row."
        )
    return partial(_named_row_scores, scoring)


def score_name(scoring: Any, estimator: Any) -> str:
    """The name of a score, also where it is the default one or a user's function."""
    if scoring is None:
        return "accuracy" if is_classifier(estimator) else "neg_mean_squared_error"
    return scoring if isinstance(scoring, str) else "the row score"


def mean_score(scoring: Any, model: Any, X: Any, y: Any) -> float:
    """The unweighted mean of the row scores, or the model's own score where `scoring` is None."""
    if scoring is None:
        return float(model.score(X, y))
    return float(np.mean(row_scores(scoring, model)(model, X, y)))


def _own_row_scores(scoring: RowScores, model: Any, X: Any, y: Any) -> FloatArray:
    """The scores by a user's function, checked."""
    values = np.asarray(scoring(model, X, y), dtype=np.float64)
    if values.ndim != 1 or len(values) != len(y):
        raise ParameterError(
            f"The scoring function must return one score for each row ({len(y)} rows); it returned an array of shape "
            f"{values.shape}."
        )
    return values


def _named_row_scores(scoring: str, model: Any, X: Any, y: Any) -> FloatArray:
    """The scores by one of `SCORINGS`."""
    if scoring.endswith("_error"):
        # Rows by outputs: the difference of a column and a one-dimensional array would be a square.
        truth = np.asarray(y, dtype=np.float64)
        residuals = truth.reshape(len(truth), -1) - np.asarray(model.predict(X)).reshape(len(truth), -1)
        errors = np.square(residuals) if scoring == "neg_mean_squared_error" else np.abs(residuals)
        return np.asarray(-errors.mean(axis=1))
    labels = np.asarray(y)
    if labels.ndim > 1 and labels.shape[1] > 1:
        raise InputError(
            f"Class labels must be one column; got an array of shape {labels.shape}. Score several outputs with a "
            "function of your own that returns one score for each row."
        )
    labels = labels.ravel()
    if scoring == "accuracy":
        return np.asarray(np.ravel(model.predict(X)) == labels, dtype=np.float64)
    one_hot = (labels[:, None] == model.classes_).astype(np.float64)
    if scoring == "neg_brier_score":
        return np.asarray(-np.square(model.predict_proba(X) - one_hot).sum(axis=1))
    probability = (one_hot * model.predict_proba(X)).sum(axis=1)
    return np.asarray(np.log(np.maximum(probability, np.finfo(np.float64).eps)))
