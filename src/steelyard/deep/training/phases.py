"""What a method consists of: networks, and the phases in which they are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from steelyard.deep.training.data import Batch, TrainingData

Networks = dict[str, nn.Module]
# A batch to its losses and the weights of its source rows. Weights are None where the losses are those of target rows,
# or one number, the whole objective.
Step = Callable[[Batch], tuple[Tensor, Tensor | None]]
Begin = Callable[[Networks, TrainingData], Step]


@dataclass(frozen=True, eq=False)
class Phase:
    """Epochs in which one network is trained with one step function.

    Parameters
    ----------
    name : str
        Name of the phase in the history.
    learns : str
        Name of the network whose parameters the optimizer updates.
    epochs : int
        Number of epochs.
    begin : callable
        From the networks and the `TrainingData` to the step function: a `Batch` to one loss per row and one weight per
        source row (weights may be None). It is called when the phase begins and again when it is resumed, so whatever
        stays fixed during the phase, such as weights from a pretrained network, is computed there.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import Phase
    >>> def begin(networks, data):
    ...     def step(batch):
    ...         losses = data.row_losses(networks["f"](batch.X), batch.y)
    ...         return losses, torch.ones_like(losses)
    ...     return step
    >>> Phase("plain", "f", epochs=10, begin=begin).epochs
    10
    """

    name: str
    learns: str
    epochs: int
    begin: Begin


@dataclass(frozen=True, eq=False)
class TrainingMethod:
    """Networks and the phases in which they are trained.

    Parameters
    ----------
    name : str
        Name of the method, stored in checkpoints.
    networks : dict of str to torch.nn.Module
        Networks by name; ``networks["f"]`` is the classifier, which evaluation uses.
    phases : list of Phase
        Phases in their order.
    options : dict, default={}
        Further settings that a checkpoint must agree with.

    Attributes
    ----------
    epochs : int
        Number of epochs of all phases together.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import baseline
    >>> method = baseline("uniform", torch.nn.Linear(2, 3), epochs=5)
    >>> method.name, method.epochs, list(method.networks)
    ('uniform', 5, ['f'])
    """

    name: str
    networks: Networks
    phases: list[Phase]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def epochs(self) -> int:
        """Number of epochs of all phases together."""
        return sum(phase.epochs for phase in self.phases)
