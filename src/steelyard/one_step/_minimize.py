"""The f-step: argmin_α Σ w_i ℓ(αᵀφ(x_i), y_i) + μ‖α‖² for many weights and many μ at once (algorithm 1, lines 10, 12).

Weights w have shape (C, n) and include the factor 1/n of the mean, regularization strengths μ have shape (C,), labels y
have shape (n, k) and coefficients (C, b, k): C fits on the same n rows and b features. Each fit starts from given
coefficients and never ends with a larger objective than that of its start.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.special import expit, softmax

from steelyard._numerics.interior_point import solve_box_slab_low_rank
from steelyard._numerics.kernels import blocks
from steelyard._numerics.losses import LN2, Hinge, Logistic, Loss, Squared, Tukey
from steelyard._numerics.quadratic_programs import BoxSlab
from steelyard._typing import FloatArray

IRLS_STEPS = 10
NEWTON_STEPS = 50
NEWTON_TOL = 1e-9  # relative decrease of the objective in one step
HALVINGS = 12
# The products of all pairs of features are kept in memory if they are at most this many numbers (64 MB).
PAIRS_KEPT = 8_000_000
PAIRS_AT_ONCE = 1_000_000
GRAM_ROWS = 2048


class Features:
    """The values of the basis functions on the rows, and their Gram matrices for many vectors of weights.

    Σ w_i φ_i φ_iᵀ for C vectors of weights is one product of the (C, n) weights with the (n, b(b+1)/2) products of
    pairs of features. It costs as many operations as C separate Gram matrices, but in one call of BLAS.
    """

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self.upper = np.triu_indices(values.shape[1])
        self.pairs: FloatArray | None = None

    def grams(self, weights: FloatArray) -> FloatArray:
        """Gram matrices (C, b, b) for weights (C, n)."""
        n, b = self.values.shape
        if len(weights) < 4:
            return np.stack([gram(self.values, w) for w in weights])
        packed = np.zeros((len(weights), len(self.upper[0])))
        if self.pairs is None and n * packed.shape[1] <= PAIRS_KEPT:
            self.pairs = self._pairs(slice(None))
        if self.pairs is not None:
            np.matmul(weights, self.pairs, out=packed)
        else:
            for block in blocks(n, max(1, PAIRS_AT_ONCE // packed.shape[1])):
                packed += weights[:, block] @ self._pairs(block)
        full = np.empty((len(weights), b, b))
        full[:, self.upper[0], self.upper[1]] = packed
        full[:, self.upper[1], self.upper[0]] = packed
        return full

    def _pairs(self, rows: slice) -> FloatArray:
        return self.values[rows][:, self.upper[0]] * self.values[rows][:, self.upper[1]]

    def predictions(self, coef: FloatArray) -> FloatArray:
        """Predictions (C, n, k) from coefficients (C, b, k)."""
        return np.asarray(self.values @ coef)

    def transposed(self, per_row: FloatArray) -> FloatArray:
        """Σ_i φ_i r_i, shape (C, b, k), for values r on the rows, shape (C, n, k)."""
        return np.asarray(self.values.T @ per_row)


def gram(features: FloatArray, weights: FloatArray) -> FloatArray:
    """Σ w_i φ_i φ_iᵀ for one vector of weights, in blocks that fit into the cache."""
    n, b = features.shape
    roots, total = np.sqrt(weights), np.zeros((b, b), order="F")
    for block in blocks(n, GRAM_ROWS):
        total = dsyrk(1.0, (features[block] * roots[block, None]).T, beta=1.0, c=total, overwrite_c=1)
    return np.triu(total) + np.triu(total, 1).T


def minimize(
    loss: Loss, features: Features, weights: FloatArray, y: FloatArray, reg: FloatArray, start: FloatArray
) -> FloatArray:
    """The coefficients that minimize the weighted loss plus the regularization term."""
    if isinstance(loss, Squared):
        # With several columns the loss is half the sum of squares, so the regularization strength is doubled.
        return weighted_ridge(features, weights, y, reg if y.shape[1] == 1 else 2 * reg)
    if isinstance(loss, Tukey):
        # Iteratively reweighted least squares: each step minimizes a quadratic that touches the loss and lies above it.
        coef, predictions = start, features.predictions(start)
        for _ in range(IRLS_STEPS):
            coef = weighted_ridge(features, weights * loss.curvature(predictions, y), y, reg)
            before, predictions = predictions, features.predictions(coef)
            if np.max(np.abs(predictions - before)) < 1e-9:
                break
        return coef
    if isinstance(loss, Logistic):
        return _logistic(loss, features, weights, y, reg, start)
    return _hinge(loss, features, weights, y, reg, start)


def objective(
    loss: Loss, predictions: FloatArray, coef: FloatArray, weights: FloatArray, y: FloatArray, reg: FloatArray
) -> FloatArray:
    """Σ w_i ℓ_i + μ‖α‖² of each fit; shape (C,)."""
    risk = np.einsum("cn,cn->c", weights, loss.values(predictions, y))
    return np.asarray(risk + reg * np.square(coef).sum(axis=(1, 2)))


def weighted_ridge(features: Features, weights: FloatArray, y: FloatArray, reg: FloatArray) -> FloatArray:
    """Line 10: (Φᵀ W Φ + μ I)⁻¹ Φᵀ W y."""
    right = features.transposed(weights[:, :, None] * y)
    return _solve(features.grams(weights), right, reg)


def _solve(matrices: FloatArray, right: FloatArray, reg: FloatArray) -> FloatArray:
    """Solve (M + reg·I) x = right for a stack of matrices, which are changed in place."""
    diagonal = np.arange(matrices.shape[1])
    matrices[:, diagonal, diagonal] += reg[:, None]
    return np.linalg.solve(matrices, right)


def _logistic(
    loss: Logistic, features: Features, weights: FloatArray, y: FloatArray, reg: FloatArray, start: FloatArray
) -> FloatArray:
    """Newton's method with step halving.

    For k > 2 classes the Hessian diag(p) − ppᵀ of a row is replaced by diag(p(1 − p))·k/(k − 1), which is exact where
    the classes are equally likely. Each class then has its own linear system: k systems of size b instead of one of
    size kb. The mean over the classes is subtracted from the coefficients at the start and from each step: it changes
    no probability, and the regularization term is smallest where it is zero. Fits that have converged leave the loop.
    """
    truth, k = (y > 0).astype(np.float64), y.shape[1]
    coef = start.copy() if k == 1 else start - start.mean(axis=2, keepdims=True)
    active = np.arange(len(coef))
    for _ in range(NEWTON_STEPS):
        w, mu, now = weights[active], reg[active], coef[active]
        predictions = features.predictions(now)
        value = objective(loss, predictions, now, w, y, mu)
        probability = expit(predictions) if k == 1 else softmax(predictions, axis=-1)
        slope = features.transposed(w[:, :, None] * (probability - truth)) / LN2 + 2 * mu[:, None, None] * now
        curvature = probability * (1 - probability) * (1.0 if k == 1 else k / (k - 1))
        step = _newton_step(features, w[:, :, None] * curvature / LN2, slope, 2 * mu)
        if k > 1:
            step -= step.mean(axis=2, keepdims=True)
        gain = np.einsum("cbk,cbk->c", step, slope)
        moving = gain > NEWTON_TOL * value
        if not moving.any():
            break
        active = active[moving]
        w, mu, now, step, value, gain = (part[moving] for part in (w, mu, now, step, value, gain))
        # The longest of the steps 1, ½, ¼, … that lowers the objective of each fit; none where rounding prevents it.
        length = np.ones(len(active))
        for _ in range(HALVINGS):
            moved = now - length[:, None, None] * step
            worse = objective(loss, features.predictions(moved), moved, w, y, mu) > value - 1e-4 * length * gain
            if not worse.any():
                break
            length = np.where(worse, length / 2, length)
        coef[active] = np.where(worse[:, None, None], now, moved)
    return coef


def _newton_step(features: Features, curvature: FloatArray, slope: FloatArray, reg: FloatArray) -> FloatArray:
    """Newton steps (C, b, k), from one linear system for each fit and each column."""
    n_fits, n_rows, k = curvature.shape
    matrices = features.grams(curvature.transpose(0, 2, 1).reshape(n_fits * k, n_rows))
    right = slope.transpose(0, 2, 1).reshape(n_fits * k, -1, 1)
    solution = _solve(matrices, right, np.repeat(reg, k))
    return solution.reshape(n_fits, k, -1).transpose(0, 2, 1)


def _hinge(
    loss: Hinge, features: Features, weights: FloatArray, y: FloatArray, reg: FloatArray, start: FloatArray
) -> FloatArray:
    """The weighted support vector machine without intercept, by its dual.

    α = Σ v_i y_i φ_i / 2μ, where v minimizes ‖Σ v_i y_i φ_i‖² / 4μ − Σ v_i subject to 0 ≤ v_i ≤ w_i. This is a
    quadratic program with box constraints whose matrix has the rank of the features. It is solved for x, where
    v_i = w_i x_i and 0 ≤ x_i ≤ 1.
    """
    coef = np.empty((len(weights), features.values.shape[1], 1))
    for c, (w, mu) in enumerate(zip(weights, reg, strict=True)):
        rows = np.flatnonzero(w > 1e-12 * max(w.max(), 1e-300))
        if not len(rows):
            coef[c] = 0.0
            continue
        signed = features.values[rows] * (w[rows] * y[rows, 0])[:, None]
        # Divided by the mean weight, so that the tolerance of the solver is relative to the objective.
        unit = float(w[rows].mean())
        factor = signed / np.sqrt(2 * mu * unit)
        bounds = BoxSlab(np.ones(len(rows)), -1.0, len(rows) + 1.0)  # the sum is not constrained
        zero, half = np.zeros(len(rows)), np.full(len(rows), 0.5)
        # At the limit of rounding the solver divides by zero and stops; its result is compared with the start below.
        with np.errstate(divide="ignore", over="ignore"):
            x, _ = solve_box_slab_low_rank(factor, zero, w[rows] / unit, bounds, half, tol=1e-8)
        coef[c] = (x @ signed)[:, None] / (2 * mu)
    # Within the tolerance of the solver the start may be better than the solution.
    before = objective(loss, features.predictions(start), start, weights, y, reg)
    after = objective(loss, features.predictions(coef), coef, weights, y, reg)
    return np.where((after < before)[:, None, None], coef, start)
