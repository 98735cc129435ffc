"""Kernel mean matching of mini-batches on a GPU, in Triton: one program per problem, and the host never waits.

For losses the algorithm is that of `line`: a factor of the kernel of small rank, then the interior point of
`triton_solver` with Woodbury's formula. After the first call, which compiles, all of it can be captured in a CUDA
graph. With TRITON_INTERPRET=1 it runs on a CPU.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# Functions that Triton compiles have no types that mypy could check.

from __future__ import annotations

import functools

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard.deep._matching.triton_solver import BLOCK, interior_point

# Distance between nodes of the factor in kernel widths, and number of nodes beyond each end of the losses: the error of
# the kernel is then below 2e-7, and much less except at the ends.
SPACING, BEYOND = tl.constexpr(0.5), tl.constexpr(2)
# Most rows of a factor; one of them is for the constraint on the sum.
MOST_ROWS = tl.constexpr(64)
INFINITE = tl.constexpr(0x7F800000)  # its bits as a float32


def match_lines(
    train: Tensor,
    validation: Tensor,
    *,
    quantile: float,
    is_gamma: bool,
    narrowest: float,
    w_max: float,
    reg: float,
    as_cvxopt: bool,
) -> Tensor:
    """Weights of P training batches of losses (P, n) that match the validation batches (P, m).

    They solve the problem of this package. Where the losses span more than 29 kernel widths there is no factor of small
    rank, and the dense solver takes milliseconds.

    Parameters
    ----------
    train, validation : float32 or float64, at most 1024 columns
    quantile : of the distances within a training batch
    is_gamma : whether that quantile is γ itself, or a width σ with γ = 1/(2σ²); σ = 1 where it is zero
    narrowest : least σ, as a share of the range of the training losses
    w_max : B
    reg : λ, added to the diagonal of K
    as_cvxopt : whether to start and stop where cvxopt does, see `dense.solve_as_cvxopt`

    Returns
    -------
    weights : (P, n), float64; NaN for a problem that contains NaN
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
            reg,
            as_cvxopt,
            is_narrow,
            size,
            num_warps=max(8 if is_narrow else 4, size // 64),
        )
    return weights


