"""Is there a shift, of which kind, and what to do about it."""

from steelyard.diagnostics.findings import ColumnShift, Findings, LabelFindings, diagnose

__all__ = ["ColumnShift", "Findings", "LabelFindings", "diagnose"]
