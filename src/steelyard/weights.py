"""Numbers on rows: flatten, normalize, measure."""

from __future__ import annotations

import numpy as np

from steelyard._typing import FloatArray
from steelyard.errors import WeightError


def normalize(weights: FloatArray, mass: FloatArray | None = None) -> FloatArray:
    """Scale weights to a mean of one (under `mass`, where rows count differently)."""
    if mass is not None:
        mass = mass / mass.max()  # a sum of huge counts must stay in range
    return np.asarray(weights / np.average(weights, weights=mass))


def flatten(weights: FloatArray, flattening: float, mass: FloatArray | None = None) -> FloatArray:
    """Exponentially flattened weights w^γ, mean one: 0 gives ones, 1 leaves the weights alone.

    (Survey, section 4.1.) A weight of 0 stays 0 for every γ > 0.
    """
    if flattening == 0:
        return np.ones_like(weights)
    return normalize(weights**flattening, mass)


def counted(weights: FloatArray, counts: FloatArray | None) -> FloatArray:
    """Weights times how often each row counts, up to a factor."""
    return weights if counts is None else np.asarray(weights * (counts / counts.max()))


def effective_sample_size(weights: FloatArray) -> float:
    """(Σw)² / Σw²: how many equally weighted rows carry the same variance.

    It lies between 1 and the number of rows, and reaches the latter only for equal weights.

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
            "No weight is above zero, so there is no effective sample. Give at least one positive weight."
        )
    # Scaled first, so that the squares of very large or very small weights stay in range.
    scaled = weights / weights.max()
    return float(scaled.sum() ** 2 / np.square(scaled).sum())
