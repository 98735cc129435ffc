"""Duplicated rows, told from rows that chance has repeated.

This is the one rule for what may be left out together. In a table of few levels equal rows are what one must expect:
each of them is a row of its own, and is held out by itself. In a table that is as good as continuous chance repeats
nothing, so equal rows are duplicates of one another: held out one by one, the others would give the answer away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from steelyard._typing import FloatArray, IntArray
from steelyard.errors import InputTypeError

# With fewer levels than this a column says nothing about chance: any three numbers could be three levels.
LEAST_LEVELS = 20
# How far a level may lie from a regular lattice, in steps.
OFF_LATTICE = 1e-3
EXACT = 2.0**53


def as_good_as_continuous(values: FloatArray) -> bool:
    """Whether chance would not repeat a value of this column of *distinct* rows.

    True if the values hardly repeat among the rows, and the lattice they lie on has more steps than there are pairs
    of rows.

    Examples
    --------
    >>> import numpy as np
    >>> as_good_as_continuous(np.random.default_rng(0).normal(size=50))
    True
    >>> as_good_as_continuous(np.arange(50) / 2)
    False
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    levels = np.unique(finite)
    if len(levels) < max(LEAST_LEVELS, len(finite) / 2):
        return False
    return _lattice_steps(levels) > len(finite) ** 2


def _lattice_steps(levels: FloatArray) -> float:
    """Steps of the coarsest lattice that holds all levels, from the lowest to the highest; infinity if there is none.

    Either a decimal one (prices, ages, dates), or one with any other even step (a standardized score).
    """
    offsets = levels - levels[0]
    for decimals in range(9):
        if np.all(np.round(levels, decimals) == levels):
            units = np.rint(offsets * 10.0**decimals)
            if units[-1] >= EXACT:
                return np.inf
            return float(units[-1]) / float(np.gcd.reduce(units.astype(np.int64)))
    steps = offsets / np.diff(levels).min()
    if np.all(np.abs(steps - np.rint(steps)) < OFF_LATTICE):
        return float(steps[-1])
    return np.inf


def any_continuous(columns: Sequence[FloatArray]) -> bool:
    """Whether any of these columns of distinct rows is as good as continuous."""
    return any(as_good_as_continuous(column) for column in columns)


def group_equal_rows(columns: Sequence[NDArray[Any]]) -> IntArray:
    """The group of each row, equal for rows that are equal in every column; groups are numbered as the rows sort."""
    group = np.zeros(len(columns[0]), dtype=np.intp)
    for values in columns:
        text = values.astype(str) if values.dtype == object else values
        _, codes = np.unique(text, return_inverse=True)
        # Renumbered after every column, so that the product of two numbers stays in range.
        _, group = np.unique(group * (int(codes.max()) + 1) + codes, return_inverse=True)
    return group


def units_of_rows(columns: Sequence[NDArray[Any]]) -> IntArray:
    """The number of the unit that each row of a table belongs to: what is held out, drawn or dropped together.

    Each row is a unit of its own, but for duplicates in a table with a column that is as good as continuous. Units are
    numbered as the rows sort, so that what is drawn by their numbers does not depend on the order of the table.

    Parameters
    ----------
    columns : one array per column, labels included where they are known; text columns as objects.

    Examples
    --------
    >>> import numpy as np
    >>> units_of_rows([np.array([0, 1, 0, 1])]).tolist()
    [0, 2, 1, 3]
    >>> values = np.random.default_rng(0).normal(size=50)
    >>> units = units_of_rows([np.append(values, values[:2])])
    >>> bool(units[-2] == units[0] and units[-1] == units[1])
    True
    """
    group = group_equal_rows(columns)
    _, first = np.unique(group, return_index=True)
    numbers = [values[first] for values in columns if values.dtype.kind in "fiub"]
    if len(first) == len(group) or any_continuous(numbers):
        return group
    number = np.empty(len(group), dtype=np.intp)
    number[np.argsort(group, kind="stable")] = np.arange(len(group))
    return number


def table_columns(X: Any, *labels: Any) -> list[NDArray[Any]]:
    """The columns of an array or a data frame, and label columns, as arrays."""
    if issparse(X):
        raise InputTypeError("Sparse input is not supported; give a dense array (X.toarray()).")
    if hasattr(X, "columns"):
        columns = [np.asarray(X[name]) for name in X.columns]
    else:
        values = np.asarray(X)
        columns = list(values.T) if values.ndim == 2 else [values.reshape(len(values), -1)[:, 0]]
    for label in labels:
        values = np.asarray(label)
        columns.extend(values.reshape(len(values), -1).T)
    return columns
