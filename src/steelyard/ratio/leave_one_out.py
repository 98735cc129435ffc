"""The exact leave-one-out score of uLSIF and RuLSIF, for a whole grid of widths and regs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.arrays import FloatArray, IntArray
from steelyard.empirical import Empirical
from steelyard.kernels import basis_moments, blocks, gaussian_widths

# Pairs a block in the leave-one-out score: a handful of arrays of a hundred centres by so many rows are in use at
# once, and should stay near a core's second-level cache.
PAIR_BLOCK = 500
# What rounding, in single precision too, may add to a bound.
ROUNDING = 1.001


@dataclass(frozen=True, eq=False)
class Moments:
    """Everything a fit needs of the rows, for each width: h = mean_target ψ and the two parts of H."""

    first: FloatArray  # (widths, b), over the target
    source: FloatArray  # (widths, b, b)
    target: FloatArray  # (widths, b, b); zero where η is

    def second(self, width: int, eta: float, source_factor: float = 1.0, target_factor: float = 1.0) -> FloatArray:
        """H_η at one width of the grid, the parts scaled by a factor each."""
        return (1 - eta) * source_factor * self.source[width] + eta * target_factor * self.target[width]


def ratio_moments(source: Empirical, target: Empirical, centers: FloatArray, widths: FloatArray, eta: float) -> Moments:
    """One pass over each table, for all widths."""
    first, second_target = basis_moments(target.rows, target.mass, centers, widths, second=eta > 0)
    _, second_source = basis_moments(source.rows, source.mass, centers, widths)
    return Moments(first[:, 0], second_source[:, 0], second_target[:, 0])


def leave_one_out(
    source: Empirical,
    target: Empirical,
    centers: FloatArray,
    widths: FloatArray,
    regs: FloatArray,
    eta: float,
    moments: Moments,
) -> FloatArray:
    """J' of the rounded ratio, each pair of a source row and a target row judged by the fit without that pair.

    Exact for every width and reg, shape (widths, regs), smaller is better. Source row i is paired with target row i,
    up to the shorter table. Leaving the pair out takes two rank-one terms from H (the target row enters H as soon as
    η > 0) and one from h; with one eigendecomposition of H per width, the solution without the pair is

        G (c h + u a + v t),    G = (H + λI)⁻¹,

    a and t the pair's basis values, u and v scalars from a 2 × 2 system. So a grid point costs at most one product
    of a block of rows with a b × b matrix, and nothing is ever n × n. The ratio before rounding comes from scalars
    alone; rounding adds back what the negative coefficients took away, so only coefficients that may be negative
    need to be computed.

    Where rows have unequal masses, the rest is rescaled by n/(n−1) as for equal ones, n the number of distinct rows.
    """
    n_pairs = min(len(source), len(target))
    rescale_source, rescale_target = (len(sample) / (len(sample) - 1) for sample in (source, target))
    dtype = source.rows.dtype
    solvers = [
        Ridge(moments.second(w, eta, rescale_source, rescale_target), rescale_target * moments.first[w], regs, dtype)
        for w in range(len(widths))
    ]
    source_share = source.mass[:n_pairs] / source.mass[:n_pairs].sum()
    target_share = target.mass[:n_pairs] / target.mass[:n_pairs].sum()
    # What leaves H with the source row, what leaves H and what leaves h with the target row.
    down_source = ((1 - eta) * rescale_source * source.mass[:n_pairs]).astype(dtype)
    down_target = (eta * rescale_target * target.mass[:n_pairs]).astype(dtype)
    down_first = (rescale_target * target.mass[:n_pairs]).astype(dtype)
    scores = np.zeros((len(widths), len(regs)))
    work = _Workspace(len(centers), min(n_pairs, PAIR_BLOCK), dtype)
    for block in blocks(n_pairs, PAIR_BLOCK):
        rows = np.concatenate([source.rows[block], target.rows[block]])
        downdates = down_source[block], down_target[block], down_first[block]
        # Centres by rows: what belongs to a row of the table then lies along the fast axis.
        for w, basis in enumerate(gaussian_widths(centers, rows, widths)):
            for r, (g_source, g_target) in enumerate(_without_each_pair(basis, solvers[w], downdates, work)):
                scores[w, r] += 0.5 * (1 - eta) * (source_share[block] @ np.square(g_source))
                scores[w, r] += target_share[block] @ (0.5 * eta * np.square(g_target) - g_target)
    return scores


class Ridge:
    """(H + λI)⁻¹ for all λ of the grid, through the eigenvectors of H."""

    def __init__(self, second: FloatArray, first: FloatArray, regs: FloatArray, dtype: Any) -> None:
        values, vectors = np.linalg.eigh(second)
        inverse = 1 / (np.maximum(values, 0) + regs[:, None])
        weighted_first = inverse * (vectors.T @ first)
        self.vectors = vectors.astype(dtype)
        self.inverse = inverse.astype(dtype)  # (regs, b)
        self.weighted_first = weighted_first.astype(dtype)  # (regs, b), in the eigenbasis
        self.full = (weighted_first @ vectors.T).astype(dtype)  # (regs, b), the solutions for h
        self.stiffness = np.sqrt(inverse @ np.square(vectors.T)).astype(dtype)  # (regs, b), roots of diag G

    def back(self, reg: int, centers: IntArray) -> FloatArray:
        """From the eigenbasis, still to be divided by the eigenvalues, to the coefficients of some centres.

        The last column is the solution for h, to be added to every row's.
        """
        return np.column_stack([self.vectors[centers] * self.inverse[reg], self.full[reg, centers]])


class _Workspace:
    """Arrays used again for every block and width: fresh ones would cost time in page faults."""

    def __init__(self, n_centers: int, n_pairs: int, dtype: Any) -> None:
        self.rotated = np.empty((n_centers, 2 * n_pairs), dtype=dtype)
        self.products = np.empty((n_centers, 2 * n_pairs), dtype=dtype)
        self.solution = np.empty((n_centers + 1, n_pairs), dtype=dtype)
        self.fit = np.empty((n_centers, n_pairs), dtype=dtype)


def _without_each_pair(
    basis: FloatArray,
    ridge: Ridge,
    downdates: tuple[FloatArray, FloatArray, FloatArray],
    work: _Workspace,
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """For each reg, the ratio at each pair's source and target row, fitted without that pair.

    The basis values come centres by rows, the source rows first, then the target rows. `downdates` holds, per pair,
    what leaves H with the source row, what leaves H with the target row, and what leaves h with the target row.
    """
    down_source, down_target, down_first = downdates
    n_pairs = len(down_source)
    rotated = np.matmul(ridge.vectors.T, basis, out=work.rotated[:, : 2 * n_pairs])
    a, t = rotated[:, :n_pairs], rotated[:, n_pairs:]
    at = ridge.inverse @ np.multiply(a, t, out=work.products[:, :n_pairs])  # (regs, pairs)
    squares = ridge.inverse @ np.square(rotated, out=work.products[:, : 2 * n_pairs])
    aa, tt = squares[:, :n_pairs], squares[:, n_pairs:]
    # Inner products of the pair's basis values with G r, r the first moment without the target row.
    along_first = ridge.weighted_first @ rotated
    a_rest, t_rest = along_first[:, :n_pairs] - down_first * at, along_first[:, n_pairs:] - down_first * tt
    stays_a, stays_t = 1 - down_source * aa, 1 - down_target * tt
    determinant = stays_a * stays_t - down_source * down_target * at**2
    g_source = (stays_t * a_rest + down_target * at * t_rest) / determinant  # before rounding
    g_target = (stays_a * t_rest + down_source * at * a_rest) / determinant
    u, v = down_source * g_source, down_target * g_target - down_first
    # By Cauchy and Schwarz, leaving out a pair moves coefficient l by at most this much times √G_ll.
    moves = np.max(np.abs(u) * np.sqrt(aa) + np.abs(v) * np.sqrt(tt), axis=1) * ROUNDING
    # v is taken out of the bracket: G (c h + u a + v t) = v G (h c/v + a u/v + t), which saves a pass over the block.
    # It is negative but where the ratio exceeds 1/η; those few rows are turned round.
    least = 1e-12 * down_first
    v = np.where(np.abs(v) < least, -least, v)
    u /= v
    solution = work.solution[:, :n_pairs]
    for r in range(len(ridge.inverse)):
        negative = np.flatnonzero(ridge.full[r] <= ridge.stiffness[r] * moves[r])
        if not len(negative):
            yield g_source[r], g_target[r]
            continue
        np.multiply(a, u[r], out=solution[:-1])
        solution[:-1] += t
        solution[-1] = 1 / v[r]
        turned = np.flatnonzero(v[r] > 0)
        if len(turned):
            solution[:, turned] *= -1
        fit = np.matmul(ridge.back(r, negative), solution, out=work.fit[: len(negative), :n_pairs])
        np.maximum(fit, 0, out=fit)
        taken = np.abs(v[r])
        basis_there = basis if len(negative) == len(basis) else basis[negative]
        yield (
            g_source[r] + taken * np.einsum("ij,ij->j", fit, basis_there[:, :n_pairs]),
            g_target[r] + taken * np.einsum("ij,ij->j", fit, basis_there[:, n_pairs:]),
        )
