"""Source and target as one value: the same columns, one encoding, and the rows of both as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard._numerics.display import ShortRepr
from steelyard._typing import BoolArray, FloatArray, IntArray
from steelyard.tables.encoding import Encoding, learn_encoding
from steelyard.tables.frame import Frame


@dataclass(frozen=True, eq=False, repr=False)
class TablePair(ShortRepr):
    """A source and a target table with the same columns, and their rows as numbers.

    Attributes
    ----------
    source, target : Frame
        The tables; `match_frames` has given them the same columns.
    encoding : Encoding
        How columns become numbers, learned from both tables.
    X, X_target : arrays of shape (n_source, n_features) and (n_target, n_features)
        The encoded rows.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.tables import as_frame, encode_pair
    >>> pair = encode_pair(as_frame(np.zeros((3, 2))), as_frame(np.ones((4, 2))))
    >>> pair.take(np.array([0]), np.array([1, 2])).X_target.shape
    (2, 2)
    """

    source: Frame
    target: Frame
    encoding: Encoding
    X: FloatArray
    X_target: FloatArray

    def take(self, source_rows: IntArray | BoolArray, target_rows: IntArray | BoolArray) -> TablePair:
        """Some rows of each table, under the same encoding."""
        return TablePair(
            self.source.take(source_rows),
            self.target.take(target_rows),
            self.encoding,
            self.X[source_rows],
            self.X_target[target_rows],
        )


def encode_pair(source: Frame, target: Frame) -> TablePair:
    """Learn one encoding from two matched tables, and apply it to both.

    Parameters
    ----------
    source, target : Frame
        Tables with the same columns (see `match_frames`).

    Returns
    -------
    TablePair

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.tables import as_frame
    >>> pair = encode_pair(as_frame(np.zeros((3, 2))), as_frame(np.ones((4, 2))))
    >>> pair.X.shape, pair.X_target.shape
    ((3, 2), (4, 2))
    """
    encoding = learn_encoding(source, target)
    return TablePair(source, target, encoding, encoding.transform(source), encoding.transform(target))
