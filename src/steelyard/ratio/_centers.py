"""Which target rows are the centers of the basis functions, and when centers are held out."""

from __future__ import annotations

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._typing import IntArray

# Centers are chosen among at most this many rows: a random sample of them covers the table as well as all rows.
MOST_ROWS = 3000
# Width of the kernel that measures how well rows are covered, in units of the median distance. It is close to the
# smallest width of the estimators' grid, so that with hardly any width a row differs from the centers that cover it.
COVER_WIDTH = 2.0**-2.5
# A row is covered where the centers leave at most this share of its kernel value unexplained.
COVERED = 1e-4


def covering_rows(target: Empirical, n_centers: int, median_distance: float) -> IntArray:
    """Positions of the distinct target rows that become centers: rows that cover the table.

    Greedy pivoted Cholesky of the kernel matrix, in O(n b²) for b of n rows: the next center is the row that the
    previous centers explain least. (Rows are not weighted by mass: centers at the most frequent cells of the sample
    would fit its noise.) Uniformly random centers would be many in dense regions and few elsewhere, so that the fit
    would depend on the seed; covering removes most of that. Where all rows are covered before `n_centers` are chosen
    (mostly in tables of one column), the remaining centers are random. With at most `n_centers` distinct rows, every
    row is a center.
    """
    if len(target) <= n_centers:
        return np.arange(len(target))
    rows = target.rows[:MOST_ROWS]
    if n_centers >= len(rows):
        return np.arange(n_centers)
    # Single precision is enough to decide what is covered, once the rows are centered.
    width = COVER_WIDTH * median_distance
    rows = ((rows - rows.mean(axis=0, dtype=np.float64)) / width).astype(np.float32)
    half_squares = np.einsum("ij,ij->i", rows, rows) / 2
    factor = np.empty((n_centers, len(rows)), dtype=rows.dtype)
    residual = np.ones_like(half_squares)
    # The first pivot is the most central row, so that nothing depends on the order of the rows.
    pivots = [int(np.argmin(half_squares))]
    for step in range(n_centers):
        pivot = pivots[-1]
        column = rows @ rows[pivot]
        column -= half_squares
        column -= half_squares[pivot]
        np.exp(column, out=column)
        column -= factor[:step, pivot] @ factor[:step]
        column /= np.sqrt(residual[pivot])
        factor[step] = column
        residual -= np.square(column)
        residual[pivot] = -np.inf  # never chosen again
        pivot = int(np.argmax(residual))
        if step + 1 == n_centers or residual[pivot] <= COVERED:
            break
        pivots.append(pivot)
    free = np.ones(len(rows), dtype=bool)
    free[pivots] = False
    remaining = np.flatnonzero(free)  # in random order: the distinct rows are shuffled
    return np.concatenate([pivots, remaining[: n_centers - len(pivots)]])


def fold_of_centers(cells: IntArray, fold_of_cells: IntArray) -> IntArray:
    """The fold with which each center is held out; -1 for centers that are never held out.

    A held-out row must not be a center while its fold is scored: a basis function is largest at its own center, so
    the score would favor narrow widths. A center stays where an equal row is in another fold.
    """
    return np.where(cells >= 0, fold_of_cells[cells], -1)
