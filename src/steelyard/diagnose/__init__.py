"""Is there a shift, of which kind, and what to do about it."""

from steelyard.diagnose.findings import ColumnShift, Findings, LabelFindings, diagnose

__all__ = ["ColumnShift", "Findings", "LabelFindings", "diagnose"]
