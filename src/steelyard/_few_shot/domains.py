"""Tables of several domains and a target with few labeled rows: what is asked of them, and their scale."""

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
    """Columns less their mean, over their standard deviation; a constant column is left as it is. Labels come last."""

    mean: FloatArray
    spread: FloatArray

    def to(self, Z: FloatArray) -> FloatArray:
        """Standardized."""
        return (Z - self.mean) / self.spread

    def back(self, Z: FloatArray) -> FloatArray:
        """As it was."""
        return Z * self.spread + self.mean

    def inputs_to(self, X: FloatArray) -> FloatArray:
        """Standardized, of rows without their labels."""
        return (X - self.mean[:-1]) / self.spread[:-1]

    def labels_back(self, y: FloatArray) -> FloatArray:
        """Labels alone, as they were."""
        return np.asarray(y * self.spread[-1] + self.mean[-1])


def scale_of(Z: FloatArray, standardize: bool = True) -> Scale:
    """Of the rows of a table; that which changes nothing where it is not to be standardized."""
    if not standardize:
        return Scale(np.zeros(Z.shape[1]), np.ones(Z.shape[1]))
    # By the range: the standard deviation of a constant such as 0.1 is not zero but rounding.
    return Scale(Z.mean(axis=0), np.where(np.ptp(Z, axis=0) > 0, Z.std(axis=0), 1.0))


def check_domains(domain: Any, n_rows: int, n_columns: int, who: str) -> tuple[IntArray, Any]:
    """Numbers of the domains from zero on, and their names."""
    if domain is None:
        raise MissingDomainError(f"{who} needs the domain of each row: fit(..., domain=...).")
    labels = np.asarray(domain)
    if labels.shape != (n_rows,):
        raise InputError(f"domain must have one value for each of {n_rows} rows; got an array of shape {labels.shape}.")
    missing = [i for i, name in enumerate(labels.tolist()) if name is None or name != name]
    if missing:
        raise InputError(
            f"domain is missing for {len(missing)} rows, the first of them row {missing[0]}. Drop the rows."
        )
    try:
        names, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise InputError("domain mixes kinds of values that have no order, such as numbers and text.") from error
    if len(names) < 2:
        raise InputError(
            f"{who} learns from what differs between domains and needs at least two; all rows are of {names[0]}."
        )
    if counts.min() < n_columns:
        small = names[int(np.argmin(counts))]
        raise InputError(
            f"Domain {small} has {counts.min()} rows; at least as many as columns, label included, are needed "
            f"({n_columns}). Leave the domain out, or put it together with another."
        )
    return numbers, names


def check_few_shot(estimator: BaseEstimator, X: Any, y: Any, target: Target | None) -> tuple[FloatArray, FloatArray]:
    """Source rows, and at least two of the target with the same columns; the label is the last column of both."""
    if not isinstance(target, Target) or target.y is None:
        raise MissingTargetError(
            f"{type(estimator).__name__} needs a few rows of the target with labels: "
            "fit(X, y, ..., target=Target(X_new, y_new))."
        )
    rows = check_source(estimator, X)
    check_labels(estimator, X, y)
    source = np.column_stack([rows, _numbers(y, "y")])
    if np.shape(target.X)[:1] == (1,):
        raise InputError("The target has one row; two are needed to leave one out, and six or more are better.")
    there, labels = check_target(estimator, target, X), _numbers(target.y, "The target's y")
    if len(there) != len(labels):
        raise InputError(f"The target has {len(there)} rows and {len(labels)} labels; a label for each row is needed.")
    return source, np.column_stack([there, labels])


def _numbers(y: Any, name: str) -> FloatArray:
    try:
        labels = column_or_1d(y, dtype=np.float64, warn=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be one number for each row: {error}") from error
    if not np.isfinite(labels).all():
        first = int(np.argmin(np.isfinite(labels)))
        raise NotFiniteError(f"{name} contains NaN or infinity, first at row {first}; finite numbers are needed.")
    return np.asarray(labels)
