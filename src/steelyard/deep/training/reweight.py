"""Learning to reweight: the weight of a row is how much a step on it would lower the validation loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from steelyard.deep.training.data import RowLosses
from steelyard.errors import InputError


def learned_weights(
    model: nn.Module,
    row_losses: RowLosses,
    train: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
) -> Tensor:
    """Weights of learning to reweight (Ren and others, 2018), with mean one.

    The weight of row i is max(0, −∂L_validation(θ − ∇_θ Σ ε_i ℓ_i)/∂ε_i) at ε = 0. There the virtual step has length
    zero, so the derivative is the product of two gradients at θ itself, ∇L_validation · ∇ℓ_i: no second model is
    needed, and the optimizer of the actual step may be any. All products come from one forward pass, as the change of
    every ℓ_i along ∇L_validation. Buffers, such as the running means of batch-norm, are not changed.

    Parameters
    ----------
    model : torch.nn.Module
        The classifier; parameters that do not require gradients count as constants.
    row_losses : callable
        From scores and labels to one loss per row.
    train : (X, y)
        Inputs and labels of the training batch.
    validation : (X, y)
        Inputs and labels of the validation batch.

    Returns
    -------
    weights : tensor of shape (n,)
        One non-negative weight per training row; all zero where no row would lower the validation loss.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import learned_weights
    >>> model = torch.nn.Linear(1, 2, bias=False)
    >>> X, y = torch.ones(2, 1), torch.tensor([0, 1])
    >>> row_losses = torch.nn.CrossEntropyLoss(reduction="none")
    >>> learned_weights(model, row_losses, (X, y), (X[:1], y[:1])).round().tolist()
    [2.0, 0.0]
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise InputError("Every parameter of the model is frozen: there is nothing to learn.")

    def losses_of(values: dict[str, Tensor], rows: tuple[Tensor, Tensor]) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        found = row_losses(functional_call(model, buffers | values, (rows[0],)), rows[1])
        if found.ndim != 1:
            raise InputError(
                f"The loss must give one number per row; got a tensor of shape {tuple(found.shape)}. Use the loss with "
                'reduction="none".'
            )
        return found

    with torch.enable_grad():
        loss = losses_of({}, validation).mean()
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    with torch.no_grad(), forward_ad.dual_level():
        make, take = forward_ad.make_dual, forward_ad.unpack_dual
        pairs = zip(parameters.items(), gradients, strict=True)
        along = {name: make(p.detach(), t) for (name, p), t in pairs}  # type: ignore[no-untyped-call]
        gain = take(losses_of(along, train)).tangent  # type: ignore[no-untyped-call]
    return mean_one(gain.clamp(min=0))


def mean_one(weights: Tensor) -> Tensor:
    """Weights divided by their mean; all zero if they sum to zero."""
    total = weights.sum()
    return torch.where(total > 0, weights * len(weights) / total, torch.zeros_like(weights))
