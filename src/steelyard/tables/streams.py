"""Which tables are streams, and how each of them becomes rows that can be summed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from steelyard.tables.row_stream import RowStream
from steelyard.tables.table_blocks import TableBlocks
from steelyard.target import Target


def is_stream(table: Any) -> bool:
    """Whether a table is given as a path or block by block, rather than as an array or a data frame.

    Examples
    --------
    >>> is_stream("measurements.parquet"), is_stream([np.zeros((2, 3))]), is_stream([[1.0, 2.0]])
    (True, True, False)
    """
    if isinstance(table, str | os.PathLike | TableBlocks | RowStream) or is_dask(table):
        return True
    if isinstance(table, list | tuple):
        return len(table) > 0 and all(np.ndim(block) == 2 or hasattr(block, "columns") for block in table)
    shaped = any(hasattr(table, name) for name in ("shape", "columns", "__array__", "__dataframe__", "schema"))
    return not shaped and not isinstance(table, Target | dict | set | bytes) and hasattr(table, "__iter__")


def is_dask(table: Any) -> bool:
    """Whether a table is a Dask array or data frame."""
    return type(table).__module__.partition(".")[0] in ("dask", "dask_expr")


def as_stream(table: Any, name: str) -> RowStream:
    """A table as rows to be summed: a path, blocks, a Dask collection, or a table in memory as a single block."""
    if isinstance(table, RowStream):
        return table
    if is_dask(table):
        from steelyard.tables.dask_rows import DaskRows  # imported here: Dask is optional

        return DaskRows(table, name)
    if isinstance(table, str | os.PathLike):
        return RowStream(TableBlocks(table), name)
    return RowStream(table if is_stream(table) else [table], name)
