"""A primal-dual interior-point method for box-and-slab problems whose matrix is a low-rank factor plus a diagonal.

The method is written with what NumPy arrays and PyTorch tensors have in common, so one text serves both. Only the
linear systems differ: `Woodbury` solves them with BLAS, its namesake in `torch_arrays` on the device of the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from steelyard._numerics.kernels import blocks
from steelyard._numerics.quadratic_programs import BoxSlab, Certificate, Multipliers, certify
from steelyard._typing import FloatArray

# Rows per block when the Gram matrix of the scaled factor is summed: large enough for BLAS, small for memory.
GRAM_ROWS = 4096


def solve_box_slab_low_rank(
    factor: FloatArray,
    diagonal: FloatArray,
    linear: FloatArray,
    bounds: BoxSlab,
    start: FloatArray,
    *,
    tol: float,
    truncation: float = 0.0,
    max_iter: int = 60,
    systems: Any = None,
) -> tuple[FloatArray, Certificate]:
    """min ½xᵀ(GGᵀ + D)x − cᵀx over 0 ≤ x ≤ u, low ≤ Σx ≤ high.

    Mehrotra's predictor-corrector method, started at a point strictly inside all constraints. Each step solves a
    system of the size of the rank, in O(n r²) time and without a copy of G. `systems` solves these systems; None takes
    `Woodbury`, which is for arrays.
    """
    scale = max(1.0, float(abs(linear).max()))
    problem = _Scaled(factor, diagonal / scale, linear / scale, bounds, scale, systems or Woodbury)
    state = _State.inside(problem, start)
    for iteration in range(max_iter + 1):
        product = problem.product(state.x)
        certificate = state.certificate(problem, product, iteration, tol, truncation)
        # Solving to a tenth of the tolerance costs one more step, and leaves room for the error of the factor.
        worst = max(certificate.gap, certificate.dual_residual, certificate.primal_residual)
        if worst <= tol / 10 or iteration == max_iter:
            break
        try:
            newton = _Newton(state, problem, product)
        except np.linalg.LinAlgError:
            break  # the barrier is beyond double precision; the certificate reports the accuracy reached
        predictor = newton.direction(0.0)
        now = state.complementarity()
        after = state.moved(predictor, state.longest(predictor)).complementarity()
        step = newton.direction(now * (after / now) ** 3, predictor)
        length = 0.99 * state.longest(step)
        if not length > 1e-8:
            break  # rounding errors allow no further step; the certificate reports the accuracy reached
        state = state.moved(step, length)
    # x and its distance to the bound are rounded each by itself, so x may exceed the bound by a rounding error.
    return state.x.clip(max=bounds.upper), certificate


class _Scaled:
    """The problem divided by the size of its gradient, so that every quantity of an iteration is of order one."""

    def __init__(
        self, factor: FloatArray, diagonal: FloatArray, linear: FloatArray, bounds: BoxSlab, scale: float, systems: Any
    ) -> None:
        self.factor, self.diagonal, self.linear, self.scale = factor, diagonal, linear, scale
        # An empty interior (equality) is widened by a trillionth, far below any tolerance on a sum of weights.
        widening = max(0.0, 1e-12 * max(1.0, bounds.high) - (bounds.high - bounds.low) / 2)
        self.low, self.high, self.upper = bounds.low - widening, bounds.high + widening, bounds.upper
        self.bounds = bounds
        self.systems = systems(factor, scale)

    def product(self, x: FloatArray) -> FloatArray:
        return self.factor @ (self.factor.T @ x) / self.scale + self.diagonal * x


class Woodbury:
    """Solves systems with T + GGᵀ/scale, T diagonal, by the Woodbury identity: systems of the size of the rank."""

    def __init__(self, factor: FloatArray, scale: float) -> None:
        self.factor, self.scale = factor, scale
        # Reused in every iteration: allocating it anew would cost as much as the product.
        self.buffer = np.empty((min(len(factor), GRAM_ROWS), factor.shape[1]), order="F")

    def set_diagonal(self, diagonal: FloatArray) -> None:
        """Factor the system with T = diag(`diagonal`)."""
        self.diagonal = diagonal
        n, rank = self.factor.shape
        small = np.zeros((rank, rank), order="F")
        root = 1 / np.sqrt(self.diagonal)
        for block in blocks(n, GRAM_ROWS):
            scaled = self.buffer[: block.stop - block.start]
            np.multiply(self.factor[block], root[block, None], out=scaled)
            small = dsyrk(1 / self.scale, scaled, beta=1.0, c=small, trans=1, overwrite_c=1)
        small[np.diag_indices(rank)] += 1
        self.cholesky = cho_factor(small, lower=False, overwrite_a=True, check_finite=False)

    def solve(self, right: FloatArray) -> FloatArray:
        """Solve for one or several right-hand sides (columns); the factor is read twice, however many there are."""
        per_row = self.diagonal if right.ndim == 1 else self.diagonal[:, None]
        scaled = right / per_row
        back = cho_solve(self.cholesky, self.factor.T @ scaled, check_finite=False)
        return np.asarray(scaled - self.factor @ back / self.scale / per_row)

    def solve_with_ones(self, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The solutions for `right` and for ones."""
        both = self.solve(np.column_stack([right, np.ones(len(right))]))
        return both[:, 0], both[:, 1]


