"""Importance weighting for PyTorch models (survey, sections 5 and 6). Needs the extra ``deep``."""

from steelyard.errors import DependencyError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise DependencyError("steelyard.deep needs PyTorch. Install it: pip install 'steelyard[deep]'.") from error

from steelyard.deep.classifier import DynamicWeightedClassifier
from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.training.loop import train
from steelyard.deep.training.phases import Task
from steelyard.deep.training.run import Settings, Trial

__all__ = ["DynamicWeightedClassifier", "DynamicWeights", "Settings", "Task", "Trial", "train"]
