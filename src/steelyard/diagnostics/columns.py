"""How far each column has moved between source and target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._typing import FloatArray
from steelyard.diagnostics.two_sample import column_test, text_test
from steelyard.tables import Column, TablePair

# A column has drifted where its test rejects and the distance is at least this: of some set of values, the shares in
# source and target differ by a tenth. With many rows a test alone rejects for differences of no matter. The level is
# that of one of the three kinds of test behind the verdict, so that no column drifts where no shift is found.
DRIFT_LEVEL = 0.05 / 3
DRIFT_DISTANCE = 0.1


@dataclass(frozen=True)
class ColumnShift:
    """How far one column has moved between source and target.

    Attributes
    ----------
    name, kind : str
        Name of the column; "number", "boolean", "date", "category", or "text" where it is encoded by its words and
        parts of words and not by its values.
    distance : float
        Distance of the two distributions, between 0 and 1: Kolmogorov-Smirnov, or total variation for a category. For
        text it is the largest Kolmogorov-Smirnov distance of the k numbers that the text is encoded as, less what
        taking the largest of k adds by chance: √(D² − log(k) / 2N), where N = nm / (n + m) for n source and m target
        rows, but at least 0.
    standardized_difference : float
        Difference of the means in pooled standard deviations; for a category that of its most shifted level, for text
        that of the most shifted of its numbers.
    p_value : float
        p-value of the test, times the number of columns; for text the least of the k p-values, times k as well.

    Examples
    --------
    >>> from steelyard.diagnostics import ColumnShift
    >>> ColumnShift("age", "number", 0.2, 0.5, 0.001).drifted
    True
    """

    name: str
    kind: str
    distance: float
    standardized_difference: float
    p_value: float

    @property
    def statistic(self) -> str:
        """Name of the distance.

        Returns
        -------
        str
        """
        return "total variation" if self.kind == "category" else "Kolmogorov-Smirnov"

    @property
    def threshold(self) -> float:
        """The distance from which on a column counts as drifted.

        Returns
        -------
        float
        """
        return DRIFT_DISTANCE

    @property
    def drifted(self) -> bool:
        """Whether the test rejects and the distance reaches the threshold.

        Returns
        -------
        bool
        """
        return self.p_value < DRIFT_LEVEL and self.distance >= self.threshold


def column_shifts(pair: TablePair) -> tuple[ColumnShift, ...]:
    """Test and standardized difference of every column, the most shifted first.

    What is read as text is compared as it is encoded: its values are nearly all different, and say nothing by
    themselves.
    """
    found, start = [], 0
    for code, source in zip(pair.encoding.codes, pair.source.columns, strict=True):
        features = slice(start, start + len(code.feature_names()))
        start = features.stop
        if code.kind == "text":
            parts = pair.X[:, features], pair.X_target[:, features]
            test = text_test(*parts)
            difference = max((_difference(a, b) for a, b in zip(parts[0].T, parts[1].T, strict=True)), key=abs)
        else:
            target = pair.target[code.name]
            test = column_test(source, target)
            difference = standardized_difference(source, target)
        p = min(1.0, test.p_value * len(pair.encoding.codes))
        found.append(ColumnShift(code.name, code.kind, test.statistic, difference, p))
    return tuple(sorted(found, key=lambda c: (c.p_value, -c.distance)))


def standardized_difference(source: Column, target: Column) -> float:
    """Difference of means over the pooled standard deviation; for a category that of its most shifted level."""
    if source.kind != "category":
        return _difference(source.values, target.values)
    levels = {v for c in (source, target) for v in c.values if v is not None}
    found = [
        _difference((source.values == v).astype(float), (target.values == v).astype(float)) for v in sorted(levels)
    ]
    return max(found, key=abs, default=0.0)


def _difference(source: FloatArray, target: FloatArray) -> float:
    source, target = source[np.isfinite(source)], target[np.isfinite(target)]
    if not len(source) or not len(target):
        return 0.0
    spread = np.sqrt((source.var() + target.var()) / 2)
    return float((target.mean() - source.mean()) / spread) if spread > 0 else 0.0
