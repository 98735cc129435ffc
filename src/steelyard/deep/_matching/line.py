"""Kernel mean matching of losses on a CPU: losses are points on a line, so their kernel has a factor of small rank.

Compiled with numba: for a batch of 256 rows one call of PyTorch or LAPACK costs as much as an iteration of this file.
Where the kernel is too narrow for such a factor, `weigh` returns False and the dense solver is used. Compiled functions
call only functions of the same file, because numba's cache does not notice changes in another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from steelyard.deep._matching.dense import CVXOPT_GAP, CVXOPT_RELATIVE_GAP, CVXOPT_RESIDUAL

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Relative duality gap; the objective is then within a third of it of the optimum.
TOLERANCE = 6e-7
MAX_ITER = 60
# Nodes of the factor: enough for an error of the kernel below 3e-8. With more than the most, a dense solver is as fast.
NODES_PER_WIDTH, MORE_NODES, MOST_NODES = 2.2, 5, 40
KERNEL_ENDS = 6.0  # in widths; beyond, the kernel counts as zero

# fastmath: sums in any order, for vector instructions; the same compiled code gives the same bits each time.
compiled: Any = njit(cache=True, fastmath=True, error_model="numpy")
compiled_as_written: Any = njit(cache=True)


@compiled_as_written
def weigh(
    train: Vector,
    validation: Vector,
    distance: float,
    is_gamma: bool,
    narrowest: float,
    w_max: float,
    reg: float,
    as_cvxopt: bool,
    normalized: bool,
) -> tuple[Vector, bool]:
    """Weights of `match` with γ from a quantile of the distances between training losses; mean one if `normalized`.

    `is_gamma`: this distance is γ itself; otherwise a width σ with γ = 1/(2σ²), at least `narrowest` times the range of
    the losses, or one if all losses are equal.
    """
    gamma = distance
    if not is_gamma:
        width = max(distance, narrowest * (train.max() - train.min()))
        gamma = 0.5 / width**2 if width > 0 else 0.5
    weights, solved = match(train, validation, gamma, w_max, reg, as_cvxopt)
    if normalized:
        weights /= weights.mean()
    return weights, solved


@compiled
def match(
    train: Vector, validation: Vector, gamma: float, w_max: float, reg: float, as_cvxopt: bool
) -> tuple[Vector, bool]:
    """Weights that solve the problem of this package for a given γ, and whether they were found.

    They are not if the kernel is too narrow. `as_cvxopt`: the weights at which cvxopt stops, see `dense`.
    """
    n, scale = len(train), np.sqrt(2 * gamma)
    # Nodes cover the validation losses too, up to where the kernel is zero.
    low = min(train.min(), max(validation.min(), train.min() - KERNEL_ENDS / scale))
    high = max(train.max(), min(validation.max(), train.max() + KERNEL_ENDS / scale))
    wanted = NODES_PER_WIDTH * scale * (high - low) + MORE_NODES
    if n == 1 or wanted > MOST_NODES:
        return np.ones(n), n == 1
    nodes = int(np.ceil(wanted))
    factor, coefficients = nystrom(train, validation, gamma, low, high, nodes + nodes % 2)
    return interior_point(factor, coefficients, reg, w_max, np.sqrt(n), 2 * n - np.sqrt(n), as_cvxopt)


@compiled
def nystrom(train: Vector, validation: Vector, gamma: float, low: float, high: float, r: int) -> tuple[Matrix, Vector]:
    """G (r, n) and q (r,) with GᵀG = K and Gᵀq = κ, from r equidistant nodes on [low, high] and one beyond each end."""
    n, m, scale = train.shape[0], validation.shape[0], np.sqrt(2 * gamma)
    beyond = (high - low) / (r - 3)
    low, high = low - beyond, high + beyond
    step = scale * (high - low) / (r - 1)
    bell = np.empty(r)
    for j in range(r):
        bell[j] = np.exp(-0.5 * (step * j) ** 2)
    root = np.zeros((r, r))  # Cholesky factor of the kernel between nodes
    for j in range(r):
        for i in range(j, r):
            root[i, j] = bell[i - j]
        root[j, j] += 1e-11
        for k in range(j):
            c = root[j, k]
            for i in range(j, r):
                root[i, j] -= root[i, k] * c
        d = 1 / np.sqrt(root[j, j])
        for i in range(j, r):
            root[i, j] *= d
    # exp(−(s − hj)²/2) = exp(−s²/2) exp(sh)ʲ exp(−(hj)²/2): two exponentials per row for all nodes.
    value, ratio = np.empty(n), np.empty(n)
    for i in range(n):
        s = scale * (train[i] - low)
        value[i], ratio[i] = np.exp(-0.5 * s * s), np.exp(step * s)
    validation_value, validation_ratio = np.empty(m), np.empty(m)
    for i in range(m):
        # Far from all nodes the kernel is zero, and the powers below would overflow.
        s = min(max(scale * (validation[i] - low), -16.0), scale * (high - low) + 16.0)
        validation_value[i], validation_ratio[i] = np.exp(-0.5 * s * s), np.exp(step * s)
    factor, coefficients = np.empty((r, n)), np.empty(r)
    for j in range(r):
        c = bell[j]
        for i in range(n):
            factor[j, i] = value[i] * c
            value[i] *= ratio[i]
        q = 0.0
        for i in range(m):
            q += validation_value[i]
            validation_value[i] *= validation_ratio[i]
        q *= bell[j] * n / m
        for k in range(j):
            c = root[j, k]
            for i in range(n):
                factor[j, i] -= c * factor[k, i]
            q -= c * coefficients[k]
        d = 1 / root[j, j]
        for i in range(n):
            factor[j, i] *= d
        coefficients[j] = q * d
    return factor, coefficients


@compiled
def interior_point(
    factor: Matrix, coefficients: Vector, reg: float, w_max: float, low: float, high: float, as_cvxopt: bool
) -> tuple[Vector, bool]:
    """Mehrotra's method for min ½|Gx|² + ½λ|x|² − qᵀGx over 0 ≤ x ≤ B, low ≤ Σx ≤ high; x, and whether it converged.

    The Newton matrix is diagonal + GᵀG + σ11ᵀ, so Woodbury's formula leaves a system of r + 1 unknowns b. Its solution
    is also the change of Gx, so gradients are updated and never computed again. `as_cvxopt` starts and stops where
    cvxopt does, with all constraints relaxed if the start violates one; see `dense.solve_as_cvxopt`.
    """
    r, n = factor.shape
    x, linear, slope = np.zeros(n), np.zeros(n), np.zeros(n)  # slope: the gradient Kx − κ
    for k in range(r):
        c = coefficients[k]
        for i in range(n):
            linear[i] += factor[k, i] * c
    norm = np.sqrt((linear * linear).sum())
    at_zero, at_upper = np.empty(n), np.empty(n)  # multipliers of the bounds
    inverse, inverse_room, diagonal, right, along = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    dx, d_zero, d_upper = np.empty(n), np.empty(n), np.empty(n)
    scaled, system, pivots, b = np.empty((r, n)), np.empty((r + 1, r + 1)), np.empty(r + 1), np.empty(r + 1)
    if as_cvxopt:
        for i in range(n):
            diagonal[i], right[i] = 1 / (2 + reg), linear[i] + w_max + low + high
        _newton_matrix(factor, diagonal, 2.0, scaled, system)
        _cholesky(system, pivots)
        total = _direction(factor, diagonal, system, pivots, 2.0, right, b, along, x)
        for i in range(n):
            slope[i] = along[i] + reg * x[i] - linear[i]
        at_low, at_high, relaxed = _cvxopt_multipliers(x, total, w_max, low, high, at_zero, at_upper)
    else:
        level = min(1.0, 0.5 * (w_max + low / n))
        total, relaxed = n * level, 0.0
        at_low, at_high = _even_start(factor, linear, reg, w_max, low, high, level, x, slope, at_zero, at_upper)
    for _ in range(MAX_ITER):
        above, below = total - low + relaxed, high - total + relaxed
        products, worst, squares, objective = above * at_low + below * at_high, 0.0, 0.0, 0.0
        for i in range(n):
            over, room = x[i] + relaxed, w_max - x[i] + relaxed
            inverse[i], inverse_room[i] = 1 / over, 1 / room
            products += over * at_zero[i] + room * at_upper[i]
            objective += 0.5 * x[i] * (slope[i] - linear[i])
            residual = slope[i] - at_zero[i] + at_upper[i] + at_high - at_low
            worst, squares = max(worst, abs(residual)), squares + residual * residual
            diagonal[i] = 1 / (at_zero[i] * inverse[i] + at_upper[i] * inverse_room[i] + reg)
        if as_cvxopt:
            sides = np.sqrt(n * w_max**2 + low**2 + high**2)
            if (
                products <= max(CVXOPT_GAP, CVXOPT_RELATIVE_GAP * abs(objective))
                and np.sqrt(squares) <= CVXOPT_RESIDUAL * max(1.0, norm)
                and relaxed * np.sqrt(2 * n + 2) <= CVXOPT_RESIDUAL * max(1.0, sides)
            ):
                return x, True
        else:
            enough = TOLERANCE * max(1.0, abs(objective))
            if products <= enough and worst * n <= 10 * enough:
                return x, True
        slab = at_low / above + at_high / below
        _newton_matrix(factor, diagonal, slab, scaled, system)
        _cholesky(system, pivots)
        # The predictor aims at products of zero. Multipliers then change by −z(1 ± dx/slack), and the products after a
        # step of length a are (1 − a) times those before plus a² times `second`.
        pull = relaxed * (at_low / above - at_high / below)
        for i in range(n):
            right[i] = pull + relaxed * (at_zero[i] * inverse[i] - at_upper[i] * inverse_room[i]) - slope[i]
        d_total = _direction(factor, diagonal, system, pivots, slab, right, b, along, dx)
        d_above, d_below = d_total - relaxed, -d_total - relaxed
        d_low, d_high = -at_low * (1 + d_above / above), -at_high * (1 + d_below / below)
        second = d_above * d_low + d_below * d_high
        shrink = max(max(-d_above / above, -d_below / below), max(1 + d_above / above, 1 + d_below / below))
        for i in range(n):
            down, up = (dx[i] - relaxed) * inverse[i], (dx[i] + relaxed) * inverse_room[i]
            second += (dx[i] + relaxed) * at_upper[i] * (1 - up) - (dx[i] - relaxed) * at_zero[i] * (1 + down)
            shrink = max(shrink, max(max(-down, up), max(1 + down, 1 - up)))
        a = min(1.0, 1 / shrink)
        after = (1 - a) * products + a * a * second
        aim = (after / products) ** 3 * products / (2 * n + 2)
        # The corrector aims at `aim`, and corrects for the products of the predictor's changes.
        to_low, to_high = (aim - d_above * d_low) / above, (aim - d_below * d_high) / below
        for i in range(n):
            down, up = (dx[i] - relaxed) * inverse[i], (dx[i] + relaxed) * inverse_room[i]
            d_zero[i] = (aim + (dx[i] - relaxed) * at_zero[i] * (1 + down)) * inverse[i]
            d_upper[i] = (aim - (dx[i] + relaxed) * at_upper[i] * (1 - up)) * inverse_room[i]
            right[i] += d_zero[i] - d_upper[i] + to_low - to_high
        d_total = _direction(factor, diagonal, system, pivots, slab, right, b, along, dx)
        d_above, d_below = d_total - relaxed, -d_total - relaxed
        d_low, d_high = to_low - at_low * (1 + d_above / above), to_high - at_high * (1 + d_below / below)
        shrink = max(max(-d_above / above, -d_below / below), max(-d_low / at_low, -d_high / at_high))
        for i in range(n):
            down, up = (dx[i] - relaxed) * inverse[i], (dx[i] + relaxed) * inverse_room[i]
            d_zero[i] -= at_zero[i] * (1 + down)
            d_upper[i] -= at_upper[i] * (1 - up)
            shrink = max(shrink, max(max(-down, up), max(-d_zero[i] / at_zero[i], -d_upper[i] / at_upper[i])))
        a = min(1.0, 0.99 / shrink)
        for i in range(n):
            x[i] += a * dx[i]
            at_zero[i] += a * d_zero[i]
            at_upper[i] += a * d_upper[i]
            slope[i] += a * (along[i] + reg * dx[i])
        total += a * d_total
        at_low += a * d_low
        at_high += a * d_high
        relaxed *= 1 - a
    return x, False


@compiled
def _even_start(
    factor: Matrix,
    linear: Vector,
    reg: float,
    w_max: float,
    low: float,
    high: float,
    level: float,
    x: Vector,
    slope: Vector,
    at_zero: Vector,
    at_upper: Vector,
) -> tuple[float, float]:
    """All weights at `level`, multipliers whose products with their slacks are equal; returns those of the sum."""
    n, size = len(x), 0.0
    for row in factor:
        s = level * row.sum()
        for i in range(n):
            slope[i] += row[i] * s
    for i in range(n):
        x[i] = level
        slope[i] += reg * level - linear[i]
        size += abs(slope[i])
    size = 0.2 * size / n + 1e-3  # chosen by experiment: fewest iterations
    at_zero[:], at_upper[:] = size, size * level / (w_max - level)
    return size * level / (n * level - low), size * level / (high - n * level)


@compiled
def _cvxopt_multipliers(
    x: Vector, total: float, w_max: float, low: float, high: float, at_zero: Vector, at_upper: Vector
) -> tuple[float, float, float]:
    """Multipliers: a constant minus the slacks; returns those of the sum, and how much to relax the constraints."""
    above, below, smallest, largest = total - low, high - total, x.min(), x.max()
    least = min(min(smallest, w_max - largest), min(above, below))
    most = 1 + max(max(largest, w_max - smallest), max(above, below))
    for i in range(len(x)):
        at_zero[i], at_upper[i] = most - x[i], most - (w_max - x[i])
    return most - above, most - below, (1 - least if least <= 0 else 0.0)


@compiled
def _direction(
    factor: Matrix,
    diagonal: Vector,
    system: Matrix,
    pivots: Vector,
    slab: float,
    right: Vector,
    b: Vector,
    along: Vector,
    dx: Vector,
) -> float:
    """(D⁻¹ + GᵀG + σ11ᵀ)⁻¹ times the right side into `dx`, GᵀG times that into `along`; returns the sum of `dx`."""
    r, n = factor.shape
    s = 0.0
    for i in range(n):
        dx[i] = right[i] * diagonal[i]
        s += dx[i]
    for k in range(r):
        c = 0.0
        for i in range(n):
            c += factor[k, i] * dx[i]
        b[k] = c
    b[r] = s
    _back_substitute(system, pivots, b)
    along[:] = 0.0
    for k in range(0, r, 2):
        b0, b1 = b[k], b[k + 1]
        for i in range(n):
            along[i] += factor[k, i] * b0 + factor[k + 1, i] * b1
    level = b[r]
    for i in range(n):
        dx[i] = (right[i] - along[i] - level) * diagonal[i]
    return float(level / slab)  # summing dx would lose digits where a bound of the sum is active


@compiled
def _newton_matrix(factor: Matrix, diagonal: Vector, slab: float, scaled: Matrix, system: Matrix) -> None:
    """I + GDGᵀ bordered by the row of the sum, into the upper half of `system`; r is even.

    From G√D alone, which fits the L1 cache where G and GD together do not; in blocks of two by two, for half the loads.
    """
    r, n = factor.shape
    root = np.sqrt(diagonal)
    for j in range(r):
        s = 0.0
        for i in range(n):
            scaled[j, i] = factor[j, i] * root[i]
            s += scaled[j, i] * root[i]
        system[j, r] = s
    for j in range(0, r, 2):
        for k in range(0, j + 1, 2):
            s00, s10, s01, s11 = 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                j0, j1, k0, k1 = scaled[j, i], scaled[j + 1, i], scaled[k, i], scaled[k + 1, i]
                s00 += j0 * k0
                s10 += j1 * k0
                s01 += j0 * k1
                s11 += j1 * k1
            system[k, j], system[k, j + 1], system[k + 1, j], system[k + 1, j + 1] = s00, s10, s01, s11
        system[j, j] += 1.0
        system[j + 1, j + 1] += 1.0
    system[r, r] = diagonal.sum() + 1 / slab


@compiled
def _cholesky(system: Matrix, pivots: Vector) -> None:
    """Upper Cholesky factor in place, and the inverses of its diagonal."""
    size = len(pivots)
    for j in range(size):
        d = 1 / np.sqrt(system[j, j])
        pivots[j] = d
        for i in range(j, size):
            system[j, i] *= d
        for k in range(j + 1, size):
            c = system[j, k]
            for i in range(k, size):
                system[k, i] -= c * system[j, i]


@compiled
def _back_substitute(system: Matrix, pivots: Vector, b: Vector) -> None:
    size = len(pivots)
    for j in range(size):
        s = b[j] * pivots[j]
        b[j] = s
        for i in range(j + 1, size):
            b[i] -= system[j, i] * s
    for j in range(size - 1, -1, -1):
        s = b[j]
        for k in range(j + 1, size):
            s -= system[j, k] * b[k]
        b[j] = s * pivots[j]
