"""Copied rows, told from rows that chance has repeated."""

from __future__ import annotations

import numpy as np

from steelyard.arrays import FloatArray


def as_good_as_continuous(values: FloatArray) -> bool:
    """Whether chance would not repeat a value: there are more steps in the range than pairs of rows.

    In a table with such a column equal rows are copies. In one of few levels they are what one must expect.

    Examples
    --------
    >>> import numpy as np
    >>> as_good_as_continuous(np.random.default_rng(0).normal(size=50))
    True
    >>> as_good_as_continuous(np.array([0.5, 1.0, 1.5, 2.0]))
    False
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return False
    for decimals in range(9):
        if np.all(np.round(finite, decimals) == finite):
            return float(np.ptp(finite)) * 10.0**decimals > len(finite) ** 2
    return True
