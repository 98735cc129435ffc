"""CSV and Parquet files, read as a `Frame`."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.errors import TableError
from steelyard.tables.frame import Frame, check_names, from_arrow

BLOCK_BYTES = 4 * 2**20


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
        check_names(file.schema_arrow.names, str(path))
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
        check_names(names, str(path))
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
    columns = tuple(from_arrow(name, table.column(name), str(path)) for name in table.column_names)
    return Frame(columns, len(table))
