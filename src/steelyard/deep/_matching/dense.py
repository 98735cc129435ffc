"""Kernel mean matching with PyTorch: many small dense problems at once, on any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

# Relative duality gap and residuals at which a problem counts as solved.
TOLERANCE = 1e-8
MAX_ITER = 60
# cvxopt stops at either gap, absolute or relative, and at residuals relative to κ and to the constraints.
CVXOPT_GAP, CVXOPT_RELATIVE_GAP, CVXOPT_RESIDUAL = 1e-7, 1e-6, 1e-7


@dataclass(frozen=True, eq=False)
class Problems:
    """P problems min ½xᵀKx − κᵀx over 0 ≤ x ≤ B, low ≤ Σx ≤ high, some of whose rows may be padding."""

    kernel: Tensor  # (P, n, n), with λ on the diagonal
    linear: Tensor  # κ, (P, n)
    real: Tensor  # (P, n), 1 for real rows, 0 for padding
    w_max: float
    low: Tensor  # (P,)
    high: Tensor


def squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """(P, n, m) from (P, n, d) and (P, m, d)."""
    if rows.shape[-1] == 1:
        return (rows - others.mT).square()
    return torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist").square()


def pose(
    train: Tensor,
    validation: Tensor,
    gamma: Tensor,
    *,
    w_max: float,
    reg: float,
    real: Tensor | None = None,
    validation_real: Tensor | None = None,
) -> Problems:
    """The problems of training rows (P, n, d) and validation rows (P, m, d), in float64.

    A padding row has kernel value zero with every other row and linear term 1: its solution is 1, and it does not
    affect the others.
    """
    train, validation, gamma = train.double(), validation.double(), gamma.double()
    mask, validation_mask = (
        torch.ones(rows.shape[:2], dtype=train.dtype, device=train.device) if given is None else given.double()
        for rows, given in ((train, real), (validation, validation_real))
    )
    kernel = torch.exp(-gamma[:, None, None] * squared_distances(train, train))
    kernel = kernel * mask[:, :, None] * mask[:, None, :]
    diagonal = torch.diagonal(kernel, dim1=1, dim2=2)
    diagonal.copy_(1 + reg * mask)
    n, m = mask.sum(dim=1), validation_mask.sum(dim=1)
    across = torch.exp(-gamma[:, None, None] * squared_distances(train, validation))
    linear = (n / m.clamp(min=1))[:, None] * torch.einsum("pnm,pm->pn", across, validation_mask)
    linear = torch.where(mask > 0, linear, torch.ones_like(linear))
    slack = (n.sqrt() - 1) / n.sqrt().clamp(min=1)
    slack = torch.where(n > 1, slack, torch.full_like(n, 0.5))  # a single row gets weight one in any case
    low, high = (torch.where(n > 0, n * (1 + sign * slack), torch.full_like(n, sign)) for sign in (-1.0, 1.0))
    return Problems(kernel, linear, mask, w_max, low, high)


def solve(problems: Problems, tol: float = TOLERANCE) -> Tensor:
    """Weights (P, n) by a primal-dual interior point that iterates all problems together.

    It starts with all weights one, or B/2 if that is less, and multipliers whose products with their slacks are equal.
    """
    p = problems
    level = min(1.0, p.w_max / 2)
    x = torch.full_like(p.linear, level)
    total = (x * p.real).sum(dim=1)
    # Strictly inside the slab, for any level.
    total = torch.minimum(torch.maximum(total, p.low + 0.1 * (p.high - p.low)), p.high - 0.1 * (p.high - p.low))
    gradient = torch.einsum("pnm,pm->pn", p.kernel, x) - p.linear
    size = gradient.abs().mean(dim=1) + 1e-3
    start = _Point(
        x,
        total,
        gradient.clamp(min=0) + size[:, None],
        (size * level)[:, None] / (p.w_max - x),
        size * level / (total - p.low),
        size * level / (p.high - total),
        torch.zeros_like(total),
        torch.zeros_like(total),
    )
    return _solve(p, start, lambda state: _residuals(p, state), tol)


def solve_as_cvxopt(problems: Problems) -> Tensor:
    """The weights at which cvxopt stops with its default settings; for problems without padding.

    With a kernel as wide as the authors', many weights are within its tolerance of the optimum, and the starting point
    decides which are found. cvxopt makes Mehrotra's steps from the minimum of the objective plus half the sum of
    squares of all constraint slacks. That point may violate the constraints; they are all relaxed by the amount needed,
    and tightened in proportion to each step.
    """
    p, n = problems, problems.linear.shape[1]

    def relative_to_tolerances(s: _Point) -> _Residuals:
        """Residuals with an error of at most one where cvxopt would stop."""
        found = _residuals(p, s)
        objective = (s.x * (found.product / 2 - p.linear)).sum(dim=1).abs()
        gap = found.mu * (2 * n + 2) / (CVXOPT_RELATIVE_GAP * objective).clamp(min=CVXOPT_GAP)
        slope = found.stationarity.norm(dim=1) / p.linear.norm(dim=1).clamp(min=1)
        sides = (n * p.w_max**2 + p.low.square() + p.high.square()).sqrt().clamp(min=1)
        outside = s.relaxed * (2 * n + 2) ** 0.5 / sides
        return replace(found, error=torch.maximum(gap, torch.maximum(slope, outside) / CVXOPT_RESIDUAL))

    return _solve(p, _cvxopt_start(p), relative_to_tolerances, 1.0)


def _solve(problems: Problems, state: _Point, measure: Callable[[_Point], _Residuals], tol: float) -> Tensor:
    """Mehrotra's predictor and corrector until every error is at most `tol`; solved problems are not changed."""
    for _ in range(MAX_ITER):
        residuals = measure(state)
        if bool((residuals.error <= tol).all()):
            break
        newton, mu = _Newton(problems, state, residuals), residuals.mu
        predictor = newton.direction(torch.zeros_like(mu), None)
        after = _complementarity(problems, _moved(state, predictor, newton.longest(predictor)))
        corrector = newton.direction((after / mu) ** 3 * mu, predictor)
        length = newton.longest(corrector, 0.99)
        # Not finite: the Newton system is beyond double precision, so this problem stops.
        usable = (residuals.error > tol) & torch.isfinite(corrector.x).all(dim=1)
        state = _moved(state, corrector, torch.where(usable, length, torch.zeros_like(length)))
    single = problems.real.sum(dim=1, keepdim=True) <= 1
    return torch.where(single, torch.ones_like(state.x), state.x) * problems.real


