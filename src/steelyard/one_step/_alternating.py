"""Alternating minimization of the upper bound (survey, algorithm 1), for a whole grid of hyperparameters at once.

With f = αᵀφ and g = βᵀψ the empirical bound, divided by m², is

    Ĵ(α, β)/m² = (mean_source g·ℓ(f, y))²/m² + βᵀHβ − 2hᵀβ,   H = mean_source ψψᵀ,  h = mean_target ψ,

up to the unknown constant mean_source w². The g-step minimizes Ĵ/m² + λ‖β‖² over β (this λ is the survey's λ/m²,
the `reg` of `ULSIF`), and its negative coefficients are then rounded up to zero. The f-step minimizes
mean_source g·ℓ + μ‖α‖². The two steps do not minimize the same objective (the f-step drops the square), and rounding
comes between them. Therefore each half-step is guaranteed only not to raise its own objective, the g-step before
rounding.

The alternation starts from the two-step solution: g is that of uLSIF (the g-step with every loss zero), and f is fitted
with the weights g. With m = ∞ it also ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from steelyard._numerics.losses import Loss, Squared, Tukey
from steelyard._typing import FloatArray, IntArray
from steelyard.one_step._minimize import Features, gram, minimize, objective, weighted_ridge

# Makes the loss from initial predictions (C, n, k), labels (n, k) and weights (C, n), because the scale of Tukey's loss
# depends on them.
MakeLoss = Callable[[FloatArray, FloatArray, FloatArray], Loss]


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """C hyperparameter settings that are fitted side by side, as arrays of shape (C,)."""

    reg: FloatArray  # μ
    ratio_reg: FloatArray  # λ/m²
    loss_bound: FloatArray  # m; infinity removes the coupling

    def __len__(self) -> int:
        return len(self.reg)

    def part(self, which: slice | IntArray) -> Hyperparameters:
        """A subset of the settings."""
        return Hyperparameters(self.reg[which], self.ratio_reg[which], self.loss_bound[which])


class RatioProblem:
    """The g-step: H, h and the eigendecomposition of H, which is computed once and reused for every λ."""

    def __init__(self, on_source: FloatArray, mass: FloatArray, on_target_mean: FloatArray) -> None:
        self.on_source, self.mass, self.h = on_source, mass, on_target_mean
        self.second = gram(on_source, mass)
        values, self.vectors = np.linalg.eigh(self.second)
        self.values = np.maximum(values, 0)
        self.rotated = self.vectors.T @ self.h

    def step(self, losses: FloatArray, settings: Hyperparameters) -> FloatArray:
        """Line 6: (H + uuᵀ/m² + λI)⁻¹ h with u = mean_source ψ·ℓ, by the Sherman–Morrison formula; shape (C, b)."""
        u = self.coupling(losses) @ self.vectors
        shifted = self.values + settings.ratio_reg[:, None]
        plain, along = self.rotated / shifted, u / shifted
        share = np.einsum("cb,cb->c", u, plain) / (settings.loss_bound**2 + np.einsum("cb,cb->c", u, along))
        return np.asarray((plain - share[:, None] * along) @ self.vectors.T)

    def coupling(self, losses: FloatArray) -> FloatArray:
        """u = mean_source ψ·ℓ for losses (C, n); shape (C, b)."""
        return np.asarray((losses * self.mass) @ self.on_source)

    def objective(self, beta: FloatArray, losses: FloatArray, settings: Hyperparameters) -> FloatArray:
        """Ĵ/m² + λ‖β‖², which the g-step minimizes."""
        weighted_risk = np.einsum("cb,cb->c", beta, self.coupling(losses))
        quadratic = np.einsum("cb,cb->c", beta @ self.second, beta) - 2 * beta @ self.h
        regularization = settings.ratio_reg * np.square(beta).sum(axis=1)
        return np.asarray(np.square(weighted_risk / settings.loss_bound) + quadratic + regularization)

    def weights(self, beta: FloatArray) -> FloatArray:
        """g at the source rows times their masses; shape (C, n)."""
        return np.asarray(beta @ self.on_source.T * self.mass)


@dataclass(frozen=True, eq=False)
class Round:
    """The objectives in one round, as arrays with one entry for each setting that had not converged before it."""

    total: FloatArray  # Ĵ/m² + λ‖β‖² + μ‖α‖²/m² after the round
    ratio_step: tuple[FloatArray, FloatArray]  # objective of the g-step before and after it, before rounding
    predictor_step: tuple[FloatArray, FloatArray]  # objective of the f-step before and after it


@dataclass(frozen=True, eq=False)
class Solution:
    """The best iterate of each setting and the history of the objectives."""

    coef: FloatArray  # α, (C, b, k)
    ratio_coef: FloatArray  # β, (C, b)
    loss: Loss
    rounds: list[Round]
    best_total: FloatArray  # (C,)
    best_round: IntArray  # (C,); 0 stands for the two-step solution
    start_total: FloatArray  # (C,), objective of the two-step solution


def fit_under_weights(
    make_loss: MakeLoss, features: Features, weights: FloatArray, y: FloatArray, reg: FloatArray
) -> tuple[FloatArray, Loss]:
    """Fit f with given weights (which include the factor 1/n), starting from the solution of ridge regression."""
    coef = weighted_ridge(features, weights, y, reg)
    loss = make_loss(features.predictions(coef), y, weights)
    if isinstance(loss, Squared) and y.shape[1] == 1:
        return coef, loss  # the start is the minimum
    return minimize(loss, features, weights, y, reg, coef), loss


def alternate(
    make_loss: MakeLoss,
    features: Features,
    ratio: RatioProblem,
    y: FloatArray,
    settings: Hyperparameters,
    *,
    max_iter: int,
    tol: float,
) -> Solution:
    """Run algorithm 1 from the two-step solution and keep the iterate with the smallest total objective.

    A setting leaves the loop after a round in which none of its predictions changed by more than `tol`.
    """
    beta = np.maximum(ratio.step(np.zeros((len(settings), len(y))), settings), 0)
    coef, loss = fit_under_weights(make_loss, features, ratio.weights(beta), y, settings.reg)
    predictions = features.predictions(coef)
    best = _Best(coef, beta, _total(loss, ratio, predictions, coef, beta, y, settings))
    start, rounds = best.total.copy(), []
    active = np.flatnonzero(np.isfinite(settings.loss_bound))
    for iteration in range(1, max_iter + 1):
        if not len(active):
            break
        now, before = settings.part(active), predictions[active]
        # Tukey's loss has one scale for each setting.
        kind = Tukey(np.asarray(loss.scale)[active]) if isinstance(loss, Tukey) else loss
        losses = kind.values(before, y)
        stepped = ratio.step(losses, now)
        ratio_step = ratio.objective(beta[active], losses, now), ratio.objective(stepped, losses, now)
        beta[active] = np.maximum(stepped, 0)
        weights = ratio.weights(beta[active])
        moved = minimize(kind, features, weights, y, now.reg, coef[active])
        after = features.predictions(moved)
        predictor_step = (
            objective(kind, before, coef[active], weights, y, now.reg),
            objective(kind, after, moved, weights, y, now.reg),
        )
        coef[active], predictions[active] = moved, after
        total = _total(kind, ratio, after, moved, beta[active], y, now)
        rounds.append(Round(total, ratio_step, predictor_step))
        best.keep(active, moved, beta[active], total, iteration)
        active = active[np.max(np.abs(after - before), axis=(1, 2)) > tol]
    return Solution(best.coef, best.beta, loss, rounds, best.total, best.round, start)


class _Best:
    """The iterate with the smallest total objective so far, for each setting."""

    def __init__(self, coef: FloatArray, beta: FloatArray, total: FloatArray) -> None:
        self.coef, self.beta, self.total = coef.copy(), beta.copy(), total.copy()
        self.round = np.zeros(len(total), dtype=np.intp)

    def keep(self, which: IntArray, coef: FloatArray, beta: FloatArray, total: FloatArray, iteration: int) -> None:
        better = (total < self.total[which]) | (iteration == 1)  # the two-step start does not count as an iterate
        places = which[better]
        self.coef[places], self.beta[places] = coef[better], beta[better]
        self.total[places], self.round[places] = total[better], iteration


def _total(
    loss: Loss,
    ratio: RatioProblem,
    predictions: FloatArray,
    coef: FloatArray,
    beta: FloatArray,
    y: FloatArray,
    settings: Hyperparameters,
) -> FloatArray:
    regularization = settings.reg * np.square(coef).sum(axis=(1, 2)) / settings.loss_bound**2
    return np.asarray(ratio.objective(beta, loss.values(predictions, y), settings) + regularization)
