"""Which target rows serve as centers of the basis functions."""

from __future__ import annotations

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._typing import FloatArray, IntArray

# Centers are chosen among so many rows: beyond, a random sample covers the table as well as all of it.
MOST_ROWS = 3000
# Width of the kernel by which rows cover one another, in units of the median distance: near the narrowest of the grid
# from which the estimators choose theirs, so that hardly any width can tell a row from the centers that stand for it.
COVER_WIDTH = 2.0**-2.5
# A row of which the centers leave no more than this unexplained is covered.
COVERED = 1e-4


def covering_rows(target: Empirical, n_centers: int, median_distance: float) -> IntArray:
    """Places of the distinct target rows that serve as centers: rows that cover the table.

    Greedy pivoted Cholesky of the kernel matrix: the next center is the row of which the centers so far explain the
    least. (Not weighted by mass: centers at the cells that the sample happens to have most of would fit its chance.)
    A blind draw puts many centers into the dense middle and by chance few elsewhere, so that the fit changes with the
    seed; covering takes most of that away. Where all rows
    are covered before the centers are used up (in one column, mostly), the others are drawn at random. With as few
    distinct rows as centers, every one is a center.
    """
    if len(target) <= n_centers:
        return np.arange(len(target))
    rows = target.rows[:MOST_ROWS]
    if n_centers >= len(rows):
        return np.arange(n_centers)
    pivots = _pivots(rows, n_centers, COVER_WIDTH * median_distance)
    free = np.ones(len(rows), dtype=bool)
    free[pivots] = False
    others = np.flatnonzero(free)  # in random order: the distinct rows are shuffled
    return np.concatenate([pivots, others[: n_centers - len(pivots)]])


def _pivots(rows: FloatArray, at_most: int, width: float) -> IntArray:
    """O(n b²) for b pivots of n rows, in b steps."""
    # Single precision is enough to tell what is covered, once the rows are centered.
    rows = ((rows - rows.mean(axis=0, dtype=np.float64)) / width).astype(np.float32)
    half_squares = np.einsum("ij,ij->i", rows, rows) / 2
    factor = np.empty((at_most, len(rows)), dtype=rows.dtype)
    residual = np.ones_like(half_squares)
    pivots = np.empty(at_most, dtype=np.intp)
    # The first one is the most central row, so that nothing depends on the order of the rows.
    pivot = int(np.argmin(half_squares))
    for step in range(at_most):
        pivots[step] = pivot
        column = rows @ rows[pivot]
        column -= half_squares
        column -= half_squares[pivot]
        np.exp(column, out=column)
        column -= factor[:step, pivot] @ factor[:step]
        column /= np.sqrt(residual[pivot])
        factor[step] = column
        residual -= np.square(column)
        residual[pivot] = -np.inf  # never again
        pivot = int(np.argmax(residual))
        if residual[pivot] <= COVERED:
            return pivots[: step + 1]
    return pivots
