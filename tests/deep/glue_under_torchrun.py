"""Fits by Lightning and Transformers: in one process, or by torchrun on every other batch in each of two.

Run by test_lightning.py and test_transformers.py:
``python -m torch.distributed.run --nproc-per-node=2 glue_under_torchrun.py FOLDER PACKAGE``.
"""

from __future__ import annotations

import gc
import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler, TensorDataset

CLEAN = 20


def data():
    """Noisy rows and clean ones, of two classes; the rows are six whole numbers, as tokens are."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randint(12, (180, 6), generator=generator)
    y = (X[:, 0] > 5).long()
    noisy = torch.where(torch.rand(180, generator=generator) < 0.4, 1 - y, y)
    return X[CLEAN:], noisy[CLEAN:], X[:CLEAN], y[:CLEAN]


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def lightning_module(learning_rate=0.5):
    from lightning.pytorch import LightningModule

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
            self.modes = []

        def row_losses(self, batch):
            X, y = batch
            self.modes.append(self.training)
            return F.cross_entropy(self.layers(X.float() / 12), y, reduction="none")

        def training_step(self, batch):
            return self.row_losses(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=learning_rate, momentum=0.5)

    torch.manual_seed(1)
    return Net()


def fit_lightning(folder, batch_size, *, clean=None, warm_up=0, epochs=3, dynamic=None, weighted=True, **options):
    from lightning.pytorch import Trainer

    from steelyard.deep.lightning import DynamicWeightsCallback

    X, y, clean_X, clean_y = data()
    module = lightning_module()
    clean = (clean_X, clean_y) if clean is None else clean
    callbacks = [DynamicWeightsCallback(clean, dynamic, warm_up=warm_up)] if weighted else []
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        use_distributed_sampler=False,  # it would shuffle
        **options,
    )
    dataset = TensorDataset(X, y)
    sampler = (
        DistributedSampler(dataset, trainer.world_size, trainer.global_rank, shuffle=False)
        if trainer.world_size > 1
        else None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the number of workers of the loader
        trainer.fit(module, DataLoader(dataset, batch_size=batch_size, sampler=sampler))
    return module, trainer


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=12,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def fit_transformers(
    folder, batch_size, *, clean=None, weighted=True, mixin=None, mixed=None, counts_items=True, **options
):
    from transformers import Trainer, TrainingArguments

    from steelyard.deep.transformers import DynamicWeightsMixin

    class InOrder(Trainer):
        def _get_train_sampler(self, *arguments):
            return SequentialSampler(self.train_dataset)

    class Weighted(mixin or DynamicWeightsMixin, InOrder):
        pass

    X, y, clean_X, clean_y = data()
    model = bert()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        max_grad_norm=0,
        **({"num_train_epochs": 3} | options),
    )
    ours = {"clean": {"input_ids": clean_X, "labels": clean_y} if clean is None else clean, "warm_up": 0}
    trainer = (Weighted if weighted else InOrder)(
        model,
        arguments,
        train_dataset=[{"input_ids": row, "labels": label} for row, label in zip(X, y, strict=True)],
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
        **(ours | (mixed or {}) if weighted else {}),
    )
    # Whether the model takes the number of labels of a step; if not, the trainer divides its loss by the micro-batches.
    trainer.model_accepts_loss_kwargs = counts_items
    trainer.train()
    return model, trainer


def main(folder, package):
    torch.set_num_threads(1)
    if package == "lightning":
        fits = [
            fit_lightning(folder, 20, devices=2, strategy="ddp"),
            fit_lightning(folder, 10, devices=2, strategy="ddp", accumulate_grad_batches=2),
        ]
    else:
        fits = [fit_transformers(folder, 20), fit_transformers(folder, 10, gradient_accumulation_steps=2)]
    rank = torch.distributed.get_rank()
    torch.save([flat(model) for model, _ in fits], Path(folder) / f"{rank}.pt")
    # A DistributedDataParallel that outlives its group makes gloo abort where the process ends, once in a while.
    fits.clear()
    gc.collect()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
