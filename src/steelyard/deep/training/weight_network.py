"""Steps with a weight network g: deep one-step (algorithm 2) and the two-step methods with a domain classifier.

Each function takes the networks and the data and returns the step function of a phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.deep.training.data import Batch, TrainingData
from steelyard.deep.training.modes import evaluating
from steelyard.deep.training.phases import Networks, Step
from steelyard.deep.training.reweight import mean_one
from steelyard.errors import InputError


def bounded_ratio(scores: Tensor, bound: float | None) -> Tensor:
    """g in (0, G) from the scores of the network, or the scores themselves without a bound.

    G·r/(r + G − 1) with r = exp(score). If scores are the log-odds of target and source, this is the relative density
    ratio with η = 1/G, so that g continues from the domain classifier it was pretrained as.
    """
    return scores if bound is None else bound * torch.sigmoid(scores - math.log(bound - 1))


def regularizer(g: nn.Module, reg: float) -> Callable[[], Tensor | float]:
    """λ times the sum of squares of the trained weights of g, like λβᵀβ in algorithm 1; biases are left out."""
    if not reg:
        return lambda: 0.0
    trained = [p for name, p in g.named_parameters() if p.requires_grad and not name.endswith("bias")]
    return lambda: reg * torch.stack([p.square().sum() for p in trained]).sum()


def classify_domains(networks: Networks, data: TrainingData, reg: float = 0.0) -> Step:
    """One step of g as a domain classifier: logistic loss of target against source rows, plus the regularizer."""
    g = networks["g"]
    with evaluating(g), torch.no_grad():
        shape = tuple(g(data.X[:2]).shape)
    if shape != (len(data.X[:2]), 1):
        raise InputError(f"g must have one output per row; {len(data.X[:2])} rows gave a tensor of shape {shape}.")

    regularization = regularizer(g, reg)

    def step(batch: Batch) -> tuple[Tensor, None]:
        source, target = g(batch.X)[:, 0], g(batch.X_target)[:, 0]
        return F.softplus(source).mean() / 2 + F.softplus(-target).mean() / 2 + regularization(), None

    return step


def minimize_bound(
    networks: Networks, data: TrainingData, loss_bound: float = 1.0, g_bound: float | None = None, reg: float = 0.0
) -> Step:
    """One g-step: ∇_g of the upper bound Ĵ = (mean gℓ)² + m²(mean g² − 2 mean g(target)), without its constant.

    f is fixed, and the convolutions of g stay as the domain classifier left them. On a mini-batch the square of a mean
    is too large by the variance of that mean.

    A loss counts as at most m. min(ℓ, m) bounds the zero-one loss as ℓ does, but more tightly, and then no row whose
    density ratio exceeds one loses its weight: the optimal g is w − E[gℓ]·ℓ/m² where that is positive. With unbounded
    losses, rows that f has not learned yet may lose their weight, and f then never learns them.

    With a bound G the objective is Ĵ/G² plus the regularizer: its gradient in the scores does not grow with G, so a
    learning rate that suits the domain classifier does not push g to zero, where the sigmoid has no gradient.
    """
    f, g = networks["f"], networks["g"]
    freeze = getattr(g, "freeze_convolutions", None)
    if freeze is not None:
        freeze()
    unit = 1.0 if g_bound is None else g_bound**2
    regularization = regularizer(g, reg)

    def step(batch: Batch) -> tuple[Tensor, None]:
        with evaluating(f), torch.no_grad():
            losses = data.row_losses(f(batch.X), batch.y).clamp(max=loss_bound)
        source, target = (bounded_ratio(g(X)[:, 0], g_bound) for X in (batch.X, batch.X_target))
        bound = (source * losses).mean() ** 2 + loss_bound**2 * (source.square().mean() - 2 * target.mean())
        return bound / unit + regularization(), None

    return step


def relative_ratio(scores: Tensor, eta: float = 0.0, flattening: float = 1.0) -> Tensor:
    """w_η^γ of RIWERM or EIWERM, where w_η = r/(ηr + 1 − η).

    r, the density ratio p_target/p_source, is the odds of the domain classifier g, whose batches hold as many target
    rows as source rows; the scores are its log-odds.
    """
    odds = scores.clamp(-30, 30).exp()
    return (odds / (eta * odds + 1 - eta)) ** flattening


def weight_by(networks: Networks, data: TrainingData, ratio: Callable[[Tensor], Tensor]) -> Step:
    """One f-step: weights are a function of the scores of g, negative ones zero, with mean one in the batch.

    All weights are zero where the function is nowhere positive.
    """
    f, g = networks["f"], networks["g"]

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        with evaluating(g), torch.no_grad():
            weights = mean_one(ratio(g(batch.X)[:, 0]).clamp(min=0))
        return data.row_losses(f(batch.X), batch.y), weights

    return step
