"""What a network may be trained on: weighted rows, all rows without weights, the clean rows alone. Kept rows choose."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import chi2_contingency
from torch import Tensor, nn

from steelyard._validation import check_count
from steelyard.deep.dynamic import PRESETS
from steelyard.deep.training.config import History, OptimizerFactory, TrainingConfig, TrainingRun
from steelyard.deep.training.data import TrainingData
from steelyard.deep.training.loop import train
from steelyard.deep.training.methods import baseline, importance_weighting
from steelyard.deep.training.phases import TrainingMethod
from steelyard.errors import WeightsNotUsedWarning, warn_user
from steelyard.target import Target

LabeledRows = tuple[Tensor, Tensor]
WEIGHTS, NO_WEIGHTS, CLEAN_ROWS = "weights", "no weights", "clean rows"
STEPS = 2000  # at least, where neither the epochs nor the batch size are given
LEAST_EPOCHS = 20
SMALLEST_BATCH, LARGEST_BATCH = 32, 256
LEVEL = 0.01
ROWS_PER_BATCH = 20  # a batch is about this part of the rows


def step_budget(n_rows: int, epochs: int | None, batch_size: int | None) -> tuple[int, int]:
    """Epochs and batch size for a number of rows; what is given stays.

    A batch is a power of two near a twentieth of the rows, from 32 to 256. There are at least 20 epochs, and enough
    for 2,000 steps.
    """
    if batch_size is None:
        power = round(math.log2(max(n_rows / ROWS_PER_BATCH, 1)))
        batch_size = min(LARGEST_BATCH, max(SMALLEST_BATCH, 2**power))
    check_count("batch_size", batch_size)
    if epochs is None:
        epochs = max(LEAST_EPOCHS, math.ceil(STEPS / steps_per_epoch(n_rows, batch_size)))
    return check_count("epochs", epochs), batch_size


def steps_per_epoch(n_rows: int, batch_size: int) -> int:
    """Full batches of an epoch; fewer rows than a batch make one."""
    return max(1, n_rows // batch_size)


def class_shares(y: Tensor, clean_y: Tensor) -> NDArray[np.float64] | None:
    """Shares of the classes among the clean rows, or None if they do not differ significantly from those of `y`.

    A class without clean rows has the share that it has in `y`.
    """
    n_classes = int(y.max()) + 1
    counts = np.array([np.bincount(labels.cpu().numpy(), minlength=n_classes) for labels in (y, clean_y)])
    if n_classes < 2 or chi2_contingency(counts).pvalue >= LEVEL:
        return None
    source, clean = counts / counts.sum(axis=1, keepdims=True)
    shares = np.where(counts[1] > 0, clean, source)
    return np.asarray(shares / shares.sum(), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows and labels as tensors: those to weight, the clean ones to train on, and the clean ones kept aside."""

    source: LabeledRows
    clean: LabeledRows
    kept: LabeledRows | None

    def together(self) -> TrainingData:
        """Source and clean rows to train on, with the clean ones as the target."""
        X, y = (torch.cat(pair) for pair in zip(self.source, self.clean, strict=True))
        return TrainingData(X, y, Target(*self.clean))

    def all_clean(self) -> Rows:
        """The same with no row kept aside."""
        if self.kept is None:
            return self
        X, y = (torch.cat(pair) for pair in zip(self.clean, self.kept, strict=True))
        return replace(self, clean=(X, y), kept=None)


@dataclass(frozen=True)
class Plan:
    """How a classifier trains: the settings that all candidates share."""

    variant: str
    transform: str
    preset: str
    epochs: int
    batch_size: int
    class_shares: Tensor | None
    optimizer: OptimizerFactory
    seed: int
    checkpoint: Path | None
    progress: bool


@dataclass(frozen=True, eq=False)
class Candidate:
    """A trained network, with the state of its kept epoch where rows are kept aside."""

    name: str
    method: TrainingMethod
    history: History
    kept_losses: NDArray[np.float64]  # of each kept row
    kept_errors: NDArray[np.bool_]  # which kept rows it classifies wrongly

    @property
    def module(self) -> nn.Module:
        """The classifier."""
        return self.method.networks["f"]

    @property
    def returned_epoch(self) -> int:
        """Number of the epoch after which the network is as it is returned."""
        last = len(self.history.epochs) - 1
        return last if self.history.kept_epoch is None else self.history.kept_epoch


