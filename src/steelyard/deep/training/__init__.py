"""Training of every deep method of the survey (sections 5 and 6) and its baselines, in one loop that can be resumed.

A `TrainingRun` is a method on data with a seed. A method comes from `importance_weighting`, `one_step`,
`flattened_weighting`, `relative_weighting`, `fixed_weights` or `baseline`, or is a `TrainingMethod` of your own
phases. `train` trains one run, or several side by side, and returns the `History` of each.
"""

from steelyard.deep.training.config import History, TrainingConfig, TrainingRun
from steelyard.deep.training.data import Batch, TrainingData
from steelyard.deep.training.loop import train
from steelyard.deep.training.methods import (
    baseline,
    fixed_weights,
    flattened_weighting,
    importance_weighting,
    one_step,
    relative_weighting,
)
from steelyard.deep.training.phases import Phase, TrainingMethod
from steelyard.deep.training.reweight import learned_weights
from steelyard.deep.training.set_aside import set_aside

__all__ = [
    "Batch",
    "History",
    "Phase",
    "TrainingConfig",
    "TrainingData",
    "TrainingMethod",
    "TrainingRun",
    "baseline",
    "fixed_weights",
    "flattened_weighting",
    "importance_weighting",
    "learned_weights",
    "one_step",
    "relative_weighting",
    "set_aside",
    "train",
]