@dataclass(frozen=True, eq=False)
class _State:
    """A point, or a step from one: x, its sum, and the multipliers of x ≥ 0, x ≤ u, sum ≥ low, sum ≤ high, sum = Σx.

    The distances to the bounds u, low and high are variables of their own: computed as differences they would lose
    their relative precision near an active bound, down to a distance of zero.
    """

    x: FloatArray
    total: float
    room: FloatArray  # u - x
    above: float  # sum - low
    below: float  # high - sum
    at_zero: FloatArray
    at_upper: FloatArray
    at_low: float
    at_high: float
    nu: float

    @classmethod
    def inside(cls, problem: _Scaled, start: FloatArray) -> _State:
        """Start with multipliers whose products with the distances to their bounds are about equal."""
        gradient = problem.product(start) - problem.linear
        level = float(abs(gradient).mean()) + 1e-3
        product, total = level * float(start.mean()), float(start.sum())
        room, above, below = problem.upper - start, total - problem.low, problem.high - total
        return cls(
            start,
            total,
            room,
            above,
            below,
            gradient.clip(min=0) + level,
            product / room,
            product / above,
            product / below,
            0.0,
        )

    def certificate(self, p: _Scaled, product: FloatArray, n_iter: int, tol: float, truncation: float) -> Certificate:
        multipliers = Multipliers(
            p.scale * self.at_zero, p.scale * self.at_upper, p.scale * self.at_low, p.scale * self.at_high
        )
        return certify(self.x, p.scale * product, p.scale * p.linear, p.bounds, multipliers, n_iter, tol, truncation)

    def moved(self, step: _State, length: float) -> _State:
        return _State(
            self.x + length * step.x,
            self.total + length * step.total,
            self.room + length * step.room,
            self.above + length * step.above,
            self.below + length * step.below,
            self.at_zero + length * step.at_zero,
            self.at_upper + length * step.at_upper,
            self.at_low + length * step.at_low,
            self.at_high + length * step.at_high,
            self.nu + length * step.nu,
        )

    def complementarity(self) -> float:
        """Mean product of the distance to a bound and its multiplier."""
        total = self.x @ self.at_zero + self.room @ self.at_upper + self.above * self.at_low + self.below * self.at_high
        return float(total) / (2 * len(self.x) + 2)

    def longest(self, step: _State) -> float:
        """The longest step length, at most one, that keeps all distances to bounds and multipliers non-negative."""
        scalars = np.array([self.above, self.below, self.at_low, self.at_high])
        changes = np.array([step.above, step.below, step.at_low, step.at_high])
        shrink = min(
            float((step.x / self.x).min()),
            float((step.room / self.room).min()),
            float((step.at_zero / self.at_zero).min()),
            float((step.at_upper / self.at_upper).min()),
            float(np.min(changes / scalars)),
        )
        return 1.0 if shrink > -1 else -1 / shrink


class _Newton:
    """The linear system of one iteration, factored once and solved for predictor and corrector."""

    def __init__(self, state: _State, p: _Scaled, product: FloatArray) -> None:
        self.state = state
        self.solver = p.systems
        self.solver.set_diagonal(p.diagonal + state.at_zero / state.x + state.at_upper / state.room)
        self.slab = state.at_low / state.above + state.at_high / state.below
        self.stationarity = product - p.linear - state.at_zero + state.at_upper + state.nu
        self.slab_stationarity = -state.nu - state.at_low + state.at_high
        self.sum_residual = float(state.x.sum()) - state.total
        self.of_ones: FloatArray | None = None

    def direction(self, complementarity: float, predictor: _State | None = None) -> _State:
        """The step toward a given complementarity, corrected for the second-order terms of the predictor's step."""
        s, second = self.state, _second_order(predictor)
        to_zero = (complementarity - second[0]) / s.x - s.at_zero
        to_upper = (complementarity - second[1]) / s.room - s.at_upper
        to_low = (complementarity - second[2]) / s.above - s.at_low
        to_high = (complementarity - second[3]) / s.below - s.at_high
        right, self.of_ones = self._solve(to_zero - to_upper - self.stationarity)
        slab_right = to_low - to_high - self.slab_stationarity
        # Eliminating x leaves one equation for the sum, in a form that is stable for tiny and for huge slab terms.
        free, stiffness = float(right.sum()) + self.sum_residual, float(self.of_ones.sum())
        total = (free + stiffness * slab_right) / (self.slab * stiffness + 1)
        nu = (self.slab * free - slab_right) / (self.slab * stiffness + 1)
        x = right - nu * self.of_ones
        return _State(
            x,
            total,
            -x,
            total,
            -total,
            to_zero - s.at_zero / s.x * x,
            to_upper + s.at_upper / s.room * x,
            to_low - s.at_low / s.above * total,
            to_high + s.at_high / s.below * total,
            nu,
        )

    def _solve(self, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The solutions for `right` and for ones; the latter is computed together with the first one and kept."""
        if self.of_ones is not None:
            return self.solver.solve(right), self.of_ones
        solution: tuple[FloatArray, FloatArray] = self.solver.solve_with_ones(right)
        return solution


def _second_order(step: _State | None) -> tuple[FloatArray | float, FloatArray | float, float, float]:
    if step is None:
        return 0.0, 0.0, 0.0, 0.0
    return (
        step.x * step.at_zero,
        -step.x * step.at_upper,
        step.total * step.at_low,
        -step.total * step.at_high,
    )
