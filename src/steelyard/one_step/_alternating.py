"""Alternating minimization of the upper bound (survey, algorithm 1), for a whole grid of settings at once.

With f = αᵀφ and g = βᵀψ the empirical bound, divided by m², is

    Ĵ(α, β)/m² = (mean_source g·ℓ(f, y))²/m² + βᵀHβ − 2hᵀβ,   H = mean_source ψψᵀ,  h = mean_target ψ,

up to the unknown mean_source w². The g-step minimizes Ĵ/m² + λ‖β‖² over β (λ is the survey's λ/m², the `reg` of
`ULSIF`), and its coefficients are then rounded up to zero. The f-step minimizes mean_source g·ℓ + μ‖α‖². The two
do not share an objective (the f-step drops the square) and rounding comes between them, so only each half-step is
sure not to raise its own objective, the g-step before rounding.

The start is the two-step solution: g is that of uLSIF (the g-step with every loss zero), f is fitted under it. With
m = ∞ it is also the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from steelyard._numerics.losses import Loss, Squared, Tukey
from steelyard._typing import FloatArray, IntArray
from steelyard.one_step._minimize import Features, gram, minimize, objective, weighted_ridge

# Makes the loss from first predictions (C, n, k), labels (n, k) and weights (C, n): Tukey's has a scale that depends
# on them.
MakeLoss = Callable[[FloatArray, FloatArray, FloatArray], Loss]


@dataclass(frozen=True, eq=False)
class Settings:
    """C settings to fit side by side, arrays of shape (C,)."""

    reg: FloatArray  # μ
    ratio_reg: FloatArray  # λ/m²
    loss_bound: FloatArray  # m; infinity switches the coupling off

    def __len__(self) -> int:
        return len(self.reg)

    def part(self, which: slice | IntArray) -> Settings:
        """Some of the settings."""
        return Settings(self.reg[which], self.ratio_reg[which], self.loss_bound[which])


class RatioProblem:
    """The g-step after one factorization: H and h, and H's eigenvectors, which serve every λ."""

    def __init__(self, on_source: FloatArray, mass: FloatArray, on_target_mean: FloatArray) -> None:
        self.on_source, self.mass, self.h = on_source, mass, on_target_mean
        self.second = gram(on_source, mass)
        values, self.vectors = np.linalg.eigh(self.second)
        self.values = np.maximum(values, 0)
        self.rotated = self.vectors.T @ self.h

    def step(self, losses: FloatArray, settings: Settings) -> FloatArray:
        """Line 6: (H + uuᵀ/m² + λI)⁻¹ h with u = mean ψ·ℓ, by Sherman and Morrison's formula; shape (C, b)."""
        u = self.coupling(losses) @ self.vectors
        shifted = self.values + settings.ratio_reg[:, None]
        plain, along = self.rotated / shifted, u / shifted
        share = np.einsum("cb,cb->c", u, plain) / (settings.loss_bound**2 + np.einsum("cb,cb->c", u, along))
        return np.asarray((plain - share[:, None] * along) @ self.vectors.T)

    def coupling(self, losses: FloatArray) -> FloatArray:
        """u = mean_source ψ·ℓ of losses (C, n), shape (C, b)."""
        return np.asarray((losses * self.mass) @ self.on_source)

    def objective(self, beta: FloatArray, losses: FloatArray, settings: Settings) -> FloatArray:
        """Ĵ/m² + λ‖β‖², what the g-step minimizes."""
        weighted_risk = np.einsum("cb,cb->c", beta, self.coupling(losses))
        quadratic = np.einsum("cb,cb->c", beta @ self.second, beta) - 2 * beta @ self.h
        penalty = settings.ratio_reg * np.square(beta).sum(axis=1)
        return np.asarray(np.square(weighted_risk / settings.loss_bound) + quadratic + penalty)

    def weights(self, beta: FloatArray) -> FloatArray:
        """g on the source rows times their masses, shape (C, n)."""
        return np.asarray(beta @ self.on_source.T * self.mass)


@dataclass(frozen=True, eq=False)
class Round:
    """What one round did to the objectives, arrays with an entry for each setting that was still moving."""

    total: FloatArray  # Ĵ/m² + λ‖β‖² + μ‖α‖²/m² after it
    ratio_step: tuple[FloatArray, FloatArray]  # the g-step's objective before and after, coefficients not yet rounded
    predictor_step: tuple[FloatArray, FloatArray]  # the f-step's objective before and after


@dataclass(frozen=True, eq=False)
class Solution:
    """The best iterate of each setting, and the history."""

    coef: FloatArray  # α, (C, b, k)
    ratio_coef: FloatArray  # β, (C, b)
    loss: Loss
    rounds: list[Round]
    best_total: FloatArray  # (C,)
    best_round: IntArray  # (C,); 0 is the two-step solution
    start_total: FloatArray  # (C,), of the two-step solution


def fit_under_weights(
    make_loss: MakeLoss, features: Features, weights: FloatArray, y: FloatArray, reg: FloatArray
) -> tuple[FloatArray, Loss]:
    """f under given weights (which contain the 1/n), from the ridge solution."""
    coef = weighted_ridge(features, weights, y, reg)
    loss = make_loss(features.predictions(coef), y, weights)
    if isinstance(loss, Squared) and y.shape[1] == 1:
        return coef, loss  # there already
    return minimize(loss, features, weights, y, reg, coef), loss


def alternate(
    make_loss: MakeLoss,
    features: Features,
    ratio: RatioProblem,
    y: FloatArray,
    settings: Settings,
    *,
    max_iter: int,
    tol: float,
) -> Solution:
    """Run algorithm 1 from the two-step solution; keep the iterate with the least total objective.

    Settings whose predictions move by no more than `tol` (largest change over a round) leave the loop.
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
        now, kind, before = settings.part(active), _part(loss, active), predictions[active]
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
    """The iterate with the least total objective so far, for each setting."""

    def __init__(self, coef: FloatArray, beta: FloatArray, total: FloatArray) -> None:
        self.coef, self.beta, self.total = coef.copy(), beta.copy(), total.copy()
        self.round = np.zeros(len(total), dtype=np.intp)

    def keep(self, which: IntArray, coef: FloatArray, beta: FloatArray, total: FloatArray, iteration: int) -> None:
        better = (total < self.total[which]) | (iteration == 1)  # the start is not an iterate
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
    settings: Settings,
) -> FloatArray:
    penalty = settings.reg * np.square(coef).sum(axis=(1, 2)) / settings.loss_bound**2
    return np.asarray(ratio.objective(beta, loss.values(predictions, y), settings) + penalty)


def _part(loss: Loss, which: IntArray) -> Loss:
    """The loss of some of the settings: Tukey's has a scale for each."""
    return Tukey(np.asarray(loss.scale)[which]) if isinstance(loss, Tukey) else loss
