"""Three naive baselines: a fit on the target rows alone, on the source rows alone, or on all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._few_shot.kernel_regression import fit_scored
from steelyard._typing import FloatArray
from steelyard.baselines.base import FewShotRegressor
from steelyard.errors import ParameterError


class TargetOnlyRegressor(FewShotRegressor):
    """A regressor on the labeled target rows alone ("TarOnly").

    Parameters
    ----------
    regressor : estimator, default=None
        The regressor; None is `LeaveOneOutKernelRegressor`.
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.

    Attributes
    ----------
    model_ : object
        The fitted regressor.
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
    >>> from steelyard.baselines import TargetOnlyRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (60, 1)), rng.normal(1, 0.5, (8, 1))
    >>> target = Target(X_target, np.sin(X_target[:, 0]))
    >>> model = TargetOnlyRegressor().fit(X, np.sin(X[:, 0]), target=target)
    >>> model.predict(X_target).shape
    (8,)
    """

    def __init__(self, regressor: Any = None, *, standardize: bool = True) -> None:
        self.regressor = regressor
        self.standardize = standardize

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        self.model_ = fit_scored(self.regressor, X_target, y_target, np.arange(len(y_target)))


class SourceOnlyRegressor(FewShotRegressor):
    """A regressor on the source rows alone.

    This is not the column "SrcOnly" of the survey's table: the numbers of that column are close to those of
    `SourceAndTargetRegressor` with ``scored="all"``.

    Parameters
    ----------
    regressor : estimator, default=None
        The regressor; None is `LeaveOneOutKernelRegressor`.
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.

    Attributes
    ----------
    model_ : object
        The fitted regressor.
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
    >>> from steelyard.baselines import SourceOnlyRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (60, 1)), rng.normal(1, 0.5, (8, 1))
    >>> target = Target(X_target, np.sin(X_target[:, 0]))
    >>> model = SourceOnlyRegressor().fit(X, np.sin(X[:, 0]), target=target)
    >>> model.predict(X_target).shape
    (8,)
    """

    def __init__(self, regressor: Any = None, *, standardize: bool = True) -> None:
        self.regressor = regressor
        self.standardize = standardize

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        self.model_ = fit_scored(self.regressor, X, y, np.arange(len(y)))


class SourceAndTargetRegressor(FewShotRegressor):
    """A regressor on all rows, whose hyperparameters are chosen by the errors on the target rows ("S&TV") or on all.

    Parameters
    ----------
    regressor : estimator, default=None
        The regressor; None is `LeaveOneOutKernelRegressor`. Any other estimator chooses its own hyperparameters.
    scored : {"target", "all"}, default="target"
        The rows whose leave-one-out errors choose the hyperparameters: the target rows or all rows.
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.

    Attributes
    ----------
    model_ : object
        The fitted regressor.
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
    >>> from steelyard.baselines import SourceAndTargetRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (60, 1)), rng.normal(1, 0.5, (8, 1))
    >>> target = Target(X_target, np.sin(X_target[:, 0]))
    >>> model = SourceAndTargetRegressor().fit(X, np.sin(X[:, 0]), target=target)
    >>> model.predict(X_target).shape
    (8,)
    """

    def __init__(self, regressor: Any = None, *, scored: str = "target", standardize: bool = True) -> None:
        self.regressor = regressor
        self.scored = scored
        self.standardize = standardize

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        if self.scored not in ("target", "all"):
            raise ParameterError(f'scored must be "target" or "all"; got {self.scored!r}.')
        rows, labels = np.vstack([X_target, X]), np.concatenate([y_target, y])
        chosen = np.arange(len(y_target) if self.scored == "target" else len(labels))
        self.model_ = fit_scored(self.regressor, rows, labels, chosen)
