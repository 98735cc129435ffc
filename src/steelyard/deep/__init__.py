"""Importance weighting for PyTorch models (survey, sections 5 and 6). Needs the extra ``deep``."""

from steelyard.errors import DependencyError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise DependencyError("steelyard.deep needs PyTorch. Install it: pip install 'steelyard[deep]'.") from error

from steelyard.deep._loaders import validation_batches
from steelyard.deep.classifier import DynamicWeightedClassifier
from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.training.modes import scores_and_features

__all__ = ["DynamicWeightedClassifier", "DynamicWeights", "scores_and_features", "validation_batches"]
