"""Methods that causal mechanism transfer was compared with (section 7.3), all with the same ``fit``."""

from steelyard.baselines.boosting import TwoStageTrAdaBoostR2
from steelyard.baselines.copula import CopulaRegressor
from steelyard.baselines.discrepancy import DiscrepancyRegressor
from steelyard.baselines.naive import SourceAndTargetRegressor, SourceOnlyRegressor, TargetOnlyRegressor
from steelyard.baselines.weighted import JointlyWeightedRegressor

__all__ = [
    "CopulaRegressor",
    "DiscrepancyRegressor",
    "JointlyWeightedRegressor",
    "SourceAndTargetRegressor",
    "SourceOnlyRegressor",
    "TargetOnlyRegressor",
    "TwoStageTrAdaBoostR2",
]
