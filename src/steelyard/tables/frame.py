"""A table in memory: named columns of four kinds, numbers, booleans, dates and categories.

Nothing here knows about source, target or labels, nor where the columns come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.display import ShortRepr
from steelyard._typing import IntArray
from steelyard.errors import TableError

MOST_COLUMNS = 10_000
KINDS = ("number", "boolean", "date", "category")


@dataclass(frozen=True)
class Reading:
    """What was found in the text that a column was read from.

    Attributes
    ----------
    table : str
        Name of the table.
    missing : dict
        How often each sign of a missing value came; empty fields are not counted.
    strays : dict
        The values that made text of a column that is nearly all numbers, and how often each came.
    first_stray : str
        Where the first of them is, in words.
    """

    table: str
    missing: Mapping[str, int] = field(default_factory=dict)
    strays: Mapping[str, int] = field(default_factory=dict)
    first_stray: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Column(ShortRepr):
    """A named column.

    Attributes
    ----------
    name : str
        Its name.
    kind : {"number", "boolean", "date", "category"}
        What its values are.
    values : array
        Floats with NaN where a value is missing (dates are days since 1970, booleans 0 and 1); for a category text,
        with None where missing.
    reading : Reading, default=None
        What was found in the text that it was read from, where it was text.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.tables import Column
    >>> Column("age", "number", np.array([31.0, np.nan])).present()
    array([ True, False])
    """

    name: str
    kind: str
    values: NDArray[Any]
    reading: Reading | None = None

    def present(self) -> NDArray[np.bool_]:
        """Which rows have a value."""
        if self.kind == "category":
            return np.array([value is not None for value in self.values], dtype=bool)
        return ~np.isnan(self.values)

    def take(self, rows: IntArray | NDArray[np.bool_]) -> Column:
        """Some of the rows."""
        return replace(self, values=self.values[rows])


@dataclass(frozen=True, eq=False, repr=False)
class Frame(ShortRepr):
    """A table of named columns.

    Attributes
    ----------
    columns : tuple of Column
        The columns, in order.
    n_rows : int
        Number of rows.
    missing : tuple of str, default=()
        Signs of missing values that were given when the table was read, in addition to the usual ones.
    numbers : array of shape (n_rows,), default=None
        The running numbers of the rows, from 0 on, where they are some rows of a longer table.
    sampled_from : int, default=None
        Number of rows of the table that they were sampled from, if they were.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.tables import as_frame
    >>> frame = as_frame(np.zeros((3, 2)))
    >>> frame.names, len(frame)
    (['x0', 'x1'], 3)
    """

    columns: tuple[Column, ...]
    n_rows: int
    missing: tuple[str, ...] = ()
    numbers: IntArray | None = None
    sampled_from: int | None = None

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [column.name for column in self.columns]

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def __len__(self) -> int:
        return self.n_rows

    def take(self, rows: IntArray | NDArray[np.bool_]) -> Frame:
        """Some of the rows."""
        columns = tuple(column.take(rows) for column in self.columns)
        numbers = None if self.numbers is None else self.numbers[rows]
        n_rows = int(np.sum(rows)) if rows.dtype == bool else len(rows)
        return replace(self, columns=columns, n_rows=n_rows, numbers=numbers)

    def running_numbers(self) -> IntArray:
        """The number of each row in the table that was read, from 0 on."""
        return np.arange(self.n_rows) if self.numbers is None else self.numbers

    def without(self, *names: str) -> Frame:
        """All columns but some."""
        return replace(self, columns=tuple(c for c in self.columns if c.name not in names))

    def only(self, names: list[str]) -> Frame:
        """The named columns, in that order."""
        return replace(self, columns=tuple(self[name] for name in names))


def check_names(names: list[str], where: str) -> None:
    """An error for too many columns, or a name that comes twice."""
    if len(names) > MOST_COLUMNS:
        raise TableError(f"{where}: {len(names):,} columns; at most {MOST_COLUMNS:,} can be compared. Drop some first.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{where}: the column name {twice[0]!r} comes more than once. Rename or drop one of them.")
