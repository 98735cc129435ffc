"""What a training run is given and what it returns: its configuration, the run itself and its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from steelyard._numerics.display import ShortRepr
from steelyard._validation import check_count
from steelyard.deep._loaders import read_rows
from steelyard.deep._reduction import REDUCTIONS
from steelyard.deep.training.data import TrainingData, require_labels
from steelyard.deep.training.phases import TrainingMethod
from steelyard.errors import ParameterError

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def constant(epoch: int) -> float:
    """A learning rate schedule that keeps the optimizer's rate."""
    return 1.0


@dataclass(frozen=True)
class TrainingConfig:
    """How networks are trained, independent of the method.

    Parameters
    ----------
    optimizer : callable
        From a list of parameters to a `torch.optim.Optimizer`; each network gets its own.
    lr_schedule : callable, default=constant
        From the number of epochs a network has been trained to a factor of its learning rate.
    batch_size : int, default=256
        Source rows per step. The last rows of an epoch that do not fill a batch are left out.
    target_batch_size : int, default=None
        Target rows per step, drawn without replacement; None is `batch_size`. If the target has enough rows for an
        epoch, none is used twice in it; otherwise every step draws from all of them.
    reduction : {"mean", "sum"}, default="mean"
        Whether the weighted losses of a batch are averaged, or summed as in the authors' code for dynamic weights.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import TrainingConfig
    >>> config = TrainingConfig(
    ...     lambda parameters: torch.optim.SGD(parameters, lr=0.1), lr_schedule=lambda epoch: 0.1 ** (epoch // 10)
    ... )
    >>> config.batch_size, config.reduction
    (256, 'mean')
    """

    optimizer: OptimizerFactory
    lr_schedule: Callable[[int], float] = constant
    batch_size: int = 256
    target_batch_size: int | None = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        if not callable(self.optimizer):
            raise ParameterError(
                f"optimizer must be a function from parameters to an optimizer, because each network has its own; got "
                f"{type(self.optimizer).__name__}. Try lambda parameters: torch.optim.SGD(parameters, lr=0.1)."
            )
        check_count("batch_size", self.batch_size)
        if self.target_batch_size is not None:
            check_count("target_batch_size", self.target_batch_size)
        if self.reduction not in REDUCTIONS:
            raise ParameterError(f"reduction must be one of {tuple(REDUCTIONS)}; got {self.reduction!r}.")


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A method, its data and a seed. `train` updates the networks of the method in place.

    Parameters
    ----------
    method : TrainingMethod
        Networks and phases.
    data : TrainingData
        Source and target rows.
    seed : int, default=0
        Seed of the order of the rows, of dropout and of random weights. The networks come with their own initial
        parameters.
    eval_sets : dict of str to (X, y) or DataLoader, default={}
        Named rows and labels, such as a test set; the accuracy on each is recorded after every epoch. A `DataLoader`
        is read once, into memory.
    kept_rows : (X, y) or DataLoader, default=None
        Clean rows set aside, see `set_aside`: the state of the classifier after the epoch in which their mean loss is
        least is kept in the history. They should not be in `data`. A `DataLoader` is read once, into memory.
    refresh_inputs : callable, default=None
        From the number of an epoch to new inputs of source and target, such as newly rotated images. They overwrite
        the inputs of `data` before that epoch; the labels stay. Not for methods that compute their weights once.

    Examples
    --------
    >>> import torch
    >>> from steelyard import Target
    >>> from steelyard.deep.training import TrainingData, TrainingRun, baseline
    >>> X, y = torch.randn(20, 2), torch.arange(20) % 2
    >>> run = TrainingRun(baseline("uniform", torch.nn.Linear(2, 2), epochs=3), TrainingData(X, y, Target(X)), seed=1)
    >>> run.method.epochs
    3
    """

    method: TrainingMethod
    data: TrainingData
    seed: int = 0
    eval_sets: dict[str, Any] = field(default_factory=dict)
    kept_rows: Any = None
    refresh_inputs: Callable[[int], tuple[Tensor, Tensor]] | None = None

    def __post_init__(self) -> None:
        read = {
            name: read_rows(rows, None, name) if isinstance(rows, DataLoader) else rows
            for name, rows in self.eval_sets.items()
        }
        object.__setattr__(self, "eval_sets", read)
        if isinstance(self.kept_rows, DataLoader):
            object.__setattr__(self, "kept_rows", read_rows(self.kept_rows, None, "kept_rows"))
        if self.kept_rows is not None:
            X, y = self.kept_rows
            require_labels(X, y, "kept rows")


@dataclass(eq=False, repr=False)
class History(ShortRepr):
    """What `train` recorded of one run.

    Parameters
    ----------
    n_rows : int
        Number of source rows.
    epochs : list of dict
        One dict per epoch: ``epoch``, ``phase``, ``learns`` (the network), ``loss``, ``learning_rate``, ``seconds``,
        ``accuracy`` (of each evaluation set), ``kept_loss`` (mean loss of the kept rows), and of the weights, where the
        phase has any, ``weight_mean``, ``weight_sd``, ``weight_max``, ``zero_share``, ``effective_share`` (effective
        sample size over the number of rows) and ``zero_batches``.
    rows : tensor of shape (n_steps, batch_size) or None
        Source row numbers of each step in the last epoch that had weights.
    weights : tensor of shape (n_steps, batch_size) or None
        Weights of these rows.
    kept_epoch : int or None
        Number of the epoch in which the mean loss of the kept rows is least, where there are any.
    kept_state : dict or None
        State of the classifier after that epoch, for ``load_state_dict``; `train` itself leaves the classifier as it
        is after the last epoch.
    finished : bool
        False where the deadline came before the last epoch.

    Examples
    --------
    >>> import torch
    >>> from steelyard import Target
    >>> from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, baseline, train
    >>> X, y = torch.randn(20, 2), torch.arange(20) % 2
    >>> run = TrainingRun(baseline("uniform", torch.nn.Linear(2, 2), epochs=3), TrainingData(X, y, Target(X)))
    >>> history = train(run, TrainingConfig(torch.optim.Adam, batch_size=8))
    >>> len(history.epochs), history.finished, tuple(history.weights.shape)
    (3, True, (2, 8))
    """

    n_rows: int
    epochs: list[dict[str, Any]] = field(default_factory=list)
    rows: Tensor | None = None
    weights: Tensor | None = None
    kept_epoch: int | None = None
    kept_state: dict[str, Tensor] | None = None
    finished: bool = False

    def row_weights(self) -> Tensor:
        """Weight of each source row in the last epoch that had weights.

        Returns
        -------
        weights : tensor of shape (n_rows,), on the CPU
            NaN for rows that this epoch left out, and for all rows where no phase had weights.
        """
        found = torch.full((self.n_rows,), torch.nan, dtype=torch.float64)
        if self.rows is not None and self.weights is not None:
            found[self.rows.flatten().cpu()] = self.weights.flatten().double().cpu()
        return found
