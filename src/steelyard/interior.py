"""A primal-dual interior point for box-and-slab problems whose matrix is a thin factor plus a diagonal."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from steelyard.arrays import FloatArray
from steelyard.kernels import blocks
from steelyard.qp import BoxSlab, Certificate, Multipliers, certify

# Rows a block when the scaled factor's Gram matrix is summed: large enough for BLAS, small beside the factor.
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
) -> tuple[FloatArray, Certificate]:
    """min ½xᵀ(GGᵀ + D)x − cᵀx over 0 ≤ x ≤ u, low ≤ Σx ≤ high.

    Mehrotra's predictor-corrector from a point inside all constraints. The slab's barrier is one more column beside
    G, so each step solves a system of the size of the rank: O(n r²) time, and no copy of G.
    """
    scale = max(1.0, float(np.max(np.abs(linear))))
    problem = _Scaled(factor, diagonal / scale, linear / scale, bounds, scale)
    point = _Point.inside(problem, start)
    for iteration in range(max_iter + 1):
        certificate = point.certificate(problem, iteration, tol, truncation)
        # A hundredth of the tolerance costs one or two steps and makes the objective agree to eight digits.
        worst = max(certificate.gap, certificate.dual_residual, certificate.primal_residual)
        if worst <= tol / 100 or iteration == max_iter:
            break
        advanced = point.step(problem)
        if advanced is None:
            break
        point = advanced
    return point.x, certificate


class _Scaled:
    """The problem divided by the size of its gradient: every quantity of an iteration is then of order one."""

    def __init__(
        self, factor: FloatArray, diagonal: FloatArray, linear: FloatArray, bounds: BoxSlab, scale: float
    ) -> None:
        self.factor, self.diagonal, self.linear, self.scale = factor, diagonal, linear, scale
        # An empty interior (equality) is widened by a billionth, far below any tolerance on a sum of weights.
        room = 1e-9 * max(1.0, bounds.high)
        self.low, self.high, self.upper = bounds.low - room, bounds.high + room, bounds.upper
        self.bounds = bounds

    def product(self, x: FloatArray) -> FloatArray:
        return self.factor @ (self.factor.T @ x) / self.scale + self.diagonal * x

    def solver(self, barrier: FloatArray, slab: float) -> _Woodbury:
        return _Woodbury(self.factor, self.diagonal + barrier, slab, self.scale)


class _Woodbury:
    """Solves with T + GGᵀ/scale + slab·11ᵀ, T diagonal, through a system of the size of the rank plus one."""

    def __init__(self, factor: FloatArray, diagonal: FloatArray, slab: float, scale: float) -> None:
        self.factor, self.diagonal, self.slab, self.scale = factor, diagonal, slab, scale
        n, rank = factor.shape
        small = np.zeros((rank + 1, rank + 1), order="F")
        root = 1 / np.sqrt(diagonal)
        inner = np.zeros((rank, rank), order="F")
        for block in blocks(n, GRAM_ROWS):
            scaled = factor[block] * root[block, None]
            inner = dsyrk(1 / scale, scaled, beta=1.0, c=inner, trans=1, overwrite_c=1)
        small[:rank, :rank] = inner
        small[:rank, rank] = np.sqrt(slab / scale) * (factor.T @ (1 / diagonal))
        small[rank, rank] = slab * np.sum(1 / diagonal)
        small[np.diag_indices(rank + 1)] += 1
        self.cholesky = cho_factor(small, lower=False, overwrite_a=True, check_finite=False)

    def solve(self, right: FloatArray) -> FloatArray:
        x = self._solve_once(right)
        # One round of refinement: the small system is badly conditioned near the end.
        return x + self._solve_once(right - self._apply(x))

    def _apply(self, x: FloatArray) -> FloatArray:
        return self.diagonal * x + self.factor @ (self.factor.T @ x) / self.scale + self.slab * x.sum()

    def _solve_once(self, right: FloatArray) -> FloatArray:
        scaled = right / self.diagonal
        inner = np.append(
            self.factor.T @ scaled / np.sqrt(self.scale), np.sqrt(self.slab) * scaled.sum()
        )
        back = cho_solve(self.cholesky, inner, check_finite=False)
        correction = self.factor @ back[:-1] / np.sqrt(self.scale) + np.sqrt(self.slab) * back[-1]
        return np.asarray(scaled - correction / self.diagonal)


class _Point:
    """Primal point x, its sum, and the multipliers of the four constraints."""

    def __init__(
        self, x: FloatArray, at_zero: FloatArray, at_upper: FloatArray, at_low: float, at_high: float, nu: float
    ) -> None:
        self.x, self.at_zero, self.at_upper = x, at_zero, at_upper
        self.at_low, self.at_high, self.nu = at_low, at_high, nu
        self.total = float(x.sum())

    @classmethod
    def inside(cls, problem: _Scaled, start: FloatArray) -> _Point:
        gradient = problem.product(start) - problem.linear
        level = float(np.mean(np.abs(gradient))) + 1e-3
        at_zero = np.maximum(gradient, 0) + level
        at_upper = np.maximum(-gradient, 0) + level * np.minimum(1.0, start / (problem.upper - start))
        return cls(start, at_zero, at_upper, level, level, 0.0)

    def certificate(self, p: _Scaled, n_iter: int, tol: float, truncation: float) -> Certificate:
        multipliers = Multipliers(
            p.scale * self.at_zero, p.scale * self.at_upper, p.scale * self.at_low, p.scale * self.at_high
        )
        product = p.scale * p.product(self.x)
        return certify(self.x, product, p.scale * p.linear, p.bounds, multipliers, n_iter, tol, truncation)

    def step(self, p: _Scaled) -> _Point | None:
        """The next point, or None where rounding leaves no step to take."""
        x, n = self.x, len(self.x)
        above, below = self.total - p.low, p.high - self.total
        room = p.upper - x
        barrier = self.at_zero / x + self.at_upper / room
        slab = self.at_low / above + self.at_high / below
        solver = p.solver(barrier, slab)
        stationarity = p.product(x) - p.linear - self.at_zero + self.at_upper + self.nu
        slab_stationarity = -self.nu - self.at_low + self.at_high

        def direction(target: float, second: tuple[FloatArray, FloatArray, float, float]) -> _Direction:
            zero, upper, low, high = second
            to_zero = (target - zero) / x - self.at_zero
            to_upper = (target - upper) / room - self.at_upper
            to_low = (target - low) / above - self.at_low
            to_high = (target - high) / below - self.at_high
            slab_right = slab_stationarity - to_low + to_high
            dx = solver.solve(-stationarity + to_zero - to_upper - slab_right)
            ds = float(dx.sum())
            return _Direction(
                dx,
                to_zero - self.at_zero / x * dx,
                to_upper + self.at_upper / room * dx,
                ds,
                to_low - self.at_low / above * ds,
                to_high + self.at_high / below * ds,
                slab * ds + slab_right,
            )

        def complementarity(d: _Direction, length: float) -> float:
            moved = x + length * d.x
            return float(
                moved @ (self.at_zero + length * d.at_zero)
                + (p.upper - moved) @ (self.at_upper + length * d.at_upper)
                + (above + length * d.total) * (self.at_low + length * d.at_low)
                + (below - length * d.total) * (self.at_high + length * d.at_high)
            ) / (2 * n + 2)

        def longest(d: _Direction) -> float:
            pairs = [
                (x, d.x), (room, -d.x), (self.at_zero, d.at_zero), (self.at_upper, d.at_upper),
                (np.array([above, below, self.at_low, self.at_high]),
                 np.array([d.total, -d.total, d.at_low, d.at_high])),
            ]  # fmt: skip
            shrink = min(float(np.min(step / value)) for value, step in pairs)
            return 1.0 if shrink > -1 else -1 / shrink

        none = np.zeros(n)
        predictor = direction(0.0, (none, none, 0.0, 0.0))
        now = complementarity(predictor, 0.0)
        after = complementarity(predictor, longest(predictor))
        target = now * (after / now) ** 3
        second = (
            predictor.x * predictor.at_zero,
            -predictor.x * predictor.at_upper,
            predictor.total * predictor.at_low,
            -predictor.total * predictor.at_high,
        )
        final = direction(target, second)
        length = min(1.0, 0.99 * longest(final))
        if not np.isfinite(length) or length < 1e-8:
            return None
        return _Point(
            x + length * final.x,
            self.at_zero + length * final.at_zero,
            self.at_upper + length * final.at_upper,
            self.at_low + length * final.at_low,
            self.at_high + length * final.at_high,
            self.nu + length * final.nu,
        )


class _Direction:
    def __init__(
        self,
        x: FloatArray,
        at_zero: FloatArray,
        at_upper: FloatArray,
        total: float,
        at_low: float,
        at_high: float,
        nu: float,
    ) -> None:
        self.x, self.at_zero, self.at_upper = x, at_zero, at_upper
        self.total, self.at_low, self.at_high, self.nu = total, at_low, at_high, nu
