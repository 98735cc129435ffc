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
    """Named values: floats with NaN where missing, or for a category text with None where missing.

    Dates are days since 1970, booleans 0 and 1.
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
    """A table of named columns."""

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
    """A `Frame` of a data frame (pandas, polars, Arrow), an array, or a frame."""
    if isinstance(table, Frame):
        return table
    import narwhals as nw

    try:
        data = nw.from_native(table, eager_only=True)
    except TypeError:
        return _from_array(table)
    names = [str(name) for name in data.columns]
    check_names(names, "The table")
    columns = [from_arrow(name, _series_to_arrow(data, i)) for i, name in enumerate(names)]
    return Frame(tuple(columns), len(data))


def _series_to_arrow(data: Any, place: int) -> Any:
    import pyarrow as pa

    series = data[:, place]
    try:
        return series.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # an object column of several types: text says all of them
        return pa.array([None if value is None or value != value else str(value) for value in series.to_list()])


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
        text = [None if value is None or value != value else str(value) for value in values]
        return Column(name, "category", np.array(text, dtype=object))


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
