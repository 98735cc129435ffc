"""CSV and Parquet files, read as a `Frame`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from steelyard._typing import IntArray
from steelyard.errors import TableError
from steelyard.tables._csv import HEAD_BYTES, CsvFile, OtherEncoding
from steelyard.tables.conversion import from_arrow
from steelyard.tables.files import TableFile, regular_files
from steelyard.tables.frame import Frame, check_names
from steelyard.tables.table_blocks import BLOCK_ROWS, BUFFER_BYTES
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
        table, rows, n_rows = _collect(_parquet_batches(path), at_most, seed, advance)
        stored = [from_arrow(name, table[name], path.name) for name in table.column_names]
        columns = [with_missing(column, missing, path.name) for column in stored]
    else:
        csv_file = CsvFile(path.path, head, path.name)
        table, rows, n_rows = _read_text(csv_file, at_most, seed, advance)
        name = f"{path.name} ({len(rows):,} sampled rows)" if n_rows > len(rows) else path.name
        how = TextFormat(missing, csv_file.decimal_point, name, lambda row: csv_file.place(int(rows[row])))
        columns = [column_of_text(name, table[name], (kinds or {}).get(name), how) for name in table.column_names]
    if not len(table):
        raise TableError(f"{path.name}: there is a header but no row.")
    if n_rows == len(rows):
        return Frame(tuple(columns), len(table), tuple(missing))
    return Frame(tuple(columns), len(table), tuple(missing), rows, n_rows)


def read_blocks(
    path: Path | TableFile, *, kinds: Mapping[str, str] | None = None, missing: Sequence[str] = ()
) -> Iterator[Frame]:
    """Read a CSV or Parquet file block by block, in memory that does not grow with the file.

    Parameters
    ----------
    path : Path or TableFile
        The file, which can be read more than once: no pipe.
    kinds, missing
        As in `read_table`. A column of a CSV file whose kind is not given is guessed anew in each block.

    Returns
    -------
    iterator of Frame
        Each has at least one row; its ``numbers`` are those of its rows in the file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from steelyard.tables import read_blocks
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("age\\n31\\n?\\n")
    ...     [block.running_numbers().tolist() for block in read_blocks(path)]
    [[0, 1]]
    """
    file = path if isinstance(path, TableFile) else TableFile(path, str(path))
    head = file.head(HEAD_BYTES)
    start = 0
    csv_file = None if head[:4] == b"PAR1" else CsvFile(file.path, head, file.name)
    try:
        for table in _parquet_batches(file) if csv_file is None else csv_file.batches():
            if not len(table):
                continue
            if csv_file is None:
                stored = [from_arrow(name, table[name], file.name) for name in table.column_names]
                columns = [with_missing(column, missing, file.name) for column in stored]
            else:
                how = TextFormat(missing, csv_file.decimal_point, file.name, partial(_place_in_block, start))
                known = kinds or {}
                columns = [column_of_text(name, table[name], known.get(name), how) for name in table.column_names]
            yield Frame(tuple(columns), len(table), tuple(missing), start + np.arange(len(table)))
            start += len(table)
    except OtherEncoding as error:
        raise TableError(
            f"{file.name}: after row {start:,} this is not UTF-8 text. Convert the file to UTF-8."
        ) from error


def _place_in_block(start: int, row: int) -> str:
    return f"row {start + row + 1:,}"


def count_rows(file: TableFile, at_most: int) -> int:
    """Number of rows of a file; counting a CSV file ends as soon as there are more than `at_most`.

    Parameters
    ----------
    file : TableFile
        A CSV or Parquet file.
    at_most : int
        What it is compared with. A CSV file that is too small for so many rows is not read.

    Returns
    -------
    int
        0 for a CSV file that was not read, or where there is no file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from steelyard.tables import TableFile, count_rows
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("age\\n31\\n40\\n50\\n")
    ...     count_rows(TableFile(path, "t.csv"), 2)
    3
    """
    if not file.path.is_file():
        return 0
    head = file.head(HEAD_BYTES)
    if head[:4] == b"PAR1":
        from pyarrow import parquet

        try:
            return int(parquet.read_metadata(file.path).num_rows)
        except (OSError, ValueError) as error:
            raise TableError(f"{file.name}: this cannot be read as a Parquet file ({error}).") from error
    if file.path.stat().st_size < 2 * at_most:
        return 0
    csv_file, n_rows = CsvFile(file.path, head, file.name), 0
    try:
        for table in csv_file.batches():
            n_rows += len(table)
            if n_rows > at_most:
                break
    except OtherEncoding:
        return at_most  # reading the table says more
    return n_rows


def _parquet_batches(file: TableFile) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file.path, pre_buffer=False, buffer_size=BUFFER_BYTES) as table:
            check_names(table.schema_arrow.names, file.name)
            yield pa.Table.from_batches([], table.schema_arrow)
            for batch in table.iter_batches(BLOCK_ROWS, use_threads=False):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:  # Arrow says of damaged pages that they are an OSError
        raise TableError(f"{file.name}: this cannot be read as a Parquet file ({error}).") from error


def _read_text(
    file: CsvFile, at_most: int | None, seed: int, advance: Callable[[int], None]
) -> tuple[Any, IntArray, int]:
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
) -> tuple[Any, IntArray, int]:
    """All rows, or an even sample of them, with their numbers: each row draws a key, and the smallest ones stay.

    Also how many rows there are.
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    keys, rows, n_rows = np.zeros(0), np.zeros(0, dtype=np.intp), 0
    for block in blocks:
        if at_most is None:
            parts.append(block)
        else:
            # Most rows of a long table are beyond the largest key of the sample: they are left out first.
            drawn = rng.random(len(block))
            some = np.flatnonzero(drawn < keys.max()) if len(keys) == at_most else np.arange(len(block))
            keys = np.append(keys, drawn[some])
            stay = np.sort(np.argsort(keys, kind="stable")[:at_most])
            keys, rows = keys[stay], np.append(rows, n_rows + some)[stay]
            parts = [pa.concat_tables([*parts, block.take(some)]).take(stay).combine_chunks()]
        n_rows += len(block)
        advance(len(block))
    return pa.concat_tables(parts), np.arange(n_rows) if at_most is None else rows, n_rows
