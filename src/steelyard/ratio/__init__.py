"""Estimators of the ratio w(x) = p_target(x) / p_source(x)."""

from steelyard.ratio.auto import AutoRatio
from steelyard.ratio.candidates import RatioCandidate
from steelyard.ratio.classifier import ClassifierRatio
from steelyard.ratio.kliep import KLIEP
from steelyard.ratio.kmm import KMM
from steelyard.ratio.lsif import LSIF
from steelyard.ratio.ulsif import RULSIF, ULSIF

__all__ = ["KLIEP", "KMM", "LSIF", "RULSIF", "ULSIF", "AutoRatio", "ClassifierRatio", "RatioCandidate"]


def default_ratio() -> AutoRatio:
    """The ratio estimator used where none is named; seeded, so that the same tables give the same model."""
    return AutoRatio(random_state=0)
