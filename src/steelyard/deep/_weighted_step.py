"""The weights of one optimizer step whose rows come in micro-batches, for the training loops of other packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.training.modes import evaluating
from steelyard.errors import InputError


def weigh_micro_batches(
    dynamic: DynamicWeights, model: nn.Module, losses_of: Callable[[Any], Tensor], batches: list[Any], clean: Any
) -> list[Tensor]:
    """Weights of the rows of each micro-batch of a step, from losses in evaluation mode without gradients."""
    with evaluating(model), torch.no_grad():
        losses = [losses_of(batch) for batch in (*batches, clean)]
    for part in losses:
        if part.ndim != 1:
            raise InputError(
                f"row_losses must return one loss per row; got a tensor of shape {tuple(part.shape)}. Use the loss "
                'with reduction="none"; take the mean over the tokens or pixels of a row.'
            )
    weights = dynamic(torch.cat(losses[:-1]), losses[-1])
    return list(torch.split(weights, [len(part) for part in losses[:-1]]))
