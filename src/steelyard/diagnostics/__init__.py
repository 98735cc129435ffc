"""Is there a shift, of which kind, and what to do about it."""

from steelyard.diagnostics.columns import ColumnShift
from steelyard.diagnostics.findings import Diagnosis, Findings, LabelFindings, diagnose, diagnose_pair

__all__ = ["ColumnShift", "Diagnosis", "Findings", "LabelFindings", "diagnose", "diagnose_pair"]
