"""The folds of merged rows: each distinct row of an `Empirical` is divided among the folds, row by row.

The rule is that of `duplicates`: rows count as rows. The rows of a cell of a discrete table are assigned one by one,
at random, so that no fold lacks a whole cell (which would ask for extrapolation to a cell never seen, and always
answer that there is no shift) and no two folds are the same distribution (the held-out score would be the training
score). Duplicates in a table that is as good as continuous share their fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._splits.rows import in_turn
from steelyard._typing import FloatArray, IntArray
from steelyard.errors import InputError

# Up to so many units are listed one by one; beyond, the numbers of units per fold are drawn.
MOST_LISTED = 4_000_000


@dataclass(frozen=True, eq=False)
class FoldParts:
    """The parts into which folds divide the distinct rows of an `Empirical`, and the mass of each part."""

    cell: IntArray  # place of the distinct row
    fold: IntArray
    mass: FloatArray
    n_folds: int

    def masses(self, n_cells: int, *, without: int) -> FloatArray:
        """Mass of each distinct row, up to a factor, with one fold left out."""
        kept = self.fold != without
        return np.bincount(self.cell[kept], weights=self.mass[kept], minlength=n_cells).astype(np.float64)

    def fold_of_cells(self, n_cells: int) -> IntArray:
        """The fold that holds a distinct row whole; -1 where it is divided among several."""
        fold = np.full(n_cells, -1, dtype=np.intp)
        fold[self.cell] = self.fold
        fold[np.bincount(self.cell, minlength=n_cells) > 1] = -1
        return fold

    def mean_of_cells(self, values: FloatArray, sample: Empirical) -> FloatArray:
        """Values of the parts, averaged by mass over the parts of each distinct row of the sample."""
        return np.asarray(np.bincount(self.cell, self.mass * values, len(sample)) / sample.mass)


def assign_folds(
    sample: Empirical, n_folds: int, rng: np.random.Generator, groups: IntArray | None = None
) -> FoldParts:
    """Assign the units of a sample to folds of equal size; with `groups`, those of each group in turn.

    Determined by the sorted table and the generator: the order of the table's rows does not matter.
    """
    if sample.n_units <= MOST_LISTED:
        cell = rng.permutation(np.repeat(np.arange(len(sample)), sample.units))
        fold = in_turn(len(cell), n_folds, None if groups is None else groups[cell])
        divided = np.bincount(cell * n_folds + fold, minlength=len(sample) * n_folds).reshape(-1, n_folds)
    else:
        divided = rng.multinomial(sample.units, np.full(n_folds, 1 / n_folds))
    cells, folds = np.nonzero(divided)
    return FoldParts(cells, folds, divided[cells, folds] * sample.unit_mass[cells], n_folds)


def number_of_folds(*samples: Empirical, at_most: int = 5) -> int:
    """As many folds as asked for, or as the smallest sample has units."""
    n_folds = min(at_most, *(sample.n_units for sample in samples))
    if n_folds < 2:
        raise InputError(
            "Validation by folds needs at least two rows in the source and in the target that are not duplicates of "
            "one another. Give more rows, or fix what is to be chosen (width=, reg=)."
        )
    return n_folds
