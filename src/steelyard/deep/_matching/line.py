"""Kernel mean matching of losses on a CPU: rows are points on a line, so their kernel has a small exact factor.

Compiled with numba, because a batch of 256 rows is too small for anything else: a call of PyTorch or LAPACK costs as
much as an iteration here. Where the kernel is too narrow for a factor, `weigh` says so and `matching` is used.

All of it is in one file because numba's cache notices no change of a function that is defined in another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from steelyard.deep._matching.dense import CVXOPT_GAP, CVXOPT_RELATIVE_GAP, CVXOPT_RESIDUAL

Vector = NDArray[np.float64]

# Relative duality gap; the objective ends within a third of it of the optimum.
TOLERANCE = 6e-7
MAX_ITER = 60
# Nodes of the factor: enough that what it leaves out of the kernel is below 3e-8. Beyond the most, a dense solver is
# as fast.
NODES_PER_WIDTH, MORE_NODES, MOST_NODES = 2.2, 5, 40
KERNEL_ENDS = 6.0  # widths

# Sums may be taken in any order, as vector instructions need; the same machine gives the same bits each time.
compiled: Any = njit(cache=True, fastmath=True, error_model="numpy")
compiled_as_written: Any = njit(cache=True)


@compiled_as_written
def weigh(
    train: Vector,
    validation: Vector,
    quantile: float,
    is_gamma: bool,
    narrowest: float,
    w_max: float,
    ridge: float,
    as_cvxopt: bool,
    normalized: bool,
) -> tuple[Vector, bool]:
    """Weights of `match`, with γ from a quantile of the distances between training losses, and mean one if wanted.

    `is_gamma`: the quantile is γ itself, else a width σ with γ = 1/(2σ²), which is at least `narrowest` times the range
    of the losses, or one where they are all the same.
    """
    found = pair_quantile(train, quantile)
    if not is_gamma:
        found = max(found, narrowest * (train.max() - train.min()))
        found = 0.5 / found**2 if found > 0 else 0.5
    weights, solved = match(train, validation, found, w_max, ridge, as_cvxopt)
    if normalized:
        weights /= weights.mean()
    return weights, solved


@compiled
def match(
    train: Vector, validation: Vector, gamma: float, w_max: float, ridge: float, as_cvxopt: bool
) -> tuple[Vector, bool]:
    """Weights that solve min ½wᵀKw − κᵀw over 0 ≤ w ≤ B and a mean within ε of one, and whether they were found.

    They are not where the kernel is too narrow. K is exp(−γ(z − z')²) of the training losses plus the ridge, κ that
    kernel to the validation losses, summed and times n/m, ε = (√n − 1)/√n. `as_cvxopt`: those at which cvxopt stops,
    see `matching.solve_as_cvxopt`.
    """
    n, scale = len(train), np.sqrt(2 * gamma)
    # Nodes reach as far as the validation losses do, unless the kernel ends before.
    low = min(train.min(), max(validation.min(), train.min() - KERNEL_ENDS / scale))
    high = max(train.max(), min(validation.max(), train.max() + KERNEL_ENDS / scale))
    wanted = NODES_PER_WIDTH * scale * (high - low) + MORE_NODES
    if n == 1 or wanted > MOST_NODES:
        return np.ones(n), n == 1
    nodes = int(np.ceil(wanted))
    factor, goal = nystrom(train, validation, gamma, low, high, nodes + nodes % 2)
    return interior_point(factor, goal, ridge, w_max, np.sqrt(n), 2 * n - np.sqrt(n), as_cvxopt)


@compiled
def nystrom(
    train: Vector, validation: Vector, gamma: float, low: float, high: float, r: int
) -> tuple[NDArray[np.float64], Vector]:
    """G (r, n) and q (r,) with GᵀG = K and Gᵀq = κ, through r even nodes from `low` to `high` and one beyond each."""
    n, m, scale = train.shape[0], validation.shape[0], np.sqrt(2 * gamma)
    beyond = (high - low) / (r - 3)
    low, high = low - beyond, high + beyond
    step = scale * (high - low) / (r - 1)
    bell = np.empty(r)
    for j in range(r):
        bell[j] = np.exp(-0.5 * (step * j) ** 2)
    root = np.zeros((r, r))  # Cholesky's, of the kernel between nodes
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
    # exp(−(s − hj)²/2) = exp(−s²/2) exp(sh)ʲ exp(−(hj)²/2): two exponentials a row for all the nodes.
    here, ratio = np.empty(n), np.empty(n)
    for i in range(n):
        s = scale * (train[i] - low)
        here[i], ratio[i] = np.exp(-0.5 * s * s), np.exp(step * s)
    there, there_ratio = np.empty(m), np.empty(m)
    for i in range(m):
        # Far from every node the kernel is zero, and the powers below would overflow.
        s = min(max(scale * (validation[i] - low), -16.0), scale * (high - low) + 16.0)
        there[i], there_ratio[i] = np.exp(-0.5 * s * s), np.exp(step * s)
    factor, goal = np.empty((r, n)), np.empty(r)
    for j in range(r):
        c = bell[j]
        for i in range(n):
            factor[j, i] = here[i] * c
            here[i] *= ratio[i]
        q = 0.0
        for i in range(m):
            q += there[i]
            there[i] *= there_ratio[i]
        q *= bell[j] * n / m
        for k in range(j):
            c = root[j, k]
            for i in range(n):
                factor[j, i] -= c * factor[k, i]
            q -= c * goal[k]
        d = 1 / root[j, j]
        for i in range(n):
            factor[j, i] *= d
        goal[j] = q * d
    return factor, goal


@compiled
def interior_point(
    factor: NDArray[np.float64], goal: Vector, ridge: float, w_max: float, low: float, high: float, as_cvxopt: bool
) -> tuple[Vector, bool]:
    """Mehrotra's method for min ½|Gx|² + ½ρ|x|² − qᵀGx over 0 ≤ x ≤ B, low ≤ Σx ≤ high; x, and whether it converged.

    The Newton matrix is diagonal + GᵀG + σ11ᵀ, so Woodbury leaves a system of r + 1 unknowns b. Its solution is also
    the change of Gx, so gradients are carried along and never computed again.

    `as_cvxopt` is `matching.solve_as_cvxopt`: it starts where cvxopt does, with all constraints relaxed if that is
    outside of them, and stops where it does.
    """
    r, n = factor.shape
    x, linear, slope = np.zeros(n), np.zeros(n), np.zeros(n)  # slope: the gradient Kx − κ
    for k in range(r):
        c = goal[k]
        for i in range(n):
            linear[i] += factor[k, i] * c
    norm = np.sqrt((linear * linear).sum())
    at_zero, at_upper = np.empty(n), np.empty(n)  # multipliers of the bounds
    inverse, inverse_room, diagonal, right, along = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    dx, d_zero, d_upper = np.empty(n), np.empty(n), np.empty(n)
    scaled, system, pivots, b = np.empty((r, n)), np.empty((r + 1, r + 1)), np.empty(r + 1), np.empty(r + 1)
    if as_cvxopt:
        for i in range(n):
            diagonal[i], right[i] = 1 / (2 + ridge), linear[i] + w_max + low + high
        _newton_matrix(factor, diagonal, 2.0, scaled, system)
        _cholesky(system, pivots)
        total = _direction(factor, diagonal, system, pivots, 2.0, right, b, along, x)
        for i in range(n):
            slope[i] = along[i] + ridge * x[i] - linear[i]
        at_low, at_high, relaxed = _cvxopt_multipliers(x, total, w_max, low, high, at_zero, at_upper)
    else:
        level = min(1.0, 0.5 * (w_max + low / n))
        total, relaxed = n * level, 0.0
        at_low, at_high = _even_start(factor, linear, ridge, w_max, low, high, level, x, slope, at_zero, at_upper)
    for _ in range(MAX_ITER):
        above, below = total - low + relaxed, high - total + relaxed
        products, worst, squares, objective = above * at_low + below * at_high, 0.0, 0.0, 0.0
        for i in range(n):
            room, other = x[i] + relaxed, w_max - x[i] + relaxed
            inverse[i], inverse_room[i] = 1 / room, 1 / other
            products += room * at_zero[i] + other * at_upper[i]
            objective += 0.5 * x[i] * (slope[i] - linear[i])
            residual = slope[i] - at_zero[i] + at_upper[i] + at_high - at_low
            worst, squares = max(worst, abs(residual)), squares + residual * residual
            diagonal[i] = 1 / (at_zero[i] * inverse[i] + at_upper[i] * inverse_room[i] + ridge)
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
        # The predictor aims at products of zero. Multipliers then change by −z(1 ± dx/room), and the products after a
        # step of length a are (1 − a) times those before and a² times `second`.
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
        # The corrector aims there, and makes up for the products of the predictor's changes.
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
            slope[i] += a * (along[i] + ridge * dx[i])
        total += a * d_total
        at_low += a * d_low
        at_high += a * d_high
        relaxed *= 1 - a
    return x, False


@compiled
def _even_start(
    factor: NDArray[np.float64],
    linear: Vector,
    ridge: float,
    w_max: float,
    low: float,
    high: float,
    level: float,
    x: Vector,
    slope: Vector,
    at_zero: Vector,
    at_upper: Vector,
) -> tuple[float, float]:
    """All weights at `level`, multipliers whose products with their rooms are alike; returns those of the sum."""
    n, size = len(x), 0.0
    for row in factor:
        s = level * row.sum()
        for i in range(n):
            slope[i] += row[i] * s
    for i in range(n):
        x[i] = level
        slope[i] += ridge * level - linear[i]
        size += abs(slope[i])
    size = 0.2 * size / n + 1e-3  # found by trial: fewest iterations
    at_zero[:], at_upper[:] = size, size * level / (w_max - level)
    return size * level / (n * level - low), size * level / (high - n * level)


@compiled
def _cvxopt_multipliers(
    x: Vector, total: float, w_max: float, low: float, high: float, at_zero: Vector, at_upper: Vector
) -> tuple[float, float, float]:
    """The negatives of all rooms, raised to be positive; returns those of the sum, and by how much to relax."""
    above, below, smallest, largest = total - low, high - total, x.min(), x.max()
    least = min(min(smallest, w_max - largest), min(above, below))
    most = 1 + max(max(largest, w_max - smallest), max(above, below))
    for i in range(len(x)):
        at_zero[i], at_upper[i] = most - x[i], most - (w_max - x[i])
    return most - above, most - below, (1 - least if least <= 0 else 0.0)


@compiled
def _direction(
    factor: NDArray[np.float64],
    diagonal: Vector,
    system: NDArray[np.float64],
    pivots: Vector,
    slab: float,
    right: Vector,
    b: Vector,
    along: Vector,
    dx: Vector,
) -> float:
    """(D⁻¹ + GᵀG + σ11ᵀ)⁻¹ of the right side into `dx`, GᵀG of that into `along`; returns the sum of `dx`."""
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
        c, other = b[k], b[k + 1]
        for i in range(n):
            along[i] += factor[k, i] * c + factor[k + 1, i] * other
    level = b[r]
    for i in range(n):
        dx[i] = (right[i] - along[i] - level) * diagonal[i]
    return float(level / slab)  # a sum of the changes would lose its digits where the slab binds


@compiled
def _newton_matrix(
    factor: NDArray[np.float64], diagonal: Vector, slab: float, scaled: NDArray[np.float64], system: NDArray[np.float64]
) -> None:
    """I + GDGᵀ bordered by the slab's row, into the upper half of `system`; r is even.

    From G√D alone, which fits a core's nearest cache where G and GD together do not; two rows by two, for half the
    loads of one by one.
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
                one, two, left, other = scaled[j, i], scaled[j + 1, i], scaled[k, i], scaled[k + 1, i]
                s00 += one * left
                s10 += two * left
                s01 += one * other
                s11 += two * other
            system[k, j], system[k, j + 1], system[k + 1, j], system[k + 1, j + 1] = s00, s10, s01, s11
        system[j, j] += 1.0
        system[j + 1, j + 1] += 1.0
    system[r, r] = diagonal.sum() + 1 / slab


@compiled
def _cholesky(system: NDArray[np.float64], pivots: Vector) -> None:
    """Upper factor in place, and the inverses of its diagonal."""
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
def _back_substitute(system: NDArray[np.float64], pivots: Vector, b: Vector) -> None:
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


@compiled_as_written
def pair_quantile(values: Vector, q: float) -> float:
    """Quantile of the distances |v_i − v_j|, i < j, without making them all."""
    n = len(values)
    if n < 2:
        return 0.0
    z = np.sort(values)
    n_pairs = n * (n - 1) // 2
    place = q * (n_pairs - 1)
    k = int(place)
    # Bisection leaves low < d_k ≤ high, with few distances between.
    low, high, n_low, n_high = -1.0, z[-1] - z[0], 0, n_pairs
    while n_high - n_low > n // 4:
        middle = 0.5 * (max(low, 0.0) + high)
        if middle <= low or middle >= high:
            break  # ties, as far as numbers can tell
        count = _pairs_within(z, middle)
        if count > k:
            high, n_high = middle, count
        else:
            low, n_low = middle, count
    near = np.empty(n_high - n_low)
    found, first, last = 0, 1, 1
    after = np.inf
    for i in range(n):
        first, last = max(first, i + 1), max(last, i + 1)
        while first < n and z[first] - z[i] <= low:
            first += 1
        while last < n and z[last] - z[i] <= high:
            last += 1
        for j in range(first, last):
            near[found] = z[j] - z[i]
            found += 1
        if last < n:
            after = min(after, z[last] - z[i])
    near.sort()
    at = near[k - n_low]
    above = near[k + 1 - n_low] if k + 1 < n_high else after
    return at + (place - k) * (above - at) if place > k else at


@compiled_as_written
def _pairs_within(z: Vector, distance: float) -> int:
    """How many pairs of the sorted values lie no further apart than this."""
    count, j = 0, 0
    for i in range(len(z)):
        while z[i] - z[j] > distance:
            j += 1
        count += i - j
    return count
