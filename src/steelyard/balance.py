"""Balance of the columns: standardized differences between source and target, before and after weighting."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._numerics.display import fragment, paragraph, table
from steelyard._splits.rows import folds_of_table
from steelyard._typing import FloatArray
from steelyard._validation import generator, match_columns
from steelyard.errors import InputTypeError, SteelyardWarning

# A column is called worse where its difference grew by more than this many standard errors.
LEAST_STANDARD_ERRORS = 2.0
# And by more than this, in standard deviations: of millions of rows a difference nobody would notice is significant.
LEAST_GROWTH = 0.02
SHOWN = 10  # columns in a notebook


@dataclass(frozen=True)
class ColumnBalance:
    """Standardized mean difference (mean_target − mean_source) / sd of one column, before and after weighting.

    Parameters
    ----------
    name : str
        Name of the column.
    before, after : float
        The difference without and with the weights.
    noise : float
        Standard error of `after`.
    """

    name: str
    before: float
    after: float
    noise: float

    @property
    def worse(self) -> bool:
        """Whether weighting increased the absolute difference by more than chance explains, and noticeably."""
        return abs(self.after) > abs(self.before) + max(LEAST_STANDARD_ERRORS * self.noise, LEAST_GROWTH)


@dataclass(frozen=True, eq=False)
class Balance:
    """Standardized mean differences (mean_target − mean_source) / sd of the columns, before and after weighting.

    If the importance weights are the density ratio, the weighted source has the means of the target (survey, section
    3.1). sd is the pooled standard deviation √((var_source + var_target)/2) without weights, before and after alike.

    Parameters
    ----------
    columns : tuple of str
        Names of the columns.
    before : array of shape (n_columns,)
        Differences between the target and the unweighted source.
    after : array of shape (n_columns,)
        Differences between the target and the weighted source.
    noise : array of shape (n_columns,)
        Standard error of `after`: how large a difference chance alone explains.

    Examples
    --------
    >>> from steelyard import ULSIF
    >>> from steelyard.datasets import gaussian_pair
    >>> pair = gaussian_pair(300, 300, 2, random_state=0)
    >>> balance = ULSIF(random_state=0).fit(pair.X, target=pair.X_target).balance_
    >>> balance.columns, balance.mean_after < balance.mean_before
    (('x0', 'x1'), True)
    """

    columns: tuple[str, ...]
    before: FloatArray
    after: FloatArray
    noise: FloatArray

    @property
    def mean_before(self) -> float:
        """Mean absolute difference over the columns before weighting.

        Returns
        -------
        float
            The mean of ``abs(before)``.
        """
        return float(np.mean(np.abs(self.before)))

    @property
    def mean_after(self) -> float:
        """Mean absolute difference over the columns after weighting.

        Returns
        -------
        float
            The mean of ``abs(after)``.
        """
        return float(np.mean(np.abs(self.after)))

    @property
    def in_words(self) -> str:
        """The mean absolute differences before and after weighting.

        Returns
        -------
        str
            A few words.
        """
        return f"{self.mean_before:.3f} before and {self.mean_after:.3f} after weighting"

    def by_column(self) -> tuple[ColumnBalance, ...]:
        """The balance of each column, the largest remaining difference first.

        Returns
        -------
        tuple of ColumnBalance
            Name, differences and standard error of each column.
        """
        order = np.argsort(-np.abs(self.after), kind="stable")
        return tuple(
            ColumnBalance(self.columns[i], float(self.before[i]), float(self.after[i]), float(self.noise[i]))
            for i in order
        )

    def __repr__(self) -> str:
        return f"Balance({len(self.columns)} columns, mean difference {self.in_words})"

    def _repr_html_(self) -> str:
        rows = [
            (c.name, f"{c.before:+.2f}", f"{c.after:+.2f}", f"{c.noise:.2f}", "yes" if c.worse else "no")
            for c in self.by_column()[:SHOWN]
        ]
        words = f"Mean absolute difference of {len(self.columns)} columns, in standard deviations: {self.in_words}."
        if len(self.columns) > SHOWN:
            words += f" The {SHOWN} columns with the largest difference left:"
        header = ("column", "before", "after", "standard error", "worse")
        return str(fragment(paragraph(words), table(rows, header)))


def column_balance(
    source: FloatArray,
    target: FloatArray,
    weights: FloatArray,
    counts: FloatArray | None = None,
    columns: Sequence[str] | None = None,
    n_rows: int | None = None,
) -> Balance:
    """The balance of two numeric tables under weights of the source rows.

    Parameters
    ----------
    source, target : arrays of shape (n_source, n_columns) and (n_target, n_columns)
        The rows of both domains.
    weights : array of shape (n_source,)
        One weight per source row.
    counts : array of shape (n_source,), default=None
        How often each source row counts.
    columns : sequence of str, default=None
        Names of the columns; None takes x0, x1, …
    n_rows : int, default=None
        Number of source rows in all, where `source` has merged rows; None takes the number of rows of `source`.

    Returns
    -------
    Balance
        Standardized differences of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> source, target = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[2.0], [3.0]])
    >>> column_balance(source, target, np.array([0.0, 0.0, 1.0, 1.0])).after
    array([0.])
    """
    even = np.ones(len(source)) if counts is None else counts / counts.max()
    shares = [even / even.sum(), weights * even / (weights * even).sum()]
    # Centered at the target's mean, so that large numbers do not cancel.
    center = target.mean(axis=0, dtype=np.float64)
    source, target = source - center, target - center
    means = [share @ source for share in shares]
    variance = shares[0] @ np.square(source) - means[0] ** 2
    unit = np.sqrt((variance + target.var(axis=0)) / 2)
    unit = np.where(unit > 0, unit, np.inf)  # a constant column has difference zero
    before, after = (0.0 - mean / unit for mean in means)
    spread = np.sqrt(np.maximum(shares[1] @ np.square(source) - means[1] ** 2, 0))
    # (Σ c w)² / Σ c w² with counts c: the effective sample size of the rows, however they are merged.
    size = (n_rows or len(source)) / float(shares[0] @ np.square(weights)) * float(shares[0] @ weights) ** 2
    rows = 1 / size + 1 / len(target)
    names = tuple(f"x{i}" for i in range(source.shape[1])) if columns is None else tuple(columns)
    return Balance(names, before, after, spread / unit * np.sqrt(rows))


def balance_in_words(columns: Sequence[ColumnBalance], most: int = 3) -> str | None:
    """A sentence that names columns further from the target after weighting than before; None if there are none."""
    worse = sorted((c for c in columns if c.worse), key=lambda c: abs(c.before) - abs(c.after))
    if not worse:
        return None
    named = ", ".join(f"{c.name} ({abs(c.before):.2f} before, {abs(c.after):.2f} after)" for c in worse[:most])
    more = f" and {len(worse) - most} more" if len(worse) > most else ""
    return (
        f"The weights leave {len(worse)} of {len(columns)} columns further from the target than without weights, in "
        f"standard deviations: {named}{more}."
    )


def cross_fitted_balance(
    ratio: Any, X: Any, *, target: Any, n_folds: int = 5, random_state: Any = 0, columns: Sequence[str] | None = None
) -> Balance:
    """Standardized mean differences (mean_target − mean_source) / sd of the columns under cross-fitted weights.

    On its training rows a flexible ratio may look balanced because it has fitted their noise. Here the weight of every
    source row comes from a ratio that was fitted without the row's fold (of either domain). The ``balance_`` of
    `AutoRatio` is cross-fitted already.

    Parameters
    ----------
    ratio : ratio estimator with ``predict``
        The estimator of the density ratio (survey, section 3.2); it is cloned.
    X : numeric table of shape (n_source, n_columns)
        Source rows.
    target : Target or numeric table of shape (n_target, n_columns)
        Target rows.
    n_folds : int, default=5
        Number of folds.
    random_state : int, Generator or None, default=0
        For the folds.
    columns : sequence of str, default=None
        Names of the columns; None takes x0, x1, …

    Returns
    -------
    Balance
        The differences before and after weighting.

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
            f"Cross-fitted weights need a ratio that can be evaluated on held-out rows; {type(ratio).__name__} has no "
            "predict. Use AutoRatio, ULSIF, RULSIF, LSIF, KLIEP or ClassifierRatio."
        )
    rows, target_rows = np.asarray(X, dtype=np.float64), np.asarray(match_columns(target, X), dtype=np.float64)
    rng = generator(random_state)
    folds = [folds_of_table(list(table.T), n_folds, rng) for table in (rows, target_rows)]
    weights = np.empty(len(rows))
    for f in range(n_folds):
        held = folds[0] == f
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)  # bad weights show in the balance
            fitted = clone(ratio).fit(rows[~held], target=target_rows[folds[1] != f])
        weights[held] = fitted.predict(rows[held]) / fitted.source_mean_
    return column_balance(rows, target_rows, weights, columns=columns)
