"""Tables of several domains: what is asked of them, and their rows as one standardised table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.arrays import FloatArray, IntArray
from steelyard.errors import InputError, MissingDomainError


@dataclass(frozen=True, eq=False)
class Scale:
    """Columns less their mean, over their standard deviation; a constant column is left as it is."""

    mean: FloatArray
    spread: FloatArray

    def to(self, Z: FloatArray) -> FloatArray:
        """Standardised."""
        return (Z - self.mean) / self.spread

    def back(self, Z: FloatArray) -> FloatArray:
        """As it was."""
        return Z * self.spread + self.mean


def scale_of(Z: FloatArray) -> Scale:
    """Of the rows of a table."""
    spread = Z.std(axis=0)
    return Scale(Z.mean(axis=0), np.where(spread > 0, spread, 1.0))


def check_domains(domain: Any, n_rows: int, n_columns: int, who: str) -> tuple[IntArray, Any]:
    """Numbers of the domains from zero on, and their names."""
    if domain is None:
        raise MissingDomainError(f"{who} needs the domain of each row: fit(..., domain=...).")
    labels = np.asarray(domain)
    if labels.shape != (n_rows,):
        raise InputError(f"domain must have one value for each of {n_rows} rows; got an array of shape {labels.shape}.")
    names, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
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
