"""The rows of a table of any length, checked and read block by block, as often as they are needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from sklearn.utils import check_array

from steelyard._progress import LEAST_SECONDS, LOG, progress_bar
from steelyard._typing import FloatArray
from steelyard._validation import check_plain
from steelyard.errors import ColumnMismatchError, InputError, InputTypeError, NotFiniteError

# Chunks have a multiple of this many rows (five folds of a kernel block), and if they can at most this many bytes.
CHUNK_MULTIPLE, CHUNK_BYTES = 5 * 512, 2 * 2**20


class Sums(Protocol):
    """Sums over the rows of a table that can be made part by part."""

    def add(self, start: int, rows: FloatArray) -> None:
        """Add rows; the first of them has the running number `start`."""
        ...

    def merge(self, part: Self) -> None:
        """Add the sums over the rows that follow."""
        ...


AnySums = TypeVar("AnySums", bound=Sums)


@dataclass(frozen=True)
class BlockCheck:
    """What every block of a table must be: two-dimensional, numeric and finite, with the columns of the first one."""

    name: str
    columns: list[str] | None
    n_columns: int | None = None  # not known before the first block
    dtype: Any = None
    order: list[int] | None = None  # of the columns wanted

    @classmethod
    def of(cls, first: Any, name: str) -> BlockCheck:
        """The check that the first block of a table sets."""
        plain = cls(name, column_names(first))
        rows = plain(first, 0)
        return replace(plain, n_columns=rows.shape[1], dtype=rows.dtype)

    def matched(self, columns: Sequence[Any] | None, n_columns: int) -> BlockCheck:
        """The same with the columns of another table, in its order."""
        if (columns is None) != (self.columns is None):
            raise ColumnMismatchError(
                f"Either the {self.name} has column names or the table that it goes with, not both, so the columns "
                "cannot be matched. Give both with names, or both without and with columns in the same order."
            )
        if columns is None or self.columns is None:
            if n_columns != self.n_columns:
                raise ColumnMismatchError(
                    f"{self.name}: X has {self.n_columns} features, but {n_columns} columns are expected."
                )
            return self
        if list(columns) == self.columns:
            return self
        missing = [column for column in columns if column not in self.columns]
        extra = [column for column in self.columns if column not in list(columns)]
        if missing or extra:
            raise ColumnMismatchError(
                f"The {self.name} has different columns. Missing: {missing or 'none'}; only there: {extra or 'none'}. "
                "Drop or add columns until both tables have the same."
            )
        return replace(self, order=[self.columns.index(column) for column in columns])

    def __call__(self, block: Any, start: int) -> FloatArray:
        """The rows of a block whose first row has the running number `start`."""
        rows = self._numbers(block, start)
        if self.n_columns is not None and (rows.shape[1] != self.n_columns or column_names(block) != self.columns):
            raise ColumnMismatchError(
                f"{self.name}: the block from row {start + 1:,} on has {rows.shape[1]} columns"
                f"{_listed(column_names(block))}, the first block {self.n_columns}{_listed(self.columns)}. Every "
                "block needs the same columns in the same order."
            )
        if self.dtype is not None and rows.dtype != self.dtype:
            raise InputTypeError(
                f"{self.name}: the block from row {start + 1:,} on holds {rows.dtype}, the first block "
                f"{self.dtype}. Convert all blocks to one type."
            )
        return rows if self.order is None else rows[:, self.order]

    def _numbers(self, block: Any, start: int) -> FloatArray:
        place = f"{self.name}, block from row {start + 1:,} on"
        block = _dense(check_plain(block, place), place)
        try:
            rows: FloatArray = check_array(
                block, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=0
            )
        except (ValueError, TypeError) as error:
            kind = InputTypeError if isinstance(error, TypeError) else InputError
            raise kind(f"{place}: {error} Every block needs rows and columns of numbers.") from error
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(rows.sum(dtype=np.float64)):
                self._require_finite(rows, start)
        return rows

    def _require_finite(self, rows: FloatArray, start: int) -> None:
        bad = ~np.isfinite(rows)
        if bad.any():
            row, column = (int(k) for k in np.argwhere(bad)[0])
            kind = "NaN" if np.isnan(rows[row, column]) else "infinity"
            name = repr(self.columns[column]) if self.columns is not None else str(column)
            raise NotFiniteError(
                f"The {self.name} contains {kind} in row {start + row + 1:,} (counted from 1), column {name}. Finite "
                "numbers are needed: clean or impute the rows first."
            )


class RowStream:
    """The rows of one table, block by block, as often as they are needed; every block is checked.

    Parameters
    ----------
    source : iterable
        Blocks of rows (arrays, data frames or Arrow batches); iterating it again starts again at the first one.
    name : str
        What the table is called in errors, for example "source".
    shown : bool, default=True
        Whether long passes show a bar.
    """

    def __init__(self, source: Iterable[Any], name: str, *, shown: bool = True) -> None:
        if iter(source) is source:
            raise InputTypeError(
                f"The {name} blocks can be iterated only once ({type(source).__name__}), but several passes are "
                "needed. Give a list of arrays, or an object whose __iter__ starts again at the first block."
            )
        self._source, self.name, self._shown = source, name, shown
        first = next(iter(source), None)
        if first is None:
            raise InputError(f"{name}: there are no blocks, so there is no row. Give at least one block of rows.")
        self._set_check(BlockCheck.of(first, name))

    def _set_check(self, check: BlockCheck) -> None:
        self._check, self.columns, self.n_columns, self.dtype = check, check.columns, check.n_columns or 0, check.dtype

    def matched(self, columns: Sequence[Any] | None, n_columns: int) -> RowStream:
        """The same rows with the columns of another table, in its order."""
        self._set_check(self._check.matched(columns, n_columns))
        return self

    def blocks(self) -> Iterator[FloatArray]:
        """The blocks as they are cut, checked."""
        start = 0
        for block in self._source:
            rows = self._check(block, start)
            start += len(rows)
            yield rows

    def chunks(self) -> Iterator[tuple[int, FloatArray]]:
        """The rows cut anew, with the running number of the first one, so that no sum depends on the blocks."""
        size = chunk_rows(self.n_columns)
        parts: list[FloatArray] = []
        start = held = 0
        for block in self.blocks():
            at = 0
            while at < len(block):
                some = block[at : at + size - held]
                at, held = at + len(some), held + len(some)
                # What waits for the next block is copied: some readers reuse the memory of their blocks.
                parts.append(some if held == size else some.copy())
                if held == size:
                    yield start, np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))
                    parts, start, held = [], start + size, 0
        if held:
            yield start, np.ascontiguousarray(np.concatenate(parts))

    def reduce(self, make: Callable[[], AnySums], doing: str) -> AnySums:
        """Sums over all rows, in one pass; after two seconds a bar tells how far it is."""
        sums, began = make(), time.perf_counter()
        n_rows = 0
        with progress_bar("{task.fields[rows]} rows", hidden=not (self._shown and sys.stderr.isatty())) as bar:
            task = bar.add_task(f"{doing} ({self.name})", total=None, visible=False, rows="")
            for start, rows in self.chunks():
                sums.add(start, rows)
                n_rows = start + len(rows)
                visible = time.perf_counter() - began > LEAST_SECONDS
                bar.update(task, visible=visible, rows=f"{n_rows:,}")
        seconds = time.perf_counter() - began
        LOG.info("%s (%s): %s rows in %.1f seconds", doing, self.name, f"{n_rows:,}", seconds)
        return sums


def chunk_rows(n_columns: int) -> int:
    """Rows of a chunk; it depends on the number of columns alone."""
    return CHUNK_MULTIPLE * max(1, CHUNK_BYTES // (8 * n_columns * CHUNK_MULTIPLE))


def column_names(block: Any) -> list[str] | None:
    """Names of the columns of a data frame or an Arrow batch; None for an array."""
    if hasattr(block, "column_names"):  # Arrow, whose `columns` are the values
        return list(block.column_names)
    if hasattr(block, "schema") and hasattr(block, "num_rows"):
        return list(block.schema.names)
    columns = getattr(block, "columns", None)
    return None if columns is None else list(columns)


def _dense(block: Any, place: str) -> Any:
    """An Arrow batch or table as an array; other blocks as they are."""
    if not (hasattr(block, "num_rows") and hasattr(block, "schema")):
        return block
    rows = None
    for i, field in enumerate(block.schema):
        try:
            column = np.asarray(block.column(i).to_numpy(**_copying(block)))
        except (ValueError, TypeError) as error:
            raise InputError(f"{place}: column {field.name!r} cannot be read as numbers ({error}).") from error
        if column.dtype.kind not in "fiub":
            raise InputError(
                f"{place}: column {field.name!r} holds {field.type}, and every column must be numeric. Encode text and "
                "dates first, leave the column out (TableBlocks(path, columns=[...])), or use `steelyard weigh`."
            )
        if rows is None:
            single = all(str(each.type) in ("float", "halffloat") for each in block.schema)
            rows = np.empty((block.num_rows, len(block.schema)), np.float32 if single else np.float64)
        rows[:, i] = column
    return np.empty((block.num_rows, 0)) if rows is None else rows


def _copying(block: Any) -> dict[str, bool]:
    """A column of a batch is an array and has to be allowed to copy; one of a table is chunked and always does."""
    return {} if hasattr(block, "column_names") and hasattr(block, "combine_chunks") else {"zero_copy_only": False}


def _listed(columns: list[str] | None) -> str:
    return "" if columns is None else f" ({', '.join(map(str, columns[:20]))}{', …' if len(columns) > 20 else ''})"