@dataclass(frozen=True, eq=False)
class _Point:
    """x, its sum, and the multipliers of x ≥ 0, x ≤ B, Σx ≥ low, Σx ≤ high and of the sum itself.

    Also used for a step: the changes of all of these.
    """

    x: Tensor
    total: Tensor
    at_zero: Tensor
    at_upper: Tensor
    at_low: Tensor
    at_high: Tensor
    nu: Tensor
    relaxed: Tensor  # amount by which every constraint is relaxed, if the start violated one


@dataclass(frozen=True, eq=False)
class _Residuals:
    product: Tensor  # Kx
    stationarity: Tensor
    slab: Tensor
    total: Tensor
    mu: Tensor
    error: Tensor  # largest of gap and residuals, relative to the objective or to their tolerances


def _slacks(p: Problems, x: Tensor, total: Tensor, relaxed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slacks of x ≥ 0, x ≤ B, Σx ≥ low and Σx ≤ high."""
    wide = relaxed[:, None]
    return x + wide, p.w_max - x + wide, total - p.low + relaxed, p.high - total + relaxed


def _cvxopt_start(p: Problems) -> _Point:
    """Minimum of the objective plus half the squares of all slacks; multipliers are a constant minus the slacks."""
    n = p.linear.shape[1]
    matrix = p.kernel + 2 * torch.eye(n, dtype=p.kernel.dtype, device=p.kernel.device) + 2
    x = torch.linalg.solve(matrix, p.linear + p.w_max + (p.low + p.high)[:, None])
    total, none = x.sum(dim=1), torch.zeros_like(p.low)
    slacks = _slacks(p, x, total, none)
    together = torch.cat([slack.reshape(len(x), -1) for slack in slacks], dim=1)
    least, most = together.amin(dim=1), 1 + together.amax(dim=1)
    at_zero, at_upper, at_low, at_high = (most.reshape(-1, *[1] * (slack.ndim - 1)) - slack for slack in slacks)
    return _Point(
        x, total, at_zero, at_upper, at_low, at_high, at_high - at_low, torch.where(least <= 0, 1 - least, none)
    )


def _residuals(p: Problems, s: _Point) -> _Residuals:
    product = torch.einsum("pnm,pm->pn", p.kernel, s.x)
    stationarity = product - p.linear - s.at_zero + s.at_upper + s.nu[:, None] * p.real
    slab = -s.nu - s.at_low + s.at_high
    total = (s.x * p.real).sum(dim=1) - s.total
    mu = _complementarity(p, s)
    objective = (s.x * (product / 2 - p.linear)).sum(dim=1).abs().clamp(min=1)
    # A residual counts as the change of the objective it causes at weights of one.
    worst = torch.maximum(stationarity.abs().sum(dim=1), (slab * s.total).abs())
    worst = torch.maximum(worst, (total * s.nu).abs() + total.abs() / s.total.clamp(min=1e-30) * 1e-2)
    error = torch.maximum(mu * (2 * p.linear.shape[1] + 2), worst) / objective
    return _Residuals(product, stationarity, slab, total, mu, error)


def _complementarity(p: Problems, s: _Point) -> Tensor:
    """Mean product of slack and multiplier over the constraints of each problem."""
    over, room, above, below = _slacks(p, s.x, s.total, s.relaxed)
    total = (over * s.at_zero + room * s.at_upper).sum(dim=1) + above * s.at_low + below * s.at_high
    return total / (2 * p.linear.shape[1] + 2)


class _Newton:
    """The linear systems of one iteration, factored once and solved for predictor and corrector."""

    def __init__(self, p: Problems, s: _Point, r: _Residuals) -> None:
        self.p, self.s, self.r = p, s, r
        self.over, self.room, self.above, self.below = _slacks(p, s.x, s.total, s.relaxed)
        diagonal = s.at_zero / self.over + s.at_upper / self.room
        self.factor = torch.linalg.cholesky_ex(p.kernel + torch.diag_embed(diagonal)).L
        self.of_ones = torch.cholesky_solve(p.real[:, :, None], self.factor)[:, :, 0]
        self.stiffness = (self.of_ones * p.real).sum(dim=1)
        self.slope = s.at_low / self.above + s.at_high / self.below

    def direction(self, aim: Tensor, before: _Point | None) -> _Point:
        """The step toward complementarity `aim`, corrected for the second order of the predictor's step."""
        s, r = self.s, self.r
        second = (0.0, 0.0, 0.0, 0.0) if before is None else _second_order(before)
        wide, relaxed = s.relaxed[:, None], s.relaxed
        to_zero = (aim[:, None] - second[0] + wide * s.at_zero) / self.over - s.at_zero
        to_upper = (aim[:, None] - second[1] + wide * s.at_upper) / self.room - s.at_upper
        to_low = (aim - second[2] + relaxed * s.at_low) / self.above - s.at_low
        to_high = (aim - second[3] + relaxed * s.at_high) / self.below - s.at_high
        right = torch.cholesky_solve((to_zero - to_upper - r.stationarity)[:, :, None], self.factor)[:, :, 0]
        slab_right = to_low - to_high - r.slab
        # Eliminating x leaves one equation for the sum.
        free = (right * self.p.real).sum(dim=1) + r.total
        total = (free + self.stiffness * slab_right) / (self.slope * self.stiffness + 1)
        nu = (self.slope * free - slab_right) / (self.slope * self.stiffness + 1)
        x = right - nu[:, None] * self.of_ones
        return _Point(
            x,
            total,
            to_zero - s.at_zero / self.over * x,
            to_upper + s.at_upper / self.room * x,
            to_low - s.at_low / self.above * total,
            to_high + s.at_high / self.below * total,
            nu,
            -relaxed,
        )

    def longest(self, step: _Point, share: float = 1.0) -> Tensor:
        """`share` of the longest step that keeps all slacks and multipliers non-negative, at most one; per problem."""
        s = self.s
        d_over, d_room, d_above, d_below = _changes(step)
        shrink = torch.stack(
            [
                (d_over / self.over).amin(dim=1),
                (d_room / self.room).amin(dim=1),
                (step.at_zero / s.at_zero).amin(dim=1),
                (step.at_upper / s.at_upper).amin(dim=1),
                d_above / self.above,
                d_below / self.below,
                step.at_low / s.at_low,
                step.at_high / s.at_high,
            ]
        ).amin(dim=0)
        return torch.where(shrink < -share, -share / shrink, torch.ones_like(shrink))


def _changes(step: _Point) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Changes of the slacks of x ≥ 0, x ≤ B, Σx ≥ low and Σx ≤ high in a step."""
    wide = step.relaxed[:, None]
    return step.x + wide, wide - step.x, step.total + step.relaxed, step.relaxed - step.total


def _second_order(step: _Point) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_over, d_room, d_above, d_below = _changes(step)
    return d_over * step.at_zero, d_room * step.at_upper, d_above * step.at_low, d_below * step.at_high


def _moved(s: _Point, step: _Point, length: Tensor) -> _Point:
    wide = length[:, None]
    still = length == 0

    def to(old: Tensor, change: Tensor, by: Tensor) -> Tensor:
        return torch.where(still if old.ndim == 1 else still[:, None], old, old + by * change)

    return _Point(
        to(s.x, step.x, wide),
        to(s.total, step.total, length),
        to(s.at_zero, step.at_zero, wide),
        to(s.at_upper, step.at_upper, wide),
        to(s.at_low, step.at_low, length),
        to(s.at_high, step.at_high, length),
        to(s.nu, step.nu, length),
        to(s.relaxed, step.relaxed, length),
    )