def match_classes(
    train: Tensor,
    validation: Tensor,
    members: Tensor,
    validation_members: Tensor,
    *,
    quantile: float,
    is_gamma: bool,
    w_max: float,
    reg: float,
) -> Tensor:
    """Weights (C, n) that match the training rows of each class to its validation rows; zero outside the class.

    The problem is that of `match_lines` for the rows of the class. The solver is dense: its time grows with the cube of
    the number of training rows in a class.

    Parameters
    ----------
    train, validation : features of shape (n, d) and (m, d), at most 1024 rows
    members, validation_members : which rows belong to each class, boolean, of shape (C, n) and (C, m)
    quantile, is_gamma, w_max, reg : as for `match_lines`
    """
    train, validation = train.double(), validation.double()
    (c, n), size = members.shape, _padded(len(train))
    apart = torch.cdist(train, train, compute_mode="donot_use_mm_for_euclid_dist")
    across = torch.cdist(train, validation, compute_mode="donot_use_mm_for_euclid_dist")
    member = members.to(torch.int8).contiguous()
    gamma = _gammas(apart, member, quantile=quantile, is_gamma=is_gamma, narrowest=0.0)
    kernel = torch.exp(-gamma[:, None, None] * across.square())
    linear = torch.einsum("cnm,cm->cn", kernel, validation_members.double())
    linear = linear * (members.sum(dim=1) / validation_members.sum(dim=1).clamp(min=1))[:, None]
    order = member.argsort(dim=1, descending=True, stable=True)
    weights, scratch = torch.zeros_like(linear), train.new_empty(c, 2 * size + BLOCK.value + 1, size)
    _match_class[(c,)](
        apart, member, order, gamma, linear, weights, scratch, n, w_max, reg, size, num_warps=max(8, size // 64)
    )
    return weights


def _gammas(source: Tensor, member: Tensor | None, *, quantile: float, is_gamma: bool, narrowest: float) -> Tensor:
    """γ of losses (P, n), or of classes with these members (C, n) from the distances (n, n) between rows."""
    n = source.shape[1]
    gamma = source.new_empty(len(source) if member is None else len(member))
    _find_gamma[(len(gamma),)](source, member, gamma, n, quantile, is_gamma, narrowest, _padded(n), num_warps=32)
    return gamma


def _padded(n: int) -> int:
    return max(MOST_ROWS.value, triton.next_power_of_2(n))


@functools.cache
def _node_root(device: torch.device) -> Tensor:
    """L⁻¹ where LLᵀ is the kernel between the most nodes; for fewer nodes it is the leading block."""
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
    first_bits = _distances(source, member, n, 0, N, strip)
    # The bits of positive floats have the order of the numbers, so they can be bisected: the distance is found where
    # exactly k are at most `low`, and among ties where it is known to 1e-6.
    low, high, below = -1, INFINITE, 0
    while (high - low > 8) & (below != k):
        middle = low + (high - low) // 2
        count = tl.sum(_no_greater(first_bits, middle))
        if strip < N // 2:
            for first in range(strip, n // 2, strip):
                count += tl.sum(_no_greater(_distances(source, member, n, first, N, strip), middle))
        is_high = count > k
        low, high = tl.where(is_high, low, middle), tl.where(is_high, middle, high)
        below = tl.where(is_high, below, count)
    high = tl.min(tl.where(first_bits > low, first_bits, INFINITE))
    if strip < N // 2:
        for first in range(strip, n // 2, strip):
            more = _distances(source, member, n, first, N, strip)
            high = tl.minimum(high, tl.min(tl.where(more > low, more, INFINITE)))
    count = tl.sum(_no_greater(first_bits, high))
    after = tl.min(tl.where(first_bits > high, first_bits, INFINITE))
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
    """1 or 0 by the sign of a difference, which is cheaper than a comparison."""
    return 1 + ((limit - bits) >> 31)


@triton.jit
def _distances(source, member, n, first, N: tl.constexpr, strip: tl.constexpr):
    """Bits of the distances, as float32, of pairs that are first + 1 and up to `strip` more places apart.

    Places are counted modulo n, so each pair occurs once; infinite where there is no pair.
    """
    apart, left = first + 1 + tl.arange(0, strip)[:, None], tl.arange(0, N)[None, :]
    right = left + apart
    right = tl.where(right < n, right, right - n)
    is_pair = (left < n) & ((2 * apart < n) | ((2 * apart == n) & (left < apart)))
    if member is None:
        distance = tl.abs(tl.load(source + left, left < n) - tl.load(source + right, is_pair))
    else:
        distance = tl.load(source + left * n + right, is_pair)
        is_pair &= (tl.load(member + left, left < n, 0) * tl.load(member + right, is_pair, 0)) > 0
    return tl.where(is_pair, distance, float("inf")).to(tl.float32).to(tl.int32, bitcast=True)


@triton.jit
def _factor_line(train, validation, gamma, node_root, linear, factors, n, m, N: tl.constexpr, M: tl.constexpr):
    """κ of sixteen training losses, and their columns of the factor."""
    problem = tl.program_id(0)
    rows, others = tl.program_id(1) * 16 + tl.arange(0, 16), tl.arange(0, M)
    rate = tl.load(gamma + problem)
    losses = tl.load(train + problem * n + rows, rows < n)
    validation_losses = tl.load(validation + problem * m + others, others < m)
    apart = losses[:, None] - validation_losses[None, :]
    kernel = tl.where(others[None, :] < m, tl.exp(-rate * apart * apart), 0.0)
    tl.store(linear + problem * n + rows, tl.sum(kernel, axis=1) * n.to(tl.float64) / m, rows < n)
    middle, nodes = _span(train + problem * n, rate, n, N)
    places = tl.sqrt(2 * rate) * (losses - middle)
    to = factors + problem * MOST_ROWS * N + rows
    if nodes <= 15:
        _store_columns(places, rows < n, node_root, to, N, 16)
    elif nodes <= 31:
        _store_columns(places, rows < n, node_root, to, N, 32)
    elif nodes <= 63:
        _store_columns(places, rows < n, node_root, to, N, 64)


@triton.jit
def _span(losses, rate, n, N: tl.constexpr):
    """The middle of the losses, and how many nodes span them; NaN, which no limit admits, for NaN losses."""
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
    reg: tl.constexpr,
    as_cvxopt: tl.constexpr,
    is_narrow: tl.constexpr,
    N: tl.constexpr,
):
    """Weights of a problem with as few nodes as its kernel width allows; of narrow kernels alone, or of all others.

    The two are compiled separately because narrow kernels need more registers, which would slow down the others.
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
            tl.store(to, _by_nodes(factor, real, kappa, scratch, n, w_max, reg, as_cvxopt, 64, N), real)
        else:
            places = tl.sqrt(2 * rate) * (tl.load(train + problem * n + rows, real, 0.0) - middle)
            tl.store(to, _dense_line(places, real, kappa, scratch, n, w_max, reg, as_cvxopt, N), real)
    elif nodes <= 15:
        tl.store(to, _by_nodes(factor, real, kappa, scratch, n, w_max, reg, as_cvxopt, 16, N), real)
    elif nodes <= 31:
        tl.store(to, _by_nodes(factor, real, kappa, scratch, n, w_max, reg, as_cvxopt, 32, N), real)


@triton.jit
def _by_nodes(stored, real, kappa, scratch, n, w_max, reg, as_cvxopt: tl.constexpr, R: tl.constexpr, N: tl.constexpr):
    """Weights through the factor of R − 1 nodes."""
    rows, columns = tl.arange(0, R), tl.arange(0, N)
    factor = tl.load(stored + rows[:, None] * N + columns[None, :])
    row_sums = _times_ones(factor)
    regs = tl.zeros_like(kappa) + reg
    return interior_point(factor, stored, row_sums, kappa, regs, real, scratch, n, w_max, True, as_cvxopt)


@triton.jit
def _times_ones(factor):
    """Row sums of the kernel."""
    last: tl.constexpr = factor.shape[0] - 1
    sums = tl.where(tl.arange(0, factor.shape[0]) == last, 0.0, tl.sum(factor, axis=1))
    return tl.sum(factor * sums[:, None], axis=0)


@triton.jit
def _dense_line(places, real, kappa, scratch, n, w_max, reg, as_cvxopt: tl.constexpr, N: tl.constexpr):
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
    regs = tl.zeros_like(kappa) + reg
    return interior_point(row_sums, kernel, row_sums, kappa, regs, real, scratch, n, w_max, False, as_cvxopt)


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
    reg: tl.constexpr,
    N: tl.constexpr,
):
    """Weights of a class, in a matrix no larger than its rows need."""
    problem, rows = tl.program_id(0), tl.arange(0, N)
    size = tl.sum(tl.load(member + problem * n + rows, rows < n, 0).to(tl.int32))
    scratch += problem * (2 * N + BLOCK + 1) * N
    order, linear, weights = order + problem * n, linear + problem * n, weights + problem * n
    rate = tl.load(gamma + problem)
    if size == 1:
        tl.store(weights + tl.load(order), 1.0)
    elif size <= 32:
        _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, reg, 32)
    elif size <= 64:
        _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, reg, 64)
    else:
        _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, reg, N)


@triton.jit
def _dense_class(apart, order, rate, linear, weights, scratch, n, size, w_max, reg, N: tl.constexpr):
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
    regs = tl.zeros_like(kappa) + reg
    x = interior_point(row_sums, kernel, row_sums, kappa, regs, real, scratch, size, w_max, False, False)
    tl.store(weights + at, x, real)
