"""The exact leave-one-out score of uLSIF and RuLSIF, for a whole grid of kernel widths and regularization strengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import blocks, gaussian_widths
from steelyard._typing import BoolArray, FloatArray, IntArray

# Pairs per block of the leave-one-out score: several arrays of a hundred centers by this many rows are in use at once,
# and should stay close to the size of a core's second-level cache.
PAIR_BLOCK = 500
# Largest number of random pairs, unless a table has more distinct rows; and largest number of units that are listed
# to draw from. (Counts may be in the millions where there are few distinct rows.)
MOST_DRAWN = 100_000
MOST_LISTED = 4_000_000
# Factor by which rounding errors, also those of single precision, may increase a bound.
ROUNDING = 1.001


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments that a fit needs, for each width: h = mean_target ψ and the two parts of H."""

    first: FloatArray  # (widths, b), over the target
    source: FloatArray  # (widths, b, b)
    target: FloatArray  # (widths, b, b); zero for η = 0

    def second(self, width: int, eta: float, source_factor: float = 1.0, target_factor: float = 1.0) -> FloatArray:
        """H_η at one width of the grid, each part multiplied by its factor."""
        return (1 - eta) * source_factor * self.source[width] + eta * target_factor * self.target[width]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a source row and a target row that are left out together, and the share of each in the score."""

    source: IntArray  # positions of the distinct rows
    target: IntArray
    source_share: FloatArray
    target_share: FloatArray

    def __len__(self) -> int:
        return len(self.source)

    def part(self, which: IntArray | BoolArray) -> Pairs:
        """A subset of the pairs."""
        return Pairs(self.source[which], self.target[which], self.source_share[which], self.target_share[which])


def pair_rows(source: Empirical, target: Empirical, rng: np.random.Generator) -> Pairs:
    """Random pairs of units of both samples, as many as the smaller sample has units.

    Where there are fewer combinations of distinct rows than pairs, every combination is used once, with its expected
    frequency, and nothing is random.
    """
    n_source, n_target = len(source), len(target)
    if source.units.max() == target.units.max() == 1:
        position = np.arange(min(n_source, n_target))  # the distinct rows are shuffled already
        return _normalized_pairs(position, position, source.mass[position], target.mass[position])
    if n_source * n_target <= min(source.n_units, target.n_units, MOST_DRAWN):
        first, second = np.repeat(np.arange(n_source), n_target), np.tile(np.arange(n_target), n_source)
        drawn = source.units[first] / source.n_units * (target.units[second] / target.n_units)
    else:
        n_pairs = min(source.n_units, target.n_units, max(n_source, n_target, MOST_DRAWN))
        # Units in random order, without replacement unless there are too many to list.
        units = [
            rng.choice(len(sample), size=n_pairs, p=sample.units / sample.n_units)
            if sample.n_units > MOST_LISTED
            else rng.permutation(np.repeat(np.arange(len(sample)), sample.units))[:n_pairs]
            for sample in (source, target)
        ]
        combination, counts = np.unique(units[0] * n_target + units[1], return_counts=True)
        first, second = np.divmod(combination, n_target)
        drawn = counts.astype(np.float64)
    return _normalized_pairs(first, second, drawn * source.unit_mass[first], drawn * target.unit_mass[second])


def _normalized_pairs(source: IntArray, target: IntArray, source_share: FloatArray, target_share: FloatArray) -> Pairs:
    return Pairs(source, target, source_share / source_share.sum(), target_share / target_share.sum())


def leave_one_out(
    source: Empirical,
    target: Empirical,
    centers: FloatArray,
    center_cells: IntArray,
    widths: FloatArray,
    regs: FloatArray,
    eta: float,
    moments: Moments,
    rng: np.random.Generator,
) -> FloatArray:
    """Leave-one-out J' of the non-negative ratio: each pair of a source and a target row by the fit without that pair.

    Exact for every width and reg, shape (widths, regs), smaller is better. Units of the source are paired with units
    of the target at random, as many as the smaller sample has; a unit is one row, never a cell of equal rows, unless
    equal rows are duplicates. Leaving a pair out removes two rank-one terms from H (that of the target row for η > 0)
    and one term from h; with one eigendecomposition of H per width, the solution without the pair is

        G (c h + u a + v t),    G = (H + λI)⁻¹,

    where a and t are the basis values of the pair, and u and v scalars from a 2 × 2 system. So a grid point costs at
    most one product of a block of rows with a b × b matrix, and no matrix is n × n. The ratio before rounding negative
    coefficients up to zero follows from scalars alone; rounding adds back the contribution of the negative
    coefficients, so only coefficients that may be negative have to be computed.

    If a left-out target row is a center and the only row of its value, its center is left out too: a basis function is
    largest at its own center, and the score would favor narrow widths. That is one more term in the parentheses
    (`_without_each_pair_and_center`), for at most as many rows as there are centers.

    With unequal masses of the units, the moments of the remaining rows are rescaled by n/(n−1) as for equal masses,
    where n is the number of units.
    """
    pairs = pair_rows(source, target, rng)
    factors = tuple(sample.n_units / (sample.n_units - 1) for sample in (source, target))
    dtype = source.rows.dtype
    solvers = [
        RegularizedInverse(moments.second(w, eta, *factors), factors[1] * moments.first[w], regs, dtype)
        for w in range(len(widths))
    ]
    center_of_cell = np.full(len(target), -1, dtype=np.intp)
    drawn = center_cells >= 0
    center_of_cell[center_cells[drawn]] = np.flatnonzero(drawn)
    own_center = np.where(target.units[pairs.target] == 1, center_of_cell[pairs.target], -1)
    scores = np.zeros((len(widths), len(regs)))
    work = _Workspace(len(centers), min(len(pairs), PAIR_BLOCK), dtype)
    for which in (np.flatnonzero(own_center < 0), np.flatnonzero(own_center >= 0)):
        for block in blocks(len(which), PAIR_BLOCK):
            some, own = pairs.part(which[block]), own_center[which[block]]
            rows = np.concatenate([source.rows[some.source], target.rows[some.target]])
            down_first = factors[1] * target.unit_mass[some.target]
            downdates = Downdates(
                ((1 - eta) * factors[0] * source.unit_mass[some.source]).astype(dtype),
                (eta * down_first).astype(dtype),
                down_first.astype(dtype),
            )
            # Centers by rows, so that operations per row of the table run along the contiguous axis.
            for w, basis in enumerate(gaussian_widths(centers, rows, widths)):
                without = (
                    _without_each_pair(basis, solvers[w], downdates, work)
                    if own[0] < 0
                    else _without_each_pair_and_center(basis, own, solvers[w], downdates, work)
                )
                for r, (g_source, g_target) in enumerate(without):
                    scores[w, r] += 0.5 * (1 - eta) * (some.source_share @ np.square(g_source))
                    scores[w, r] += some.target_share @ (0.5 * eta * np.square(g_target) - g_target)
    return scores


@dataclass(frozen=True, eq=False)
class Downdates:
    """Factors of the terms that a pair removes: source row from H, target row from H, target row from h."""

    source: FloatArray
    target: FloatArray
    first: FloatArray


class RegularizedInverse:
    """(H + λI)⁻¹ for all λ of the grid, through the eigenvectors of H."""

    def __init__(self, second: FloatArray, first: FloatArray, regs: FloatArray, dtype: Any) -> None:
        values, vectors = np.linalg.eigh(second)
        inverse = 1 / (np.maximum(values, 0) + regs[:, None])
        weighted_first = inverse * (vectors.T @ first)
        self.vectors = vectors.astype(dtype)
        self.inverse = inverse.astype(dtype)  # (regs, b)
        self.weighted_first = weighted_first.astype(dtype)  # (regs, b), in the eigenbasis
        self.full = (weighted_first @ vectors.T).astype(dtype)  # (regs, b), the solutions for h
        self.stiffness = np.sqrt(inverse @ np.square(vectors.T)).astype(dtype)  # (regs, b), square roots of diag G

    def back(self, reg: int, centers: IntArray) -> FloatArray:
        """Matrix from the eigenbasis, not yet divided by the eigenvalues, to the coefficients of some centers.

        Its last column is the solution for h, which is added for every pair.
        """
        return np.column_stack([self.vectors[centers] * self.inverse[reg], self.full[reg, centers]])


class _Workspace:
    """Arrays that are reused for every block and width: allocating them anew would cost time in page faults."""

    def __init__(self, n_centers: int, n_pairs: int, dtype: Any) -> None:
        self.rotated = np.empty((n_centers, 2 * n_pairs), dtype=dtype)
        self.products = np.empty((n_centers, 2 * n_pairs), dtype=dtype)
        self.solution = np.empty((n_centers + 1, n_pairs), dtype=dtype)
        self.fit = np.empty((n_centers, n_pairs), dtype=dtype)


class _PairSystem:
    """The 2 × 2 systems of a block of pairs, for every reg, made of the inner products aᵀGa, aᵀGt and tᵀGt.

    For any z the solution of (G⁻¹ − down_source a aᵀ − down_target t tᵀ) x = z is G (z + down_source (aᵀx) a +
    down_target (tᵀx) t), where aᵀx and tᵀx follow from aᵀGz and tᵀGz by `solve`.
    """

    def __init__(self, basis: FloatArray, solver: RegularizedInverse, down: Downdates, work: _Workspace) -> None:
        n_pairs = len(down.source)
        rotated = np.matmul(solver.vectors.T, basis, out=work.rotated[:, : 2 * n_pairs])
        self.down, self.a, self.t = down, rotated[:, :n_pairs], rotated[:, n_pairs:]
        self.at = solver.inverse @ np.multiply(self.a, self.t, out=work.products[:, :n_pairs])  # (regs, pairs)
        squares = solver.inverse @ np.square(rotated, out=work.products[:, : 2 * n_pairs])
        self.aa, self.tt = squares[:, :n_pairs], squares[:, n_pairs:]
        self.stays_a, self.stays_t = 1 - down.source * self.aa, 1 - down.target * self.tt
        self.determinant = self.stays_a * self.stays_t - down.source * down.target * self.at**2
        # Inner products of the pair's basis values with G r, where r is the first moment without the target row.
        along = solver.weighted_first @ rotated
        self.g_source, self.g_target = self.solve(
            along[:, :n_pairs] - down.first * self.at, along[:, n_pairs:] - down.first * self.tt
        )
        # The ratio without the pair, before rounding, is G (c h + u a + v t).
        self.u, self.v = down.source * self.g_source, down.target * self.g_target - down.first

    def solve(self, along_a: FloatArray, along_t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """aᵀx and tᵀx from aᵀGz and tᵀGz."""
        return (
            (self.stays_t * along_a + self.down.target * self.at * along_t) / self.determinant,
            (self.stays_a * along_t + self.down.source * self.at * along_a) / self.determinant,
        )


def _without_each_pair_and_center(
    basis: FloatArray, own: IntArray, solver: RegularizedInverse, down: Downdates, work: _Workspace
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Like `_without_each_pair`, for pairs whose target row is the center `own`, which is left out too.

    With the constraint β_l = 0, the solution x becomes x − y x_l / y_l, where y is the solution for the unit vector
    e_l: again a combination G (c h + u a + v t + s e_l).
    """
    pair = _PairSystem(basis, solver, down, work)
    e = np.ascontiguousarray(solver.vectors[own].T)
    ae, te, ee = (solver.inverse @ (e * values) for values in (pair.a, pair.t, e))
    y_a, y_t = pair.solve(ae, te)
    y_own = ee + down.source * y_a * ae + down.target * y_t * te
    x_own = solver.full[:, own] + pair.u * ae + pair.v * te
    taken = x_own / y_own
    u, v = pair.u - taken * down.source * y_a, pair.v - taken * down.target * y_t
    g_source, g_target = pair.g_source - taken * y_a, pair.g_target - taken * y_t
    moves = np.max(np.abs(u) * np.sqrt(pair.aa) + np.abs(v) * np.sqrt(pair.tt) + np.abs(taken) * np.sqrt(ee), axis=1)
    rounded = np.any(solver.full <= solver.stiffness * (ROUNDING * moves)[:, None], axis=1)
    # One product for all regs at which a coefficient may be negative: there are few such pairs, and a call for each reg
    # would cost more than the arithmetic.
    solution = pair.a[:, None] * u[rounded]
    solution += pair.t[:, None] * v[rounded]
    solution -= e[:, None] * taken[rounded]
    solution *= solver.inverse[rounded].T[:, :, None]  # (b, regs, pairs)
    fit = (solver.vectors @ solution.reshape(len(e), -1)).reshape(solution.shape)
    fit += solver.full[rounded].T[:, :, None]
    fit[own, :, np.arange(len(own))] = 0  # zero up to rounding errors
    np.maximum(fit, 0, out=fit)
    at_source, at_target = np.split(basis, 2, axis=1)
    g_source[rounded] = np.einsum("brp,bp->rp", fit, at_source)
    g_target[rounded] = np.einsum("brp,bp->rp", fit, at_target)
    yield from zip(g_source, g_target, strict=True)


