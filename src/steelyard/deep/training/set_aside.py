"""Clean rows that are set aside to choose an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._validation import check_range, generator


def set_aside(y: Any, share: float = 0.25, random_state: Any = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of clean rows to keep aside, and of the others: the same share of every class.

    Parameters
    ----------
    y : array or tensor of shape (n,)
        Labels of the clean rows.
    share : float in [0, 1], default=0.25
        Share to keep aside. A class keeps at least one row for the others; where its share is not a whole number of
        rows, chance decides, so that the shares of all classes together come out right.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    kept : array of int
        Rows to keep aside, in ascending order.
    others : array of int
        Rows to train on, in ascending order.

    Examples
    --------
    >>> from steelyard.deep.training import set_aside
    >>> kept, others = set_aside([0, 0, 0, 0, 1, 1, 1, 1], 0.25, random_state=0)
    >>> len(kept), len(others)
    (2, 6)
    """
    check_range("share", share, 0, 1)
    rng = generator(random_state)
    labels = np.asarray(y)
    # Rows in random order, sorted by class: every (1 / share)-th of them is kept.
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    passed = np.floor(share * np.arange(len(labels) + 1) + rng.random())
    chosen = order[np.diff(passed) > 0]
    alone = [rows[0] for rows in (chosen[labels[chosen] == c] for c in np.unique(labels)) if _is_all(rows, labels)]
    kept = np.setdiff1d(chosen, alone)
    return kept, np.setdiff1d(np.arange(len(labels)), kept)


def _is_all(rows: NDArray[np.int64], labels: NDArray[Any]) -> bool:
    """Whether these rows of a class are all that it has."""
    return bool(len(rows) and len(rows) == np.sum(labels == labels[rows[0]]))
