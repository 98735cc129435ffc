"""A kernel matrix as a thin factor: pivoted Cholesky in blocks, without ever forming the matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from steelyard._numerics.kernels import blocks, gaussian
from steelyard._typing import FloatArray, IntArray

# Rows a part, so that the columns in the making stay small beside the factor.
PART_ROWS = 32_768


@dataclass(frozen=True, eq=False)
class LowRank:
    """K ≈ GGᵀ, with `residual` what is left on the diagonal.

    `pivots` are the rows that span the factor, `corner` is G at those rows: a lower-triangular matrix L with
    LLᵀ = K on the pivots.
    """

    factor: FloatArray
    residual: FloatArray
    pivots: IntArray
    corner: FloatArray

    @property
    def truncation(self) -> float:
        """Share of the trace that the factor leaves out."""
        return float(self.residual.mean())


def pivoted_cholesky(
    rows: FloatArray,
    width: float,
    rng: np.random.Generator,
    *,
    max_rank: int,
    tol: float,
    block: int = 32,
) -> LowRank:
    """Low-rank factor of the Gaussian kernel matrix of `rows`, until the mean residual is at most `tol`.

    Pivots are drawn in blocks with probability proportional to what is left of their diagonal; within a block the
    greedy order decides, and rows that the block's earlier pivots already explain are passed over. A block costs one
    product with the factor so far, so the whole is O(n r²) in matrix products and O(n r) in memory.
    """
    n = len(rows)
    max_rank = min(max_rank, n)
    factor = np.empty((n, max_rank), order="F")
    residual = np.ones(n)
    pivots: list[int] = []
    while len(pivots) < max_rank and residual.mean() > tol:
        rank = len(pivots)
        size = min(block, max_rank - rank, int(np.count_nonzero(residual)))
        drawn = rng.choice(n, size=size, replace=False, p=residual / residual.sum())
        schur = gaussian(rows[drawn], rows[drawn], width).astype(np.float64, copy=False)
        schur -= factor[drawn, :rank] @ factor[drawn, :rank].T
        lower, keep = _pivot_block(schur)
        chosen, among = drawn[keep], factor[drawn[keep], :rank].T
        for part in blocks(n, PART_ROWS):
            columns = gaussian(rows[part], rows[chosen], width).astype(np.float64, copy=False)
            columns -= factor[part, :rank] @ among
            new = solve_triangular(lower, columns.T, lower=True, check_finite=False).T
            factor[part, rank : rank + len(keep)] = new
            residual[part] -= np.einsum("ij,ij->i", new, new)
        pivots.extend(chosen.tolist())
        np.maximum(residual, 0, out=residual)
        residual[pivots] = 0
    factor = factor[:, : len(pivots)]
    places = np.array(pivots, dtype=np.intp)
    return LowRank(factor, residual, places, np.tril(factor[places]))


def _pivot_block(schur: FloatArray) -> tuple[FloatArray, IntArray]:
    """Pivoted Cholesky of a small block; columns that are left with less than a tenth of the largest are dropped."""
    lower, order, rank, _ = dpstrf(schur, tol=0.1 * float(schur.diagonal().max()), lower=1)
    return lower[:rank, :rank], (order[:rank] - 1).astype(np.intp)
