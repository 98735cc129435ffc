"""Kernel regression on source rows that are weighted by the joint ratio of inputs and label."""

from __future__ import annotations

import numpy as np

from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
from steelyard._typing import FloatArray
from steelyard.baselines.base import FewShotRegressor
from steelyard.ratio import RULSIF


class JointlyWeightedRegressor(FewShotRegressor):
    """Importance-weighted kernel regression ("IW"): relative ratios of (x, y), target to the pooled sources, by RuLSIF.

    λ of the regression is chosen by importance-weighted leave-one-out errors of the source rows.

    Parameters
    ----------
    alpha : float, default=0.5
        Of the relative ratio p_target/(α p_target + (1 − α) p_source).
    standardize : bool, default=True
        Columns and label, by the source rows.
    random_state : int, default=None

    Attributes
    ----------
    weights_ : of the source rows
    """

    def __init__(self, *, alpha: float = 0.5, standardize: bool = True, random_state: int | None = None) -> None:
        self.alpha = alpha
        self.standardize = standardize
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        ratio = RULSIF(self.alpha, random_state=self.random_state)
        ratio.fit(np.column_stack([X, y]), target=np.column_stack([target_X, target_y]))
        self.weights_: FloatArray = ratio.weights_
        self.model_ = LeaveOneOutKernelRegressor().fit(X, y, weights=self.weights_)
