"""Learning to reweight: rows count as much as a step on them would lower the validation loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from steelyard.deep.training.phases import RowLosses
from steelyard.errors import InputError


def learned_weights(
    model: nn.Module,
    row_losses: RowLosses,
    train: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
) -> Tensor:
    """max(0, −∂L_validation(θ − ∇_θ Σ ε_i ℓ_i)/∂ε_i) at ε = 0, with mean one (Ren and others, 2018).

    At ε = 0 the virtual step goes nowhere, so the derivative is the product of two gradients at θ itself,
    ∇L_validation · ∇ℓ_i: no copy of the model is moved, and the optimizer of the real step may be any. All products
    come from one pass forward, as the change of every ℓ_i along ∇L_validation. Buffers, such as the running means of
    batch-norm, are left as they are. Where no row would help, every weight is zero.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise InputError("Every parameter of the model is frozen: there is nothing to learn.")

    def losses_of(values: dict[str, Tensor], rows: tuple[Tensor, Tensor]) -> Tensor:
        copies = {name: buffer.clone() for name, buffer in model.named_buffers()}
        found = row_losses(functional_call(model, copies | values, (rows[0],)), rows[1])
        if found.ndim != 1:
            raise InputError(
                f"Losses must be one a row; got a tensor of shape {tuple(found.shape)}. Use the loss with "
                'reduction="none".'
            )
        return found

    with torch.enable_grad():
        loss = losses_of({}, validation).mean()
        toward = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    with torch.no_grad(), forward_ad.dual_level():
        make, take = forward_ad.make_dual, forward_ad.unpack_dual
        pairs = zip(parameters.items(), toward, strict=True)
        along = {name: make(p.detach(), t) for (name, p), t in pairs}  # type: ignore[no-untyped-call]
        gain = take(losses_of(along, train)).tangent  # type: ignore[no-untyped-call]
    return mean_one(gain.clamp(min=0))


def mean_one(weights: Tensor) -> Tensor:
    """Weights with mean one; all zero where they were."""
    total = weights.sum()
    return torch.where(total > 0, weights * len(weights) / total, torch.zeros_like(weights))
