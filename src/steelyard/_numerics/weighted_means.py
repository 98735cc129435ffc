"""Importance-weighted means and their standard errors."""

from __future__ import annotations

import numpy as np

from steelyard._typing import FloatArray
from steelyard.errors import NoOverlapError


def weighted_mean(scores: FloatArray, weights: FloatArray) -> float:
    """Σ w s / Σ w."""
    total = weights.sum()
    if not total > 0:
        raise NoOverlapError(
            "A held-out fold has no weight at all: none of its rows looks like the target. Shuffle the rows "
            "(cv=KFold(shuffle=True)), use fewer folds, or judge with RULSIF."
        )
    return float(scores @ weights / total)


def standard_error(scores: FloatArray, weights: FloatArray) -> float:
    """Standard error of Σ w s / Σ w, the weights taken as given: √Σ w²(s − mean)² / Σ w."""
    return float(np.sqrt(np.sum(np.square(weights * (scores - weighted_mean(scores, weights))))) / weights.sum())
