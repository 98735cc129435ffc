"""The shares of learners in a combination: least squares under weights, shrunk towards equal shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard._typing import FloatArray, IntArray

# Strengths of the shrinkage, in units of the mean squared error of the learners; with the last one shares are equal.
SHRINKAGES = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, np.inf)
# A learner with less changes nothing, but it would have to be fitted, kept and explained.
LEAST_SHARE = 0.005


@dataclass(frozen=True, eq=False)
class Shares:
    """The shares of a combination.

    Attributes
    ----------
    values : array of shape (n_learners,)
        Non-negative shares with sum one, from all rows; those below 0.005 are zero.
    shrinkage : float
        The strength of the shrinkage that was chosen; with infinity all shares are equal.
    by_fold : array of shape (n_draws, n_folds, n_learners)
        The shares from the rows of all other folds.
    """

    values: FloatArray
    shrinkage: float
    by_fold: FloatArray

    def combine(self, predictions: FloatArray, folds: Sequence[IntArray]) -> FloatArray:
        """Held-out predictions of the combination: the shares of a row come from the rows of the other folds.

        Parameters
        ----------
        predictions : array of shape (n_draws, n_learners, n_rows, ...)
            Held-out predictions of each learner.
        folds : sequence of arrays of shape (n_rows,)
            The fold of each row, for each draw.

        Returns
        -------
        array of shape (n_draws, n_rows, ...)
        """
        return np.stack(
            [
                np.einsum("nk,kn...->n...", shares[fold], found)
                for shares, fold, found in zip(self.by_fold, folds, predictions, strict=True)
            ]
        )


def least_squares_shares(moments: FloatArray) -> FloatArray:
    """Minimize βᵀMβ over non-negative β with sum one; M is positive semidefinite.

    With x = argmin ½xᵀMx − 1ᵀx over x ≥ 0, a problem of non-negative least squares, β = x / Σx satisfies the optimality
    conditions. Equal shares where M is zero.

    Parameters
    ----------
    moments : array of shape (n_learners, n_learners)
        M.

    Returns
    -------
    array of shape (n_learners,)
    """
    from scipy.optimize import nnls

    n_learners = len(moments)
    scale = float(np.trace(moments)) / n_learners
    if not scale > 0:
        return np.full(n_learners, 1 / n_learners)
    # The learners may predict exactly the same: without the small ridge their shares would not be unique.
    factor = np.linalg.cholesky(moments / scale + 1e-9 * np.eye(n_learners)).T
    found, _ = nnls(factor, np.linalg.solve(factor.T, np.ones(n_learners)))
    return np.asarray(found / found.sum())


def fit_shares(errors: FloatArray, weights: FloatArray, folds: Sequence[IntArray]) -> Shares:
    """Shares of learners by their held-out errors, shrunk towards equal shares as far as held-out rows prefer.

    The shares β minimize Σ_i w_i ‖Σ_k β_k e_ki‖² / Σw + s·τ·‖β − 1/K‖² over β ≥ 0 with Σβ = 1, where e are the errors
    (prediction minus truth: a number, or the probability of each class) and τ is the mean squared error of the K
    learners. For probabilities the first term is the Brier score of the combination, a proper loss. Each strength s is
    evaluated on the rows of each fold with the shares of the other folds. As Σβ = 1, the loss of shares in a fold is
    a quadratic form in β, so that each row is looked at once.

    Parameters
    ----------
    errors : array of shape (n_draws, n_learners, n_rows, n_outputs)
        Held-out errors of each learner, for each draw of the folds.
    weights : array of shape (n_rows,)
        Weight of each row.
    folds : sequence of arrays of shape (n_rows,)
        The fold of each row, for each draw.

    Returns
    -------
    Shares
    """
    n_draws, n_learners = errors.shape[:2]
    n_folds = 1 + int(max(fold.max() for fold in folds))
    moments = np.zeros((n_draws, n_folds, n_learners, n_learners))
    for draw, fold in enumerate(folds):
        for f in range(n_folds):
            rows = errors[draw][:, fold == f] * np.sqrt(weights[fold == f] / weights.sum())[:, None]
            flat = rows.reshape(n_learners, -1)
            moments[draw, f] = flat @ flat.T
    others = moments.sum(axis=1, keepdims=True) - moments  # of the rows outside each fold
    total = moments.sum(axis=1).mean(axis=0)
    scale = float(np.trace(total)) / n_learners

    def shrunk(sums: FloatArray, strength: float) -> FloatArray:
        if np.isinf(strength):
            return np.full(n_learners, 1 / n_learners)
        # On the simplex ‖β − 1/K‖² and ‖β‖² differ by a constant.
        return least_squares_shares(sums + strength * scale * np.eye(n_learners))

    by_fold = np.array([[[shrunk(sums, strength) for sums in draw] for draw in others] for strength in SHRINKAGES])
    losses = np.einsum("sdfk,dfkl,sdfl->s", by_fold, moments, by_fold)
    best = len(losses) - 1 - int(np.argmin(losses[::-1]))  # of equal ones the strongest
    values = shrunk(total, SHRINKAGES[best])
    values = np.where(values < LEAST_SHARE, 0.0, values)
    return Shares(values / values.sum(), SHRINKAGES[best], by_fold[best])
