"""Kernel regression on source rows with importance weights from the joint density ratio of columns and label."""

from __future__ import annotations

import numpy as np

from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
from steelyard._typing import FloatArray
from steelyard.baselines.base import FewShotRegressor
from steelyard.ratio import RULSIF


class JointlyWeightedRegressor(FewShotRegressor):
    """Importance-weighted kernel regression on the source rows ("IW").

    The importance weights are the relative density ratio of (x, y) between the target and the pooled sources, by
    RuLSIF. The regularization strength of the regression is chosen by the importance-weighted leave-one-out errors of
    the source rows.

    Parameters
    ----------
    eta : float, default=0.5
        η of the relative density ratio p_target/(η p_target + (1 − η) p_source).
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.
    random_state : int, default=None
        Seed of RuLSIF.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One importance weight for each source row.
    model_ : object
        The fitted `LeaveOneOutKernelRegressor`.
    scale_ : Scale
        Mean and standard deviation of columns and label.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import Target
    >>> from steelyard.baselines import JointlyWeightedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (60, 1)), rng.normal(1, 0.5, (8, 1))
    >>> target = Target(X_target, np.sin(X_target[:, 0]))
    >>> model = JointlyWeightedRegressor(random_state=0).fit(X, np.sin(X[:, 0]), target=target)
    >>> model.predict(X_target).shape
    (8,)
    """

    def __init__(self, *, eta: float = 0.5, standardize: bool = True, random_state: int | None = None) -> None:
        self.eta = eta
        self.standardize = standardize
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        ratio = RULSIF(self.eta, random_state=self.random_state)
        ratio.fit(np.column_stack([X, y]), target=np.column_stack([X_target, y_target]))
        self.weights_: FloatArray = ratio.weights_
        self.model_ = LeaveOneOutKernelRegressor().fit(X, y, importance_weights=self.weights_)
