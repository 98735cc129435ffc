"""Center and scale of the columns, from both domains alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._typing import FloatArray
from steelyard.errors import InputError


def pooled_scale(source: Empirical, target: Empirical, standardize: bool) -> tuple[FloatArray, FloatArray, bool]:
    """Center and scale of the equal mixture of both domains, and whether any column varies at all.

    Both domains have the same share in the mixture, so that the scale does not depend on which table is longer. A
    constant column has scale one; it adds nothing to any distance.
    """
    samples = [(sample.mass, sample.rows.astype(np.float64)) for sample in (source, target)]
    with np.errstate(over="ignore", invalid="ignore"):
        means = [mass @ rows for mass, rows in samples]
        variances = [mass @ np.square(rows - mean) for (mass, rows), mean in zip(samples, means, strict=True)]
    return mixture_scale(means, variances, standardize)


def mixture_scale(
    means: Sequence[FloatArray], variances: Sequence[FloatArray], standardize: bool
) -> tuple[FloatArray, FloatArray, bool]:
    """Like `pooled_scale`, from the means and variances of the columns of the two domains."""
    center = (means[0] + means[1]) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        variance = (variances[0] + variances[1]) / 2 + np.square(means[0] - means[1]) / 4
    if not np.isfinite(variance).all():
        column = int(np.flatnonzero(~np.isfinite(variance))[0])
        raise InputError(
            f"Column {column} has values whose squares are out of range. Rescale it, or drop rows with such values."
        )
    tiny = np.spacing(np.abs(center)) ** 2 * 16
    varies = variance > tiny
    scale = np.where(varies, np.sqrt(variance), 1.0) if standardize else np.ones_like(center)
    return center, scale, bool(varies.any())


def rounded(values: FloatArray) -> FloatArray:
    """Values with thirteen significant digits."""
    size = np.abs(np.where(values == 0, 1.0, values))
    magnitude = 10.0 ** np.floor(np.log10(size))
    return np.where(values == 0, 0.0, np.round(values / magnitude, 12) * magnitude)
