"""A Lightning callback that weights the rows of every training batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from steelyard._validation import check_count
from steelyard.deep._loaders import validation_batches
from steelyard.deep._weighted_step import weigh_micro_batches
from steelyard.deep.dynamic import DynamicWeights
from steelyard.errors import InputTypeError, ParameterError


class DynamicWeightsCallback(Callback):
    """Dynamic importance weighting for a `LightningModule` that has ``row_losses``: without the callback a plain fit.

    ``row_losses(batch)`` returns one loss per row. After the warm-up its weighted mean replaces the loss of
    ``training_step``. The weights are those of a whole step, on all devices and over ``accumulate_grad_batches``; they
    come from losses in evaluation mode, so a step costs one forward pass more. Precision, clipping and schedules are
    Lightning's. ``weighted_loss`` and ``effective_share`` (effective sample size over the number of rows) of the rows
    of each device are logged.

    Parameters
    ----------
    clean : DataLoader or tensors
        Batches of rows with trusted labels, in the form of the training batches; see `validation_batches`.
    dynamic : DynamicWeights, default=None
        Settings of the weights, with transform "loss"; None is ``DynamicWeights()``.
    warm_up : int, default=1
        First epochs with the module's own ``training_step``.

    Examples
    --------
    >>> import torch
    >>> from lightning.pytorch import LightningModule, Trainer
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from steelyard.deep.lightning import DynamicWeightsCallback
    >>> class Net(LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = torch.nn.Linear(2, 2)
    ...     def row_losses(self, batch):
    ...         X, y = batch
    ...         return torch.nn.functional.cross_entropy(self.layer(X), y, reduction="none")
    ...     def training_step(self, batch):
    ...         return self.row_losses(batch).mean()
    ...     def configure_optimizers(self):
    ...         return torch.optim.Adam(self.parameters())
    >>> X, y = torch.randn(40, 2), torch.arange(40) % 2
    >>> callback = DynamicWeightsCallback(clean=(X[:10], y[:10]))
    >>> callback.dynamic.reduction
    'mean'
    >>> trainer = Trainer(max_epochs=2, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.fit(Net(), DataLoader(TensorDataset(X[10:], y[10:]), batch_size=15))  # doctest: +SKIP
    """

    def __init__(self, clean: Any, dynamic: DynamicWeights | None = None, *, warm_up: int = 1) -> None:
        self.clean = clean
        self.dynamic = DynamicWeights() if dynamic is None else dynamic
        if self.dynamic.transform != "loss":
            raise ParameterError('DynamicWeightsCallback weights by losses; give DynamicWeights(transform="loss").')
        self.warm_up = check_count("warm_up", warm_up, 0)
        self._pending: list[Any] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the weighted step in the place of the module's own.

        Parameters
        ----------
        trainer : Trainer
            The trainer.
        pl_module : LightningModule
            The module, with ``row_losses``.
        """
        if not callable(getattr(pl_module, "row_losses", None)):
            raise InputTypeError(
                f"{type(pl_module).__name__} needs a method row_losses(batch) that returns one loss per row; its "
                "training_step can return their mean."
            )
        if not pl_module.automatic_optimization:
            raise ParameterError(
                "DynamicWeightsCallback needs automatic optimization; in an optimization of your own call "
                "DynamicWeights yourself."
            )
        if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= self.warm_up:
            raise ParameterError(f"warm_up must leave epochs with weights; got {self.warm_up} of {trainer.max_epochs}.")
        self._pending, batches = [], validation_batches(self.clean)
        plain: Callable[..., Any] = pl_module.training_step

        @wraps(plain)  # Lightning looks at the arguments of a training step
        def training_step(*arguments: Any) -> Any:
            if trainer.current_epoch < self.warm_up:
                return plain(*arguments)
            return self._weighted_step(trainer, pl_module, arguments[0], batches)

        pl_module.training_step = training_step  # type: ignore[method-assign]

    def _weighted_step(
        self, trainer: Trainer, module: LightningModule, batch: Any, clean_batches: Iterator[Any]
    ) -> Tensor:
        """The loss of a step; zero for all but its last micro-batch, because their weights are not known yet."""
        self._pending.append(batch)
        n_micro = trainer.accumulate_grad_batches
        if len(self._pending) < n_micro and not trainer.is_last_batch:
            return torch.zeros((), device=module.device, requires_grad=True)
        batches, self._pending = self._pending, []
        losses_of: Any = module.row_losses
        clean = trainer.strategy.batch_to_device(next(clean_batches))
        parts = weigh_micro_batches(self.dynamic, module, losses_of, batches, clean)
        weights = torch.cat(parts)
        total = torch.zeros((), device=module.device)
        for k, (rows, part) in enumerate(zip(batches, parts, strict=True)):
            loss = self.dynamic.reduce(part * losses_of(rows), n_rows=len(weights))
            total += loss.detach()
            if k < len(batches) - 1:  # Lightning goes backward through the last one, and averages over devices there
                with torch.autocast(module.device.type, enabled=False):
                    trainer.strategy.backward(loss, None)
        # On the device: the host need not wait for it.
        share = weights.sum().square() / (len(weights) * weights.square().sum()).clamp(min=1e-12)
        module.log_dict({"weighted_loss": total, "effective_share": share})
        return n_micro * loss  # Lightning divides by it

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the module's own step back.

        Parameters
        ----------
        trainer : Trainer
            The trainer.
        pl_module : LightningModule
            The module.
        """
        vars(pl_module).pop("training_step", None)
        self._pending = []

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Put the module's own step back.

        Parameters
        ----------
        trainer : Trainer
            The trainer.
        pl_module : LightningModule
            The module.
        exception : BaseException
            What stopped the fit.
        """
        self.on_fit_end(trainer, pl_module)
