"""The report: numbers, pictures, page."""

from steelyard.report.evidence import gather
from steelyard.report.page import render

__all__ = ["gather", "render"]
