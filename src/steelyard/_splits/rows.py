"""Folds of the rows of a table.

The rule is that of `duplicates`: rows are assigned to folds one by one, but duplicates in a table with a practically
continuous column share their fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.duplicates import units_of_rows
from steelyard._typing import IntArray


def in_turn(n_rows: int, n_folds: int, groups: IntArray | None = None) -> IntArray:
    """The fold of each row, assigned in turn (rows are in random order); with `groups`, in turn within each group."""
    fold = np.empty(n_rows, dtype=np.intp)
    order = np.arange(n_rows) if groups is None else np.argsort(groups, kind="stable")
    fold[order] = np.arange(n_rows) % n_folds
    return fold


def random_folds(n_rows: int, n_folds: int, rng: np.random.Generator, groups: IntArray | None = None) -> IntArray:
    """A random fold for each row, in folds of equal size; with `groups`, stratified by group."""
    order = rng.permutation(n_rows)
    fold = np.empty(n_rows, dtype=np.intp)
    fold[order] = in_turn(n_rows, n_folds, None if groups is None else groups[order])
    return fold


def folds_of_table(
    columns: Sequence[NDArray[Any]], n_folds: int, rng: np.random.Generator, groups: IntArray | None = None
) -> IntArray:
    """The fold of each row of a table; duplicates share their fold.

    Parameters
    ----------
    columns : sequence of arrays of shape (n_rows,)
        One array per column, including the labels where they are known.
    n_folds : int
        Number of folds.
    rng : Generator
        Source of randomness.
    groups : array of shape (n_rows,), default=None
        Class of each row, for stratified folds.

    Returns
    -------
    array of shape (n_rows,)
        The fold of each row.
    """
    units = units_of_rows(columns)
    numbers, first, unit = np.unique(units, return_index=True, return_inverse=True)
    return random_folds(len(numbers), n_folds, rng, None if groups is None else groups[first])[unit]
