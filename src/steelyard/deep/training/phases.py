"""What is learned from, and in which order: tasks, batches and the phases of a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.errors import InputError, MissingTargetError

RowLosses = Callable[[Tensor, Tensor], Tensor]  # scores and labels to one loss a row


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy of each row."""
    return F.cross_entropy(scores, labels, reduction="none")


@dataclass(frozen=True, eq=False)
class Task:
    """Labeled source rows and target rows, all on one device.

    Parameters
    ----------
    X, y : inputs of the source, one row first, and their classes as whole numbers from 0
    target_X, target_y : rows of the target; `target_y` where the method needs their labels
    row_losses : scores and labels to one loss a row; cross-entropy unless told
    """

    X: Tensor
    y: Tensor
    target_X: Tensor
    target_y: Tensor | None = None
    row_losses: RowLosses = cross_entropy

    def __post_init__(self) -> None:
        _require_labels(self.X, self.y, "source")
        if not len(self.target_X):
            raise InputError("The target has no rows; at least one is needed.")
        if self.target_X.shape[1:] != self.X.shape[1:]:
            raise InputError(
                f"Source rows have shape {tuple(self.X.shape[1:])}, target rows {tuple(self.target_X.shape[1:])}; they "
                "must be alike."
            )
        if self.target_X.device != self.X.device:
            raise InputError(f"The source lies on {self.X.device}, the target on {self.target_X.device}; move one.")
        if self.target_y is not None:
            _require_labels(self.target_X, self.target_y, "target")
            unseen = sorted(set(self.target_y.tolist()) - set(self.y.tolist()))
            if unseen:
                raise InputError(f"The target has classes that the source lacks: {unseen}. No weight can make up rows.")

    @cached_property
    def n_classes(self) -> int:
        """Classes, counted by the largest label."""
        return int(self.y.max()) + 1

    @cached_property
    def class_ratio(self) -> Tensor:
        """w_y: share of each class in the target over its share in the source; 0 where the source lacks it."""
        counts, goal = (
            torch.bincount(v, minlength=self.n_classes).double() / len(v) for v in (self.y, self.target_labels())
        )
        return torch.where(counts > 0, goal / counts.clamp(min=1e-12), torch.zeros_like(counts))

    def target_labels(self) -> Tensor:
        """Labels of the target rows, or `MissingTargetError`."""
        if self.target_y is None:
            raise MissingTargetError(
                "This method needs target rows with labels: a few clean ones will do. Give target_y, or "
                "target=Target(X, y)."
            )
        return self.target_y


def _require_labels(X: Tensor, y: Tensor, which: str) -> None:
    if y.ndim != 1 or len(X) != len(y) or not len(X):
        raise InputError(f"The {which} needs rows and one label for each; got {tuple(X.shape)} and {tuple(y.shape)}.")
    if y.dtype != torch.long:
        raise InputError(f"Labels of the {which} must be whole numbers (torch.long); got {y.dtype}.")
    if X.device != y.device:
        raise InputError(f"The {which} rows lie on {X.device}, their labels on {y.device}; move one.")
    if int(y.min()) < 0:
        raise InputError(f"Labels of the {which} count from 0; got {int(y.min())}.")


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one step."""

    rows: Tensor  # their numbers in the source
    X: Tensor
    y: Tensor
    target_X: Tensor
    target_y: Tensor | None


Networks = dict[str, nn.Module]
# One loss a row, and the weights of the rows of the source; None where these have none, or for a whole objective.
Step = Callable[[Batch], tuple[Tensor, Tensor | None]]
Begin = Callable[[Networks, Task], Step]


@dataclass(frozen=True, eq=False)
class Phase:
    """Epochs in which one network learns by one step function.

    `begin` makes the step when the phase starts, and again when it is resumed: what stays fixed meanwhile, such as
    weights from a pretrained network, is computed there.
    """

    name: str
    learns: str
    epochs: int
    begin: Begin


@dataclass(frozen=True, eq=False)
class Method:
    """Networks and the phases in which they learn; ``networks["f"]`` is the classifier that is wanted."""

    name: str
    networks: Networks
    phases: list[Phase]
    options: dict[str, Any] = field(default_factory=dict)  # what else a checkpoint must agree with

    @property
    def epochs(self) -> int:
        """Epochs of all phases together."""
        return sum(phase.epochs for phase in self.phases)
