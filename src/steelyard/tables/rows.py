"""Rows of whatever table scikit-learn accepts: arrays, sparse matrices, data frames, series and lists."""

from __future__ import annotations

from typing import Any

import numpy as np


def count_rows(table: Any) -> int:
    """Number of rows of a table."""
    return int(table.shape[0]) if hasattr(table, "shape") else len(table)


def take_rows(table: Any, rows: Any) -> Any:
    """Some rows of a table, by their numbers or by a mask, as a table of the same type.

    Examples
    --------
    >>> take_rows(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    >>> take_rows(np.arange(6).reshape(3, 2), np.array([False, True, False]))
    array([[2, 3]])
    """
    rows = np.asarray(rows)
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    if hasattr(table, "iloc"):  # pandas; unlike `iloc`, `take` returns a table that can be changed without a warning
        return table.take(rows)
    if isinstance(table, np.ndarray):
        return table[rows]
    import narwhals as nw  # imported here, so that importing the library works without it

    frame = nw.from_native(table, allow_series=True, pass_through=True)
    if frame is not table:
        return frame[rows].to_native()
    if hasattr(table, "shape"):
        return table[rows]
    return table.take(rows) if hasattr(table, "take") else [table[row] for row in rows]
