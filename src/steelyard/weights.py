"""Operations on importance weights: normalizing, flattening, effective sample size."""

from __future__ import annotations

import numpy as np

from steelyard._typing import FloatArray
from steelyard.errors import SmallEffectiveSampleWarning, WeightError, warn_user


def normalize(weights: FloatArray, mass: FloatArray | None = None) -> FloatArray:
    """Scale weights to mean one; `mass` says how much each row counts in the mean (default: all the same)."""
    if mass is not None:
        mass = mass / mass.max()  # keeps the sum of huge counts in range
    return np.asarray(weights / np.average(weights, weights=mass))


def flatten(weights: FloatArray, flattening: float, mass: FloatArray | None = None) -> FloatArray:
    """Exponentially flattened weights w^γ, scaled to mean one (survey, section 4.1).

    γ = 0 gives ones and γ = 1 leaves normalized weights unchanged. A weight of 0 stays 0 for every γ > 0.
    """
    if flattening == 0:
        return np.ones_like(weights)
    return normalize(weights**flattening, mass)


def multiply_counts(weights: FloatArray, counts: FloatArray | None) -> FloatArray:
    """Weights times the number of times each row counts, up to a common factor."""
    return weights if counts is None else np.asarray(weights * (counts / counts.max()))


def effective_sample_size(weights: FloatArray) -> float:
    """Effective sample size ESS = (Σw)² / Σw² of importance weights.

    The weighted mean of n rows has about the variance of a plain mean of ESS rows. The ESS lies between 1 and the
    number of rows, and equals the latter only for equal weights.

    Parameters
    ----------
    weights : array of shape (n_rows,)
        One non-negative weight per row, at least one of them positive; their scale does not matter.

    Returns
    -------
    float
        The effective sample size.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import effective_sample_size
    >>> effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0]))
    2.0
    """
    weights = np.asarray(weights, dtype=np.float64)
    if not weights.size or not weights.max() > 0:
        raise WeightError(
            "No weight is above zero, so there is no effective sample size. Give at least one positive weight."
        )
    # Scaled first, so that the squares of very large or very small weights stay in range.
    scaled = weights / weights.max()
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def effective_sample_size_of_sums(total: float, squares: float) -> float:
    """(Σw)² / Σw² from both sums."""
    return total / squares * total


def warn_of_small_sample(method: str, size: float, n_rows: int, advice: str) -> None:
    """Warn where the effective sample size `size` is below 5 rows or 1 % of the rows.

    With fewer than ten rows the limit is half of them: a few rows of equal weight are a small table, not a small
    effective sample.
    """
    if size < min(max(5, 0.01 * n_rows), n_rows / 2):
        warn_user(
            f"{method}: the effective sample size of the weights is {size:.1f} with n = {n_rows} rows. Source and "
            f"target hardly overlap, and a fit under such weights is unstable. {advice}",
            SmallEffectiveSampleWarning,
        )
