"""Sums over the rows of a table, made chunk by chunk or part by part: all that a fit to a long table needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments
from steelyard._typing import FloatArray, IntArray

N_FOLDS = 5


class Summary:
    """Count, mean and variance of the columns, and an even sample of the rows with their running numbers.

    Every row draws a key that depends on its running number alone; the rows with the smallest keys are the sample, so
    it does not matter how the table is cut.
    """

    def __init__(self, n_sample: int, seed: int) -> None:
        self.n_sample, self.seed = n_sample, seed
        self.count = 0
        self.mean: FloatArray = np.zeros(0)
        self.squares: FloatArray = np.zeros(0)
        self.keys: FloatArray = np.zeros(0)
        self.numbers: IntArray = np.zeros(0, dtype=np.intp)
        self.sample: FloatArray = np.zeros((0, 0))

    def add(self, start: int, rows: FloatArray) -> None:
        """Add rows."""
        with np.errstate(over="ignore", invalid="ignore"):
            exact = rows.astype(np.float64, copy=False)
            mean = exact.mean(axis=0)
            self._combine(len(rows), mean, np.square(exact - mean).sum(axis=0))
        keys = np.random.Generator(np.random.PCG64(self.seed).advance(start)).random(len(rows))
        # Most rows of a long table are beyond the largest key of the sample, and are not copied.
        below = np.flatnonzero(keys < self.keys.max()) if len(self.keys) == self.n_sample else np.arange(len(rows))
        self._keep(keys[below], start + below, rows[below])

    def merge(self, part: Summary) -> None:
        """Add another part of the table."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._combine(part.count, part.mean, part.squares)
        self._keep(part.keys, part.numbers, part.sample)

    @property
    def variance(self) -> FloatArray:
        """Variance of each column."""
        return self.squares / self.count

    def fold_of_cells(self, distinct: Empirical) -> IntArray:
        """The fold of each distinct row of the sample; -1 where equal rows are in several folds."""
        fold = self.numbers % N_FOLDS
        low = np.full(len(distinct), N_FOLDS, dtype=np.intp)
        high = np.full(len(distinct), -1, dtype=np.intp)
        np.minimum.at(low, distinct.position, fold)
        np.maximum.at(high, distinct.position, fold)
        return np.where(low == high, low, -1)

    def _combine(self, count: int, mean: FloatArray, squares: FloatArray) -> None:
        """Chan's update: sums of squares of two parts, each around its own mean, are combined without cancellation."""
        if not count:
            return
        if not self.count:
            self.count, self.mean, self.squares = count, mean, squares
            return
        total = self.count + count
        delta = mean - self.mean
        self.squares = self.squares + squares + delta**2 * (self.count * count / total)
        self.mean = self.mean + delta * count / total
        self.count = total

    def _keep(self, keys: FloatArray, numbers: IntArray, rows: FloatArray) -> None:
        if not len(keys):
            return
        keys, numbers = np.append(self.keys, keys), np.append(self.numbers, numbers)
        rows = np.concatenate([self.sample, rows]) if len(self.sample) else rows
        smallest = np.argsort(keys, kind="stable")[: self.n_sample]
        self.keys, self.numbers, self.sample = keys[smallest], numbers[smallest], rows[smallest].copy()


@dataclass(frozen=True, eq=False)
class Basis:
    """Gaussian basis functions of rows that are not scaled yet, for a grid of decreasing widths."""

    center: FloatArray
    scale: FloatArray
    centers: FloatArray
    widths: FloatArray

    def scaled(self, rows: FloatArray) -> FloatArray:
        """Rows in the units of the centers."""
        return ((rows - self.center) / self.scale).astype(self.centers.dtype, copy=False)


