"""Kernel mean matching of mini-batches on a GPU, in Triton: one program a problem, and nothing goes by the host.

For losses the algorithm is that of `line`: a factor of the kernel of small rank, then Mehrotra's interior point with
Woodbury, its state in registers. After a first call, which compiles, all of it can be captured in a CUDA graph. With
TRITON_INTERPRET=1 it runs on a CPU.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# What Triton compiles has no types that mypy could check.

from __future__ import annotations

import functools

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard.deep import matching

# Relative duality gap; the objective ends within a third of it of the optimum.
TOLERANCE = tl.constexpr(3e-7)
GAP, RELATIVE_GAP = tl.constexpr(matching.CVXOPT_GAP), tl.constexpr(matching.CVXOPT_RELATIVE_GAP)
RESIDUAL = tl.constexpr(matching.CVXOPT_RESIDUAL)
MAX_ITER = tl.constexpr(40)
# Nodes of a line's factor stand this far apart in widths of the kernel, and this many are beyond either end of the
# losses: what the factor leaves out of the kernel is then below 2e-7, and far less but at the ends.
SPACING, BEYOND = tl.constexpr(0.5), tl.constexpr(2)
# A factor has this many rows at most; one of them is the slab's.
MOST_ROWS = tl.constexpr(64)
PART = tl.constexpr(32)  # columns of a factor that are multiplied at a time
BLOCK = tl.constexpr(32)  # of the dense solver
INFINITE = tl.constexpr(0x7F800000)  # its bits as a float32


def match_lines(
    train: Tensor,
    validation: Tensor,
    *,
    quantile: float,
    is_gamma: bool,
    narrowest: float,
    w_max: float,
    ridge: float,
    as_cvxopt: bool,
) -> Tensor:
    """Weights of P training batches of losses (P, n) that make them look like the validation batches (P, m).

    They solve min ½wᵀKw − κᵀw over 0 ≤ w ≤ B and a mean within ε of one: K is exp(−γ(z − z')²) of the training losses
    plus the ridge, κ that kernel to the validation losses, summed and times n/m, ε = (√n − 1)/√n. Where the losses
    span more than 29 widths of the kernel no factor is small, and a dense solver takes milliseconds.

    Parameters
    ----------
    train, validation : float32 or float64, at most 1024 columns
    quantile : of the distances within a training batch
    is_gamma : whether that quantile is γ itself, or a width σ with γ = 1/(2σ²), or σ = 1 where it is zero
    narrowest : σ is at least so much of the range of the training losses
    w_max : B
    ridge : what is added to the diagonal of K
    as_cvxopt : whether to start and stop where cvxopt does, see `matching.solve_as_cvxopt`

    Returns
    -------
    weights : (P, n), float64; NaN for a problem with NaN in it
    """
    train, validation = train.double().contiguous(), validation.double().contiguous()
    (p, n), m = train.shape, validation.shape[1]
    if n == 1:
        return 1 + 0 * (train + validation.sum(dim=1, keepdim=True))
    size = _padded(n)
    gamma = _gammas(train, None, quantile=quantile, is_gamma=is_gamma, narrowest=narrowest)
    linear, weights = torch.empty_like(train), torch.empty_like(train)
    factors, scratch = train.new_empty(p, MOST_ROWS.value, size), train.new_empty(p, 2 * size + BLOCK.value + 1, size)
    _factor_line[(p, size // 16)](
        train, validation, gamma, _node_root(train.device), linear, factors, n, m, size, _padded(m), num_warps=4
    )
    for is_narrow in (False, True):
        _match_line[(p,)](
            train,
            gamma,
            linear,
            factors,
            weights,
            scratch,
            n,
            w_max,
            ridge,
            as_cvxopt,
            is_narrow,
            size,
            num_warps=max(8 if is_narrow else 4, size // 64),
        )
    return weights


def match_classes(
    train: Tensor,
    validation: Tensor,
    here: Tensor,
    there: Tensor,
    *,
    quantile: float,
    is_gamma: bool,
    w_max: float,
    ridge: float,
) -> Tensor:
    """Weights (C, n) that make the training rows of each class look like its validation rows; zero outside the class.

    The problem is that of `match_lines`, with the rows of the class alone. The solver is dense: its time grows with
    the cube of a class's training rows.

    Parameters
    ----------
    train, validation : features of shape (n, d) and (m, d), at most 1024 rows
    here, there : which rows are of a class, boolean, of shape (C, n) and (C, m)
    quantile, is_gamma, w_max, ridge : as for `match_lines`
    """
    train, validation = train.double(), validation.double()
    (c, n), size = here.shape, _padded(len(train))
    apart = torch.cdist(train, train, compute_mode="donot_use_mm_for_euclid_dist")
    across = torch.cdist(train, validation, compute_mode="donot_use_mm_for_euclid_dist")
    member = here.to(torch.int8).contiguous()
    gamma = _gammas(apart, member, quantile=quantile, is_gamma=is_gamma, narrowest=0.0)
    kernel = torch.exp(-gamma[:, None, None] * across.square())
    linear = torch.einsum("cnm,cm->cn", kernel, there.double())
    linear = linear * (here.sum(dim=1) / there.sum(dim=1).clamp(min=1))[:, None]
    order = member.argsort(dim=1, descending=True, stable=True)
    weights, scratch = torch.zeros_like(linear), train.new_empty(c, 2 * size + BLOCK.value + 1, size)
    _match_class[(c,)](
        apart, member, order, gamma, linear, weights, scratch, n, w_max, ridge, size, num_warps=max(8, size // 64)
    )
    return weights


def _gammas(source: Tensor, member: Tensor | None, *, quantile: float, is_gamma: bool, narrowest: float) -> Tensor:
    """γ of losses (P, n), or of the classes with these members (C, n) by the distances (n, n) of their rows."""
    n = source.shape[1]
    gamma = source.new_empty(len(source) if member is None else len(member))
    _find_gamma[(len(gamma),)](source, member, gamma, n, quantile, is_gamma, narrowest, _padded(n), num_warps=32)
    return gamma


def _padded(n: int) -> int:
    return max(MOST_ROWS.value, triton.next_power_of_2(n))


@functools.cache
def _node_root(device: torch.device) -> Tensor:
    """L⁻¹ where LLᵀ is the kernel of the most nodes; that of fewer is its leading block."""
    at = SPACING.value * np.arange(MOST_ROWS.value)
    root = np.linalg.cholesky(np.exp(-0.5 * (at[:, None] - at) ** 2))
    return torch.tensor(np.linalg.inv(root), device=device)


@triton.jit
def _find_gamma(
    source,
    member,
    gamma,
    n,
    quantile: tl.constexpr,
    is_gamma: tl.constexpr,
    narrowest: tl.constexpr,
    N: tl.constexpr,
):
    """γ of each problem, from a quantile of distances: between losses, or between the rows of a class."""
    problem, rows = tl.program_id(0), tl.arange(0, N)
    size = n
    if member is None:
        source += problem * n
    else:
        member += problem * n
        size = tl.sum(tl.load(member + rows, rows < n, 0).to(tl.int32))
    n_pairs = size * (size - 1) // 2
    place = quantile * (n_pairs - 1).to(tl.float64)
    k = place.to(tl.int32)
    strip: tl.constexpr = min(N // 2, 32768 // N)
    near = _distances(source, member, n, 0, N, strip)
    # The bits of positive numbers are in their order, so these can be bisected: a distance is found where exactly k
    # are no greater than `low`, and as good as found, among ties, where it is known to 1e-6.
    low, high, below = -1, INFINITE, 0
    while (high - low > 8) & (below != k):
        middle = low + (high - low) // 2
        count = tl.sum(_no_greater(near, middle))
        if strip < N // 2:
            for first in range(strip, n // 2, strip):
                count += tl.sum(_no_greater(_distances(source, member, n, first, N, strip), middle))
        is_high = count > k
        low, high = tl.where(is_high, low, middle), tl.where(is_high, middle, high)
        below = tl.where(is_high, below, count)
    high = tl.min(tl.where(near > low, near, INFINITE))
    if strip < N // 2:
        for first in range(strip, n // 2, strip):
            more = _distances(source, member, n, first, N, strip)
            high = tl.minimum(high, tl.min(tl.where(more > low, more, INFINITE)))
    count = tl.sum(_no_greater(near, high))
    after = tl.min(tl.where(near > high, near, INFINITE))
    if strip < N // 2:
        for first in range(strip, n // 2, strip):
            more = _distances(source, member, n, first, N, strip)
            count += tl.sum(_no_greater(more, high))
            after = tl.minimum(after, tl.min(tl.where(more > high, more, INFINITE)))
    at = high.to(tl.float32, bitcast=True).to(tl.float64)
    above = after.to(tl.float32, bitcast=True).to(tl.float64)
    found = tl.where((count > k + 1) | (place <= k), at, at + (place - k) * (above - at))
    if is_gamma:
        tl.store(gamma + problem, found)
    else:
        if member is None:
            values = tl.load(source + rows, rows < n)
            high_end = tl.max(tl.where(rows < n, values, float("-inf")))
            low_end = tl.min(tl.where(rows < n, values, float("inf")))
            found = tl.maximum(found, narrowest * (high_end - low_end))
        tl.store(gamma + problem, 0.5 / tl.where(found > 0, found * found, 1.0))


@triton.jit
def _no_greater(bits, limit):
    """1 or 0, by the sign of a difference: cheaper than by comparing."""
    return 1 + ((limit - bits) >> 31)


@triton.jit
def _distances(source, member, n, first, N: tl.constexpr, strip: tl.constexpr):
    """Bits of the distances, as float32, of pairs that are first + 1 and up to `strip` more places apart.

    Places are counted around a circle, so each pair is met once; infinite where there is none.
    """
    apart, here = first + 1 + tl.arange(0, strip)[:, None], tl.arange(0, N)[None, :]
    there = here + apart
    there = tl.where(there < n, there, there - n)
    is_pair = (here < n) & ((2 * apart < n) | ((2 * apart == n) & (here < apart)))
    if member is None:
        distance = tl.abs(tl.load(source + here, here < n) - tl.load(source + there, is_pair))
    else:
        distance = tl.load(source + here * n + there, is_pair)
        is_pair &= (tl.load(member + here, here < n, 0) * tl.load(member + there, is_pair, 0)) > 0
    return tl.where(is_pair, distance, float("inf")).to(tl.float32).to(tl.int32, bitcast=True)


@triton.jit
def _factor_line(train, validation, gamma, node_root, linear, factors, n, m, N: tl.constexpr, M: tl.constexpr):
    """κ of sixteen training losses, and their columns of the factor."""
    problem = tl.program_id(0)
    rows, others = tl.program_id(1) * 16 + tl.arange(0, 16), tl.arange(0, M)
    rate = tl.load(gamma + problem)
    here = tl.load(train + problem * n + rows, rows < n)
    there = tl.load(validation + problem * m + others, others < m)
    apart = here[:, None] - there[None, :]
    kernel = tl.where(others[None, :] < m, tl.exp(-rate * apart * apart), 0.0)
    tl.store(linear + problem * n + rows, tl.sum(kernel, axis=1) * n.to(tl.float64) / m, rows < n)
    middle, nodes = _span(train + problem * n, rate, n, N)
    places = tl.sqrt(2 * rate) * (here - middle)
    to = factors + problem * MOST_ROWS * N + rows
    if nodes <= 15:
        _store_columns(places, rows < n, node_root, to, N, 16)
    elif nodes <= 31:
        _store_columns(places, rows < n, node_root, to, N, 32)
    elif nodes <= 63:
        _store_columns(places, rows < n, node_root, to, N, 64)


@triton.jit
def _span(losses, rate, n, N: tl.constexpr):
    """The middle of the losses, and how many nodes it takes to span them; a lot if that is not known."""
    rows = tl.arange(0, N)
    values = tl.load(losses + rows, rows < n)
    low, high = tl.min(tl.where(rows < n, values, float("inf"))), tl.max(tl.where(rows < n, values, float("-inf")))
    return 0.5 * (low + high), tl.sqrt(2 * rate) * (high - low) / SPACING + 1 + 2 * BEYOND


@triton.jit
def _store_columns(places, real, node_root, to, N: tl.constexpr, R: tl.constexpr):
    """Columns of a factor of R − 1 nodes around zero, and of a row of ones."""
    rows = tl.arange(0, R)
    apart = places[None, :] - SPACING * (rows - 0.5 * (R - 2)).to(tl.float64)[:, None]
    root = tl.load(node_root + rows[:, None] * MOST_ROWS + rows[None, :])
    columns = tl.dot(root, tl.exp(-0.5 * apart * apart))
    columns = tl.where(rows[:, None] == R - 1, 1.0, columns)
    tl.store(to[None, :] + rows[:, None] * N, tl.where(real[None, :], columns, 0.0))


@triton.jit
def _match_line(
    train,
    gamma,
    linear,
    factors,
    weights,
    scratch,
    n,
    w_max: tl.constexpr,
    ridge: tl.constexpr,
    as_cvxopt: tl.constexpr,
    is_narrow: tl.constexpr,
    N: tl.constexpr,
):
    """Weights of a problem, with as few nodes as its kernel's width allows, if its kernel is narrow or if it is not.

    The two are compiled apart because a narrow kernel wants more registers, which would slow the others down.
    """
    problem, rows = tl.program_id(0), tl.arange(0, N)
    real = rows < n
    scratch += problem * (2 * N + BLOCK + 1) * N
    kappa = tl.load(linear + problem * n + rows, real, 0.0)
    rate = tl.load(gamma + problem)
    middle, nodes = _span(train + problem * n, rate, n, N)
    factor, to = factors + problem * MOST_ROWS * N, weights + problem * n + rows
    if is_narrow:
        if nodes <= 31:
            return
        if nodes <= 63:
            tl.store(to, _by_nodes(factor, real, kappa, scratch, n, w_max, ridge, as_cvxopt, 64, N), real)
        else:
            places = tl.sqrt(2 * rate) * (tl.load(train + problem * n + rows, real, 0.0) - middle)
            tl.store(to, _dense_line(places, real, kappa, scratch, n, w_max, ridge, as_cvxopt, N), real)
    elif nodes <= 15:
        tl.store(to, _by_nodes(factor, real, kappa, scratch, n, w_max, ridge, as_cvxopt, 16, N), real)
    elif nodes <= 31:
        tl.store(to, _by_nodes(factor, real, kappa, scratch, n, w_max, ridge, as_cvxopt, 32, N), real)


@triton.jit
def _by_nodes(stored, real, kappa, scratch, n, w_max, ridge, as_cvxopt: tl.constexpr, R: tl.constexpr, N: tl.constexpr):
    """Weights through the factor of R − 1 nodes."""
    rows, columns = tl.arange(0, R), tl.arange(0, N)
    factor = tl.load(stored + rows[:, None] * N + columns[None, :])
    row_sums = _times_ones(factor)
    ridges = tl.zeros_like(kappa) + ridge
    return _interior_point(factor, stored, row_sums, kappa, ridges, real, scratch, n, w_max, True, as_cvxopt)


@triton.jit
def _times_ones(factor):
    """Row sums of the kernel."""
    last: tl.constexpr = factor.shape[0] - 1
    sums = tl.where(tl.arange(0, factor.shape[0]) == last, 0.0, tl.sum(factor, axis=1))
    return tl.sum(factor * sums[:, None], axis=0)


@triton.jit
def _dense_line(places, real, kappa, scratch, n, w_max, ridge, as_cvxopt: tl.constexpr, N: tl.constexpr):
    """Weights without a factor."""
    memory, kernel = scratch + (N + BLOCK) * N, scratch + (N + BLOCK + 1) * N
    columns = tl.arange(0, N)
    tl.store(memory + columns, places)
    tl.debug_barrier()
    row_sums = tl.zeros_like(places)
    for first in range(0, N, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        apart = tl.load(memory + rows)[:, None] - places[None, :]
        value = tl.where((rows < n)[:, None] & real[None, :], tl.exp(-0.5 * apart * apart), 0.0)
        tl.store(kernel + rows[:, None] * N + columns[None, :], value)
        row_sums += tl.sum(value, axis=0)
    ridges = tl.zeros_like(kappa) + ridge
    return _interior_point(row_sums, kernel, row_sums, kappa, ridges, real, scratch, n, w_max, False, as_cvxopt)


@triton.jit
def _match_class(
    apart,
    member,
    order,
    gamma,
    linear,
    weights,
    scratch,
    n,
    w_max: tl.constexpr,
    ridge: tl.constexpr,
    N: tl.constexpr,
):
    """Weights of a class, in as little memory as its rows need."""
    problem, rows = tl.program_id(0), tl.arange(0, N)
    size = tl.sum(tl.load(member + problem * n + rows, rows < n, 0).to(tl.int32))
    scratch += problem * (2 * N + BLOCK + 1) * N
    order, linear, weights = order + problem * n, linear + problem * n, weights + problem * n
    rate = tl.load(gamma + problem)
    if size == 1:
        tl.store(weights + tl.load(order), 1.0)
    elif size <= 32:
        _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, ridge, 32)
    elif size <= 64:
        _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, ridge, 64)
    else:
        _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, ridge, N)


@triton.jit
def _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, ridge, N: tl.constexpr):
    """Weights of a class of `size` rows, which are the first in `order`."""
    kernel, columns = scratch + (N + BLOCK + 1) * N, tl.arange(0, N)
    real = columns < size
    at = tl.load(order + columns, real, 0)
    kappa = tl.load(linear + at, real, 0.0)
    row_sums = tl.zeros_like(kappa)
    for first in range(0, N, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        distance = tl.load(apart + tl.load(order + rows, rows < size, 0)[:, None] * n + at[None, :])
        value = tl.where((rows < size)[:, None] & real[None, :], tl.exp(-rate * distance * distance), 0.0)
        tl.store(kernel + rows[:, None] * N + columns[None, :], value)
        row_sums += tl.sum(value, axis=0)
    ridges = tl.zeros_like(kappa) + ridge
    x = _interior_point(row_sums, kernel, row_sums, kappa, ridges, real, scratch, size, w_max, False, False)
    tl.store(weights + at, x, real)


@triton.jit
def _interior_point(
    factor,
    stored,
    row_sums,
    kappa,
    ridge,
    real,
    scratch,
    n,
    w_max,
    is_factored: tl.constexpr,
    as_cvxopt: tl.constexpr,
):
    """x that minimises ½xᵀKx + ½Σρx² − κᵀx over 0 ≤ x ≤ B, √n ≤ Σx ≤ 2n − √n, where `real`.

    `row_sums` is K1. With a factor, K is GᵀG less its last row, which is ones, and `stored` is where G is in memory.
    The Newton matrix is diagonal + K + σ11ᵀ, so Woodbury leaves a system of as many unknowns b as G has rows. Its
    solution is also the change of Gx, so gradients are carried along and never computed again. Without a factor,
    `stored` is where K is and the Newton matrix is inverted in `scratch`. `as_cvxopt` is
    `matching.solve_as_cvxopt`: x may at first lie outside of the constraints, which are relaxed and then tightened.
    """
    count = n.to(tl.float64)
    low = tl.sqrt(count)
    high = 2 * count - low
    mask = tl.where(real, 1.0, 0.0).to(tl.float64)
    relaxed = 0 * count
    if as_cvxopt:
        # The least sum of the objective and half the squares of all rooms; their negatives, raised to be positive,
        # are the multipliers.
        right, two = (kappa + w_max + low + high) * mask, 2 + relaxed
        if is_factored:
            solver = _woodbury(stored, mask / (2 + ridge), two, scratch, factor.shape[0], factor.shape[1])
            along, x, total = _direction(factor, solver, mask / (2 + ridge), two, right, scratch)
        else:
            _invert_newton(stored, real, 2 + ridge, scratch, real.shape[0])
            of_ones = _dense_product(scratch, mask, real.shape[0])
            along, x, total = _dense_direction(scratch, of_ones, 2 + ridge, two, right, real.shape[0])
        slope = (along + ridge * x - kappa) * mask
        smallest, largest = tl.min(tl.where(real, x, float("inf"))), tl.max(tl.where(real, x, float("-inf")))
        least = tl.minimum(tl.minimum(smallest, w_max - largest), tl.minimum(total - low, high - total))
        most = 1 + tl.maximum(tl.maximum(largest, w_max - smallest), tl.maximum(total - low, high - total))
        relaxed = tl.where(least <= 0, 1 - least, relaxed)
        x = tl.where(real, x, 0.5 * w_max)
        at_zero, at_upper = tl.where(real, most - x, 1.0), tl.where(real, most - (w_max - x), 1.0)
        at_low, at_high = most - (total - low), most - (high - total)
    else:
        level = tl.minimum(1.0, 0.5 * (w_max + low / count))
        x = tl.zeros_like(mask) + level
        total = count * level
        slope = ((row_sums + ridge) * level - kappa) * mask
        size = 0.2 * tl.sum(tl.abs(slope)) / count + 1e-3  # found by trial: fewest iterations
        at_zero, at_upper = tl.zeros_like(x) + size, size * level / (w_max - x)
        at_low, at_high = size * level / (total - low), size * level / (high - total)
    over, room, above, below = x + relaxed, w_max - x + relaxed, total - low + relaxed, high - total + relaxed
    gap = tl.sum((over * at_zero + room * at_upper) * mask) + above * at_low + below * at_high
    step, is_unsolved = 0, True
    while (step < MAX_ITER) & is_unsolved:
        inverse, inverse_room, inverse_above, inverse_below = 1 / over, 1 / room, 1 / above, 1 / below
        over_zero, over_upper, over_low, over_high = 1 / at_zero, 1 / at_upper, 1 / at_low, 1 / at_high
        stiffness = at_zero * inverse + at_upper * inverse_room + ridge
        diagonal = mask / stiffness
        slab = at_low * inverse_above + at_high * inverse_below
        if is_factored:
            solver = _woodbury(stored, diagonal, slab, scratch, factor.shape[0], factor.shape[1])
        else:
            _invert_newton(stored, real, stiffness, scratch, real.shape[0])
            of_ones = _dense_product(scratch, mask, real.shape[0])
        # The predictor aims at no complementarity at all.
        pull = relaxed * (at_low * inverse_above - at_high * inverse_below)
        right = (relaxed * (at_zero * inverse - at_upper * inverse_room) + pull - slope) * mask
        if is_factored:
            along, dx, d_total = _direction(factor, solver, diagonal, slab, right, scratch)
        else:
            along, dx, d_total = _dense_direction(scratch, of_ones, stiffness, slab, right, real.shape[0])
        # How rooms change: those of x ≥ 0 and Σx ≥ low with x, the others against it, and all are tightened.
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
        # The corrector aims at a complementarity that seems in reach, and knows the second order of the predictor.
        to_zero, to_upper = (aim - d_over * d_zero) * inverse, (aim - d_room * d_upper) * inverse_room
        to_low, to_high = (aim - d_above * d_low) * inverse_above, (aim - d_below * d_high) * inverse_below
        right += (to_zero - to_upper + to_low - to_high) * mask
        if is_factored:
            along, dx, d_total = _direction(factor, solver, diagonal, slab, right, scratch)
        else:
            along, dx, d_total = _dense_direction(scratch, of_ones, stiffness, slab, right, real.shape[0])
        # Rounding would let Σx drift away from what its bounds are held against.
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
        slope += a * (along + ridge * dx) * mask
        total += a * d_total
        at_low += a * d_low
        at_high += a * d_high
        relaxed *= 1 - a
        over, room, above, below = x + relaxed, w_max - x + relaxed, total - low + relaxed, high - total + relaxed
        gap = tl.sum((over * at_zero + room * at_upper) * mask) + above * at_low + below * at_high
        objective = tl.abs(0.5 * tl.sum(x * (slope - kappa) * mask))
        residual = (slope - at_zero + at_upper + at_high - at_low) * mask
        # What is unsolved exceeds a bound, which NaN does not.
        if as_cvxopt:
            norm, squares = tl.sqrt(tl.sum(kappa * kappa * mask)), tl.sum(residual * residual)
            sides = tl.sqrt(count * w_max * w_max + low * low + high * high)
            is_unsolved = (gap > tl.maximum(GAP, RELATIVE_GAP * objective)) | (
                tl.sqrt(squares) > RESIDUAL * tl.maximum(1.0, norm)
            )
            is_unsolved |= relaxed * tl.sqrt(2 * count + 2) > RESIDUAL * tl.maximum(1.0, sides)
        else:
            enough = TOLERANCE * tl.maximum(1.0, objective)
            is_unsolved = (gap > enough) | (tl.max(tl.abs(residual)) * count > 10 * enough)
        step += 1
    return x


@triton.jit
def _woodbury(stored, diagonal, slab, scratch, R: tl.constexpr, N: tl.constexpr):
    """(I + GDGᵀ)⁻¹, where the slab's row has 1/σ for its one.

    The product is of numbers in memory and goes there, to keep its layout apart from that of all others.
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

    The last of b is σΣdx, and says it with more digits than a sum would. b goes through memory for the same reason as
    the product of `_woodbury`.
    """
    R: tl.constexpr = factor.shape[0]
    at = scratch + tl.arange(0, R)
    goal = tl.sum(factor * (diagonal * right)[None, :], axis=1)
    tl.debug_barrier()
    tl.store(at, tl.sum(solver * goal[None, :], axis=1))
    tl.debug_barrier()
    both = tl.sum(factor * tl.load(at)[:, None], axis=0)
    last = tl.load(scratch + R - 1)
    return both - last, (right - both) * diagonal, last / slab


@triton.jit
def _dense_direction(scratch, of_ones, stiffness, slab, right, N: tl.constexpr):
    """As `_direction`, with the inverse of the Newton matrix less the slab; `of_ones` is its product with ones.

    The change of Kx is what Newton's equation says it is.
    """
    dx = _dense_product(scratch, right, N)
    d_total = tl.sum(dx) / (1 + slab * tl.sum(of_ones))
    dx -= slab * d_total * of_ones
    return right - stiffness * dx - slab * d_total, dx, d_total


@triton.jit
def _dense_product(scratch, vector, N: tl.constexpr):
    """Of the inverse in `scratch` and a vector."""
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
    """The inverse of diagonal + K into `scratch`, swept a block of pivots at a time."""
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
        for other in range(0, N, BLOCK):
            others = other + some
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
def _shrink(one, other, at_one, at_other):
    """The inverse of the longest step within two rooms and their multipliers, by their relative changes."""
    return tl.maximum(tl.maximum(-one, -other), tl.maximum(tl.maximum(-at_one, -at_other), 1e-30))


@triton.jit
def _inverse(a, memory, R: tl.constexpr):
    """Inverse of a symmetric positive definite matrix, which is swept by four pivots at a time.

    These go through memory: it takes less time than to reduce the matrix to them.
    """
    rows = tl.arange(0, R)
    for k in range(0, R, 4):
        inside = (rows >= k) & (rows < k + 4)
        tl.debug_barrier()
        tl.store(memory + (rows[:, None] - k) * R + rows[None, :], a, inside[:, None])
        tl.debug_barrier()
        # The inverse of the pivots' own block [[A, B], [Bᵀ, D]], by A⁻¹ and E = A⁻¹B and (D − BᵀE)⁻¹.
        one, two, three, four = memory + k, memory + R + k, memory + 2 * R + k, memory + 3 * R + k
        b02, b03, b12, b13 = tl.load(one + 2), tl.load(one + 3), tl.load(two + 2), tl.load(two + 3)
        a00, a01, a11 = _inverse_of_two(tl.load(one), tl.load(one + 1), tl.load(two + 1))
        e02, e03, e12, e13 = a00 * b02 + a01 * b12, a00 * b03 + a01 * b13, a01 * b02 + a11 * b12, a01 * b03 + a11 * b13
        c22, c23, c33 = _inverse_of_two(
            tl.load(three + 2) - b02 * e02 - b12 * e12,
            tl.load(three + 3) - b02 * e03 - b12 * e13,
            tl.load(four + 3) - b03 * e03 - b13 * e13,
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
    """Of the matrix [[p, q], [q, s]]."""
    d = 1 / (p * s - q * q)
    return s * d, -q * d, p * d


@triton.jit
def _pivot_row(memory, rows, inside, k, which, R: tl.constexpr):
    """A row of pivots, with the negative identity in place of the pivots' own block."""
    return tl.where(inside, tl.where(rows == k + which, -1.0, 0.0), tl.load(memory + which * R + rows))
