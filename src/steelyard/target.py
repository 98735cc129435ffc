"""The target domain as one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """A sample of the target distribution p_target(x): the rows to predict, and their labels where known.

    The survey's section 2 defines source and target. The class has no length, no shape and no array interface:
    scikit-learn's searches slice every array-like argument of ``fit`` that has as many rows as ``X``, but pass a
    `Target` on as a whole.

    Parameters
    ----------
    X : table of shape (n_target, n_columns)
        Target rows, with the columns of the source.
    y : array of shape (n_target,), default=None
        Labels of the target rows, for methods that use them.

    Examples
    --------
    >>> from steelyard import Target
    >>> Target([[0.0], [1.0]])
    Target(unlabeled)
    >>> Target([[0.0], [1.0]], [2.5, 3.0])
    Target(labeled)
    """

    X: Any
    y: Any = None

    def __repr__(self) -> str:
        return f"Target({'unlabeled' if self.y is None else 'labeled'})"
