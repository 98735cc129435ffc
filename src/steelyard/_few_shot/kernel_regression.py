"""Kernel regression whose leave-one-out error has a closed form: the predictor of the survey's table 7."""

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

REG_GRID = tuple(2.0**k for k in range(-10, 11))
REGULARIZED = ("coefficients", "function")
# Eigenvalues of the kernel below this are negligible compared with the smallest λ of table 7.
SMALLEST = 1e-10


class LeaveOneOutKernelRegressor(RegressorMixin, BaseEstimator):
    """Gaussian kernel regression; λ is chosen by the closed form of the leave-one-out error.

    The kernel width (bandwidth) is the median distance between rows. With the coefficients regularized,
    θ = (KᵀK + λI)⁻¹Kᵀy. The authors of causal mechanism transfer call this kernel ridge regression, and it reproduces
    the survey's table 7. With the function regularized, by its norm in the reproducing kernel Hilbert space,
    θ = (K + λI)⁻¹y. This is what is usually called kernel ridge regression; it does not reproduce table 7.

    Parameters
    ----------
    regularize : {"coefficients", "function"}, default="coefficients"
        Whether λ multiplies the squared norm of the coefficients θ or that of the function Kθ.
    reg : positive number or list of them, default=(2**-10, ..., 2**10)
        λ, the regularization strength. One of a list is chosen by the leave-one-out error.

    Attributes
    ----------
    width_ : float
        Kernel width: median distance between two rows.
    reg_ : float
        The λ with the smallest leave-one-out error.
    loo_ : array of shape (n_reg,)
        Mean squared leave-one-out error of the scored rows for each λ, in descending order of λ.
    coefficients_ : array of shape (n_rows,)
        θ.
    rows_ : array of shape (n_rows, n_columns)
        The training rows, which are the centers of the kernel.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
    >>> X = np.linspace(0, 3, 30)[:, None]
    >>> model = LeaveOneOutKernelRegressor().fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.01)
    True
    """

    def __init__(self, *, regularize: str = "coefficients", reg: Any = REG_GRID) -> None:
        self.regularize = regularize
        self.reg = reg

    def fit(
        self, X: Any, y: Any, *, importance_weights: Any = None, scored: IntArray | None = None
    ) -> LeaveOneOutKernelRegressor:
        """Fit on all rows.

        Parameters
        ----------
        X : array of shape (n_rows, n_columns)
            Rows.
        y : array of shape (n_rows,)
            Labels of the rows.
        importance_weights : array of shape (n_rows,), default=None
            Importance weights of the rows, for the fit and for the leave-one-out errors that choose λ. They are not
            counts: a row of weight zero remains a center of the kernel. Only with ``regularize="coefficients"``.
        scored : array of int, default=None
            Numbers of the rows whose leave-one-out errors choose λ. None takes all rows.

        Returns
        -------
        self : LeaveOneOutKernelRegressor
            The fitted regressor.
        """
        if self.regularize not in REGULARIZED:
            raise ParameterError(f"regularize must be one of {REGULARIZED}; got {self.regularize!r}.")
        if importance_weights is not None and self.regularize != "coefficients":
            raise ParameterError(
                f'importance_weights need regularize="coefficients"; got regularize={self.regularize!r}.'
            )
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        grid = check_grid("reg", self.reg)
        rows = np.arange(len(y)) if scored is None else np.asarray(scored)
        if not len(rows):
            raise InputError("scored contains no row, so λ cannot be chosen. Give at least one row number, or None.")
        self.rows_, self.width_ = X, median_distance(X)
        kernel = gaussian(X, X, self.width_)
        weight = check_weights(importance_weights, len(y))
        errors, coefficients = leave_one_out(kernel, y, grid, self.regularize, weight)
        of_rows = np.ones(len(rows)) if weight is None else weight[rows]
        self.loo_ = (of_rows * errors[:, rows] ** 2).mean(axis=1)
        best = int(np.argmin(self.loo_))
        self.reg_, self.coefficients_ = float(grid[best]), coefficients[best]
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predict the labels of rows.

        Parameters
        ----------
        X : array of shape (n_rows, n_columns)
            Rows.

        Returns
        -------
        array of shape (n_rows,)
            Predictions.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return gaussian(X, self.rows_, self.width_) @ self.coefficients_


def fit_scored(regressor: Any, X: FloatArray, y: FloatArray, scored: IntArray) -> Any:
    """Fit a clone of a regressor; None is `LeaveOneOutKernelRegressor`.

    If its `fit` has the parameter `scored`, its hyperparameters are chosen by the errors of the rows of these numbers.
    """
    model = LeaveOneOutKernelRegressor() if regressor is None else clone(regressor)
    chosen = {"scored": scored} if "scored" in inspect.signature(model.fit).parameters else {}
    return model.fit(X, y, **chosen)


def median_distance(X: FloatArray) -> float:
    """Median distance between two rows; 1 where the median is zero."""
    if len(X) < 2:
        return 1.0
    found = float(np.median(pdist(X)))
    return found if found > 0 else 1.0


def spectrum(kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues above `SMALLEST` and their eigenvectors (n, r).

    By the pivoted Cholesky decomposition, because the rank of most kernel matrices is small.
    """
    factor, order, rank, _ = dpstrf(kernel, tol=SMALLEST, lower=1)
    thin = np.zeros((len(kernel), rank))
    thin[order - 1] = np.tril(factor)[:, :rank]
    values, vectors = np.linalg.eigh(thin.T @ thin)
    kept = values > SMALLEST
    return values[kept], thin @ (vectors[:, kept] / np.sqrt(values[kept]))


def leave_one_out(
    kernel: FloatArray, y: FloatArray, reg: FloatArray, regularize: str, weight: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Leave-one-out errors and coefficients θ for each λ, both of shape (number of λ, n).

    With "coefficients" regularized, a row that is left out remains a center of the kernel, as in the authors' code.
    Only then rows may have weights: θ = (KWK + λI)⁻¹KWy.
    """
    if weight is not None:
        root = np.sqrt(weight)
        left, values, right = np.linalg.svd(root[:, None] * kernel, full_matrices=False)
        along = left.T @ (root * y)
        shrink = values**2 / (values**2 + reg[:, None])
        theta = (values / (values**2 + reg[:, None]) * along) @ right
        return (y - theta @ kernel.T) / (1 - shrink @ (left**2).T), theta
    values, vectors = spectrum(kernel)
    along = vectors.T @ y
    squares = vectors**2
    if regularize == "coefficients":
        shrink = values**2 / (values**2 + reg[:, None])
        theta = (values / (values**2 + reg[:, None]) * along) @ vectors.T
    else:
        shrink = values / (values + reg[:, None])
        theta = (along / (values + reg[:, None])) @ vectors.T + (y - vectors @ along) / reg[:, None]
    errors = (y - (shrink * along) @ vectors.T) / (1 - shrink @ squares.T)
    return errors, theta
