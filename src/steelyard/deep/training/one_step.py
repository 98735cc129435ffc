"""One-step by gradients: a classifier f and a weight model g that lower one upper bound in turn (algorithm 2).

Also the two-step methods that it is compared with, whose ratio is a network that tells source from target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.deep.reweight import mean_one
from steelyard.deep.training.phases import Batch, Networks, Step, Task
from steelyard.deep.training.steps import evaluating
from steelyard.errors import InputError


def upper_bound(weights: Tensor, losses: Tensor, target_weights: Tensor, loss_bound: float = 1.0) -> Tensor:
    """Ĵ = (mean gℓ)² + m²(mean g² − 2 mean g(target)), without its constant.

    On a mini-batch the square of a mean is too large by the variance of that mean.
    """
    return (weights * losses).mean() ** 2 + loss_bound**2 * (weights.square().mean() - 2 * target_weights.mean())


def bounded_ratio(scores: Tensor, bound: float | None) -> Tensor:
    """g in (0, G) from the scores of the network, or the scores themselves where there is no bound.

    G·r/(r + G − 1) with r = exp(score): scores that are the log-odds of target and source are the relative ratio with
    η = 1/G, so that g goes on from its pretraining.
    """
    return scores if bound is None else bound * torch.sigmoid(scores - math.log(bound - 1))


def penalty_of(g: nn.Module, penalty: float) -> Callable[[], Tensor | float]:
    """λ times the squares of the weights of g that learn, like λβᵀβ in algorithm 1; biases are free."""
    if not penalty:
        return lambda: 0.0
    learning = [p for name, p in g.named_parameters() if p.requires_grad and not name.endswith("bias")]
    return lambda: penalty * torch.stack([p.square().sum() for p in learning]).sum()


def discriminate(networks: Networks, task: Task, penalty: float = 0.0) -> Step:
    """g learns to tell target rows from source rows, by logistic loss and a penalty on its weights."""
    g = networks["g"]
    with evaluating(g), torch.no_grad():
        shape = tuple(g(task.X[:2]).shape)
    if shape != (len(task.X[:2]), 1):
        raise InputError(f"g must have one output a row; {len(task.X[:2])} rows gave a tensor of shape {shape}.")

    penalized = penalty_of(g, penalty)

    def step(batch: Batch) -> tuple[Tensor, None]:
        here, there = g(batch.X)[:, 0], g(batch.target_X)[:, 0]
        return F.softplus(here).mean() / 2 + F.softplus(-there).mean() / 2 + penalized(), None

    return step


def lower_bound_by_g(
    networks: Networks, task: Task, loss_bound: float = 1.0, g_bound: float | None = None, penalty: float = 0.0
) -> Step:
    """One g-step: ∇_g of Ĵ with f as it is; the convolutions of g stay as the discriminator left them.

    A loss counts as m at most. min(ℓ, m) bounds the zero-one loss as ℓ does, more closely, and no row whose ratio is
    above one is then given up: the best g is w − E[gℓ]·ℓ/m² where that is positive. With losses that have no bound,
    rows that f does not know yet may lose their weight, and f then never learns them.

    With a bound G the objective is Ĵ/G², to which the penalty is added: its slope in the scores does not grow with G,
    and a step that is right for the discriminator does not throw g to zero, where a sigmoid has no slope to come back
    by.
    """
    f, g = networks["f"], networks["g"]
    freeze = getattr(g, "freeze_convolutions", None)
    if freeze is not None:
        freeze()
    unit = 1.0 if g_bound is None else g_bound**2
    penalized = penalty_of(g, penalty)

    def step(batch: Batch) -> tuple[Tensor, None]:
        with evaluating(f), torch.no_grad():
            losses = task.row_losses(f(batch.X), batch.y).clamp(max=loss_bound)
        here, there = (bounded_ratio(g(X)[:, 0], g_bound) for X in (batch.X, batch.target_X))
        return upper_bound(here, losses, there, loss_bound) / unit + penalized(), None

    return step


def weighted_by_g(networks: Networks, task: Task, g_bound: float | None = None) -> Step:
    """One f-step: weights max(g, 0) with mean one in the batch; where g is nowhere positive the batch is left out."""
    f, g = networks["f"], networks["g"]

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        with evaluating(g), torch.no_grad():
            weights = mean_one(bounded_ratio(g(batch.X)[:, 0], g_bound).clamp(min=0))
        return task.row_losses(f(batch.X), batch.y), weights

    return step


def weighted_by_odds(networks: Networks, task: Task, eta: float = 0.0, flattening: float = 1.0) -> Step:
    """One f-step of RIWERM or EIWERM: weights w_η^γ with mean one in the batch, where w_η = r/(ηr + 1 − η).

    r = p_target/p_source as the discriminator g has it, which sees as many rows of one side as of the other: its odds.
    """
    f, g = networks["f"], networks["g"]

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        with evaluating(g), torch.no_grad():
            odds = g(batch.X)[:, 0].clamp(-30, 30).exp()
            weights = mean_one((odds / (eta * odds + 1 - eta)) ** flattening)
        return task.row_losses(f(batch.X), batch.y), weights

    return step