def _without_each_pair(
    basis: FloatArray, solver: RegularizedInverse, down: Downdates, work: _Workspace
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """For each reg, the ratio at each pair's source and target row, fitted without that pair.

    The basis values are centers by rows, the source rows first, then the target rows.
    """
    n_pairs = len(down.source)
    pair = _PairSystem(basis, solver, down, work)
    g_source, g_target, u, v = pair.g_source, pair.g_target, pair.u, pair.v
    # By the Cauchy–Schwarz inequality, leaving out a pair changes coefficient l by at most this times √G_ll.
    moves = np.max(np.abs(u) * np.sqrt(pair.aa) + np.abs(v) * np.sqrt(pair.tt), axis=1) * ROUNDING
    # v is factored out, G (c h + u a + v t) = v G (h c/v + a u/v + t), which saves a pass over the block. v is negative
    # except where the ratio exceeds 1/η; the signs of those few pairs are flipped.
    least = 1e-12 * down.first
    v = np.where(np.abs(v) < least, -least, v)
    u = u / v
    solution = work.solution[:, :n_pairs]
    for r in range(len(solver.inverse)):
        negative = np.flatnonzero(solver.full[r] <= solver.stiffness[r] * moves[r])
        if not len(negative):
            yield g_source[r], g_target[r]
            continue
        np.multiply(pair.a, u[r], out=solution[:-1])
        solution[:-1] += pair.t
        solution[-1] = 1 / v[r]
        flipped = np.flatnonzero(v[r] > 0)
        if len(flipped):
            solution[:, flipped] *= -1
        fit = np.matmul(solver.back(r, negative), solution, out=work.fit[: len(negative), :n_pairs])
        np.maximum(fit, 0, out=fit)
        taken = np.abs(v[r])
        basis_of_negative = basis if len(negative) == len(basis) else basis[negative]
        yield (
            g_source[r] + taken * np.einsum("ij,ij->j", fit, basis_of_negative[:, :n_pairs]),
            g_target[r] + taken * np.einsum("ij,ij->j", fit, basis_of_negative[:, n_pairs:]),
        )
