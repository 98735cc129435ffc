"""Kernel ridge regression on Gaussians whose width and regularization strength are chosen by leave-one-out errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from steelyard._numerics.kernels import blocks
from steelyard._typing import FloatArray
from steelyard._validation import check_weights

MOST_CENTERS = 400
# Width and regularization strength are chosen on at most this many rows; all rows serve the final coefficients.
ROWS_OF_CHOICE = 3000
# Four widths, each half the one before: factors of 2 / median squared distance of the rows, for γ = 1/(2 width²).
GAMMAS = (0.0625, 0.25, 1.0, 4.0)
REGS = np.logspace(-4, 2, 13)


def leave_one_out(features: FloatArray, labels: FloatArray, weights: FloatArray, regs: FloatArray) -> FloatArray:
    """Weighted mean squared leave-one-out error of ridge regression with an intercept, for each λ.

    The fit minimizes Σ w_i ‖y_i − b − βᵀz_i‖² + λ‖β‖². Without row i its residual is e_i / (1 − h_i), where
    h_i = w_i/Σw + w_i z̃_iᵀ(Z̃ᵀWZ̃ + λI)⁻¹z̃_i and z̃ are the features minus their weighted mean; one eigendecomposition
    serves every λ.

    Parameters
    ----------
    features : array of shape (n_rows, n_features)
        z.
    labels : array of shape (n_rows, n_outputs)
        y.
    weights : array of shape (n_rows,)
        Non-negative weights, not all of them zero.
    regs : array of shape (n_regs,)
        λ.

    Returns
    -------
    array of shape (n_regs,)
    """
    total = weights.sum()
    centered, outputs = features - weights @ features / total, labels - weights @ labels / total
    values, vectors = np.linalg.eigh((centered * weights[:, None]).T @ centered)
    rotated = centered @ vectors
    moments = rotated.T @ (weights[:, None] * outputs)
    squares = np.square(rotated)
    errors = np.empty(len(regs))
    for i, reg in enumerate(regs):
        shrunk = 1 / (np.maximum(values, 0) + reg)
        residuals = outputs - rotated @ (shrunk[:, None] * moments)
        leverage = weights * (1 / total + squares @ shrunk)
        left_out = residuals / np.maximum(1 - leverage, 1e-6)[:, None]
        errors[i] = weights @ np.square(left_out).sum(axis=1) / total
    return errors


class _RBF(BaseEstimator):
    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def _fit_outputs(self, X: FloatArray, outputs: FloatArray, sample_weight: Any) -> None:
        weights = check_weights(sample_weight, len(X))
        weights = np.ones(len(X)) if weights is None else weights / weights.mean()
        self.scaler_ = StandardScaler().fit(X)
        some = np.random.default_rng(self.random_state).permutation(len(X))[:ROWS_OF_CHOICE]
        rows = self.scaler_.transform(X[some])
        spread = np.square(pairwise_distances(rows[:500])).ravel()
        median = float(np.median(spread[spread > 0])) if np.any(spread > 0) else 1.0
        # Equal centers make the kernel matrix singular, and its decomposition may then fail.
        centers = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]
        best = np.inf
        for factor in GAMMAS:
            basis = Nystroem(
                gamma=2 * factor / median, n_components=min(MOST_CENTERS, len(centers)), random_state=self.random_state
            )
            features = basis.fit(centers).transform(rows)
            errors = leave_one_out(features, outputs[some], weights[some], REGS)
            least = int(np.argmin(errors))
            if errors[least] < best:
                best, self.basis_, self.reg_ = float(errors[least]), basis, float(REGS[least])
        self._solve(X, outputs, weights)

    def _solve(self, X: FloatArray, outputs: FloatArray, weights: FloatArray) -> None:
        """Coefficients from all rows, whose moments are summed block by block."""
        size = len(self.basis_.component_indices_)
        gram, moments = np.zeros((size + 1, size + 1)), np.zeros((size + 1, outputs.shape[1]))
        for block in blocks(len(X)):
            features = self._features(X[block])
            weighted = features * weights[block, None]
            gram += weighted.T @ features
            moments += weighted.T @ outputs[block]
        penalty = np.full(size + 1, self.reg_)
        penalty[-1] = 0.0  # of the intercept
        self.coef_ = np.linalg.solve(gram + np.diag(penalty), moments)

    def _features(self, X: FloatArray) -> FloatArray:
        return np.column_stack([self.basis_.transform(self.scaler_.transform(X)), np.ones(len(X))])

    def _outputs(self, X: Any) -> FloatArray:
        check_is_fitted(self, "coef_")
        rows = validate_data(self, X, reset=False)
        found = np.empty((len(rows), self.coef_.shape[1]))
        for block in blocks(len(rows)):
            found[block] = self._features(rows[block]) @ self.coef_
        return found


class RBFRegressor(RegressorMixin, _RBF):
    """Kernel ridge regression, min_f Σ w_i (f(x_i) − y_i)² + λ‖f‖², with Gaussians around at most 400 rows.

    Kernel width and λ have the least leave-one-out error, which has a closed form. Rows are standardized.

    Parameters
    ----------
    random_state : int, default=0
        For the choice of centers.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose width and λ, and fit."""
        X, y = validate_data(self, X, y, y_numeric=True, ensure_min_samples=2)
        self._fit_outputs(X, np.asarray(y, dtype=np.float64)[:, None], sample_weight)
        return self

    def predict(self, X: Any) -> FloatArray:
        """The predicted number of each row."""
        return self._outputs(X)[:, 0]


class RBFClassifier(ClassifierMixin, _RBF):
    """Kernel ridge regression of the class indicators, which minimizes the Brier score, with probabilities in [0, 1].

    Like a least-squares support vector machine, one class against the rest. See `RBFRegressor`.

    Parameters
    ----------
    random_state : int, default=0
        For the choice of centers.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose width and λ, and fit."""
        X, y = validate_data(self, X, y, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self._fit_outputs(X, (np.asarray(y)[:, None] == self.classes_).astype(np.float64), sample_weight)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class, for each row."""
        shares = np.clip(self._outputs(X), 1e-6, 1)
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
