"""Files of any length: encoded block by block into a temporary file of numbers, which is read as often as needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.progress import Progress

from steelyard._typing import FloatArray
from steelyard.errors import ClusterError, InputError, OutputError
from steelyard.tables import Column, Encoding, Frame, TableFile, count_rows, read_blocks
from steelyard.tables.frame import Reading
from steelyard.tables.row_stream import RowStream

# Files with more rows are streamed; up to here a fit in memory is the same and simpler.
LONG = 100_000
# What is read of a long file to learn its columns.
SAMPLE = 20_000
# Rows of an encoded file that are in memory at once hold so many bytes.
BLOCK_BYTES = 4 * 2**20


def any_long(*files: TableFile) -> bool:
    """Whether a file has more than `LONG` rows."""
    return any(count_rows(file, LONG) > LONG for file in files)


@dataclass(frozen=True, eq=False)
class EncodedFile:
    """The rows of a table as numbers, in a file of their own; as often as needed, in blocks.

    Attributes
    ----------
    path : Path
        The file of numbers.
    n_rows, n_features : int
        Its shape.
    missing : MissingCounts
        How often each sign of a missing value came.
    advance : callable
        Called with the number of rows after each block.
    """

    path: Path
    n_rows: int
    n_features: int
    missing: MissingCounts
    advance: Callable[[int], None]

    def block_rows(self) -> int:
        """Rows per block."""
        return max(1, BLOCK_BYTES // (8 * self.n_features))

    def __iter__(self) -> Iterator[FloatArray]:
        for start in range(0, self.n_rows, self.block_rows()):
            block = read_part(self.path, start, min(self.block_rows(), self.n_rows - start), self.n_features)
            yield block
            self.advance(len(block))

    def rows(self, name: str, *, on_cluster: bool = False) -> RowStream:
        """The rows for a fit; on a cluster its workers read the file."""
        if not on_cluster:
            return RowStream(self, name, shown=False)
        import dask
        from dask import array

        from steelyard.tables.dask_rows import DaskRows

        size = self.block_rows()
        lengths = [min(size, self.n_rows - start) for start in range(0, self.n_rows, size)]
        parts = [
            array.from_delayed(
                dask.delayed(read_part)(self.path, size * i, length, self.n_features),
                (length, self.n_features),
                np.float64,
            )
            for i, length in enumerate(lengths)
        ]
        return DaskRows(array.concatenate(parts), name)


def read_part(path: Path, start: int, n_rows: int, n_features: int) -> FloatArray:
    """Some rows of a file of numbers."""
    if not path.exists():
        raise ClusterError(
            f"{path}: a worker of the cluster does not see this file. Give an output in a folder that all workers "
            "share."
        )
    found = np.fromfile(path, np.float64, n_rows * n_features, offset=8 * start * n_features)
    return found.reshape(n_rows, n_features)


def encode_file(
    file: TableFile,
    encoding: Encoding,
    sample: Frame,
    folder: Path,
    progress: Progress,
    missing: Sequence[str],
    advance: Callable[[int], None],
) -> EncodedFile:
    """Encode a table block by block, with the kinds of the columns that a sample of it has.

    `advance` is called with the number of rows of each block that is read later on.
    """
    kinds = {column.name: "category" for column in sample.columns if column.kind == "category"}
    path, n_rows, counts = folder / f"{len(list(folder.iterdir()))}.numbers", 0, MissingCounts()
    task = progress.add_task(f"encoding {file.name}", total=None, rows="")
    try:
        with open(path, "wb") as out:
            for frame in read_blocks(file, kinds=kinds, missing=missing):
                encoded_block(frame, encoding, file.name).tofile(out)
                n_rows += len(frame)
                progress.update(task, rows=f"{n_rows:,} rows")
                counts.add(frame)
    except OSError as error:
        raise OutputError(
            f"{folder}: there is no room for the encoded rows of {file.name} ({error}). Set TMPDIR to a folder with "
            f"{8 * len(encoding.feature_names)} bytes for each row."
        ) from error
    progress.remove_task(task)
    return EncodedFile(path, n_rows, len(encoding.feature_names), counts, advance)


def encoded_block(frame: Frame, encoding: Encoding, name: str) -> FloatArray:
    """The rows of a block as numbers; an error says which rows they are."""
    try:
        return encoding.transform(frame, name)
    except InputError as error:
        first, last = frame.running_numbers()[[0, -1]] + 1
        raise type(error)(f"{name}, rows {first:,} to {last:,}: {error}") from error


class MissingCounts:
    """How often each sign of a missing value came in each column, over the blocks of a file."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.signs: dict[str, Counter[str]] = {}

    def add(self, frame: Frame) -> None:
        """Add the counts of a block."""
        for column in frame.columns:
            self.kinds[column.name] = column.kind
            found = self.signs.setdefault(column.name, Counter())
            found.update(column.reading.missing if column.reading else {})

    def frame(self, name: str) -> Frame:
        """A table without rows whose columns have these counts."""
        columns = (
            Column(column, kind, np.zeros(0), Reading(name, dict(self.signs[column])))
            for column, kind in self.kinds.items()
        )
        return Frame(tuple(columns), 0)
