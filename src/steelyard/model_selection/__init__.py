"""Choice of models and estimates of their performance on the target, without target labels."""

from steelyard.model_selection.bootstrap import Interval
from steelyard.model_selection.performance import Performance, target_performance
from steelyard.model_selection.search import ImportanceWeightedSearchCV, iwcv_score

__all__ = ["ImportanceWeightedSearchCV", "Interval", "Performance", "iwcv_score", "target_performance"]