def train_candidate(name: str, module: nn.Module, rows: Rows, plan: Plan, epochs: int | None = None) -> Candidate:
    """Train a copy of the network on one kind of rows for the steps of the plan; its kept epoch is restored.

    The clean rows alone are trained for as many steps as all rows are, unless a number of epochs is given.
    """
    network, together, is_clean = copy.deepcopy(module), rows.together(), name == CLEAN_ROWS
    data, batch_size, n_epochs = together, plan.batch_size, epochs or plan.epochs
    if is_clean:
        data, batch_size = TrainingData(*rows.clean, Target(*rows.clean)), _clean_batch(rows, plan)
        if epochs is None:
            steps = plan.epochs * steps_per_epoch(len(together.y), plan.batch_size)
            n_epochs = math.ceil(steps / steps_per_epoch(len(data.y), batch_size))
    if name == WEIGHTS:
        method = importance_weighting(
            network,
            n_epochs,
            variant=plan.variant,
            transform=plan.transform,
            preset=plan.preset,
            warm_up=min(1, n_epochs - 1),
            class_shares=plan.class_shares,
        )
    else:
        method = baseline("uniform", network, n_epochs)
    reduction = PRESETS[plan.preset].reduction
    config = TrainingConfig(plan.optimizer, batch_size=batch_size, reduction=reduction)
    run = TrainingRun(method, data, seed=plan.seed, kept_rows=rows.kept)
    history = train(run, config, checkpoint_path=_checkpoint(name, plan, rows), progress=plan.progress)
    if history.kept_state is not None:
        network.load_state_dict(history.kept_state)
    return Candidate(name, method, history, *_on_kept_rows(network.eval(), rows.kept, data))


def _on_kept_rows(
    network: nn.Module, kept: LabeledRows | None, data: TrainingData
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The loss of each kept row, and whether it is classified wrongly."""
    if kept is None:
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    X, y = kept
    with torch.no_grad():
        scores = torch.cat([network(part) for part in torch.split(X, 2000)])
    losses, wrong = data.row_losses(scores, y), scores.argmax(dim=1) != y
    return losses.double().cpu().numpy(), wrong.cpu().numpy()


def _clean_batch(rows: Rows, plan: Plan) -> int:
    return min(plan.batch_size, step_budget(len(rows.clean[1]), None, None)[1])


def _checkpoint(name: str, plan: Plan, rows: Rows) -> Path | None:
    """The file of the plan for weights, and one beside it for every other training."""
    if plan.checkpoint is None or name == WEIGHTS:
        return plan.checkpoint
    ending = name.replace(" ", "_") + ("" if rows.kept is not None else "_all")
    return plan.checkpoint.with_name(f"{plan.checkpoint.name}.{ending}")


def choose(module: nn.Module, rows: Rows, plan: Plan) -> tuple[Candidate, dict[str, float]]:
    """The candidate with weights, unless kept rows favor another; and the mean loss of the kept rows of all three.

    The clean rows alone, where they are chosen, are trained on again with the kept ones among them.
    """
    weighted = train_candidate(WEIGHTS, module, rows, plan)
    if rows.kept is None:
        return weighted, {}
    others = [train_candidate(name, module, rows, plan) for name in (NO_WEIGHTS, CLEAN_ROWS)]
    losses = {each.name: float(each.kept_losses.mean()) for each in (weighted, *others)}
    better = [each for each in others if _is_better(each, weighted)]
    if not better:
        return weighted, losses
    best = min(better, key=lambda each: losses[each.name])
    found = ", ".join(f"{name} {loss:.3g}" for name, loss in losses.items())
    warn_user(
        f'The module is trained on "{best.name}": the mean loss of {len(rows.kept[1])} clean rows kept aside is '
        f"{found}. More clean rows make the choice surer; validation_share=0 always uses weights.",
        WeightsNotUsedWarning,
    )
    if best.name == CLEAN_ROWS:
        best = train_candidate(CLEAN_ROWS, module, rows.all_clean(), plan, best.returned_epoch + 1)
    return best, losses


def _is_better(candidate: Candidate, weighted: Candidate) -> bool:
    """Whether the kept rows favor a candidate: fewer errors, and a mean loss less by more than a standard error.

    The standard error is that of the differences row by row. Of two networks that classify the kept rows equally well,
    the one with the smaller loss is often only surer of itself.
    """
    difference = weighted.kept_losses - candidate.kept_losses
    is_clear = difference.mean() > difference.std() / np.sqrt(max(len(difference) - 1, 1))
    return bool(is_clear and candidate.kept_errors.sum() < weighted.kept_errors.sum())
