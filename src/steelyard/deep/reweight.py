"""Learning to reweight: rows count as much as a step on them would lower the validation loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from steelyard.deep.plan import RowLosses
from steelyard.errors import InputError


def learnt_weights(
    model: nn.Module,
    row_losses: RowLosses,
    train: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
) -> Tensor:
    """max(0, −∂L_validation(θ − ∇_θ Σ ε_i ℓ_i)/∂ε_i) at ε = 0, with mean one (Ren and others, 2018).

    At ε = 0 the virtual step goes nowhere, so the derivative is the product of two gradients at θ itself,
    ∇L_validation · ∇ℓ_i: no copy of the model is moved, and the optimiser of the real step may be any. All products
    come from one pass over the graph of Σ ε_i ∇ℓ_i. Buffers, such as the running means of batch-norm, are left as they
    are. Where no row would help, every weight is zero.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    values = list(parameters.values())
    if not values:
        raise InputError("Every parameter of the model is frozen: there is nothing to learn.")

    def losses_of(rows: tuple[Tensor, Tensor]) -> Tensor:
        buffers = {name: b.clone() for name, b in model.named_buffers()}
        found = row_losses(functional_call(model, (dict(model.named_parameters()), buffers), (rows[0],)), rows[1])
        if found.ndim != 1:
            raise InputError(
                f"Losses must be one a row; got a tensor of shape {tuple(found.shape)}. Use the loss with "
                'reduction="none".'
            )
        return found

    with torch.enable_grad():
        toward = torch.autograd.grad(losses_of(validation).mean(), values, allow_unused=True)
        losses = losses_of(train)
        epsilon = torch.zeros_like(losses, requires_grad=True)
        steps = torch.autograd.grad((epsilon * losses).sum(), values, create_graph=True, allow_unused=True)
        pairs = [(s, t) for s, t in zip(steps, toward, strict=True) if s is not None and t is not None]
        (gain,) = torch.autograd.grad(torch.stack([(s * t).sum() for s, t in pairs]).sum(), epsilon)
    return mean_one(gain.detach().clamp(min=0))


def mean_one(weights: Tensor) -> Tensor:
    """Weights with mean one; all zero where they were."""
    total = weights.sum()
    return torch.where(total > 0, weights * len(weights) / total, torch.zeros_like(weights))
