"""The folds of the rows of a table.

The rule is that of `duplicates`: rows count as rows, and duplicates in a table that is as good as continuous share
their fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.duplicates import units_of_rows
from steelyard._typing import IntArray


def in_turn(n_rows: int, n_folds: int, groups: IntArray | None = None) -> IntArray:
    """The fold of each of several rows in random order, assigned in turn; with `groups`, within each group in turn."""
    fold = np.empty(n_rows, dtype=np.intp)
    order = np.arange(n_rows) if groups is None else np.argsort(groups, kind="stable")
    fold[order] = np.arange(n_rows) % n_folds
    return fold


def random_folds(n_rows: int, n_folds: int, rng: np.random.Generator, groups: IntArray | None = None) -> IntArray:
    """The fold of each of several rows in any order, each row held out by itself."""
    order = rng.permutation(n_rows)
    fold = np.empty(n_rows, dtype=np.intp)
    fold[order] = in_turn(n_rows, n_folds, None if groups is None else groups[order])
    return fold


def folds_of_table(
    columns: Sequence[NDArray[Any]], n_folds: int, rng: np.random.Generator, groups: IntArray | None = None
) -> IntArray:
    """The fold of each row of a table; duplicates share one.

    Parameters
    ----------
    columns : one array per column, labels included where they are known.
    groups : class of each row, of which every fold should have its share.
    """
    units = units_of_rows(columns)
    numbers, first, unit = np.unique(units, return_index=True, return_inverse=True)
    return random_folds(len(numbers), n_folds, rng, None if groups is None else groups[first])[unit]
