"""Do the weights make the source look like the target? Standardized differences of the columns, before and after."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._splits.rows import folds_of_table
from steelyard._typing import FloatArray
from steelyard._validation import generator, match_columns
from steelyard.errors import InputTypeError, SteelyardWarning

# How many standard errors a column must be further off than before to be called so.
SURE = 2.0


@dataclass(frozen=True)
class ColumnBalance:
    """Standardized difference of one column to the target, before and after weighting, and its standard error after."""

    name: str
    before: float
    after: float
    noise: float

    @property
    def worse(self) -> bool:
        """Whether the weights leave the column further off than before, by more than chance explains."""
        return abs(self.after) > abs(self.before) + SURE * self.noise


@dataclass(frozen=True, eq=False)
class Balance:
    """Standardized difference of each column's mean to the target's, before and after weighting.

    The difference is that of the target's mean less the source's, over the pooled standard deviation; the unit does
    not change with the weights.

    Attributes
    ----------
    columns : names of the columns.
    before, after : differences of the unweighted and of the weighted source, one number per column.
    noise : how far off a column may be by chance alone after weighting: the standard error of `after`.
    """

    columns: tuple[str, ...]
    before: FloatArray
    after: FloatArray
    noise: FloatArray

    @property
    def mean_before(self) -> float:
        """Mean absolute difference before weighting."""
        return float(np.mean(np.abs(self.before)))

    @property
    def mean_after(self) -> float:
        """Mean absolute difference after weighting."""
        return float(np.mean(np.abs(self.after)))

    def by_column(self) -> tuple[ColumnBalance, ...]:
        """Column by column, the one with the largest difference left first."""
        order = np.argsort(-np.abs(self.after), kind="stable")
        return tuple(
            ColumnBalance(self.columns[i], float(self.before[i]), float(self.after[i]), float(self.noise[i]))
            for i in order
        )

    def __repr__(self) -> str:
        return (
            f"Balance({len(self.columns)} columns, mean difference {self.mean_before:.3f} before and "
            f"{self.mean_after:.3f} after weighting)"
        )


def column_balance(
    source: FloatArray,
    target: FloatArray,
    weights: FloatArray,
    counts: FloatArray | None = None,
    columns: Sequence[str] | None = None,
    n_rows: int | None = None,
) -> Balance:
    """The balance of two tables of numbers under weights of the source rows.

    Parameters
    ----------
    source, target : tables with the same columns.
    weights : one weight per source row.
    counts : how often each source row counts.
    columns : names; by default x0, x1, …
    n_rows : how many source rows the counts stand for; by default as many as there are rows.

    Examples
    --------
    >>> import numpy as np
    >>> source, target = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[2.0], [3.0]])
    >>> column_balance(source, target, np.array([0.0, 0.0, 1.0, 1.0])).after
    array([0.])
    """
    even = np.ones(len(source)) if counts is None else counts / counts.max()
    shares = [even / even.sum(), weights * even / (weights * even).sum()]
    # Around the center of the target, so that large numbers do not cancel.
    center = target.mean(axis=0, dtype=np.float64)
    source, target = source - center, target - center
    means = [share @ source for share in shares]
    variance = shares[0] @ np.square(source) - means[0] ** 2
    unit = np.sqrt((variance + target.var(axis=0)) / 2)
    unit = np.where(unit > 0, unit, np.inf)  # a constant column is never off
    before, after = (0.0 - mean / unit for mean in means)
    spread = np.sqrt(np.maximum(shares[1] @ np.square(source) - means[1] ** 2, 0))
    # (Σ c w)² / Σ c w² with counts c: the effective sample size of the rows, however they are merged.
    size = (n_rows or len(source)) / float(shares[0] @ np.square(weights)) * float(shares[0] @ weights) ** 2
    rows = 1 / size + 1 / len(target)
    names = tuple(f"x{i}" for i in range(source.shape[1])) if columns is None else tuple(columns)
    return Balance(names, before, after, spread / unit * np.sqrt(rows))


def balance_in_words(columns: Sequence[ColumnBalance], most: int = 3) -> str | None:
    """A warning in words where weights leave columns further off than before; None where they do not."""
    worse = sorted((c for c in columns if c.worse), key=lambda c: abs(c.before) - abs(c.after))
    if not worse:
        return None
    named = ", ".join(f"{c.name} ({abs(c.before):.2f} before, {abs(c.after):.2f} after)" for c in worse[:most])
    more = f" and {len(worse) - most} more" if len(worse) > most else ""
    return (
        f"The weights leave {len(worse)} of {len(columns)} columns further from the target than they were, in "
        f"standard deviations: {named}{more}."
    )


def cross_fitted_balance(
    ratio: Any, X: Any, *, target: Any, n_folds: int = 5, random_state: Any = 0, columns: Sequence[str] | None = None
) -> Balance:
    """The balance under weights of rows that the ratio has not seen.

    On its own rows a flexible ratio may look balanced because it has fitted their noise. Here every source row is
    weighed by a ratio that was fitted without the row's fold (of either domain). `AutoRatio` does so by itself: its
    ``balance_`` is cross-fitted.

    Parameters
    ----------
    ratio : ratio estimator with ``predict``
    X : table of numbers
        Source rows.
    target : Target or table of numbers
        Target rows.
    n_folds : int, default=5
        Number of folds.
    random_state : int or Generator, default=0
        For the folds.
    columns : names; by default x0, x1, …

    Examples
    --------
    >>> from steelyard import ULSIF, cross_fitted_balance
    >>> from steelyard.datasets import gaussian_pair
    >>> pair = gaussian_pair(300, 300, 2, random_state=0)
    >>> balance = cross_fitted_balance(ULSIF(random_state=0), pair.X, target=pair.X_target)
    >>> balance.mean_after < balance.mean_before
    True
    """
    if not hasattr(ratio, "predict"):
        raise InputTypeError(
            f"Cross-fitted weights need a ratio that can be evaluated on new rows; {type(ratio).__name__} has no "
            "predict. Use AutoRatio, ULSIF, RULSIF, LSIF, KLIEP or ClassifierRatio."
        )
    rows, target_rows = np.asarray(X, dtype=np.float64), np.asarray(match_columns(target, X), dtype=np.float64)
    rng = generator(random_state)
    folds = [folds_of_table(list(table.T), n_folds, rng) for table in (rows, target_rows)]
    weights = np.empty(len(rows))
    for f in range(n_folds):
        held = folds[0] == f
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)  # rough weights show in the balance
            fitted = clone(ratio).fit(rows[~held], target=target_rows[folds[1] != f])
        weights[held] = fitted.predict(rows[held]) / fitted.source_mean_
    return column_balance(rows, target_rows, weights, columns=columns)
