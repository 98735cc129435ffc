"""Scores row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from steelyard._typing import FloatArray
from steelyard.errors import InputError, ParameterError

RowScores = Callable[[Any, Any, Any], FloatArray]


def _negative_square(model: Any, X: Any, y: Any) -> FloatArray:
    return -np.square(_residuals(model, X, y)).mean(axis=1)


def _negative_absolute(model: Any, X: Any, y: Any) -> FloatArray:
    return -np.abs(_residuals(model, X, y)).mean(axis=1)


def _residuals(model: Any, X: Any, y: Any) -> FloatArray:
    """Rows by outputs; both sides are made two-dimensional, or a column minus a row would be a square."""
    truth = np.asarray(y, dtype=np.float64)
    return truth.reshape(len(truth), -1) - np.asarray(model.predict(X)).reshape(len(truth), -1)


def _hit(model: Any, X: Any, y: Any) -> FloatArray:
    return np.asarray(np.ravel(model.predict(X)) == _one_column(y), dtype=np.float64)


def _log_likelihood(model: Any, X: Any, y: Any) -> FloatArray:
    probability = _one_hot(model, y) * model.predict_proba(X)
    return np.log(np.maximum(probability.sum(axis=1), np.finfo(np.float64).eps))


def _negative_brier(model: Any, X: Any, y: Any) -> FloatArray:
    return -np.square(model.predict_proba(X) - _one_hot(model, y)).sum(axis=1)


def _one_hot(model: Any, y: Any) -> FloatArray:
    return (_one_column(y)[:, None] == model.classes_).astype(np.float64)


def _one_column(y: Any) -> Any:
    labels = np.asarray(y)
    if labels.ndim > 1 and labels.shape[1] > 1:
        raise InputError(
            f"Class labels must be one column; got shape {labels.shape}. Score several outputs with a function of your "
            "own that returns one score a row."
        )
    return labels.ravel()


# A score must be a mean over rows, or it could not be weighted row by row; R² is not among them for that reason.
ROW_SCORES: dict[str, RowScores] = {
    "neg_mean_squared_error": _negative_square,
    "neg_mean_absolute_error": _negative_absolute,
    "accuracy": _hit,
    "neg_log_loss": _log_likelihood,
    "neg_brier_score": _negative_brier,
}


def row_scores(scoring: Any, estimator: Any) -> RowScores:
    """The function that scores each row; greater is better."""
    if scoring is None:
        scoring = "accuracy" if is_classifier(estimator) else "neg_mean_squared_error"
    if callable(scoring):
        return _checked(scoring)
    if scoring not in ROW_SCORES:
        raise ParameterError(
            f"scoring={scoring!r} is not a mean over rows that can be importance-weighted. Choose one of "
            f"{sorted(ROW_SCORES)}, or give a function (estimator, X, y) that returns one score a row."
        )
    return ROW_SCORES[scoring]


def _checked(scoring: RowScores) -> RowScores:
    def scores(model: Any, X: Any, y: Any) -> FloatArray:
        values = np.asarray(scoring(model, X, y), dtype=np.float64)
        if values.ndim != 1 or len(values) != len(y):
            raise ParameterError(
                f"The scoring function must return one score a row ({len(y)} here); it returned an array of shape "
                f"{values.shape}."
            )
        return values

    return scores
