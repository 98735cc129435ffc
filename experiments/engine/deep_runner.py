"""Cells of the deep tables: the trials of a method train side by side, stop at a deadline and go on another time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.engine.cells import Cell, Experiment, Settings
from experiments.engine.store import CellStore, Outcome
from steelyard._typing import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from steelyard.deep import Settings as Training
    from steelyard.deep import Trial

Arrays = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Job:
    """Trials of one method on one data set, how they train, and what is kept of them beside their errors.

    `per_trial` names what of it has a row a trial; the rest is of the first one. The error is the mean of the last
    `epochs_judged` epochs.
    """

    trials: list[Trial]
    training: Training
    keep: Callable[[list[Trial]], Arrays]
    per_trial: tuple[str, ...] = ("curves",)
    epochs_judged: int = 1


def run_deep(
    experiment: Experiment,
    missing: list[Cell],
    settings: Settings,
    seed: int,
    store: CellStore,
    folder: Path,
    *,
    device: str,
    minutes: float | None,
    say: Callable[[str], None],
) -> None:
    """Train what is missing, group by group in the order of the experiment, until the minutes are over."""
    from steelyard.deep import train

    assert experiment.job is not None
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    cells = cells_folder(folder, experiment)
    cells.mkdir(parents=True, exist_ok=True)
    for place, (data, method) in enumerate(_groups(experiment, missing, settings)):
        trials = [cell.trial for cell in missing if (cell.data, cell.method) == (data, method)]
        # The first group gets an epoch at least, so that every call brings the table further.
        if place and deadline is not None and time.monotonic() >= deadline:
            say("The minutes are over. What was computed is stored; the same command goes on from there.")
            return
        say(f"{data}: {method}, trials {trials[0]} to {trials[-1]}")
        job: Job = experiment.job(data, method, trials, settings, seed, device)
        state = cells / f"{_file_name(data, method)}_{trials[0]}_to_{trials[-1]}.pt"
        finished = train(
            job.trials, job.training, checkpoint_path=state, checkpoint_seconds=20, deadline=deadline, progress=True
        )
        if not finished:
            say(
                f"Stopped after epoch {len(job.trials[0].log)} of {job.trials[0].method.epochs}; it goes on from there."
            )
            return
        seconds = sum(entry["seconds"] for entry in job.trials[0].log) / len(trials)
        stored = sorted(cell.trial for cell in store.outcomes() if (cell.data, cell.method) == (data, method))
        arrays = {"trials": np.array(trials), **job.keep(job.trials)}
        before = kept(folder, experiment, data, method)
        if before is not None and set(stored) <= set(before["trials"].tolist()) and stored:
            old = np.isin(before["trials"], stored)  # a kill may have left trials that were not stored
            joined = {key: np.concatenate([before[key][old], arrays[key]]) for key in ("trials", *job.per_trial)}
            arrays = {**before, **joined}
        np.savez_compressed(cells / f"{_file_name(data, method)}.npz", **arrays, allow_pickle=False)
        for number, trial in zip(trials, job.trials, strict=True):
            last = [entry["accuracy"]["test"] for entry in trial.log[-job.epochs_judged :]]
            wrong = 100 * (1 - sum(last) / len(last))
            store.put(Cell(data, method, number), Outcome(wrong, round(seconds, 3), int(time.time())))
        state.unlink(missing_ok=True)


def _groups(experiment: Experiment, missing: list[Cell], settings: Settings) -> list[tuple[str, str]]:
    wanted = {(cell.data, cell.method) for cell in missing}
    order = [(data, method) for data in experiment.data(settings) for method in experiment.methods(data)]
    return sorted((pair for pair in order if pair in wanted), key=lambda pair: experiment.urgency(*pair))


def pixels(images: Any, device: str) -> Tensor:
    """Images as numbers from 0 to 1, on the device."""
    import torch

    return (torch.tensor(images).float() / 255).to(device)


def classes(labels: Any, device: str) -> Tensor:
    """Class numbers, on the device."""
    import torch

    return torch.tensor(np.asarray(labels)).long().to(device)


def curves(trials: list[Trial]) -> FloatArray:
    """Accuracies (trials, epochs, watched)."""
    return np.array([[list(entry["accuracy"].values()) for entry in trial.log] for trial in trials], dtype=np.float32)


def row_weights(trial: Trial) -> FloatArray:
    """Weight of each source row in the last epoch; NaN where the epoch left it out, or weighed nothing."""
    found = np.full(len(trial.task.y), np.nan)
    if trial.rows is not None and trial.weights is not None:
        found[trial.rows.flatten().cpu().numpy()] = trial.weights.flatten().cpu().numpy()
    return found


def kept(folder: Path, experiment: Experiment, data: str, method: str) -> Mapping[str, Any] | None:
    """What was kept of a group, or None where it was not run."""
    path = cells_folder(folder, experiment) / f"{_file_name(data, method)}.npz"
    if not path.exists():
        return None
    with np.load(path) as found:
        return dict(found)


def cells_folder(folder: Path, experiment: Experiment) -> Path:
    """Where groups leave their files."""
    return folder / f"{experiment.file}_cells"


def _file_name(data: str, method: str) -> str:
    kept_letters = str.maketrans("", "", ",=()")
    return "_".join(f"{data} {method}".translate(kept_letters).split())
