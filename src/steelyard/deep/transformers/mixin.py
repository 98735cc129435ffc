"""A mixin for a Hugging Face `Trainer` that weights the rows of every training batch."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from steelyard._validation import check_range
from steelyard.deep._loaders import validation_batches
from steelyard.deep._weighted_step import weigh_micro_batches
from steelyard.deep.dynamic import DynamicWeights
from steelyard.errors import InputError, ParameterError


class DynamicWeightsMixin:
    """Dynamic importance weighting for a `Trainer`: ``class MyTrainer(DynamicWeightsMixin, Trainer): pass``.

    After the warm-up the loss of a training step is the weighted mean of one loss per row; evaluation is the
    trainer's. The weights are those of a whole step, on all devices and over ``gradient_accumulation_steps``; they
    come from losses in evaluation mode, so a step costs one forward pass more. Classification of whole rows works as
    it is; for other tasks override ``row_losses``.

    Parameters
    ----------
    *args
        Those of the trainer.
    clean : Dataset, DataLoader or dict of tensors
        Rows with trusted labels. A dataset is shuffled, collated and batched like the training rows; a `DataLoader`
        gives batches in the form of the training batches.
    dynamic : DynamicWeights, default=None
        Settings of the weights, with transform "loss"; None is ``DynamicWeights()``.
    warm_up : float, default=1
        First epochs with the trainer's own loss.
    **kwargs
        Those of the trainer.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    >>> from steelyard.deep.transformers import DynamicWeightsMixin
    >>> class WeightedTrainer(DynamicWeightsMixin, Trainer):
    ...     pass
    >>> config = BertConfig(
    ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    ... )
    >>> rows = [{"input_ids": torch.randint(20, (5,)), "labels": k % 2} for k in range(40)]
    >>> folder = tempfile.TemporaryDirectory()
    >>> trainer = WeightedTrainer(
    ...     BertForSequenceClassification(config),
    ...     TrainingArguments(folder.name, num_train_epochs=2, report_to="none"),
    ...     train_dataset=rows[10:],
    ...     clean=rows[:10],
    ... )
    >>> result = trainer.train()  # doctest: +SKIP
    >>> folder.cleanup()
    """

    def __init__(
        self, *args: Any, clean: Any, dynamic: DynamicWeights | None = None, warm_up: float = 1, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        self.dynamic = DynamicWeights() if dynamic is None else dynamic
        if self.dynamic.transform != "loss":
            raise ParameterError('DynamicWeightsMixin weights by losses; give DynamicWeights(transform="loss").')
        self.warm_up = check_range("warm_up", warm_up, 0)
        if trainer.args.max_steps <= 0 and trainer.args.num_train_epochs <= warm_up:
            raise ParameterError(
                f"warm_up must leave epochs with weights; got {warm_up} of {trainer.args.num_train_epochs}."
            )
        if not isinstance(clean, dict | DataLoader):
            clean = DataLoader(
                clean,
                batch_size=trainer.args.train_batch_size,
                shuffle=not isinstance(clean, IterableDataset),
                collate_fn=trainer._get_collator_with_removed_columns(trainer.data_collator, "clean"),
            )
        self.clean_batches = validation_batches(clean)
        self._batches: list[Any] = []
        self._weights: list[Tensor] = []
        self._n_rows = 0

    def row_losses(self, outputs: Any, inputs: dict[str, Any]) -> Tensor:
        """One loss per row: the cross-entropy of the logits, with the label smoothing of the trainer.

        Parameters
        ----------
        outputs : ModelOutput
            What the model returned.
        inputs : dict of str to tensor
            What it was given, ``labels`` included.

        Returns
        -------
        losses : tensor of shape (n,)
        """
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[1]
        labels = inputs.get("labels")
        trainer: Any = self
        if labels is None or logits.ndim != 2 or labels.ndim != 1 or labels.is_floating_point():
            shape = None if labels is None else tuple(labels.shape)
            raise InputError(
                f"row_losses needs one class per row; got logits of shape {tuple(logits.shape)} and labels of shape "
                f"{shape}. For another task override row_losses(outputs, inputs), with one loss per row."
            )
        smoothing = trainer.args.label_smoothing_factor
        return F.cross_entropy(logits.float(), labels, reduction="none", label_smoothing=smoothing)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The micro-batches of the next step, which are also kept for their weights.

        Parameters
        ----------
        *args, **kwargs
            Those of the trainer.

        Returns
        -------
        batches : tuple
            As from the trainer.
        """
        parent: Any = super()
        found = parent.get_batch_samples(*args, **kwargs)
        self._batches, self._weights = list(found[0]), []
        return found

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """The weighted loss of a training batch; in evaluation and warm-up the trainer's own.

        Parameters
        ----------
        model : torch.nn.Module
            The model.
        inputs : dict of str to tensor
            The batch.
        return_outputs : bool, default=False
            Whether to return what the model returned, too.
        **kwargs
            Those of the trainer.

        Returns
        -------
        loss : tensor, or tensor and outputs
        """
        trainer: Any = self
        parent: Any = super()
        if not model.training or float(trainer.state.epoch or 0) < self.warm_up:
            return parent.compute_loss(model, inputs, return_outputs, **kwargs)

        def losses_of(batch: dict[str, Any]) -> Tensor:
            return self.row_losses(model(**batch), batch)

        if not self._weights:
            batches = [trainer._prepare_inputs(batch) for batch in self._batches]
            clean = trainer._prepare_inputs(next(self.clean_batches))
            self._weights = weigh_micro_batches(self.dynamic, model, losses_of, batches, clean)
            self._n_rows = sum(map(len, self._weights))
        outputs = model(**inputs)
        loss = self.dynamic.reduce(self._weights.pop(0) * self.row_losses(outputs, inputs), n_rows=self._n_rows)
        # The loss is a share of that of the whole step already; the trainer divides by this.
        trainer.current_gradient_accumulation_steps = 1
        return (loss, outputs) if return_outputs else loss
