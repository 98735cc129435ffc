"""Baselines of causal mechanism transfer (survey, section 7.4): regressors for a target with a few labeled rows.

All have the same ``fit(X, y, domain=..., target=Target(X_target, y_target))``.
"""

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
