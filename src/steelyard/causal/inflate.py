"""New rows from combinations of independent components: each combination is as likely as those that were observed."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_count, generator
from steelyard.errors import InputError


def combinations(n_rows: int, n_columns: int, max_synthetic: int, random_state: Any = None) -> IntArray:
    """Row numbers (m, n_columns) of all combinations, or of a random sample if there are more than `max_synthetic`."""
    n_all, rng = n_rows**n_columns, generator(random_state)
    if n_all < 2**62:
        numbers = np.arange(n_all) if n_all <= max_synthetic else rng.choice(n_all, max_synthetic, replace=False)
        return numbers[:, None] // n_rows ** np.arange(n_columns - 1, -1, -1) % n_rows
    # There are so many combinations that hardly any is drawn twice.
    return np.unique(rng.integers(n_rows, size=(max_synthetic, n_columns)), axis=0)


def inflate(components: Any, *, max_synthetic: int = 2000, random_state: Any = None) -> tuple[FloatArray, IntArray]:
    """All dimension-wise combinations of rows whose columns are independent (survey, section 7, step 2).

    Parameters
    ----------
    components : array of shape (n, D)
        Rows of independent components.
    max_synthetic : int, default=2000
        Largest number of combinations; if there are more, a random sample of this size is taken.
    random_state : int, Generator or None, default=None
        Seed of that sample.

    Returns
    -------
    inflated : array of shape (m, D)
        The combinations, m = min(n^D, max_synthetic).
    rows : array of shape (m, D)
        The number of the row that each value comes from.

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
