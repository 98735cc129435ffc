"""Mehrotra's interior point for kernel mean matching in Triton, with its state in registers; see `triton_kernels`."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# Functions that Triton compiles have no types that mypy could check.

from __future__ import annotations

import triton
import triton.language as tl

from steelyard.deep._matching import dense

# Relative duality gap; the objective is then within a third of it of the optimum.
TOLERANCE = tl.constexpr(3e-7)
GAP, RELATIVE_GAP = tl.constexpr(dense.CVXOPT_GAP), tl.constexpr(dense.CVXOPT_RELATIVE_GAP)
RESIDUAL = tl.constexpr(dense.CVXOPT_RESIDUAL)
MAX_ITER = tl.constexpr(40)
PART = tl.constexpr(32)  # columns of a factor per matrix product
BLOCK = tl.constexpr(32)  # rows per block of the dense solver


@triton.jit
def interior_point(
    factor,
    stored,
    row_sums,
    kappa,
    reg,
    real,
    scratch,
    n,
    w_max,
    is_factored: tl.constexpr,
    as_cvxopt: tl.constexpr,
):
    """x that minimizes ½xᵀKx + ½Σλx² − κᵀx over 0 ≤ x ≤ B, √n ≤ Σx ≤ 2n − √n, for rows that are `real`.

    `row_sums` is K1. With a factor, K is GᵀG without its last row, which is ones, and `stored` is the address of G. The
    Newton matrix is diagonal + K + σ11ᵀ, so Woodbury's formula leaves a system of as many unknowns b as G has rows. Its
    solution is also the change of Gx, so gradients are updated and never computed again. Without a factor, `stored` is
    the address of K and the Newton matrix is inverted in `scratch`. `as_cvxopt`: see `dense.solve_as_cvxopt`; x may at
    first violate the constraints, which are relaxed and then tightened.
    """
    count = n.to(tl.float64)
    low = tl.sqrt(count)
    high = 2 * count - low
    mask = tl.where(real, 1.0, 0.0).to(tl.float64)
    if as_cvxopt:
        x, total, slope, at_zero, at_upper, at_low, at_high, relaxed = _cvxopt_start(
            factor, stored, kappa, reg, real, mask, scratch, w_max, low, high, is_factored
        )
    else:
        x, total, slope, at_zero, at_upper, at_low, at_high, relaxed = _even_start(
            row_sums, kappa, reg, mask, count, w_max, low, high
        )
    over, room, above, below = x + relaxed, w_max - x + relaxed, total - low + relaxed, high - total + relaxed
    gap = tl.sum((over * at_zero + room * at_upper) * mask) + above * at_low + below * at_high
    step, is_unsolved = 0, True
    while (step < MAX_ITER) & is_unsolved:
        inverse, inverse_room, inverse_above, inverse_below = 1 / over, 1 / room, 1 / above, 1 / below
        over_zero, over_upper, over_low, over_high = 1 / at_zero, 1 / at_upper, 1 / at_low, 1 / at_high
        stiffness = at_zero * inverse + at_upper * inverse_room + reg
        diagonal = mask / stiffness
        slab = at_low * inverse_above + at_high * inverse_below
        if is_factored:
            solver = _woodbury(stored, diagonal, slab, scratch, factor.shape[0], factor.shape[1])
        else:
            _invert_newton(stored, real, stiffness, scratch, real.shape[0])
            of_ones = _dense_product(scratch, mask, real.shape[0])
        # The predictor aims at complementarity zero.
        pull = relaxed * (at_low * inverse_above - at_high * inverse_below)
        right = (relaxed * (at_zero * inverse - at_upper * inverse_room) + pull - slope) * mask
        if is_factored:
            along, dx, d_total = _direction(factor, solver, diagonal, slab, right, scratch)
        else:
            along, dx, d_total = _dense_direction(scratch, of_ones, stiffness, slab, right, real.shape[0])
        # Changes of the slacks of x ≥ 0, x ≤ B, Σx ≥ low and Σx ≤ high, which are all tightened.
        d_over, d_room, d_above, d_below = dx - relaxed, -dx - relaxed, d_total - relaxed, -d_total - relaxed
        d_zero, d_upper = -at_zero * (1 + inverse * d_over), -at_upper * (1 + inverse_room * d_room)
        d_low, d_high = -at_low * (1 + d_above * inverse_above), -at_high * (1 + d_below * inverse_below)
        shrink = tl.max(
            _shrink(d_over * inverse, d_room * inverse_room, d_zero * over_zero, d_upper * over_upper) * mask
        )
        slab_shrink = _shrink(d_above * inverse_above, d_below * inverse_below, d_low * over_low, d_high * over_high)
        shrink = tl.maximum(shrink, slab_shrink)
        a = tl.minimum(1.0, 1 / shrink)
        after = (over + a * d_over) * (at_zero + a * d_zero) + (room + a * d_room) * (at_upper + a * d_upper)
        gap_after = tl.sum(after * mask) + (above + a * d_above) * (at_low + a * d_low)
        ratio = (gap_after + (below + a * d_below) * (at_high + a * d_high)) / gap
        aim = ratio * ratio * ratio * gap / (2 * count + 2)
        # The corrector aims at `aim`, and corrects for the second order of the predictor's step.
        to_zero, to_upper = (aim - d_over * d_zero) * inverse, (aim - d_room * d_upper) * inverse_room
        to_low, to_high = (aim - d_above * d_low) * inverse_above, (aim - d_below * d_high) * inverse_below
        right += (to_zero - to_upper + to_low - to_high) * mask
        if is_factored:
            along, dx, d_total = _direction(factor, solver, diagonal, slab, right, scratch)
        else:
            along, dx, d_total = _dense_direction(scratch, of_ones, stiffness, slab, right, real.shape[0])
        # Otherwise rounding would let Σx drift away from `total`, on which its bounds are checked.
        dx += (d_total - tl.sum(dx)) * (diagonal / tl.sum(diagonal))
        d_over, d_room, d_above, d_below = dx - relaxed, -dx - relaxed, d_total - relaxed, -d_total - relaxed
        d_zero = to_zero - at_zero * (1 + inverse * d_over)
        d_upper = to_upper - at_upper * (1 + inverse_room * d_room)
        d_low = to_low - at_low * (1 + d_above * inverse_above)
        d_high = to_high - at_high * (1 + d_below * inverse_below)
        shrink = tl.max(
            _shrink(d_over * inverse, d_room * inverse_room, d_zero * over_zero, d_upper * over_upper) * mask
        )
        slab_shrink = _shrink(d_above * inverse_above, d_below * inverse_below, d_low * over_low, d_high * over_high)
        shrink = tl.maximum(shrink, slab_shrink)
        a = tl.minimum(1.0, 0.99 / shrink)
        x += a * dx
        at_zero += a * d_zero * mask
        at_upper += a * d_upper * mask
        slope += a * (along + reg * dx) * mask
        total += a * d_total
        at_low += a * d_low
        at_high += a * d_high
        relaxed *= 1 - a
        over, room, above, below = x + relaxed, w_max - x + relaxed, total - low + relaxed, high - total + relaxed
        gap = tl.sum((over * at_zero + room * at_upper) * mask) + above * at_low + below * at_high
        objective = tl.abs(0.5 * tl.sum(x * (slope - kappa) * mask))
        residual = (slope - at_zero + at_upper + at_high - at_low) * mask
        # Written so that NaN counts as solved and ends the loop.
        if as_cvxopt:
            residuals, scale = tl.sqrt(tl.sum(residual * residual)), tl.sqrt(tl.sum(kappa * kappa * mask))
            outside = relaxed * tl.sqrt(2 * count + 2)
            sides = tl.sqrt(count * w_max * w_max + low * low + high * high)
            is_unsolved = gap > tl.maximum(GAP, RELATIVE_GAP * objective)
            is_unsolved |= residuals > RESIDUAL * tl.maximum(1.0, scale)
            is_unsolved |= outside > RESIDUAL * tl.maximum(1.0, sides)
        else:
            enough = TOLERANCE * tl.maximum(1.0, objective)
            is_unsolved = (gap > enough) | (tl.max(tl.abs(residual)) * count > 10 * enough)
        step += 1
    return x


@triton.jit
def _even_start(row_sums, kappa, reg, mask, count, w_max, low, high):
    """Equal weights, multipliers whose products with their slacks are equal, no constraint relaxed."""
    level = tl.minimum(1.0, 0.5 * (w_max + low / count))
    x = tl.zeros_like(mask) + level
    total = count * level
    slope = ((row_sums + reg) * level - kappa) * mask
    size = 0.2 * tl.sum(tl.abs(slope)) / count + 1e-3  # chosen by experiment: fewest iterations
    at_zero, at_upper = tl.zeros_like(x) + size, size * level / (w_max - x)
    at_low, at_high = size * level / (total - low), size * level / (high - total)
    return x, total, slope, at_zero, at_upper, at_low, at_high, 0 * count


@triton.jit
def _cvxopt_start(factor, stored, kappa, reg, real, mask, scratch, w_max, low, high, is_factored: tl.constexpr):
    """Minimum of the objective plus half the squares of all slacks; multipliers are a constant minus the slacks."""
    right, two = (kappa + w_max + low + high) * mask, 2 + 0 * low
    if is_factored:
        solver = _woodbury(stored, mask / (2 + reg), two, scratch, factor.shape[0], factor.shape[1])
        along, x, total = _direction(factor, solver, mask / (2 + reg), two, right, scratch)
    else:
        _invert_newton(stored, real, 2 + reg, scratch, real.shape[0])
        of_ones = _dense_product(scratch, mask, real.shape[0])
        along, x, total = _dense_direction(scratch, of_ones, 2 + reg, two, right, real.shape[0])
    slope = (along + reg * x - kappa) * mask
    above, below = total - low, high - total
    smallest, largest = tl.min(tl.where(real, x, float("inf"))), tl.max(tl.where(real, x, float("-inf")))
    least = tl.minimum(tl.minimum(smallest, w_max - largest), tl.minimum(above, below))
    most = 1 + tl.maximum(tl.maximum(largest, w_max - smallest), tl.maximum(above, below))
    x = tl.where(real, x, 0.5 * w_max)  # padding stays away from the bounds
    at_zero, at_upper = tl.where(real, most - x, 1.0), tl.where(real, most - (w_max - x), 1.0)
    return x, total, slope, at_zero, at_upper, most - above, most - below, tl.where(least <= 0, 1 - least, 0.0)


@triton.jit
def _woodbury(stored, diagonal, slab, scratch, R: tl.constexpr, N: tl.constexpr):
    """(I + GDGᵀ)⁻¹, where the row of the sum has 1/σ instead of one on the diagonal.

    The product is read from and written to memory, so that its register layout does not affect the rest.
    """
    rows, vector = tl.arange(0, R), scratch + R * R
    tl.debug_barrier()
    tl.store(vector + tl.arange(0, N), diagonal)
    tl.debug_barrier()
    product = tl.zeros((R, R), tl.float64)
    for first in range(0, N, PART):
        columns = first + tl.arange(0, PART)
        part = tl.load(stored + rows[:, None] * N + columns[None, :])
        product += tl.dot(part * tl.load(vector + columns)[None, :], tl.trans(part))
    at = scratch + rows[:, None] * R + rows[None, :]
    tl.store(at, product)
    tl.debug_barrier()
    border = tl.where(rows == R - 1, 1 / slab, 1.0)
    system = tl.load(at) + tl.where(rows[:, None] == rows[None, :], border[:, None], 0.0)
    return _inverse(system, vector + N, R)


@triton.jit
def _direction(factor, solver, diagonal, slab, right, scratch):
    """The changes of Kx, x and Σx: b solves (I + GDGᵀ)b = GDr, then dx = D(r − Gᵀb).

    The last entry of b is σΣdx, with more digits than a sum would have. b goes through memory for the same reason as
    the product of `_woodbury`.
    """
    R: tl.constexpr = factor.shape[0]
    at = scratch + tl.arange(0, R)
    projected = tl.sum(factor * (diagonal * right)[None, :], axis=1)
    tl.debug_barrier()
    tl.store(at, tl.sum(solver * projected[None, :], axis=1))
    tl.debug_barrier()
    both = tl.sum(factor * tl.load(at)[:, None], axis=0)
    last = tl.load(scratch + R - 1)
    return both - last, (right - both) * diagonal, last / slab


@triton.jit
def _dense_direction(scratch, of_ones, stiffness, slab, right, N: tl.constexpr):
    """As `_direction`, with the inverse of the Newton matrix without σ11ᵀ; `of_ones` is its product with ones.

    The change of Kx follows from Newton's equation.
    """
    dx = _dense_product(scratch, right, N)
    d_total = tl.sum(dx) / (1 + slab * tl.sum(of_ones))
    dx -= slab * d_total * of_ones
    return right - stiffness * dx - slab * d_total, dx, d_total


@triton.jit
def _dense_product(scratch, vector, N: tl.constexpr):
    """Product of the inverse in `scratch` and a vector."""
    columns, memory = tl.arange(0, N), scratch + (N + BLOCK) * N
    tl.debug_barrier()
    tl.store(memory + columns, vector)
    tl.debug_barrier()
    product = tl.zeros_like(vector)
    for first in range(0, N, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        block = tl.load(scratch + rows[:, None] * N + columns[None, :])
        product += tl.sum(block * tl.load(memory + rows)[:, None], axis=0)
    return product


@triton.jit
def _invert_newton(kernel, real, stiffness, scratch, N: tl.constexpr):
    """The inverse of diagonal + K into `scratch`, by sweeping one block of pivots at a time."""
    columns, some = tl.arange(0, N), tl.arange(0, BLOCK)
    diagonal = tl.where(real, stiffness, 1.0)
    tl.debug_barrier()
    for first in range(0, N, BLOCK):
        at = (first + some)[:, None] * N + columns[None, :]
        is_diagonal = (first + some)[:, None] == columns[None, :]
        tl.store(scratch + at, tl.load(kernel + at) + tl.where(is_diagonal, diagonal[None, :], 0.0))
    panel = scratch + N * N
    span: tl.constexpr = min(N, 128)
    for first in range(0, N, BLOCK):
        tl.debug_barrier()
        rows = first + some
        pivot = _inverse(tl.load(scratch + rows[:, None] * N + rows[None, :]), panel, BLOCK)
        strip = tl.load(scratch + rows[:, None] * N + columns[None, :])
        strip = tl.where(
            columns[None, :] == rows[:, None], -1.0, tl.where(_within(columns, first)[None, :], 0.0, strip)
        )
        tl.debug_barrier()
        tl.store(panel + some[:, None] * N + columns[None, :], strip)
        tl.debug_barrier()
        for begin in range(0, N, BLOCK):
            others = begin + some
            left = tl.dot(tl.trans(tl.load(panel + some[:, None] * N + others[None, :])), pivot)
            for start in range(0, N, span):
                across = start + tl.arange(0, span)
                at = scratch + others[:, None] * N + across[None, :]
                old = tl.where(_within(others, first)[:, None] | _within(across, first)[None, :], 0.0, tl.load(at))
                tl.store(at, old - tl.dot(left, tl.load(panel + some[:, None] * N + across[None, :])))
    tl.debug_barrier()
    for first in range(0, N, BLOCK):
        at = scratch + (first + some)[:, None] * N + columns[None, :]
        tl.store(at, -tl.load(at))
    tl.debug_barrier()


@triton.jit
def _within(places, first):
    return (places >= first) & (places < first + BLOCK)


@triton.jit
def _shrink(first, second, at_first, at_second):
    """The inverse of the longest step, from the relative changes of two slacks and their multipliers."""
    return tl.maximum(tl.maximum(-first, -second), tl.maximum(tl.maximum(-at_first, -at_second), 1e-30))


@triton.jit
def _inverse(a, memory, R: tl.constexpr):
    """Inverse of a symmetric positive definite matrix, by sweeping four pivots at a time.

    The pivots go through memory, which is faster than reducing the matrix to them.
    """
    rows = tl.arange(0, R)
    for k in range(0, R, 4):
        inside = (rows >= k) & (rows < k + 4)
        tl.debug_barrier()
        tl.store(memory + (rows[:, None] - k) * R + rows[None, :], a, inside[:, None])
        tl.debug_barrier()
        # The inverse of the pivots' own block [[A, B], [Bᵀ, D]], by A⁻¹ and E = A⁻¹B and (D − BᵀE)⁻¹.
        row0, row1, row2, row3 = memory + k, memory + R + k, memory + 2 * R + k, memory + 3 * R + k
        b02, b03, b12, b13 = tl.load(row0 + 2), tl.load(row0 + 3), tl.load(row1 + 2), tl.load(row1 + 3)
        a00, a01, a11 = _inverse_of_two(tl.load(row0), tl.load(row0 + 1), tl.load(row1 + 1))
        e02, e03, e12, e13 = a00 * b02 + a01 * b12, a00 * b03 + a01 * b13, a01 * b02 + a11 * b12, a01 * b03 + a11 * b13
        c22, c23, c33 = _inverse_of_two(
            tl.load(row2 + 2) - b02 * e02 - b12 * e12,
            tl.load(row2 + 3) - b02 * e03 - b12 * e13,
            tl.load(row3 + 3) - b03 * e03 - b13 * e13,
        )
        c02, c03, c12, c13 = e02 * c22 + e03 * c23, e02 * c23 + e03 * c33, e12 * c22 + e13 * c23, e12 * c23 + e13 * c33
        c00, c01, c11 = a00 + c02 * e02 + c03 * e03, a01 + c02 * e12 + c03 * e13, a11 + c12 * e12 + c13 * e13
        r0, r1 = _pivot_row(memory, rows, inside, k, 0, R), _pivot_row(memory, rows, inside, k, 1, R)
        r2, r3 = _pivot_row(memory, rows, inside, k, 2, R), _pivot_row(memory, rows, inside, k, 3, R)
        a = tl.where(inside[:, None] | inside[None, :], 0.0, a)
        a -= (r0 * c00 + r1 * c01 - r2 * c02 - r3 * c03)[None, :] * r0[:, None]
        a -= (r0 * c01 + r1 * c11 - r2 * c12 - r3 * c13)[None, :] * r1[:, None]
        a -= (r2 * c22 + r3 * c23 - r0 * c02 - r1 * c12)[None, :] * r2[:, None]
        a -= (r2 * c23 + r3 * c33 - r0 * c03 - r1 * c13)[None, :] * r3[:, None]
    return -a


@triton.jit
def _inverse_of_two(p, q, s):
    """Inverse of the matrix [[p, q], [q, s]]."""
    d = 1 / (p * s - q * q)
    return s * d, -q * d, p * d


@triton.jit
def _pivot_row(memory, rows, inside, k, which, R: tl.constexpr):
    """A pivot row, with the negative identity in place of the pivots' own block."""
    return tl.where(inside, tl.where(rows == k + which, -1.0, 0.0), tl.load(memory + which * R + rows))
