"""Duplicates, as opposed to rows that are equal by chance.

This is the one rule for which rows are held out together. In a table of few levels equal rows are to be expected: each
of them is a separate observation, and is held out by itself. In a table with a practically continuous column, rows are
not equal by chance, so equal rows are duplicates of one another. They are held out together: otherwise the held-out
row would be among the training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from steelyard._typing import FloatArray, IntArray
from steelyard.errors import InputTypeError

# A column of fewer levels is never called continuous: any three numbers could be three levels.
LEAST_LEVELS = 20
# How far a level may lie from a regular lattice, in steps.
OFF_LATTICE = 1e-3
# Integers up to here are exact in double precision.
EXACT = 2.0**53


def is_continuous(values: FloatArray) -> bool:
    """Whether this column of *distinct* rows is practically continuous: no value would repeat by chance.

    True if hardly any value repeats among the rows, and the coarsest lattice of the values has more steps than there
    are pairs of rows.

    Examples
    --------
    >>> import numpy as np
    >>> is_continuous(np.random.default_rng(0).normal(size=50))
    True
    >>> is_continuous(np.arange(50) / 2)
    False
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    levels = np.unique(finite)
    if len(levels) < max(LEAST_LEVELS, len(finite) / 2):
        return False
    offsets, n_steps = levels - levels[0], np.inf  # infinite where the levels lie on no lattice
    for decimals in range(9):
        if np.all(np.round(levels, decimals) == levels):  # a decimal lattice: prices, ages, dates
            units = np.rint(offsets * 10.0**decimals)
            if units[-1] < EXACT:
                n_steps = float(units[-1]) / float(np.gcd.reduce(units.astype(np.int64)))
            break
    else:  # a lattice of any other constant step: a standardized score
        steps = offsets / np.diff(levels).min()
        if np.all(np.abs(steps - np.rint(steps)) < OFF_LATTICE):
            n_steps = float(steps[-1])
    return n_steps > len(finite) ** 2


def units_of_rows(columns: Sequence[NDArray[Any]]) -> IntArray:
    """The unit of each row of a table: rows of the same unit are held out, drawn or dropped together.

    Each row is a unit of its own, except for duplicates in a table with a practically continuous column. Units are
    numbered in the sort order of the rows, so that random choices among them do not depend on the order of the table.

    Parameters
    ----------
    columns : sequence of arrays of shape (n_rows,)
        One array per column, including the labels where they are known; text columns have dtype object.

    Returns
    -------
    array of shape (n_rows,)
        The number of each row's unit.

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
    group = np.zeros(len(columns[0]), dtype=np.intp)  # equal for equal rows, in the sort order of the rows
    for values in columns:
        text = values.astype(str) if values.dtype == object else values
        _, codes = np.unique(text, return_inverse=True)
        # Renumbered after every column, so that the product of two numbers stays in range.
        _, group = np.unique(group * (int(codes.max()) + 1) + codes, return_inverse=True)
    _, first = np.unique(group, return_index=True)
    numeric = [values[first] for values in columns if values.dtype.kind in "fiub"]
    if len(first) == len(group) or any(is_continuous(values) for values in numeric):
        return group
    number = np.empty(len(group), dtype=np.intp)
    number[np.argsort(group, kind="stable")] = np.arange(len(group))
    return number


def table_columns(X: Any, *labels: Any) -> list[NDArray[Any]]:
    """The columns of an array or a data frame, and those of the labels, as arrays."""
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
