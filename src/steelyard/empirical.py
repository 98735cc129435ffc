"""A table seen as a distribution: distinct rows and the share of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Empirical:
    """Distinct rows with positive masses that sum to one, in a random order that ignores the order of the table.

    A row that comes three times is one row of three times the mass, a row of weight zero is not there. So weighting
    a row by three and repeating it three times are the same thing for every estimator that starts here, model
    selection included: copies never sit on both sides of a validation split. And since the rows are sorted before
    they are shuffled, permuting a table changes nothing.
    """

    rows: FloatArray
    mass: FloatArray
    position: IntArray  # of each row of the table among the distinct rows; -1 where its weight is zero

    @property
    def uniform(self) -> bool:
        """Whether all distinct rows have the same mass."""
        return bool(np.all(self.mass == self.mass[0]))

    def __len__(self) -> int:
        return len(self.rows)

    def spread(self, values: FloatArray) -> FloatArray:
        """Values on the distinct rows, given back to the rows of the table (0 for rows of weight zero)."""
        return np.where(self.position >= 0, values[self.position], values.dtype.type(0))


def empirical(table: FloatArray, weights: FloatArray | None, rng: np.random.Generator) -> Empirical:
    """Merge equal rows of a table, in O(n log n)."""
    present = np.arange(len(table)) if weights is None else np.flatnonzero(weights > 0)
    order = present[np.argsort(_row_keys(table[present] if weights is not None else table), kind="stable")]
    ordered = table[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    group = np.cumsum(first) - 1
    shuffle = rng.permutation(group[-1] + 1)  # distinct row k of the sorted order moves to place shuffle[k]
    position = np.full(len(table), -1, dtype=np.intp)
    position[order] = shuffle[group]
    rows = np.empty((len(shuffle), table.shape[1]), dtype=table.dtype)
    rows[shuffle] = ordered[first]
    # Divided by the largest, so that a sum of huge counts stays in range.
    counts = np.ones(len(order)) if weights is None else weights[order] / weights.max()
    mass = np.bincount(shuffle[group], weights=counts)
    return Empirical(rows, mass / mass.sum(), position)


def _row_keys(table: FloatArray) -> FloatArray:
    """One number a row, equal for equal rows: a fixed generic combination of the columns, each brought to [0, 1].

    Brought to [0, 1], because beside a column of time stamps a column of shares would be lost to rounding, and rows
    that differ only there would tie. Summed column by column, because a matrix product may round equal rows
    differently at the edge of a block.
    """
    factors = np.random.default_rng(0).uniform(1.0, 2.0, size=(table.shape[1],))
    keys = np.zeros(len(table))
    with np.errstate(over="ignore", invalid="ignore"):  # keys beyond the range only leave copies unmerged
        for column, factor in zip(table.T, factors, strict=True):
            values = column.astype(np.float64)
            low, span = values.min(), np.ptp(values)
            if span > 0:
                keys += (values - low) / span * factor
    return keys
