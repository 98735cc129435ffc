"""New rows from the components of a few: every combination of them is as likely as those that were seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_count, generator
from steelyard.errors import InputError


def combinations(n_rows: int, n_columns: int, max_synthetic: int, random_state: Any = None) -> IntArray:
    """Row numbers (m, n_columns) of every combination, or of a random part where there are too many."""
    n_all, rng = n_rows**n_columns, generator(random_state)
    if n_all < 2**62:
        numbers = np.arange(n_all) if n_all <= max_synthetic else rng.choice(n_all, max_synthetic, replace=False)
        return numbers[:, None] // n_rows ** np.arange(n_columns - 1, -1, -1) % n_rows
    # Of so many hardly one is drawn twice.
    return np.unique(rng.integers(n_rows, size=(max_synthetic, n_columns)), axis=0)


def inflate(components: Any, *, max_synthetic: int = 2000, random_state: Any = None) -> tuple[FloatArray, IntArray]:
    """All dimension-wise combinations of rows whose columns are independent (survey, section 7, step 2).

    Parameters
    ----------
    components : array of shape (n, D)
    max_synthetic : most combinations; of more than that a random part is taken
    random_state : of that draw

    Returns
    -------
    inflated : array of shape (n^D, D) or less
    rows : which row each value is from, of the same shape

    Examples
    --------
    >>> from steelyard.causal import inflate
    >>> inflate([[1.0, 10.0], [2.0, 20.0]])[0].tolist()
    [[1.0, 10.0], [1.0, 20.0], [2.0, 10.0], [2.0, 20.0]]
    """
    components = np.asarray(components, dtype=np.float64)
    if components.ndim != 2 or not components.size:
        raise InputError(f"Components must be a table of at least one row; got an array of shape {components.shape}.")
    n, d = components.shape
    rows = combinations(n, d, check_count("max_synthetic", max_synthetic), random_state)
    return components[rows, np.arange(d)], rows
