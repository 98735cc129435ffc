"""Tables as people have them: CSV and Parquet files, pandas, polars and Arrow objects, arrays.

Whatever comes becomes a `Frame` of named columns of four kinds: numbers, booleans, dates and categories. Nothing here
knows about source, target or labels.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.arrays import IntArray
from steelyard.errors import InputError, InputTypeError, TableError

MOST_COLUMNS = 10_000
KINDS = ("number", "boolean", "date", "category")
BLOCK_BYTES = 4 * 2**20


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
    _check_names(names, "The table")
    columns = [_from_arrow(name, _series_to_arrow(data, i)) for i, name in enumerate(names)]
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
        return _from_arrow(name, pa.array(values.tolist(), from_pandas=True))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        text = [None if value is None or value != value else str(value) for value in values]
        return Column(name, "category", np.array(text, dtype=object))


def read_table(
    path: Path,
    *,
    at_most: int | None = None,
    seed: int = 0,
    kinds: Mapping[str, str] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Frame:
    """Read a CSV or Parquet file.

    Parameters
    ----------
    at_most : int, default=None
        Keep an even random sample of so many rows (a reservoir: memory does not grow with the file). None keeps all.
    kinds : columns of a CSV file whose kind is known, "number" or "category"; those of others are guessed. Without it
        a column of digits is a number in one file and, with one letter in it, text in the next.
    advance : called with the number of rows after each block.
    """
    if not path.is_file():
        raise TableError(f"{path}: there is no such file.")
    with open(path, "rb") as file:
        head = file.read(2**20)
    if not head.strip():
        raise TableError(f"{path}: the file is empty. A header line with column names and at least one row are needed.")
    if head[:4] == b"PAR1":
        frame = _collect(path, _parquet_batches(path), at_most, seed, advance)
    else:
        frame = _read_csv(path, head, kinds or {}, at_most, seed, advance)
    if not frame.n_rows:
        raise TableError(f"{path}: there is a header but no row.")
    return frame


def _parquet_batches(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        _check_names(file.schema_arrow.names, str(path))
        yield from file.iter_batches()
    except pa.ArrowException as error:
        raise TableError(f"{path}: this is no Parquet file that can be read ({error}).") from error


def _read_csv(
    path: Path, head: bytes, kinds: Mapping[str, str], at_most: int | None, seed: int, advance: Callable[[int], None]
) -> Frame:
    """Types are guessed from the first block; a column that turns out to be something else later is read as text."""
    encoding = _encoding(path, head)
    known = dict(kinds)
    while True:
        try:
            return _collect(path, _csv_batches(path, encoding, known), at_most, seed, advance)
        except _OtherType as found:
            known[found.column] = "category"
        except _OtherEncoding:
            encoding = "latin-1"
        except UnicodeDecodeError as error:
            raise TableError(f"{path}: byte {error.start} and what follows is no {encoding} text.") from error


class _OtherType(Exception):
    def __init__(self, column: str) -> None:
        self.column = column


class _OtherEncoding(Exception):
    pass


def _encoding(path: Path, head: bytes) -> str:
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if b"\0" in head:
        raise TableError(f"{path}: this is a binary file, not a CSV or Parquet table (byte {head.index(0)} is zero).")
    try:
        head[: head.rfind(b"\n") + 1 or len(head)].decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


@dataclass(frozen=True)
class _Dialect:
    """How fields are separated, and fractions written."""

    separator: str
    decimal_point: str


def _dialect(path: Path, encoding: str) -> _Dialect:
    """Commas; where the header has none, the semicolons, tabs or bars it has, with decimal commas if the rows do."""
    with open(path, encoding=encoding, errors="replace", newline="") as file:
        header, row = file.readline(100_000), file.readline(100_000)
    if "," in header:
        return _Dialect(",", ".")
    separator = max((";", "\t", "|"), key=header.count)
    if separator not in header:
        return _Dialect(",", ".")
    comma = re.search(r"\d,\d", row) is not None and re.search(r"\d\.\d", row) is None
    return _Dialect(separator, "," if comma else ".")


def place_of_row(path: Path, row: int) -> str:
    """Where a row (counted from 0) is in its file, in words: quoted line ends and blank lines count as lines."""
    with open(path, "rb") as file:
        head = file.read(2**20)
    if head[:4] == b"PAR1":
        return f"row {row + 1}"
    encoding = _encoding(path, head)
    with open(path, encoding=encoding, errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=_dialect(path, encoding).separator)
        filled = (reader.line_num for fields in reader if fields)
        next(filled, None)  # the header
        found = next(itertools.islice(filled, row, None), None)
    return f"row {row + 1}" if found is None else f"line {found}"


def _csv_batches(path: Path, encoding: str, known: Mapping[str, str]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names: list[str] = []
    dialect = _dialect(path, encoding)
    # No invalid_row_handler: a thread that holds a Python function may outlive the interpreter, which then aborts.
    options = {
        "read_options": arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, encoding=encoding),
        "parse_options": arrow_csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
    }
    convert = {"strings_can_be_null": True, "decimal_point": dialect.decimal_point}
    try:
        with arrow_csv.open_csv(path, **options, convert_options=arrow_csv.ConvertOptions(**convert)) as first:
            names, guessed = first.schema.names, first.schema
        _check_names(names, str(path))
        types = {name: _reading_type(guessed.field(name).type, known.get(name)) for name in names}
        convert_options = arrow_csv.ConvertOptions(**convert, column_types=types)
        with arrow_csv.open_csv(path, **options, convert_options=convert_options) as reader:
            yield from reader
    except pa.ArrowInvalid as error:
        _explain(path, error, encoding, names)


def _reading_type(guessed: Any, kind: str | None) -> Any:
    """Whole numbers may turn out to have fractions later; a column empty so far may hold anything."""
    import pyarrow as pa

    if kind == "number":
        return pa.float64()
    if kind == "category" or pa.types.is_null(guessed) or pa.types.is_binary(guessed):
        return pa.string()
    return pa.float64() if pa.types.is_integer(guessed) else guessed


def _explain(path: Path, error: Exception, encoding: str, names: list[str]) -> None:
    text = str(error)
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text)
    if ragged:
        row, expected, got = map(int, ragged.groups())
        # Rows are counted from the header on.
        raise TableError(
            f"{path}, {place_of_row(path, row - 2)}: {got} fields where the header has {expected}."
        ) from error
    if "invalid UTF8" in text and encoding == "utf-8":
        raise _OtherEncoding from error
    if "CSV conversion error" in text and "column #" in text.lower():
        raise _OtherType(names[int(text.lower().split("column #")[1].split(":")[0])]) from error
    raise TableError(f"{path}: this cannot be read as a CSV table ({text}).") from error


def _check_names(names: list[str], where: str) -> None:
    if len(names) > MOST_COLUMNS:
        raise TableError(f"{where}: {len(names):,} columns; at most {MOST_COLUMNS:,} can be compared. Drop some first.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{where}: the column name {twice[0]!r} comes more than once. Rename or drop one of them.")


def _collect(
    path: Path, batches: Iterator[Any], at_most: int | None, seed: int, advance: Callable[[int], None]
) -> Frame:
    """All rows, or an even sample of them: each row draws a number, and the smallest ones stay."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    kept: Any = None
    keys = np.zeros(0)
    parts = []
    for batch in batches:
        block = pa.Table.from_batches([batch])
        if at_most is None:
            parts.append(block)
        else:
            drawn = np.append(keys, rng.random(len(block)))
            together = block if kept is None else pa.concat_tables([kept, block])
            stay = np.sort(np.argsort(drawn, kind="stable")[:at_most])
            keys, kept = drawn[stay], together.take(pa.array(stay)).combine_chunks()
        advance(len(block))
    table = kept if at_most is not None else (pa.concat_tables(parts) if parts else None)
    if table is None:
        return Frame((), 0)
    columns = tuple(_from_arrow(name, table.column(name), str(path)) for name in table.column_names)
    return Frame(columns, len(table))


def _from_arrow(name: str, values: Any, where: str = "The table") -> Column:
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
