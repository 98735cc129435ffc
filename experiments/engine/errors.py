"""Errors of the experiments."""

from __future__ import annotations

from steelyard.errors import SteelyardError


class CellError(SteelyardError, RuntimeError):
    """One cell of a table failed."""
