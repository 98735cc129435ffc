"""Low-rank factor of a kernel matrix: pivoted Cholesky in blocks, without forming the matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from steelyard._numerics.kernels import blocks, gaussian
from steelyard._typing import FloatArray, IntArray

# Rows per block, so that the new columns stay small compared with the factor.
PART_ROWS = 32_768


@dataclass(frozen=True, eq=False)
class LowRank:
    """K ≈ GGᵀ, with `residual` the diagonal of K − GGᵀ.

    `pivots` are the rows that span the factor, and `corner` is G at those rows: a lower-triangular matrix L with
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

    Pivots are drawn in blocks with probability proportional to the residual diagonal. Within a block they are ordered
    greedily, and rows whose residual after the block's earlier pivots is below a tenth of the largest are dropped. A
    block costs one product with the previous columns, so the whole costs O(n r²) time and O(n r) memory.
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
        lower, kept = greedy_pivots(schur, 0.1 * float(schur.diagonal().max()), size)
        n_kept, chosen = len(kept), drawn[kept]
        previous = factor[chosen, :rank].T
        for part in blocks(n, PART_ROWS):
            columns = gaussian(rows[part], rows[chosen], width).astype(np.float64, copy=False)
            columns -= factor[part, :rank] @ previous
            new = solve_triangular(lower, columns.T, lower=True, check_finite=False).T
            factor[part, rank : rank + n_kept] = new
            residual[part] -= np.einsum("ij,ij->i", new, new)
        pivots.extend(chosen.tolist())
        np.maximum(residual, 0, out=residual)
        residual[pivots] = 0
    factor = factor[:, : len(pivots)]
    positions = np.array(pivots, dtype=np.intp)
    return LowRank(factor, residual, positions, np.tril(factor[positions]))


def greedy_pivots(matrix: FloatArray, tol: float, at_most: int) -> tuple[FloatArray, IntArray]:
    """Cholesky factor L and pivots of a small matrix, the row with the largest residual first, until it is below `tol`.

    LLᵀ is the matrix at the pivots, in their order.
    """
    lower, order, n_kept, _ = dpstrf(matrix, tol=tol, lower=1)
    n_kept = min(int(n_kept), at_most)
    return np.tril(lower[:n_kept, :n_kept]), np.asarray(order[:n_kept] - 1, dtype=np.intp)
