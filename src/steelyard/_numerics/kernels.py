"""Gaussian kernels and basis functions, in blocks of rows, for a whole grid of widths at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isclose, sqrt

import numpy as np
from scipy.linalg.blas import dsyrk

from steelyard._typing import FloatArray, IntArray

# Rows per block: a block by a hundred centers in float64 is 0.4 MB and fits in a core's second-level cache.
BLOCK_ROWS = 512


def squared_distances(rows: FloatArray, centers: FloatArray, factor: float = 1.0) -> FloatArray:
    """Squared Euclidean distances, rows by centers, times a factor; rounding never changes their sign.

    Expanded as ‖x‖² − 2xᵀc + ‖c‖² around the mean of the centers: without that shift, distances between rows far from
    the origin would be lost to cancellation. The norms are two more columns of the matrix product, which is cheaper
    than two more passes over the result.
    """
    origin = centers.mean(axis=0)
    rows, centers = rows - origin, centers - origin
    left = np.column_stack([rows, np.einsum("ij,ij->i", rows, rows), np.ones(len(rows), rows.dtype)])
    right = np.column_stack([-2 * centers, np.ones(len(centers), rows.dtype), np.einsum("ij,ij->i", centers, centers)])
    distances = left @ (right * rows.dtype.type(factor)).T
    return np.maximum(distances, 0, out=distances) if factor > 0 else np.minimum(distances, 0, out=distances)


def gaussian(rows: FloatArray, centers: FloatArray, width: float) -> FloatArray:
    """The Gaussian kernel exp(−‖x − c‖² / 2σ²), rows by centers."""
    kernel = squared_distances(rows, centers, -0.5 / width**2)
    return np.asarray(np.exp(kernel, out=kernel))


def gaussian_widths(rows: FloatArray, centers: FloatArray, widths: FloatArray) -> Iterator[FloatArray]:
    """The Gaussian kernel at each of the decreasing `widths` in turn; each array is valid until the next is yielded.

    On a grid of ratio √2 each kernel is the square of the one before, so the whole grid costs one ``exp``. In single
    precision ``exp`` is evaluated for every other width, before the error, which doubles with each squaring, reaches
    the fifth digit.
    """
    distances = squared_distances(rows, centers)
    kernel = np.empty_like(distances)
    squarings, most = 0, 1 if rows.dtype == np.float32 else len(widths)
    previous = inf
    for width in widths:
        if squarings < most and isclose(previous, width * sqrt(2), rel_tol=1e-12):
            np.square(kernel, out=kernel)
            squarings += 1
        else:
            np.multiply(distances, rows.dtype.type(-0.5 / width**2), out=kernel)
            np.exp(kernel, out=kernel)
            squarings = 0
        previous = width
        yield kernel


def blocks(n_rows: int, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Slices that cover `n_rows` rows."""
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def basis_moments(
    rows: FloatArray,
    mass: FloatArray,
    centers: FloatArray,
    widths: FloatArray,
    *,
    second: bool = True,
    fold: IntArray | None = None,
    n_folds: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """First and second moments of the basis, Σ mass·ψ and Σ mass·ψψᵀ, per width and fold.

    Shapes (widths, folds, b) and (widths, folds, b, b), accumulated in float64 whatever the dtype of the rows. One
    pass over the rows in blocks, so memory does not grow with the number of rows; the results of several tables can be
    added. Without `second` the second moments are not computed and that array is zero.
    """
    n_centers = len(centers)
    firsts = np.zeros((len(widths), n_folds, n_centers))
    # Column-major, so that BLAS can add to the upper triangle in place.
    seconds = np.zeros((len(widths), n_folds, n_centers, n_centers)).transpose(0, 1, 3, 2)
    for f in range(n_folds):
        members = rows if fold is None else rows[fold == f]
        masses = mass if fold is None else mass[fold == f]
        for block in blocks(len(members)):
            share = masses[block].astype(rows.dtype)
            even = bool(np.all(share == share[0]))
            for w, kernel in enumerate(gaussian_widths(members[block], centers, widths)):
                firsts[w, f] += share @ kernel
                if second and even:
                    _add_gram(seconds[w, f], kernel, float(share[0]))
                elif second:
                    _add_gram(seconds[w, f], kernel * np.sqrt(share)[:, None], 1.0)
    upper = np.triu_indices(n_centers, 1)
    seconds[..., upper[1], upper[0]] = seconds[..., upper[0], upper[1]]
    return firsts, seconds


def _add_gram(total: FloatArray, kernel: FloatArray, factor: float) -> None:
    """Add factor · kernelᵀ kernel to (at least) the upper triangle of a column-major total."""
    if kernel.dtype == np.float64:
        dsyrk(factor, kernel.T, beta=1.0, c=total, overwrite_c=1)
    else:
        total += factor * (kernel.T @ kernel).astype(np.float64)
