"""A table as an empirical distribution: its distinct rows, the mass of each, and how many rows were merged into it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from steelyard._numerics.duplicates import is_continuous
from steelyard._typing import FloatArray, IntArray

# Integers up to here are exact in double precision.
LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, eq=False)
class Empirical:
    """Distinct rows with positive masses that sum to one, in a random order that ignores the order of the table.

    Equal rows are merged for *sums*: a row that occurs three times is one row of three times the mass, and a row of
    weight zero is dropped. So weighting a row by three and repeating it three times are the same for every estimator
    that uses this class. Since the rows are sorted before they are shuffled, permuting a table changes nothing.

    Merged rows are not *held out* together: `units` is the number of parts of a distinct row that can be held out
    separately. It equals `counts`, the number of merged rows, unless the table has a practically continuous column;
    then equal rows are duplicates and form one unit (see `duplicates`).

    Weights that are all whole numbers are counts. Other weights are rescaled to sum to the number of rows with
    positive weight; a distinct row of weight c then counts as max(1, round c) rows.
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
        """Number of rows of the table, repeated rows included."""
        return int(self.counts.sum())

    @property
    def n_units(self) -> int:
        """Number of parts of the table that can be held out separately."""
        return int(self.units.sum())

    @property
    def unit_mass(self) -> FloatArray:
        """Mass of one unit of each distinct row."""
        return self.mass / self.units

    def __len__(self) -> int:
        return len(self.rows)

    def with_rows(self, rows: FloatArray) -> Empirical:
        """The same distribution with other values of the distinct rows."""
        return replace(self, rows=rows)

    def first(self, n_cells: int) -> Empirical:
        """The first distinct rows, which are a random sample, with unchanged masses."""
        if n_cells >= len(self):
            return self
        position = np.where(self.position < n_cells, self.position, -1)
        return Empirical(
            self.rows[:n_cells], self.mass[:n_cells], position, self.counts[:n_cells], self.units[:n_cells]
        )

    def spread(self, values: FloatArray) -> FloatArray:
        """Values of the distinct rows, assigned to the rows of the table (0 for rows of weight zero)."""
        return np.where(self.position >= 0, values[self.position], values.dtype.type(0))


def empirical(table: FloatArray, weights: FloatArray | None, rng: np.random.Generator) -> Empirical:
    """The empirical distribution of a table: equal rows are merged, in O(n log n)."""
    present = np.arange(len(table)) if weights is None else np.flatnonzero(weights > 0)
    order = present[_sorting_order(table[present] if weights is not None else table)]
    ordered = table[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    group = np.cumsum(first) - 1
    shuffle = rng.permutation(group[-1] + 1)  # the k-th distinct row in sort order moves to shuffle[k]
    place = shuffle[group]
    position = np.full(len(table), -1, dtype=np.intp)
    position[order] = place
    rows = np.empty((len(shuffle), table.shape[1]), dtype=table.dtype)
    rows[shuffle] = ordered[first]
    # The mass of each distinct row, up to a common factor, and the number of rows that it counts as.
    if weights is None:
        counts = np.bincount(place)
        mass: FloatArray = counts.astype(np.float64)
    else:
        present_weights = weights[order]
        largest = present_weights.max()
        shares = present_weights / largest  # the sum of huge weights stays in range
        whole = np.all(present_weights == np.rint(present_weights))
        if whole and float(shares.sum()) * float(largest) < LARGEST_COUNT:
            mass = np.bincount(place, weights=present_weights).astype(np.float64)
            counts = mass.astype(np.intp)
        else:
            mass = np.bincount(place, weights=shares).astype(np.float64)
            counts = np.maximum(1, np.rint(mass * (len(order) / mass.sum()))).astype(np.intp)
    units = np.ones_like(counts) if len(rows) == counts.sum() or any(map(is_continuous, rows.T)) else counts
    return Empirical(rows, mass / mass.sum(), position, counts, units)


def _sorting_order(table: FloatArray) -> IntArray:
    """An order of the rows in which equal rows are adjacent.

    Rows are sorted by one number each, a fixed generic combination of the columns scaled to [0, 1]. They are scaled
    because a column of shares would be lost to rounding beside a column of time stamps, and rows that differ only
    there would tie. They are summed column by column because a matrix product may round equal rows differently at the
    edge of a block.
    """
    factors = np.random.default_rng(0).uniform(1.0, 2.0, size=(table.shape[1],))
    keys = np.zeros(len(table))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, factor in zip(table.T, factors, strict=True):
            values = column.astype(np.float64)
            low, span = values.min(), np.ptp(values)
            if span > 0:
                keys += (values - low) / span * factor
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    tied = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(tied) and np.any(table[order[tied]] != table[order[tied + 1]]):
        return np.lexsort(table.T[::-1])  # different rows with equal keys might separate equal rows
    return order
