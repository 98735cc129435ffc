"""Validation and scaling of tables of several source domains and a target with a few labeled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import column_or_1d

from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_labels, check_source, check_target
from steelyard.errors import InputError, MissingDomainError, MissingTargetError, NotFiniteError
from steelyard.target import Target


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and standard deviation of the columns of a table, to standardize it; the label is the last column.

    The standard deviation of a constant column counts as one.
    """

    mean: FloatArray
    spread: FloatArray

    def standardize(self, Z: FloatArray) -> FloatArray:
        """Standardize rows (n, D)."""
        return (Z - self.mean) / self.spread

    def restore(self, Z: FloatArray) -> FloatArray:
        """Rows (n, D) in the original units."""
        return Z * self.spread + self.mean

    def standardize_inputs(self, X: FloatArray) -> FloatArray:
        """Standardize rows without their labels."""
        return (X - self.mean[:-1]) / self.spread[:-1]

    def restore_labels(self, y: FloatArray) -> FloatArray:
        """Labels in the original units."""
        return np.asarray(y * self.spread[-1] + self.mean[-1])


def scale_of(Z: FloatArray, standardize: bool = True) -> Scale:
    """The scale of the rows of a table; the identity if `standardize` is False."""
    if not standardize:
        return Scale(np.zeros(Z.shape[1]), np.ones(Z.shape[1]))
    # The range decides, because the computed standard deviation of a constant such as 0.1 is not exactly zero.
    return Scale(Z.mean(axis=0), np.where(np.ptp(Z, axis=0) > 0, Z.std(axis=0), 1.0))


def check_domains(domain: Any, n_rows: int, n_columns: int, who: str) -> tuple[IntArray, Any]:
    """The number of the domain of each row, counted from zero, and the names of the domains."""
    if domain is None:
        raise MissingDomainError(f"{who} needs the domain of each row: fit(..., domain=...).")
    labels = np.asarray(domain)
    if labels.shape != (n_rows,):
        raise InputError(f"domain must have one value for each of {n_rows} rows; got an array of shape {labels.shape}.")
    missing = [i for i, name in enumerate(labels.tolist()) if name is None or name != name]
    if missing:
        raise InputError(
            f"domain is missing for {len(missing)} rows, the first of them row {missing[0]}. Drop these rows."
        )
    try:
        names, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise InputError(
            "domain mixes values that have no order, such as numbers and text. Convert them to one type."
        ) from error
    if len(names) < 2:
        raise InputError(
            f"{who} learns from the differences between domains and needs at least two; all rows are of {names[0]}."
        )
    if counts.min() < n_columns:
        small = names[int(np.argmin(counts))]
        raise InputError(
            f"Domain {small} has {counts.min()} rows; at least as many as columns, label included, are needed "
            f"({n_columns}). Drop the domain, or merge it with another one."
        )
    return numbers, names


def check_few_shot(estimator: BaseEstimator, X: Any, y: Any, target: Target | None) -> tuple[FloatArray, FloatArray]:
    """Source rows and at least two target rows with the same columns; the label is appended as the last column."""
    if not isinstance(target, Target) or target.y is None:
        raise MissingTargetError(
            f"{type(estimator).__name__} needs a few rows of the target with labels: "
            "fit(X, y, ..., target=Target(X_new, y_new))."
        )
    rows = check_source(estimator, X)
    check_labels(estimator, X, y)
    source = np.column_stack([rows, _numbers(y, "y")])
    if np.shape(target.X)[:1] == (1,):
        raise InputError(
            "The target has one row; leave-one-out needs at least two labeled target rows, and six or more are better."
        )
    target_rows, labels = check_target(estimator, target, X), _numbers(target.y, "The target's y")
    if len(target_rows) != len(labels):
        raise InputError(
            f"The target has {len(target_rows)} rows and {len(labels)} labels; a label for each row is needed."
        )
    return source, np.column_stack([target_rows, labels])


def _numbers(y: Any, name: str) -> FloatArray:
    """Labels as finite numbers."""
    try:
        labels = column_or_1d(y, dtype=np.float64, warn=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be one number for each row: {error}") from error
    if not np.isfinite(labels).all():
        first = int(np.argmin(np.isfinite(labels)))
        raise NotFiniteError(f"{name} contains NaN or infinity, first at row {first}; finite numbers are needed.")
    return np.asarray(labels)
