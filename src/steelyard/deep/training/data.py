"""The data of a training run: labeled source rows, target rows, and the batches of one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard._numerics.display import ShortRepr
from steelyard.deep._loaders import read_rows
from steelyard.errors import InputError, MissingTargetError
from steelyard.target import Target

RowLosses = Callable[[Tensor, Tensor], Tensor]  # scores and labels to one loss per row


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy of each row."""
    return F.cross_entropy(scores, labels, reduction="none")


@dataclass(frozen=True, eq=False, repr=False)
class TrainingData(ShortRepr):
    """Labeled source rows and target rows as tensors on one device.

    Parameters
    ----------
    X : tensor of shape (n, ...)
        Inputs of the source, one row per example; or a `DataLoader` of inputs and classes, with `y` None, which is
        read once, into memory.
    y : tensor of shape (n,), torch.long
        Classes of the source rows, counted from 0.
    target : Target
        ``Target(X_target, y_target)`` with tensors, or ``Target(loader)``; the labels may be None where the method
        needs none.
    row_losses : callable, default=cross_entropy
        From scores and labels to one loss per row, such as a PyTorch loss with ``reduction="none"``.

    Attributes
    ----------
    X_target : tensor of shape (m, ...)
        Inputs of the target.
    y_target : tensor of shape (m,) or None
        Labels of the target.
    n_classes : int
        Number of classes: the largest source label plus one.
    class_ratio : tensor of shape (n_classes,)
        Share of each class in the target over its share in the source.

    Examples
    --------
    >>> import torch
    >>> from steelyard import Target
    >>> from steelyard.deep.training import TrainingData
    >>> X, y = torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])
    >>> data = TrainingData(X, y, target=Target(X[:2], torch.tensor([0, 1])))
    >>> data.class_ratio.tolist()
    [0.6666666666666666, 2.0]
    """

    X: Any  # tensors, once a DataLoader has been read
    y: Any
    target: Target
    row_losses: RowLosses = cross_entropy

    def __post_init__(self) -> None:
        if not isinstance(self.target, Target):
            raise InputError(
                f"target must be a steelyard.Target of tensors; got {type(self.target).__name__}. Write "
                "target=Target(X_target, y_target)."
            )
        rows = dict(zip(("X", "y"), read_rows(self.X, self.y, "source"), strict=True))
        for name, value in (rows | {"target": Target(*read_rows(self.X_target, self.y_target, "target"))}).items():
            object.__setattr__(self, name, value)
        if self.y is None:
            raise InputError("The source needs labels; give y, or a DataLoader of batches (X, y).")
        require_labels(self.X, self.y, "source")
        if not len(self.X_target):
            raise InputError("The target has no rows; at least one is needed.")
        if self.X_target.shape[1:] != self.X.shape[1:]:
            raise InputError(
                f"Source rows have shape {tuple(self.X.shape[1:])}, target rows {tuple(self.X_target.shape[1:])}; the "
                "shapes must be equal."
            )
        if self.X_target.device != self.X.device:
            raise InputError(f"The source is on {self.X.device}, the target on {self.X_target.device}; move one.")
        if self.y_target is not None:
            require_labels(self.X_target, self.y_target, "target")
            unseen = sorted(set(self.y_target.tolist()) - set(self.y.tolist()))
            if unseen:
                raise InputError(
                    f"The target has classes that the source lacks: {unseen}. Weights cannot replace missing rows."
                )

    @property
    def X_target(self) -> Tensor:
        """Inputs of the target."""
        found: Tensor = self.target.X
        return found

    @property
    def y_target(self) -> Tensor | None:
        """Labels of the target, or None."""
        found: Tensor | None = self.target.y
        return found

    @cached_property
    def n_classes(self) -> int:
        """Number of classes: the largest source label plus one."""
        return int(self.y.max()) + 1

    @cached_property
    def class_ratio(self) -> Tensor:
        """w_y: share of each class in the target over its share in the source; 0 where the source lacks it."""
        source, target = (
            torch.bincount(v, minlength=self.n_classes).double() / len(v) for v in (self.y, self.target_labels())
        )
        return torch.where(source > 0, target / source.clamp(min=1e-12), torch.zeros_like(source))

    def target_labels(self) -> Tensor:
        """Labels of the target rows.

        Returns
        -------
        y_target : tensor of shape (m,)

        Raises
        ------
        MissingTargetError
            If the target has no labels.
        """
        if self.y_target is None:
            raise MissingTargetError(
                "This method needs target rows with labels; a few clean ones are enough. Give "
                "target=Target(X_target, y_target)."
            )
        return self.y_target


def require_labels(X: Tensor, y: Tensor, which: str) -> None:
    """Refuse labels that are not one whole number from 0 for each row, on the device of the rows."""
    if y.ndim != 1 or len(X) != len(y) or not len(X):
        raise InputError(f"The {which} needs rows and one label for each; got {tuple(X.shape)} and {tuple(y.shape)}.")
    if y.dtype != torch.long:
        raise InputError(f"Labels of the {which} must be whole numbers (torch.long); got {y.dtype}.")
    if X.device != y.device:
        raise InputError(f"The {which} rows are on {X.device}, their labels on {y.device}; move one.")
    if int(y.min()) < 0:
        raise InputError(f"Labels of the {which} count from 0; got {int(y.min())}.")


@dataclass(frozen=True, eq=False, repr=False)
class Batch(ShortRepr):
    """Source and target rows of one step.

    Parameters
    ----------
    rows : tensor of shape (batch_size,)
        Row numbers in the source.
    X, y : tensors
        Inputs and labels of these source rows.
    X_target : tensor
        Inputs of the target rows of this step.
    y_target : tensor or None
        Their labels, where the target has labels.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import Batch
    >>> X, y = torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])
    >>> Batch(torch.tensor([3]), X[3:], y[3:], X[:2], None).y
    tensor([1])
    """

    rows: Tensor
    X: Tensor
    y: Tensor
    X_target: Tensor
    y_target: Tensor | None
