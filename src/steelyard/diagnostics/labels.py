"""The labels of source and target rows, checked before anything is tested."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._validation import check_plain
from steelyard.errors import InputError
from steelyard.tables import Column, as_frame


def read_labels(y: Any, n_rows: int, table: str) -> NDArray[Any] | None:
    """One label for each row, as numbers or as text; an error where one is missing.

    Parameters
    ----------
    y : array or None
        The labels.
    n_rows : int
        Number of rows of the table.
    table : str
        What the table is called in errors.

    Returns
    -------
    array of shape (n_rows,) or None
        None where there are no labels.

    Examples
    --------
    >>> read_labels([3, 1, 2], 3, "source")
    array([3., 1., 2.])
    """
    if y is None:
        return None
    values = np.asarray(check_plain(y, f"labels of the {table}"))
    if values.size != n_rows:
        raise InputError(f"The {table} has {values.size} labels for {n_rows} rows; one label per row is needed.")
    column: Column = as_frame(values.reshape(-1, 1))["x0"]
    known = column.present() if column.kind == "category" else np.isfinite(column.values)
    if not known.all():
        first = int(np.argmin(known))
        raise InputError(
            f"Labels of the {table} are missing or infinite: {int(np.sum(~known)):,} of {n_rows:,}, the first at row "
            f"{first}. Drop these rows, or give no labels."
        )
    return column.values


def require_one_kind(y: NDArray[Any], y_target: NDArray[Any]) -> None:
    """Raise an error where the labels are text in one table and numbers in the other: they cannot be compared."""
    text, text_target = (labels.dtype.kind == "O" for labels in (y, y_target))
    if text != text_target:
        raise InputError(
            f"The labels of the source are {'text' if text else 'numbers'}, those of the target "
            f"{'text' if text_target else 'numbers'}; give both in the same form."
        )
