"""Least-squares fits from tables that come in blocks: two passes, memory that does not grow with the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_block
from steelyard.errors import InputError, InputTypeError
from steelyard.target import Target

N_FOLDS = 5


class BlockTable:
    """A table as an iterable of blocks of rows that can be gone through more than once."""

    def __init__(self, blocks: Iterable[Any], name: str, estimator: BaseEstimator) -> None:
        if isinstance(blocks, Target) or hasattr(blocks, "shape"):
            raise InputTypeError(
                f"The {name} must be an iterable of blocks of rows; got one {type(blocks).__name__}. Use fit for a "
                "table in memory, or give a list of arrays."
            )
        if iter(blocks) is blocks:
            raise InputTypeError(
                f"The {name} blocks can be gone through only once ({type(blocks).__name__}), but two passes are "
                "needed. Give a list of arrays, or an object whose __iter__ starts anew (a class that reads files)."
            )
        self.blocks, self.name, self.estimator = blocks, name, estimator

    def __iter__(self) -> Iterator[FloatArray]:
        for block in self.blocks:
            yield check_block(self.estimator, block, self.name)


class TableSummary:
    """Count, mean and variance of the columns, and a sample of rows drawn evenly from the whole table."""

    def __init__(self, table: BlockTable, n_sample: int, rng: np.random.Generator) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(0), np.zeros(0)
        keys, sample, fold = np.zeros(0), None, np.zeros(0, dtype=np.intp)
        for block in table:
            running = self.count + np.arange(len(block))
            self._add(block.astype(np.float64, copy=False))
            # Each row draws a number; the rows with the smallest ones are an even sample, whatever the blocks.
            drawn = np.append(keys, rng.random(len(block)))
            rows = block if sample is None else np.concatenate([sample, block])
            smallest = np.argsort(drawn, kind="stable")[:n_sample]
            keys, sample = drawn[smallest], rows[smallest]
            fold = np.append(fold, running % N_FOLDS)[smallest]
        if sample is None or self.count < 2 * N_FOLDS:
            raise InputError(f"{table.name}: the blocks hold {self.count} rows, at least {2 * N_FOLDS} are needed.")
        self.sample, self.sample_fold = sample, fold

    @property
    def variance(self) -> FloatArray:
        """Of each column, around its mean."""
        return self.squares / self.count

    def _add(self, block: FloatArray) -> None:
        """Chan's update: the sums of two parts, each around its own mean, combine without cancellation."""
        if not self.count:
            self.mean, self.squares = np.zeros(block.shape[1]), np.zeros(block.shape[1])
        mean, total = block.mean(axis=0), self.count + len(block)
        delta = mean - self.mean
        self.squares = self.squares + np.square(block - mean).sum(axis=0) + delta**2 * self.count * len(block) / total
        self.mean = self.mean + delta * len(block) / total
        self.count = total


class FoldMoments:
    """Sums of ψ and ψψᵀ of one table per width and fold, rows dealt to the folds in turn."""

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
        """Means of ψ and ψψᵀ over all rows but those of a fold (None: over all)."""
        kept = np.arange(N_FOLDS) != fold
        count = self.counts[kept].sum()
        return self.first[width, kept].sum(axis=0) / count, self.second[width, kept].sum(axis=0) / count

    def within(self, width: int, fold: int) -> tuple[FloatArray, FloatArray]:
        """Means of ψ and ψψᵀ over the rows of a fold."""
        return self.first[width, fold] / self.counts[fold], self.second[width, fold] / self.counts[fold]


def common_fold(sample: Empirical, fold_of_rows: IntArray) -> IntArray:
    """The fold of each distinct row of a sample; -1 where equal rows are in several."""
    low = np.full(len(sample), N_FOLDS, dtype=np.intp)
    high = np.full(len(sample), -1, dtype=np.intp)
    np.minimum.at(low, sample.position, fold_of_rows)
    np.maximum.at(high, sample.position, fold_of_rows)
    return np.where(low == high, low, -1)


def fold_scores(
    source: FoldMoments, target: FoldMoments, regs: FloatArray, eta: float, of_centers: IntArray
) -> FloatArray:
    """Held-out J' of the rounded ratio for every width and reg, from the folds' sums alone; smaller is better.

    Centers that were sampled from a fold (`of_centers`) are not used while it is held out.
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