class FoldMoments:
    """Sums of ψ and ψψᵀ over one table, per width and fold; rows are assigned to folds by their running number."""

    def __init__(self, basis: Basis, *, second: bool = True) -> None:
        self.basis, self.with_second = basis, second
        n_widths, b = len(basis.widths), len(basis.centers)
        self.first: FloatArray = np.zeros((n_widths, N_FOLDS, b))
        self.second: FloatArray = np.zeros((n_widths, N_FOLDS, b, b))
        self.counts: FloatArray = np.zeros(N_FOLDS)
        self.n_rows = 0

    def add(self, start: int, rows: FloatArray, mass: FloatArray | None = None) -> None:
        """Add rows, each of them once or `mass` times."""
        self.n_rows += len(rows)
        scaled = self.basis.scaled(rows)
        each = np.ones(len(rows)) if mass is None else mass
        for f in range(N_FOLDS):
            members = slice((f - start) % N_FOLDS, None, N_FOLDS)
            if not len(each[members]):
                continue
            first, second = basis_moments(
                scaled[members], each[members], self.basis.centers, self.basis.widths, second=self.with_second
            )
            self.first[:, f] += first[:, 0]
            self.second[:, f] += second[:, 0]
            self.counts[f] += each[members].sum()

    def merge(self, part: FoldMoments) -> None:
        """Add another part of the table."""
        self.first += part.first
        self.second += part.second
        self.counts += part.counts
        self.n_rows += part.n_rows

    def scale(self, factor: float) -> None:
        """Count all rows so far this many times."""
        self.first *= factor
        self.second *= factor
        self.counts *= factor

    def without(self, width: int, fold: int | None) -> tuple[FloatArray, FloatArray]:
        """Means of ψ and ψψᵀ over all rows except those of a fold (None: over all rows)."""
        kept = np.arange(N_FOLDS) != fold
        count = self.counts[kept].sum()
        return self.first[width, kept].sum(axis=0) / count, self.second[width, kept].sum(axis=0) / count

    def within(self, width: int, fold: int) -> tuple[FloatArray, FloatArray]:
        """Means of ψ and ψψᵀ over the rows of a fold."""
        return self.first[width, fold] / self.counts[fold], self.second[width, fold] / self.counts[fold]


def fold_scores(
    source: FoldMoments, target: FoldMoments, regs: FloatArray, eta: float, of_centers: IntArray
) -> FloatArray:
    """Held-out J' of the non-negative ratio for every width and reg, from the sums of the folds; smaller is better.

    Centers that are rows of a fold (`of_centers` has their folds) are not used while it is held out.
    """
    n_widths = len(source.first)
    scores = np.zeros((n_widths, len(regs)))
    for w in range(n_widths):
        for f in range(N_FOLDS):
            used = np.flatnonzero(of_centers != f)
            square = np.ix_(used, used)
            first, second_target = target.without(w, f)
            second = (1 - eta) * source.without(w, f)[1] + eta * second_target
            values, vectors = np.linalg.eigh(second[square])
            coef = ((vectors.T @ first[used]) / (np.maximum(values, 0) + regs[:, None])) @ vectors.T
            coef = np.maximum(coef, 0)  # (regs, b)
            held_first, held_target = target.within(w, f)
            held = (1 - eta) * source.within(w, f)[1] + eta * held_target
            scores[w] += np.einsum("ri,ij,rj->r", coef, held[square], coef, optimize=True) / 2
            scores[w] -= coef @ held_first[used]
    return scores / N_FOLDS


class RatioSums:
    """Sums of a ratio g and of its products with the columns: its mean, its effective sample size, and the balance."""

    def __init__(self, ratio: Callable[[int, FloatArray], FloatArray], origin: FloatArray) -> None:
        self.ratio, self.origin = ratio, origin
        self.count, self.total, self.squares, self.largest = 0, 0.0, 0.0, 0.0
        self.finite = True
        self.columns: FloatArray = np.zeros(len(origin))
        self.column_squares: FloatArray = np.zeros(len(origin))

    def add(self, start: int, rows: FloatArray) -> None:
        """Add rows."""
        values = self.ratio(start, rows)
        self.finite &= bool(np.isfinite(values).all())
        centered = rows - self.origin
        self.count += len(rows)
        self.total += float(values.sum())
        self.squares += float(values @ values)
        self.largest = max(self.largest, float(values.max()))
        self.columns += values @ centered
        self.column_squares += values @ np.square(centered)

    def merge(self, part: RatioSums) -> None:
        """Add another part of the table."""
        self.count += part.count
        self.total += part.total
        self.squares += part.squares
        self.largest = max(self.largest, part.largest)
        self.finite &= part.finite
        self.columns += part.columns
        self.column_squares += part.column_squares

    @property
    def mean(self) -> float:
        """Mean of the ratio over the rows."""
        return self.total / self.count
