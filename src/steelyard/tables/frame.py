"""Tables in memory: pandas, polars and Arrow objects, and arrays, as named columns.

Whatever comes becomes a `Frame` of named columns of four kinds: numbers, booleans, dates and categories. Nothing here
knows about source, target or labels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._typing import IntArray
from steelyard.errors import InputError, InputTypeError, TableError

MOST_COLUMNS = 10_000
KINDS = ("number", "boolean", "date", "category")


@dataclass(frozen=True, eq=False)
class Column:
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

    def present(self) -> NDArray[np.bool_]:
        """Which rows have a value."""
        if self.kind == "category":
            return np.array([value is not None for value in self.values], dtype=bool)
        return ~np.isnan(self.values)

    def take(self, rows: IntArray | NDArray[np.bool_]) -> Column:
        """Some of the rows."""
        return Column(self.name, self.kind, self.values[rows])


@dataclass(frozen=True, eq=False)
class Frame:
    """A table of named columns.

    Attributes
    ----------
    columns : tuple of Column
        The columns, in order.
    n_rows : int
        Number of rows.

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
        return Frame(columns, int(np.sum(rows)) if rows.dtype == bool else len(rows))

    def without(self, *names: str) -> Frame:
        """All columns but some."""
        return Frame(tuple(c for c in self.columns if c.name not in names), self.n_rows)

    def only(self, names: list[str]) -> Frame:
        """The named columns, in that order."""
        return Frame(tuple(self[name] for name in names), self.n_rows)


def as_frame(table: Any) -> Frame:
    """Convert a table to a `Frame`.

    Parameters
    ----------
    table : data frame (pandas, polars, Arrow), two-dimensional array, or Frame
        The table; columns of an array are called x0, x1, …

    Returns
    -------
    Frame

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.tables import as_frame
    >>> as_frame(np.array([[1.0, 2.0]]))["x1"].values
    array([2.])
    """
    if isinstance(table, Frame):
        return table
    import narwhals as nw
    import pyarrow as pa

    try:
        data = nw.from_native(table, eager_only=True)
    except TypeError:
        return _from_array(table)
    names = [str(name) for name in data.columns]
    check_names(names, "The table")
    columns = []
    for i, name in enumerate(names):
        try:
            columns.append(from_arrow(name, data[:, i].to_arrow()))
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # an object column of several types
            columns.append(_as_text(name, data[:, i].to_list()))
    return Frame(tuple(columns), len(data))


def _as_text(name: str, values: list[Any]) -> Column:
    """A category of values of any types."""
    text = [None if value is None or value != value else str(value) for value in values]
    return Column(name, "category", np.array(text, dtype=object))


def _from_array(table: Any) -> Frame:
    values = np.asarray(table)
    if values.ndim != 2:
        raise InputTypeError(
            f"A table needs rows and columns; got {type(table).__name__} of shape {values.shape}. Give a data frame, "
            "an Arrow table or a two-dimensional array."
        )
    if values.dtype.kind not in "fiub":
        columns = [_from_objects(f"x{i}", values[:, i]) for i in range(values.shape[1])]
    else:
        kind = "boolean" if values.dtype.kind == "b" else "number"
        columns = [Column(f"x{i}", kind, values[:, i].astype(np.float64)) for i in range(values.shape[1])]
    return Frame(tuple(columns), len(values))


def _from_objects(name: str, values: NDArray[Any]) -> Column:
    import pyarrow as pa

    try:
        return from_arrow(name, pa.array(values.tolist(), from_pandas=True))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return _as_text(name, values.tolist())


def check_names(names: list[str], where: str) -> None:
    """An error for too many columns, or a name that comes twice."""
    if len(names) > MOST_COLUMNS:
        raise TableError(f"{where}: {len(names):,} columns; at most {MOST_COLUMNS:,} can be compared. Drop some first.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{where}: the column name {twice[0]!r} comes more than once. Rename or drop one of them.")


def from_arrow(name: str, values: Any, where: str = "The table") -> Column:
    """A column of an Arrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if pa.types.is_boolean(kind):
        return Column(name, "boolean", _floats(values.cast(pa.int8())))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Column(name, "number", _floats(values))
    if pa.types.is_null(kind):
        return Column(name, "number", np.full(len(values), np.nan))
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not pa.types.is_time(kind):
        seconds = pc.cast(pc.cast(values, pa.timestamp("ms"), safe=False), pa.int64())
        return Column(name, "date", _floats(seconds) / 86_400_000)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = np.array(values.to_pylist(), dtype=object)
        if values.null_count == len(values):  # nothing says what it would be
            return Column(name, "number", np.full(len(values), np.nan))
        return Column(name, "category", text)
    raise InputError(
        f"{where}, column {name!r}: values of type {kind} are no numbers, booleans, dates or text. Drop it."
    )


def _floats(values: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
