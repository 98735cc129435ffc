"""A table seen as a distribution: distinct rows, the mass of each, and how many rows it stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from steelyard._numerics.duplicates import any_continuous
from steelyard._typing import FloatArray, IntArray

# Counts up to here are exact in double precision.
LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, eq=False)
class Empirical:
    """Distinct rows with positive masses that sum to one, in a random order that ignores the order of the table.

    Equal rows are merged for *sums*: a row that comes three times is one row of three times the mass, a row of weight
    zero is not there. So weighting a row by three and repeating it three times are the same thing for every estimator
    that starts here. And since the rows are sorted before they are shuffled, permuting a table changes nothing.

    Merged rows are not *left out* together: `units` says how many parts a distinct row has that can be held out one by
    one. That is `counts`, the rows it stands for, unless the table is as good as continuous; there equal rows are
    duplicates and stay together as one unit (see `duplicates`).

    Weights that are all whole numbers are counts. Others are rescaled to sum to the number of rows with positive
    weight; a distinct row of weight c then counts as max(1, round c) rows.
    """

    rows: FloatArray
    mass: FloatArray
    position: IntArray  # of each row of the table among the distinct rows; -1 where its weight is zero
    counts: IntArray
    units: IntArray

    @property
    def uniform(self) -> bool:
        """Whether all distinct rows have the same mass."""
        return bool(np.all(self.mass == self.mass[0]))

    @property
    def n_rows(self) -> int:
        """How many rows the table counts."""
        return int(self.counts.sum())

    @property
    def n_units(self) -> int:
        """How many parts of the table can be left out one by one."""
        return int(self.units.sum())

    @property
    def unit_mass(self) -> FloatArray:
        """Mass of one unit of each distinct row."""
        return self.mass / self.units

    def __len__(self) -> int:
        return len(self.rows)

    def with_rows(self, rows: FloatArray) -> Empirical:
        """The same distribution over other values of the distinct rows."""
        return replace(self, rows=rows)

    def first(self, n_cells: int) -> Empirical:
        """The first distinct rows, which are random ones; their masses are as they were."""
        if n_cells >= len(self):
            return self
        position = np.where(self.position < n_cells, self.position, -1)
        return Empirical(
            self.rows[:n_cells], self.mass[:n_cells], position, self.counts[:n_cells], self.units[:n_cells]
        )

    def spread(self, values: FloatArray) -> FloatArray:
        """Values on the distinct rows, given back to the rows of the table (0 for rows of weight zero)."""
        return np.where(self.position >= 0, values[self.position], values.dtype.type(0))


def empirical(table: FloatArray, weights: FloatArray | None, rng: np.random.Generator) -> Empirical:
    """Merge equal rows of a table, in O(n log n)."""
    present = np.arange(len(table)) if weights is None else np.flatnonzero(weights > 0)
    order = present[_sorting_order(table[present] if weights is not None else table)]
    ordered = table[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    group = np.cumsum(first) - 1
    shuffle = rng.permutation(group[-1] + 1)  # distinct row k of the sorted order moves to place shuffle[k]
    place = shuffle[group]
    position = np.full(len(table), -1, dtype=np.intp)
    position[order] = place
    rows = np.empty((len(shuffle), table.shape[1]), dtype=table.dtype)
    rows[shuffle] = ordered[first]
    if weights is None:
        counts = np.bincount(place)
        mass: FloatArray = counts.astype(np.float64)
    else:
        mass, counts = _weighted_counts(weights[order], place)
    units = np.ones_like(counts) if len(rows) == counts.sum() or any_continuous(list(rows.T)) else counts
    return Empirical(rows, mass / mass.sum(), position, counts, units)


def _weighted_counts(weights: FloatArray, place: IntArray) -> tuple[FloatArray, IntArray]:
    """Mass of each distinct row, up to a factor, and the number of rows that it counts as."""
    # Divided by the largest, so that a sum of huge weights stays in range.
    shares = weights / weights.max()
    if float(shares.sum()) * float(weights.max()) < LARGEST_COUNT and np.all(weights == np.rint(weights)):
        mass = np.bincount(place, weights=weights).astype(np.float64)
        return mass, mass.astype(np.intp)
    mass = np.bincount(place, weights=shares).astype(np.float64)
    return mass, np.maximum(1, np.rint(mass * (len(weights) / mass.sum()))).astype(np.intp)


def _sorting_order(table: FloatArray) -> IntArray:
    """An order of the rows in which equal ones are neighbors."""
    keys = _row_keys(table)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    tied = np.flatnonzero(~(ordered[1:] != ordered[:-1]))  # written so that keys beyond the range count as ties
    if len(tied) and np.any(table[order[tied]] != table[order[tied + 1]]):
        return np.lexsort(table.T[::-1])  # other rows with the same key might stand between equal ones
    return order


def _row_keys(table: FloatArray) -> FloatArray:
    """One number per row, equal for equal rows: a fixed generic combination of the columns, each brought to [0, 1].

    Brought to [0, 1], because beside a column of time stamps a column of shares would be lost to rounding, and rows
    that differ only there would tie. Summed column by column, because a matrix product may round equal rows
    differently at the edge of a block.
    """
    factors = np.random.default_rng(0).uniform(1.0, 2.0, size=(table.shape[1],))
    keys = np.zeros(len(table))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, factor in zip(table.T, factors, strict=True):
            values = column.astype(np.float64)
            low, span = values.min(), np.ptp(values)
            if span > 0:
                keys += (values - low) / span * factor
    return keys
