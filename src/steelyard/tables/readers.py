"""CSV and Parquet files, read as a `Frame`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steelyard._typing import IntArray
from steelyard.errors import TableError
from steelyard.tables._csv import HEAD_BYTES, CsvFile, OtherEncoding
from steelyard.tables.conversion import from_arrow
from steelyard.tables.files import TableFile, regular_files
from steelyard.tables.frame import Frame, check_names
from steelyard.tables.text_columns import TextFormat, column_of_text, with_missing


def read_table(
    path: Path | TableFile,
    *,
    at_most: int | None = None,
    seed: int = 0,
    kinds: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
    advance: Callable[[int], None] = lambda _: None,
) -> Frame:
    """Read a CSV or Parquet file, a pipe, or standard input.

    Columns of a CSV file are numbers, booleans or dates where all of their values are, signs of missing values (``?``,
    ``NA``, ``null``, ``-`` and the like, with spaces around them or not) left out; the others are categories. There
    ``?`` and ``-`` stay values, while ``NA``, ``N/A``, ``NaN`` and ``null`` are missing. Names and values lose the
    spaces around them. `Column.reading` has what was found.

    Parameters
    ----------
    path : Path or TableFile
        The file; ``-`` is standard input.
    at_most : int, default=None
        Keep a uniform random sample of at most this many rows (a reservoir: memory does not grow with the file). None
        keeps all rows.
    seed : int, default=0
        Seed of the sample.
    kinds : dict, default=None
        Columns of a CSV file whose kind is known, "number" or "category"; the others are guessed. Without it a column
        of digits is a number in one file and, with one letter in it, text in the next.
    missing : sequence of str, default=()
        Signs of missing values in addition to the usual ones, in columns of every kind; for example -999.
    advance : callable, default=None
        Called with the number of rows after each block.

    Returns
    -------
    Frame

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from steelyard.tables import read_table
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("age,city\\n31,oslo\\n?,rome\\n")
    ...     frame = read_table(path)
    >>> frame["age"].values, frame["age"].reading.missing
    (array([31., nan]), {'?': 1})
    """
    if not isinstance(path, TableFile):
        with regular_files(path) as (file,):
            return read_table(file, at_most=at_most, seed=seed, kinds=kinds, missing=missing, advance=advance)
    if not path.path.is_file():
        raise TableError(f"{path.name}: there is no such file.")
    head = path.head(HEAD_BYTES)
    if not head.strip():
        raise TableError(
            f"{path.name}: the file is empty. A header line with column names and at least one row are needed."
        )
    if head[:4] == b"PAR1":
        table, _ = _collect(_parquet_batches(path), at_most, seed, advance)
        stored = [from_arrow(name, table[name], path.name) for name in table.column_names]
        columns = [with_missing(column, missing, path.name) for column in stored]
    else:
        csv_file = CsvFile(path.path, head, path.name)
        table, rows = _read_text(csv_file, at_most, seed, advance)
        sampled = len(rows) > 0 and rows[-1] >= len(rows)
        name = f"{path.name} ({len(rows):,} sampled rows)" if sampled else path.name
        how = TextFormat(missing, csv_file.decimal_point, name, lambda row: csv_file.place(int(rows[row])))
        columns = [column_of_text(name, table[name], (kinds or {}).get(name), how) for name in table.column_names]
    if not len(table):
        raise TableError(f"{path.name}: there is a header but no row.")
    return Frame(tuple(columns), len(table), tuple(missing))


def _parquet_batches(file: TableFile) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(file.path)
        check_names(table.schema_arrow.names, file.name)
        yield pa.Table.from_batches([], table.schema_arrow)
        for batch in table.iter_batches():
            yield pa.Table.from_batches([batch])
    except pa.ArrowException as error:
        raise TableError(f"{file.name}: this cannot be read as a Parquet file ({error}).") from error


def _read_text(file: CsvFile, at_most: int | None, seed: int, advance: Callable[[int], None]) -> tuple[Any, IntArray]:
    """The rows as text, and their numbers; read again in another encoding where UTF-8 turns out to be wrong late."""
    try:
        return _collect(file.batches(), at_most, seed, advance)
    except OtherEncoding:
        file.encoding = "latin-1"
        return _collect(file.batches(), at_most, seed, advance)
    except UnicodeDecodeError as error:
        raise TableError(f"{file.name}: from byte {error.start} on this is not {file.encoding} text.") from error


def place_of_row(path: Path | TableFile, row: int) -> str:
    """Where a row is in its file, in words: quoted line ends and blank lines count as lines.

    Parameters
    ----------
    path : Path
        A CSV or Parquet file.
    row : int
        The row, counted from 0.

    Returns
    -------
    str

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from steelyard.tables import place_of_row
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("age,city\\n31,oslo\\n")
    ...     place_of_row(path, 0)
    'line 2'
    """
    if not isinstance(path, TableFile):
        with regular_files(path) as (file,):
            return place_of_row(file, row)
    head = path.head(HEAD_BYTES)
    return f"row {row + 1}" if head[:4] == b"PAR1" else CsvFile(path.path, head, path.name).place(row)


def _collect(
    blocks: Iterator[Any], at_most: int | None, seed: int, advance: Callable[[int], None]
) -> tuple[Any, IntArray]:
    """All rows, or an even sample of them, with their numbers: each row draws a key, and the smallest ones stay."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    keys, rows, n_rows = np.zeros(0), np.zeros(0, dtype=np.intp), 0
    for block in blocks:
        parts.append(block)
        if at_most is not None:
            keys = np.append(keys, rng.random(len(block)))
            stay = np.sort(np.argsort(keys, kind="stable")[:at_most])
            keys, rows = keys[stay], np.append(rows, np.arange(n_rows, n_rows + len(block)))[stay]
            parts = [pa.concat_tables(parts).take(pa.array(stay)).combine_chunks()]
        n_rows += len(block)
        advance(len(block))
    return pa.concat_tables(parts), np.arange(n_rows) if at_most is None else rows
