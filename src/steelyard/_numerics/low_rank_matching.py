"""Kernel mean matching with a low-rank factor of the kernel matrix, and a bound on what the factor costs.

Written with what NumPy arrays and PyTorch tensors have in common; what they have not is in `NumpyArrays`, and in
`TorchArrays` of `torch_arrays`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from steelyard._numerics.interior_point import Woodbury, solve_box_slab_low_rank
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._numerics.low_rank import LowRank, greedy_pivots, pivoted_cholesky
from steelyard._numerics.quadratic_programs import BoxSlab, Certificate
from steelyard._typing import FloatArray

# Least regularization beside a low-rank factor, whose null space would make the interior point's systems singular.
LEAST_REG = 1e-9
# Mean residual of the kernel matrix' diagonal at which the low-rank factor is accurate enough, with few rows and with
# MANY_ROWS or more. With the linear term projected on the same pivots, the objective of the full problem is then within
# a relative error of 1e-6 of its optimum; the error decreases with the number of rows (tests/oracle/test_kmm.py).
FACTOR_TOLERANCES, MANY_ROWS = (3e-4, 1e-3), 3000
# Rows of each domain among which the further pivots of the bound are chosen, and how many there are at most.
CANDIDATES, MOST_FURTHER = 200, 64
# Pivots whose residual is smaller are not used: rounding errors would decide.
LEAST_PIVOT = 1e-9
# Added to every residual of the bound against rounding errors, by the bytes of a number of the rows.
ROUNDING = {4: 1e-6, 8: 1e-11}


class NumpyArrays:
    """What differs between arrays and tensors, for arrays."""

    block_rows = 2048
    systems: Any = Woodbury

    @staticmethod
    def gaussian(rows: FloatArray, centers: FloatArray, width: float) -> FloatArray:
        """The Gaussian kernel in double precision."""
        return gaussian(rows.astype(np.float64, copy=False), centers.astype(np.float64, copy=False), width)

    @staticmethod
    def solve_lower(lower: FloatArray, right: FloatArray) -> FloatArray:
        """Solve a lower-triangular system."""
        return np.asarray(solve_triangular(lower, right, lower=True, check_finite=False))

    @staticmethod
    def pivoted_cholesky(
        rows: FloatArray, width: float, rng: np.random.Generator, *, max_rank: int, tol: float
    ) -> LowRank:
        """Low-rank factor of the kernel matrix."""
        return pivoted_cholesky(rows, width, rng, max_rank=max_rank, tol=tol)

    @staticmethod
    def to_numpy(values: FloatArray) -> FloatArray:
        """The values as an array on the host."""
        return values

    @staticmethod
    def like(values: FloatArray, beside: FloatArray) -> FloatArray:
        """An array of the host as an array of the kind of `beside`."""
        return values

    @staticmethod
    def stack(parts: list[FloatArray]) -> FloatArray:
        """Arrays one after the other."""
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Domain:
    """The rows of a domain and how much each of them counts; `rows` and `mass` are both arrays or both tensors."""

    rows: Any
    mass: Any


@dataclass(frozen=True, eq=False)
class Pivots:
    """Rows p that span a subspace of the kernel's feature space, and further ones beyond these.

    φ(x) = L⁻¹k_P(x) are the coordinates of x in an orthonormal basis of that subspace. `corner` is L at the first
    pivots; `across` and `corner_further` are its rows at the further ones.
    """

    rows: Any
    corner: Any
    further: Any
    across: Any
    corner_further: Any

    def moments(
        self, domain: Domain, width: float, arrays: Any, factor: Any = None
    ) -> tuple[FloatArray, FloatArray, float]:
        """Σ mass·φ at the first and at the further pivots, and Σ mass·√(1 − ‖φ‖²), what lies outside of all.

        `factor` has the coordinates at the first pivots, where they are known.
        """
        rounding = ROUNDING[domain.rows.dtype.itemsize]
        first: Any = 0.0
        beyond: Any = 0.0
        outside = 0.0
        for block in blocks(len(domain.rows), arrays.block_rows):
            rows, mass = domain.rows[block], domain.mass[block]
            if factor is None:
                known = arrays.solve_lower(self.corner, arrays.gaussian(self.rows, rows, width))
            else:
                known = factor[block].T
            rest = 1 - (known * known).sum(0)
            first = first + known @ mass
            if len(self.further):
                new = arrays.gaussian(self.further, rows, width) - self.across @ known
                new = arrays.solve_lower(self.corner_further, new)
                rest = rest - (new * new).sum(0)
                beyond = beyond + new @ mass
            outside += float(mass @ (rest.clip(min=0) + rounding) ** 0.5)
        return first, beyond, outside


def further_pivots(
    low_rank: LowRank, domains: tuple[Domain, Domain], width: float, arrays: Any, rng: np.random.Generator
) -> Pivots:
    """The pivots of a factor, and further ones from a sample of both domains: those that the factor explains least.

    There are further ones with many rows only; with few they would cost as much as the solution.
    """
    tables = [domain.rows for domain in domains]
    rows, corner = tables[0][arrays.like(low_rank.pivots, tables[0])], low_rank.corner
    if len(tables[0]) < MANY_ROWS:
        return Pivots(rows, corner, rows[:0], corner[:0], corner[:0, :0])
    drawn = [rng.choice(len(table), min(CANDIDATES, len(table)), replace=False) for table in tables]
    candidates = arrays.stack([table[arrays.like(k, table)] for table, k in zip(tables, drawn, strict=True)])
    known = arrays.solve_lower(corner, arrays.gaussian(rows, candidates, width))
    schur = arrays.to_numpy(arrays.gaussian(candidates, candidates, width) - known.T @ known)
    lower, chosen = greedy_pivots(schur, LEAST_PIVOT, min(MOST_FURTHER, max(16, len(rows) // 2)))
    picked = arrays.like(chosen, rows)
    return Pivots(rows, corner, candidates[picked], known[:, picked].T, arrays.like(lower, known))


def match_low_rank(
    source: Domain,
    target: Domain,
    width: float,
    reg: Any,
    bounds: BoxSlab,
    start: Any,
    rng: np.random.Generator,
    *,
    n_rows: int,
    max_rank: int,
    tol: float,
    arrays: Any,
) -> tuple[Any, Certificate, float]:
    """min ½xᵀ(K + diag(reg))x − n κᵀx over 0 ≤ x ≤ u, low ≤ Σx ≤ high, with K and κ projected on pivots.

    Also the largest mean kernel value to the target at a pivot. The certificate bounds what the projection costs: in
    the feature space let r be the part of Σ x_i k(x_i, ·) − n mean_target k(z, ·) outside of the span of the pivots.
    The objective of the full problem is that of the projected one plus ½‖r‖² and a constant, so the solution of the
    projected problem exceeds the optimum of the full one by at most ½‖r‖² beside its own gap. ‖r‖² is computed at
    further pivots, and bounded by the triangle inequality outside of those: row i adds at most x_i √e_i, where e is
    the residual diagonal.
    """
    factor_tol = FACTOR_TOLERANCES[n_rows >= MANY_ROWS]
    low_rank = arrays.pivoted_cholesky(source.rows, width, rng, max_rank=max_rank, tol=factor_tol)
    pivots = further_pivots(low_rank, (source, target), width, arrays, rng)
    # The mean embedding of the target is projected on the pivots as K itself is: O(r·m) kernel values instead of
    # O(n·m). With exact means, or with the residual of the factor added to the diagonal, the solution would be
    # further from the optimum of the full problem (tests/oracle/test_kmm.py).
    first, target_beyond, target_outside = pivots.moments(target, width, arrays)
    at_least = reg.clip(min=LEAST_REG)
    x, certificate = solve_box_slab_low_rank(
        low_rank.factor,
        at_least,
        n_rows * (low_rank.factor @ first),
        bounds,
        start,
        tol=tol,
        truncation=low_rank.truncation,
        systems=arrays.systems,
    )
    _, beyond, outside = pivots.moments(Domain(source.rows, x), width, arrays, low_rank.factor)
    cost = float(outside + n_rows * target_outside) ** 2 / 2
    if len(pivots.further):
        difference = beyond - n_rows * target_beyond
        cost += float(difference @ difference) / 2
    cost += float(((at_least - reg) * bounds.upper).max()) * bounds.high / 2  # Σ δ x² ≤ max(δ u) Σ x
    rank = len(low_rank.pivots)
    limited = rank == max_rank < len(source.rows) and low_rank.truncation > factor_tol
    certificate = replace(
        certificate, truncation_cost=float(cost / max(1.0, abs(certificate.objective))), rank=rank, rank_limited=limited
    )
    return x, certificate, float((low_rank.corner @ first).max())
