"""The three plain ways: the target's rows alone, the source rows alone, or all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._few_shot.kernel_regression import fit_scored
from steelyard._typing import FloatArray
from steelyard.baselines.base import FewShotRegressor
from steelyard.errors import ParameterError


class TargetOnlyRegressor(FewShotRegressor):
    """A regressor on the labeled rows of the target ("TarOnly"); None is `LeaveOneOutKernelRegressor`."""

    def __init__(self, regressor: Any = None, *, standardize: bool = True) -> None:
        self.regressor = regressor
        self.standardize = standardize

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        self.model_ = fit_scored(self.regressor, target_X, target_y, np.arange(len(target_y)))


class SourceOnlyRegressor(FewShotRegressor):
    """A regressor on the source rows; None is `LeaveOneOutKernelRegressor`.

    The column "SrcOnly" that the survey prints is not this: its numbers are near those of
    `SourceAndTargetRegressor` with ``scored="all"``.
    """

    def __init__(self, regressor: Any = None, *, standardize: bool = True) -> None:
        self.regressor = regressor
        self.standardize = standardize

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        self.model_ = fit_scored(self.regressor, X, y, np.arange(len(y)))


class SourceAndTargetRegressor(FewShotRegressor):
    """A regressor on all rows, its settings chosen by those of the target ("S&TV") or by all of them.

    Parameters
    ----------
    regressor : estimator, default=None
        None is `LeaveOneOutKernelRegressor`; another chooses its own settings.
    scored : {"target", "all"}, default="target"
    standardize : bool, default=True
        Columns and label, by the source rows.
    """

    def __init__(self, regressor: Any = None, *, scored: str = "target", standardize: bool = True) -> None:
        self.regressor = regressor
        self.scored = scored
        self.standardize = standardize

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        if self.scored not in ("target", "all"):
            raise ParameterError(f'scored must be "target" or "all"; got {self.scored!r}.')
        rows, labels = np.vstack([target_X, X]), np.concatenate([target_y, y])
        chosen = np.arange(len(target_y) if self.scored == "target" else len(labels))
        self.model_ = fit_scored(self.regressor, rows, labels, chosen)
