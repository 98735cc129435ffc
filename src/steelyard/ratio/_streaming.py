"""Least-squares fits to tables given in blocks: two passes, in memory that does not grow with the number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_rows
from steelyard.errors import InputError, InputTypeError
from steelyard.target import Target

N_FOLDS = 5


class BlockTable:
    """A table as an iterable of blocks of rows that can be iterated more than once."""

    def __init__(self, blocks: Iterable[Any], name: str, estimator: BaseEstimator) -> None:
        if isinstance(blocks, Target) or hasattr(blocks, "shape"):
            raise InputTypeError(
                f"The {name} must be an iterable of blocks of rows; got a single {type(blocks).__name__}. Use fit for "
                "a table in memory, or give a list of arrays."
            )
        if iter(blocks) is blocks:
            raise InputTypeError(
                f"The {name} blocks can be iterated only once ({type(blocks).__name__}), but two passes are needed. "
                "Give a list of arrays, or an object whose __iter__ starts again at the first block."
            )
        self.blocks, self.name, self.estimator = blocks, name, estimator

    def __iter__(self) -> Iterator[FloatArray]:
        for block in self.blocks:
            first = not hasattr(self.estimator, "n_features_in_")  # the first block of a fit sets the number of columns
            yield check_rows(self.estimator, block, table=self.name, reset=first, least=1)


class TableSummary:
    """Count, mean and variance of the columns, and a uniformly random sample of the rows with their folds."""

    def __init__(self, table: BlockTable, n_sample: int, rng: np.random.Generator) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(0), np.zeros(0)
        keys, sample, fold = np.zeros(0), None, np.zeros(0, dtype=np.intp)
        for block in table:
            numbers = self.count + np.arange(len(block))
            self._add(block.astype(np.float64, copy=False))
            # Each row has a random key; the rows with the smallest keys are a uniform sample, whatever the blocks.
            drawn = np.append(keys, rng.random(len(block)))
            rows = block if sample is None else np.concatenate([sample, block])
            smallest = np.argsort(drawn, kind="stable")[:n_sample]
            keys, sample = drawn[smallest], rows[smallest]
            fold = np.append(fold, numbers % N_FOLDS)[smallest]
        if sample is None or self.count < 2 * N_FOLDS:
            raise InputError(f"{table.name}: the blocks hold {self.count} rows, at least {2 * N_FOLDS} are needed.")
        self.sample, self.sample_fold = sample, fold

    @property
    def variance(self) -> FloatArray:
        """Variance of each column."""
        return self.squares / self.count

    def fold_of_cells(self, distinct: Empirical) -> IntArray:
        """The fold of each distinct row of the sample; -1 where equal rows are in several folds."""
        low = np.full(len(distinct), N_FOLDS, dtype=np.intp)
        high = np.full(len(distinct), -1, dtype=np.intp)
        np.minimum.at(low, distinct.position, self.sample_fold)
        np.maximum.at(high, distinct.position, self.sample_fold)
        return np.where(low == high, low, -1)

    def _add(self, block: FloatArray) -> None:
        """Chan's update: sums of squares of two parts, each around its own mean, are combined without cancellation."""
        if not self.count:
            self.mean, self.squares = np.zeros(block.shape[1]), np.zeros(block.shape[1])
        mean, total = block.mean(axis=0), self.count + len(block)
        delta = mean - self.mean
        self.squares = self.squares + np.square(block - mean).sum(axis=0) + delta**2 * self.count * len(block) / total
        self.mean = self.mean + delta * len(block) / total
        self.count = total


class FoldMoments:
    """Sums of ψ and ψψᵀ over one table, per width and fold; rows are assigned to folds in turn."""

    def __init__(
        self,
        table: BlockTable,
        scale_rows: Any,
        centers: FloatArray,
        widths: FloatArray,
        *,
        second: bool = True,
    ) -> None:
        self.first: FloatArray = np.zeros((len(widths), N_FOLDS, len(centers)))
        self.second: FloatArray = np.zeros((len(widths), N_FOLDS, len(centers), len(centers)))
        self.counts: FloatArray = np.zeros(N_FOLDS)
        for block in table:
            rows = scale_rows(block.astype(centers.dtype, copy=False))
            fold = (int(self.counts.sum()) + np.arange(len(rows))) % N_FOLDS
            first, products = basis_moments(
                rows, np.ones(len(rows)), centers, widths, second=second, fold=fold, n_folds=N_FOLDS
            )
            self.first += first
            self.second += products
            self.counts += np.bincount(fold, minlength=N_FOLDS)

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
