"""The losses of the upper bound (survey, section 5.1), and which surrogate bounds which risk.

The bound holds for a risk whose loss is at most m, and is minimized through a surrogate loss that lies above it:

=============  ======================================  =====================================================
risk           m                                       surrogates that bound it
=============  ======================================  =====================================================
zero-one       1                                       hinge; (1 − yf)²; the natural cross-entropy over ln 2
Tukey's        1 (rescaled as in the survey)           itself; the square of the residual, if ρ² ≥ 3
=============  ======================================  =====================================================

The natural cross-entropy does not bound the zero-one loss: the true class of a misclassified row can have a
probability just below ½, and −ln ½ = 0.69. And 1 − (1 − u²/ρ²)³ ≈ 3u²/ρ² for small u, which is below u² for ρ² ≥ 3
only.

Predictions have shape (..., n, k) and labels (n, k): one column for regression and two classes (labels −1, 1), one
column per class otherwise (1 for the row's class, −1 elsewhere). Values have shape (..., n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from steelyard._typing import FloatArray

LN2 = float(np.log(2))
# With a residual scale of zero (more than half of the rows fitted exactly) all remaining rows would be outliers.
LEAST_RESIDUAL_SCALE = 1e-3


@dataclass(frozen=True)
class Squared:
    """(f − y)²; for k > 2 one-against-the-rest columns, half the sum of their squares.

    A misclassified row has f_true ≤ f_false for some false class, and then (1 − f_true)² + (1 + f_false)² ≥ 2: half
    the sum bounds the zero-one loss, as (1 − yf)² does for two classes.
    """

    def values(self, predictions: FloatArray, y: FloatArray) -> FloatArray:
        """The loss of each row."""
        residual = predictions - y
        if y.shape[1] == 1:
            return np.square(residual[..., 0])
        return np.asarray(np.square(residual).sum(axis=-1) / 2)

    def largest(self, reach: float, largest_label: float) -> float:
        """Upper limit of the loss where |f| ≤ reach."""
        return (reach + largest_label) ** 2

    def lipschitz(self, reach: float, largest_label: float) -> float:
        """Lipschitz constant in f where |f| ≤ reach."""
        return 2 * (reach + largest_label)


@dataclass(frozen=True, eq=False)
class Tukey:
    """Tukey's bisquare, rescaled to at most one: min(1 − (1 − u²)³, 1) with u = (f − y) / scale.

    `scale` is ρ times the scale of the residuals; an array has one scale for each leading index of the predictions.
    """

    scale: float | FloatArray

    def values(self, predictions: FloatArray, y: FloatArray) -> FloatArray:
        """The loss of each row."""
        left = self._left(predictions, y)
        return np.asarray(1 - left**3)

    def curvature(self, predictions: FloatArray, y: FloatArray) -> FloatArray:
        """Factor c of the parabola c·(f − y)² + const. that touches the loss at each row and lies above it.

        It exists because the loss is concave in the square of the residual.
        """
        return np.asarray(3 * np.square(self._left(predictions, y)) / np.square(self._column()))

    def _left(self, predictions: FloatArray, y: FloatArray) -> FloatArray:
        return np.maximum(0, 1 - np.square((predictions[..., 0] - y[:, 0]) / self._column()))

    def _column(self) -> FloatArray:
        return np.asarray(self.scale, dtype=np.float64)[..., None]

    def largest(self, reach: float, largest_label: float) -> float:
        """Upper limit of the loss."""
        return 1.0

    def lipschitz(self, reach: float, largest_label: float) -> float:
        """Lipschitz constant in f: the largest slope, at u = 1/√5."""
        return float(np.max(6 / np.sqrt(5) * (4 / 5) ** 2 / np.asarray(self.scale)))


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 − yf), for two classes."""

    def values(self, predictions: FloatArray, y: FloatArray) -> FloatArray:
        """The loss of each row."""
        return np.maximum(0, 1 - y[:, 0] * predictions[..., 0])

    def largest(self, reach: float, largest_label: float) -> float:
        """Upper limit of the loss where |f| ≤ reach."""
        return 1 + reach

    def lipschitz(self, reach: float, largest_label: float) -> float:
        """Lipschitz constant in f."""
        return 1.0


@dataclass(frozen=True)
class Logistic:
    """Cross-entropy in bits: log₂(1 + exp(−yf)) for two classes, that of the softmax for more.

    In bits it bounds the zero-one loss: the true class of a misclassified row has a probability of at most ½, so the
    loss is at least one bit.
    """

    def values(self, predictions: FloatArray, y: FloatArray) -> FloatArray:
        """The loss of each row."""
        if y.shape[1] == 1:
            return np.asarray(np.logaddexp(0, -y[:, 0] * predictions[..., 0]) / LN2)
        of_truth = np.einsum("...nk,nk->...n", predictions, (y > 0).astype(np.float64))
        return np.asarray((logsumexp(predictions, axis=-1) - of_truth) / LN2)

    def largest(self, reach: float, largest_label: float) -> float:
        """Upper limit of the loss where |f| ≤ reach, for two classes."""
        return float(np.logaddexp(0, reach) / LN2)

    def lipschitz(self, reach: float, largest_label: float) -> float:
        """Lipschitz constant in f, for two classes."""
        return 1 / LN2


Loss = Squared | Tukey | Hinge | Logistic


def zero_one(predictions: FloatArray, y: FloatArray) -> FloatArray:
    """The zero-one loss: 1 where the predicted class is wrong (a tie of two classes is wrong), 0 elsewhere."""
    if y.shape[1] == 1:
        return (y[:, 0] * predictions[..., 0] <= 0).astype(np.float64)
    return (np.argmax(predictions, axis=-1) != np.argmax(y, axis=1)).astype(np.float64)


def weighted_median(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The smallest value such that half of the weight is at or below it, for each row of (C, n); shape (C,)."""
    order = np.argsort(values, axis=-1)
    share = np.cumsum(np.take_along_axis(np.broadcast_to(weights, values.shape), order, axis=-1), axis=-1)
    half = np.argmax(share >= share[..., -1:] / 2, axis=-1)[..., None]
    return np.asarray(np.take_along_axis(np.take_along_axis(values, order, axis=-1), half, axis=-1)[..., 0])


def robust_scale(residuals: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted median absolute residual over 0.6745, a robust standard deviation of Gaussian noise; shape (C,)."""
    return weighted_median(np.abs(residuals), weights) / 0.6745
