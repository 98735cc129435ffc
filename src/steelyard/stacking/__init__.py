"""Combinations of learners for the target: importance-weighted stacking.

* `StackedRegressor`, `StackedClassifier`: shares of the learners by held-out predictions under importance weights
"""

from steelyard.stacking.estimators import StackedClassifier, StackedRegressor

__all__ = ["StackedClassifier", "StackedRegressor"]
