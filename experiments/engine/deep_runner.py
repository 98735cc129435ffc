"""Cells of the deep tables: the trials of a method train together, stop at a deadline and resume later."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.engine.cells import Arrays, Cell, D, Experiment, M, Settings
from experiments.engine.curves import group_name, keep_arrays, read_arrays
from experiments.engine.files import work_folder
from experiments.engine.store import Outcome, TrialStore
from steelyard._typing import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from steelyard.deep.training import History, TrainingConfig, TrainingRun


@dataclass(frozen=True, eq=False)
class Job:
    """Trials of one method on one data set, how they train, and the arrays that are kept beside their errors.

    `per_trial` names the arrays that have one row for each trial; the others belong to the first trial. The error is
    the mean over the last `epochs_averaged` epochs.
    """

    trials: list[TrainingRun]
    training: TrainingConfig
    keep: Callable[[list[History]], Arrays]
    per_trial: tuple[str, ...] = ("curves",)
    epochs_averaged: int = 1


def run_deep(
    experiment: Experiment[D, M],
    missing: list[Cell[D, M]],
    settings: Settings,
    seed: int,
    store: TrialStore[D, M],
    folder: Path,
    *,
    device: str,
    minutes: float | None,
    say: Callable[[str], None],
) -> None:
    """Train the missing cells, group by group in the order of the experiment, until the minutes are over."""
    from steelyard.deep.training import train

    assert experiment.job is not None
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    wanted = {(cell.data, cell.method) for cell in missing}
    groups = [group for group in experiment.groups(settings) if group in wanted]
    for place, (data, method) in enumerate(sorted(groups, key=lambda group: experiment.urgency(*group))):
        trials = [cell.trial for cell in missing if (cell.data, cell.method) == (data, method)]
        # The first group gets one epoch at least, so that every call brings the table further.
        if place and deadline is not None and time.monotonic() >= deadline:
            say("The minutes are over. Everything computed so far is stored; the same command resumes.")
            return
        say(f"{data.label}: {method.label}, trials {trials[0]} to {trials[-1]}")
        job: Job = experiment.job(data, method, trials, settings, seed, device)
        group = group_name(store.key, seed, data, method)
        work_folder(folder).mkdir(parents=True, exist_ok=True)
        state = work_folder(folder) / f"{group.replace('/', ';')}_{trials[0]}_to_{trials[-1]}.pt"
        histories = train(
            job.trials, job.training, checkpoint_path=state, checkpoint_seconds=20, deadline=deadline, progress=True
        )
        if not histories[0].finished:
            done = f"{len(histories[0].epochs)} of {job.trials[0].method.epochs}"
            say(f"Stopped after epoch {done}; the same command resumes.")
            return
        stored = {cell.trial for cell in store.outcomes() if (cell.data, cell.method) == (data, method)}
        arrays = {"trials": np.array(trials), **job.keep(histories)}
        keep_arrays(folder, group, _joined(read_arrays(folder, group), stored, arrays, job.per_trial))
        seconds = sum(entry["seconds"] for entry in histories[0].epochs) / len(trials)
        for number, history in zip(trials, histories, strict=True):
            last = [entry["accuracy"]["test"] for entry in history.epochs[-job.epochs_averaged :]]
            wrong = 100 * (1 - sum(last) / len(last))
            store.put(Cell(data, method, number), Outcome.now(wrong, seconds))
        state.unlink(missing_ok=True)


def _joined(before: Arrays | None, stored: set[int], arrays: Arrays, per_trial: tuple[str, ...]) -> Mapping[str, Any]:
    """Arrays of the trials stored before and of new ones; a kill may have left trials that were not stored."""
    if before is None or not stored or not stored <= set(before["trials"].tolist()):
        return arrays
    old = np.isin(before["trials"], sorted(stored))
    return {**before, **{name: np.concatenate([before[name][old], arrays[name]]) for name in ("trials", *per_trial)}}


def pixels(images: Any, device: str) -> Tensor:
    """Images as numbers from 0 to 1, on the device."""
    import torch

    return (torch.tensor(images).float() / 255).to(device)


def classes(labels: Any, device: str) -> Tensor:
    """Class numbers, on the device."""
    import torch

    return torch.tensor(np.asarray(labels)).long().to(device)


def curves(trained: list[History]) -> FloatArray:
    """Accuracies (trials, epochs, eval sets)."""
    return np.array(
        [[list(entry["accuracy"].values()) for entry in history.epochs] for history in trained], dtype=np.float32
    )


def row_weights(history: History) -> FloatArray:
    """Weight of each source row in the last epoch; NaN where the epoch left it out, or the method has no weights."""
    return np.asarray(history.row_weights())
