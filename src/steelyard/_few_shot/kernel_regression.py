"""The predictor of the survey's table 7: kernel regression whose leave-one-out error has a closed form."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from steelyard._numerics.kernels import gaussian
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_grid, check_weights
from steelyard.errors import InputError, ParameterError

REGS = tuple(2.0**k for k in range(-10, 11))
PENALTIES = ("coefficients", "norm")
# Eigenvalues of the kernel below this are nothing beside the least λ of the table.
SMALLEST = 1e-10


class LeaveOneOutKernelRegressor(RegressorMixin, BaseEstimator):
    """Gaussian kernel regression with the median width, and λ by the closed form of leave-one-out.

    What is penalized decides: "coefficients" is θ = (KᵀK + λI)⁻¹Kᵀy, which the authors of causal mechanism transfer
    call kernel ridge regression and which gives the survey's table 7; "norm" is (K + λI)⁻¹y, kernel ridge regression as
    it is usually meant, which does not.

    Parameters
    ----------
    penalty : {"coefficients", "norm"}, default="coefficients"
    lambdas : sequence of float, default=(2**-10, ..., 2**10)

    Attributes
    ----------
    width_ : median distance of distinct pairs of rows
    lambda_ : the λ of the least leave-one-out error
    loo_ : mean squared leave-one-out error of the scored rows for every λ, the largest first
    coefficients_ : θ

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
    >>> X = np.linspace(0, 3, 30)[:, None]
    >>> model = LeaveOneOutKernelRegressor().fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.01)
    True
    """

    def __init__(self, *, penalty: str = "coefficients", lambdas: Any = REGS) -> None:
        self.penalty = penalty
        self.lambdas = lambdas

    def fit(self, X: Any, y: Any, *, weights: Any = None, scored: IntArray | None = None) -> LeaveOneOutKernelRegressor:
        """Fit on all rows; the leave-one-out errors of the rows numbered in `scored` choose λ, or those of all rows.

        With importance weights both the fit and the leave-one-out errors are weighted; a row without weight stays a
        center of the kernel.
        """
        if self.penalty not in PENALTIES:
            raise ParameterError(f"penalty must be one of {PENALTIES}; got {self.penalty!r}.")
        if weights is not None and self.penalty == "norm":
            raise ParameterError('Weights are for penalty="coefficients".')
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        grid = check_grid("lambdas", self.lambdas)
        rows = np.arange(len(y)) if scored is None else np.asarray(scored)
        if not len(rows):
            raise InputError("scored names no row, so nothing can choose λ.")
        self.rows_, self.width_ = X, median_distance(X)
        kernel = gaussian(X, X, self.width_)
        weight = check_weights(weights, len(y))
        if weight is None:
            path = leave_one_out(kernel, y, grid, self.penalty)
        else:
            path = weighted_leave_one_out(kernel, y, grid, weight)
        errors, coefficients = path
        of_rows = np.ones(len(rows)) if weight is None else weight[rows]
        self.loo_ = (of_rows * errors[:, rows] ** 2).mean(axis=1)
        best = int(np.argmin(self.loo_))
        self.lambda_, self.coefficients_ = float(grid[best]), coefficients[best]
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predicted values."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return gaussian(X, self.rows_, self.width_) @ self.coefficients_


def fit_scored(regressor: Any, X: FloatArray, y: FloatArray, scored: IntArray) -> Any:
    """A copy of a regressor, fitted; where it can, its settings are chosen by the rows numbered in `scored`."""
    model = LeaveOneOutKernelRegressor() if regressor is None else clone(regressor)
    chosen = {"scored": scored} if "scored" in inspect.signature(model.fit).parameters else {}
    return model.fit(X, y, **chosen)


def median_distance(X: FloatArray) -> float:
    """Of distinct pairs of rows; one where it is zero."""
    if len(X) < 2:
        return 1.0
    found = float(np.median(pdist(X)))
    return found if found > 0 else 1.0


def spectrum(kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues above `SMALLEST` and their vectors (n, r), through pivoted Cholesky: most kernels have small rank."""
    factor, order, rank, _ = dpstrf(kernel, tol=SMALLEST, lower=1)
    thin = np.zeros((len(kernel), rank))
    thin[order - 1] = np.tril(factor)[:, :rank]
    values, vectors = np.linalg.eigh(thin.T @ thin)
    kept = values > SMALLEST
    return values[kept], thin @ (vectors[:, kept] / np.sqrt(values[kept]))


def leave_one_out(
    kernel: FloatArray, y: FloatArray, lambdas: FloatArray, penalty: str
) -> tuple[FloatArray, FloatArray]:
    """Leave-one-out errors (λ, n) and θ (λ, n) for every λ.

    A row that is left out stays a center of the kernel, as in the authors' code.
    """
    values, vectors = spectrum(kernel)
    along = vectors.T @ y
    squares = vectors**2
    if penalty == "coefficients":
        shrink = values**2 / (values**2 + lambdas[:, None])
        theta = (values / (values**2 + lambdas[:, None]) * along) @ vectors.T
    else:
        shrink = values / (values + lambdas[:, None])
        theta = (along / (values + lambdas[:, None])) @ vectors.T + (y - vectors @ along) / lambdas[:, None]
    errors = (y - (shrink * along) @ vectors.T) / (1 - shrink @ squares.T)
    return errors, theta


def weighted_leave_one_out(
    kernel: FloatArray, y: FloatArray, lambdas: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """As `leave_one_out` for θ = (KWK + λI)⁻¹KWy."""
    root = np.sqrt(weight)
    left, values, right = np.linalg.svd(root[:, None] * kernel, full_matrices=False)
    along = left.T @ (root * y)
    shrink = values**2 / (values**2 + lambdas[:, None])
    theta = (values / (values**2 + lambdas[:, None]) * along) @ right
    fitted = theta @ kernel.T
    return (y - fitted) / (1 - shrink @ (left**2).T), theta
