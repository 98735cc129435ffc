"""Dask arrays and data frames: sums are made partition by partition where the partitions are, and then merged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import dask
import dask.array
import numpy as np

from steelyard._progress import LOG
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray
from steelyard.errors import ClusterError, InputError
from steelyard.tables.row_stream import AnySums, BlockCheck, RowStream, chunk_rows

# So many partial sums are merged by one task.
MERGED = 8


class DaskRows(RowStream):
    """The rows of a Dask collection. They stay where they are; only sums of fixed size are gathered.

    Parameters
    ----------
    table : dask.array.Array or dask.dataframe.DataFrame
        The table; a vector is a table of one column.
    name : str
        What the table is called in errors.
    """

    def __init__(self, table: Any, name: str) -> None:
        self._table, self.name = table, name
        if hasattr(table, "columns"):
            self.partitions, lengths = table.to_delayed(), [np.nan]
        else:
            table = table.reshape(-1, 1) if table.ndim == 1 else table
            whole = table.rechunk({1: -1})  # columns are never divided
            self.partitions = whole.to_delayed().ravel().tolist()
            lengths = list(whole.chunks[0])
        if np.isnan(lengths).any():  # they are not known before the partitions are computed
            lengths = computed(dask.delayed(list)([dask.delayed(len)(part) for part in self.partitions]))
        self.lengths = [int(length) for length in lengths]
        filled = np.flatnonzero(self.lengths)
        if not len(filled):
            raise InputError(f"{name}: there is no row in {len(self.partitions)} partitions.")
        self.starts = np.cumsum([0, *self.lengths[:-1]]).tolist()
        # The first rows tell names, types and the number of columns.
        head = dask.delayed(_head)(self.partitions[int(filled[0])])
        self._set_check(BlockCheck.of(computed(head), name))

    def blocks(self) -> Any:
        """The partitions one by one, checked; for tables that are to be read here."""
        for part, start in zip(self.partitions, self.starts, strict=True):
            yield self._check(computed(part), start)

    def reduce(self, make: Callable[[], AnySums], doing: str) -> AnySums:
        """Sums over all rows in one graph of tasks, merged in the order of the partitions."""
        began = time.perf_counter()
        shared = dask.delayed(_Shared(make, self._check))
        sums = [
            dask.delayed(_sum_partition)(shared, part, start)
            for part, start in zip(self.partitions, self.starts, strict=True)
        ]
        while len(sums) > 1:
            sums = [dask.delayed(_merge)(sums[i : i + MERGED]) for i in range(0, len(sums), MERGED)]
        found: AnySums = computed(sums[0])
        seconds = time.perf_counter() - began
        LOG.info("%s (%s): %s rows in %.1f seconds", doing, self.name, f"{sum(self.lengths):,}", seconds)
        return found

    def mapped(self, function: Callable[[int, FloatArray], FloatArray], divisor: float) -> Any:
        """One value for each row: a lazy Dask array with a chunk for each partition."""
        shared = dask.delayed(_Shared(function, self._check))
        parts = [
            dask.array.from_delayed(
                dask.delayed(_map_partition)(shared, part, start, divisor), shape=(length,), dtype=np.float64
            )
            for part, start, length in zip(self.partitions, self.starts, self.lengths, strict=True)
        ]
        return dask.array.concatenate(parts)


class _Shared:
    """What every task needs: a function, and the check of a block."""

    def __init__(self, function: Callable[..., Any], check: BlockCheck) -> None:
        self.function, self.check = function, check


def computed(task: Any) -> Any:
    """What a lazy value is; where it is lost with its cluster, an error that says so."""
    try:
        return task.compute()
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        raise ClusterError(
            f"The result was lost with the cluster ({type(error).__name__}: {error}). Connect to a running cluster, "
            "load the data there, and call fit again; nothing was kept of this fit."
        ) from error


def _head(part: Any) -> Any:
    return part[:2]


def _sum_partition(shared: _Shared, part: Any, start: int) -> Any:
    """The sums over one partition, chunk by chunk."""
    sums = shared.function()
    rows = shared.check(part, start)
    with one_blas_thread():
        if len(rows):
            size = chunk_rows(rows.shape[1])
            for at in range(0, len(rows), size):
                sums.add(start + at, np.ascontiguousarray(rows[at : at + size]))
    return sums


def _merge(parts: Sequence[Any]) -> Any:
    first, *rest = parts
    merged = deepcopy(first)  # a worker keeps the result of a task; another task must not change it
    for part in rest:
        merged.merge(part)
    return merged


def _map_partition(shared: _Shared, part: Any, start: int, divisor: float) -> FloatArray:
    rows = shared.check(part, start)
    with one_blas_thread():
        return np.asarray(shared.function(start, rows) / divisor) if len(rows) else np.zeros(0)
