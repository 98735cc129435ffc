"""Folds of merged rows: the rows merged into a distinct row of an `Empirical` are divided among the folds.

The rule is that of `duplicates`. The equal rows of a cell of a discrete table are assigned to folds one by one, at
random. So no training set lacks a whole cell (the held-out rows would require extrapolation to an unseen cell, and no
shift would ever be found), and no two folds have the same distribution (the held-out score would be the training
score). Duplicates in a table with a practically continuous column share their fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._splits.rows import in_turn
from steelyard._typing import FloatArray, IntArray
from steelyard.errors import InputError

# Up to this many units are listed and assigned one by one; with more, the number of units in each fold is drawn.
MOST_LISTED = 4_000_000


@dataclass(frozen=True, eq=False)
class FoldParts:
    """The parts into which folds divide the distinct rows of an `Empirical`, and the mass of each part."""

    cell: IntArray  # position of the distinct row
    fold: IntArray
    mass: FloatArray
    n_folds: int

    def masses(self, n_cells: int, *, without: int) -> FloatArray:
        """Mass of each distinct row without one fold, up to a common factor."""
        kept = self.fold != without
        return np.bincount(self.cell[kept], weights=self.mass[kept], minlength=n_cells).astype(np.float64)

    def fold_of_cells(self, n_cells: int) -> IntArray:
        """The fold of each distinct row; -1 where it is divided among several folds."""
        fold = np.full(n_cells, -1, dtype=np.intp)
        fold[self.cell] = self.fold
        fold[np.bincount(self.cell, minlength=n_cells) > 1] = -1
        return fold

    def mean_of_cells(self, values: FloatArray, sample: Empirical) -> FloatArray:
        """Mean of the values over the parts of each distinct row of the sample, weighted by mass."""
        return np.asarray(np.bincount(self.cell, self.mass * values, len(sample)) / sample.mass)


def assign_folds(
    sample: Empirical, n_folds: int, rng: np.random.Generator, groups: IntArray | None = None
) -> FoldParts:
    """Assign the units of a sample to folds of equal size; with `groups`, stratified by the group of each distinct row.

    The result depends on the sorted table and the random generator, not on the order of the table's rows.
    """
    if sample.n_units <= MOST_LISTED:
        cell = rng.permutation(np.repeat(np.arange(len(sample)), sample.units))
        fold = in_turn(len(cell), n_folds, None if groups is None else groups[cell])
        divided = np.bincount(cell * n_folds + fold, minlength=len(sample) * n_folds).reshape(-1, n_folds)
    else:
        divided = rng.multinomial(sample.units, np.full(n_folds, 1 / n_folds))
    cells, folds = np.nonzero(divided)
    return FoldParts(cells, folds, divided[cells, folds] * sample.unit_mass[cells], n_folds)


def number_of_folds(*samples: Empirical, at_most: int = 5, chosen: str = "") -> int:
    """`at_most` folds, or as many as the smallest sample has units.

    `chosen` names the parameters that are chosen by the folds: with one value for each, no folds are needed.
    """
    n_folds = min(at_most, *(sample.n_units for sample in samples))
    if n_folds < 2:
        raise InputError(
            "Cross-validation needs at least two rows in the source and in the target that are not duplicates of "
            f"one another. Give more rows{f', or one value for {chosen}' if chosen else ''}."
        )
    return n_folds
