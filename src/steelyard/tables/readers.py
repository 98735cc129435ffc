"""CSV and Parquet files, read as a `Frame`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.errors import TableError
from steelyard.tables._csv import HEAD_BYTES, CsvFile, OtherEncoding, OtherType
from steelyard.tables.frame import Frame, check_names, from_arrow


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
    path : Path
        The file.
    at_most : int, default=None
        Keep a uniform random sample of at most this many rows (a reservoir: memory does not grow with the file). None
        keeps all rows.
    seed : int, default=0
        Seed of the sample.
    kinds : dict, default=None
        Columns of a CSV file whose kind is known, "number" or "category"; the others are guessed. Without it a column
        of digits is a number in one file and, with one letter in it, text in the next.
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
    ...     _ = path.write_text("age,city\\n31,oslo\\n")
    ...     read_table(path).names
    ['age', 'city']
    """
    if not path.is_file():
        raise TableError(f"{path}: there is no such file.")
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    if not head.strip():
        raise TableError(f"{path}: the file is empty. A header line with column names and at least one row are needed.")
    if head[:4] == b"PAR1":
        frame = _collect(path, _parquet_batches(path), at_most, seed, advance)
    else:
        frame = _read_csv(CsvFile(path, head), kinds or {}, at_most, seed, advance)
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
        raise TableError(f"{path}: this cannot be read as a Parquet file ({error}).") from error


def _read_csv(
    file: CsvFile, kinds: Mapping[str, str], at_most: int | None, seed: int, advance: Callable[[int], None]
) -> Frame:
    """Types are guessed from the first rows; a column that turns out to be something else later is read as text."""
    known = dict(kinds)
    while True:
        try:
            return _collect(file.path, file.batches(known), at_most, seed, advance)
        except OtherType as found:
            known[found.column] = "category"
        except OtherEncoding:
            file.encoding = "latin-1"
        except UnicodeDecodeError as error:
            raise TableError(f"{file.path}: from byte {error.start} on this is not {file.encoding} text.") from error


def place_of_row(path: Path, row: int) -> str:
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
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    return f"row {row + 1}" if head[:4] == b"PAR1" else CsvFile(path, head).place(row)


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
