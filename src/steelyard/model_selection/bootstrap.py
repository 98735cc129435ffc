"""Confidence intervals of weighted means by the studentized bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard._numerics.kernels import blocks
from steelyard._numerics.written import written
from steelyard._typing import FloatArray, IntArray

N_BOOTSTRAP = 500
DRAWN_AT_ONCE = 1_000_000  # rows of the bootstrap samples that are in memory at a time
# Where few rows carry the weight, a draw without them has a standard error next to zero. It is taken to be at
# least this share of the standard error of the rows themselves.
LEAST_ERROR = 0.5
LEAST_ROWS = 10  # with fewer rows there is no interval


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval.

    Parameters
    ----------
    mean : float
        The estimate.
    low : float or None
        Lower end of the interval; None where there are too few rows for an interval.
    high : float or None
        Upper end of the interval; None where there are too few rows for an interval.

    Examples
    --------
    >>> from steelyard.model_selection import Interval
    >>> Interval(0.8, 0.7, 0.85).low
    0.7
    >>> print(Interval(0.8, 0.7, 0.85))
    0.8 (0.7 to 0.85)
    """

    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return written(self.mean)
        return f"{written(self.mean)} ({written(self.low)} to {written(self.high)})"


def bootstrap_t(
    rest: FloatArray,
    weights: FloatArray,
    rng: np.random.Generator,
    on_target: FloatArray | None = None,
    level: float = 0.95,
    units: IntArray | None = None,
    target_units: IntArray | None = None,
) -> Interval:
    """mean(on_target) + Σ w·rest / Σ w, with the interval of the studentized bootstrap.

    Losses are skewed, and weighted losses even more, so a normal interval would be off on one side. The bootstrap
    estimates the skewness from the rows. It draws units of rows, so that duplicates do not count as independent rows.

    Parameters
    ----------
    rest : array of shape (n_source,)
        Scores of the source rows, or their residuals where `on_target` is given.
    weights : array of shape (n_source,)
        Importance weights of the source rows.
    rng : Generator
        For the bootstrap.
    on_target : array of shape (n_target,), default=None
        Predicted scores of the target rows.
    level : float, default=0.95
        Confidence level.
    units : array of shape (n_source,), default=None
        Source rows of the same number are drawn together.
    target_units : array of shape (n_target,), default=None
        Target rows of the same number are drawn together.

    Returns
    -------
    Interval
        The estimate and its interval, which is None for too few rows or equal scores.
    """
    samples = [_unit_means(rest, weights, units)]
    if on_target is not None:
        samples.append(_unit_means(on_target, np.ones(len(on_target)), target_units))
    mean, error = _mean_and_error([(values[None], mass[None]) for values, mass in samples])
    if len(samples[0][0]) < LEAST_ROWS or not error[0] > 0:
        return Interval(float(mean[0]), None, None)
    means, errors = np.empty(N_BOOTSTRAP), np.empty(N_BOOTSTRAP)
    for draw in blocks(N_BOOTSTRAP, max(1, DRAWN_AT_ONCE // max(len(values) for values, _ in samples))):
        drawn = []
        for values, mass in samples:
            chosen = rng.integers(len(values), size=(draw.stop - draw.start, len(values)))
            drawn.append((values[chosen], mass[chosen]))
        means[draw], errors[draw] = _mean_and_error(drawn)
    t = (means - mean[0]) / np.maximum(errors, LEAST_ERROR * error[0])
    low, high = np.quantile(t, [(1 + level) / 2, (1 - level) / 2])
    return Interval(float(mean[0]), float(mean[0] - low * error[0]), float(mean[0] - high * error[0]))


def _unit_means(values: FloatArray, mass: FloatArray, units: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """The weighted mean and the total weight of each unit."""
    if units is None:
        return values, mass
    _, number = np.unique(units, return_inverse=True)
    total = np.bincount(number, mass).astype(np.float64)
    return np.bincount(number, mass * values) / np.where(total > 0, total, 1), total


def _mean_and_error(samples: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """The sum of the weighted means of several samples and its standard error, for each of B draws.

    A sample is a pair of arrays (B, n): values and weights.
    """
    mean, variance = np.zeros(len(samples[0][0])), np.zeros(len(samples[0][0]))
    for values, mass in samples:
        total = mass.sum(axis=1)
        sample_mean = np.einsum("bn,bn->b", mass, values) / total
        mean += sample_mean
        variance += np.sum(np.square(mass * (values - sample_mean[:, None])), axis=1) / np.square(total)
    return mean, np.sqrt(variance)
