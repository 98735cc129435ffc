"""The other domain, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """The rows to predict, and their labels where some are known.

    It has no length, no shape and no array interface on purpose: scikit-learn's searches slice every
    array-like fit argument that happens to have as many rows as ``X``; a `Target` arrives whole.

    Examples
    --------
    >>> from steelyard import Target
    >>> Target([[0.0], [1.0]])
    Target(unlabeled)
    """

    X: Any
    y: Any = None

    def __repr__(self) -> str:
        return f"Target({'unlabeled' if self.y is None else 'labeled'})"
