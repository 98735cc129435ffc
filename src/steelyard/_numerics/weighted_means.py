"""Importance-weighted means and their standard errors."""

from __future__ import annotations

import numpy as np

from steelyard._typing import FloatArray, IntArray
from steelyard.errors import NoOverlapError


def weighted_mean(scores: FloatArray, weights: FloatArray) -> float:
    """The weighted mean Σ w s / Σ w."""
    total = weights.sum()
    if not total > 0:
        raise NoOverlapError(
            "All importance weights of a held-out fold are zero, so its score cannot be estimated. Shuffle the rows "
            "(cv=KFold(shuffle=True)), use fewer folds, or use RULSIF for the validation weights."
        )
    return float(scores @ weights / total)


def standard_error(scores: FloatArray, weights: FloatArray) -> float:
    """Standard error √Σ w²(s − mean)² / Σ w of the weighted mean Σ w s / Σ w, for given weights."""
    return float(np.sqrt(np.sum(np.square(weights * (scores - weighted_mean(scores, weights))))) / weights.sum())


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


def simplest_within_one_standard_error(
    means: FloatArray, error: float | FloatArray, simplicity: FloatArray
) -> IntArray:
    """The candidates that the one-standard-error rule chooses: one, or several where candidates tie.

    Among the candidates whose mean loss is at most the smallest one plus the standard error `error`, those of the
    greatest simplicity, and among these, those of the smallest mean loss. The standard error is that of the smallest
    mean, or (paired) that of the difference of each candidate's mean to the smallest one.

    Examples
    --------
    >>> means, simplicity = np.array([0.30, 0.31, 0.33, 0.40]), np.array([1.0, 2.0, 3.0, 4.0])
    >>> simplest_within_one_standard_error(means, 0.05, simplicity)
    array([2])
    """
    close = np.flatnonzero(means <= means.min() + error)
    simplest = close[simplicity[close] == simplicity[close].max()]
    return simplest[means[simplest] == means[simplest].min()]
