"""One training loop for every method: phases of epochs, checkpoints, several runs side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import torch

from steelyard._progress import progress_bar
from steelyard.deep.training import checkpoint
from steelyard.deep.training.config import History, TrainingConfig, TrainingRun
from steelyard.deep.training.graphs import CapturedSteps
from steelyard.deep.training.trainer import Trainer
from steelyard.errors import ParameterError


@overload
def train(
    runs: TrainingRun,
    config: TrainingConfig,
    *,
    checkpoint_path: str | Path | None = None,
    checkpoint_seconds: float = 0.0,
    deadline: float | None = None,
    progress: bool = True,
) -> History: ...


@overload
def train(
    runs: Sequence[TrainingRun],
    config: TrainingConfig,
    *,
    checkpoint_path: str | Path | None = None,
    checkpoint_seconds: float = 0.0,
    deadline: float | None = None,
    progress: bool = True,
) -> list[History]: ...


def train(
    runs: TrainingRun | Sequence[TrainingRun],
    config: TrainingConfig,
    *,
    checkpoint_path: str | Path | None = None,
    checkpoint_seconds: float = 0.0,
    deadline: float | None = None,
    progress: bool = True,
) -> History | list[History]:
    """Train the networks of one or several runs in place, or resume them from a checkpoint.

    With the same seed and data the trained parameters are the same, to the bit on a CPU, whether or not the training
    was stopped and resumed. On a GPU each step is one captured CUDA graph, and the steps of several runs execute side
    by side. Runs that are trained together need phases of the same lengths, the same number of batches, and networks
    of their own.

    Parameters
    ----------
    runs : TrainingRun or sequence of TrainingRun
        What to train.
    config : TrainingConfig
        Optimizer, learning rate schedule, batch sizes and reduction, the same for all runs.
    checkpoint_path : str or Path, default=None
        Written after every epoch. Where the file exists, training resumes from it; `CheckpointError` if it belongs to
        another run.
    checkpoint_seconds : float, default=0
        Write a checkpoint only if the previous one is at least this old, and after the last epoch.
    deadline : float, default=None
        A value of `time.monotonic`. The epoch during which it passes is the last one of this call; the same call
        resumes from the checkpoint later.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal.

    Returns
    -------
    history : History or list of History
        One for one run, a list for a sequence of runs.

    Examples
    --------
    >>> import torch
    >>> from steelyard import Target
    >>> from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, importance_weighting, train
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(600, 2)
    >>> clean = (X[:, 0] > 0).long()
    >>> y = torch.where(torch.rand(600) < 0.3, 1 - clean, clean)  # three labels in ten are wrong
    >>> data = TrainingData(X[100:], y[100:], target=Target(X[:100], clean[:100]))
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    >>> run = TrainingRun(importance_weighting(net, epochs=20), data, eval_sets={"clean": (X, clean)})
    >>> history = train(run, TrainingConfig(lambda p: torch.optim.Adam(p, lr=0.01), batch_size=100))
    >>> history.epochs[-1]["accuracy"]["clean"] > 0.9
    True
    """
    trainers = [Trainer(run, config) for run in ([runs] if isinstance(runs, TrainingRun) else runs)]
    _require_alike(trainers)
    description: dict[str, Any] = {}
    begun = 0
    if checkpoint_path is not None:
        checkpoint_path = Path(checkpoint_path)
        for k, trainer in enumerate(trainers):
            description |= {key if not k else f"{key} of run {k}": value for key, value in trainer.describe().items()}
        state = checkpoint.load(checkpoint_path, description, trainers[0].device)
        if state is not None:
            begun = state["epoch"]
            for trainer, its_state in zip(trainers, state["runs"], strict=True):
                trainer.restore(its_state)
    first, device = trainers[0], trainers[0].device
    epochs, done, saved = first.run.method.epochs, begun, time.monotonic()
    schedule = [number for number, phase in enumerate(first.run.method.phases) for _ in range(phase.epochs)]
    phase_number, captured = None, None
    hidden = not (progress and sys.stderr.isatty())
    # The caller's random state is restored afterwards.
    with torch.random.fork_rng([device] if device.type == "cuda" else []), progress_bar(hidden=hidden) as bar:
        shown = bar.add_task("training", total=epochs, completed=begun)
        for epoch in range(begun, epochs):
            if schedule[epoch] != phase_number:
                phase_number = schedule[epoch]
                for trainer in trainers:
                    trainer.begin_phase(trainer.run.method.phases[phase_number])
                captured = CapturedSteps([t.step for t in trainers]) if device.type == "cuda" else None
            _run_epoch(trainers, epoch, captured)
            done = epoch + 1
            entry = first.history.epochs[-1]
            words = [entry["phase"], f"epoch {done}/{epochs}", f"loss {entry['loss']:.3f}"]
            words += [f"{name} {share:.1%}" for name, share in entry.get("accuracy", {}).items()]
            bar.update(shown, advance=1, description=", ".join(words))
            late = deadline is not None and time.monotonic() >= deadline
            due = late or done == epochs or time.monotonic() - saved >= checkpoint_seconds
            if checkpoint_path is not None and due:
                state = {"epoch": done, "runs": [trainer.state() for trainer in trainers]}
                checkpoint.save(checkpoint_path, description, state)
                saved = time.monotonic()
            if late:
                break
    for trainer in trainers:
        trainer.history.finished = done == epochs
    return first.history if isinstance(runs, TrainingRun) else [trainer.history for trainer in trainers]


def _require_alike(trainers: list[Trainer]) -> None:
    if not trainers:
        raise ParameterError("There is nothing to train: give at least one TrainingRun.")
    networks = [id(network) for trainer in trainers for network in trainer.run.method.networks.values()]
    if len(set(networks)) < len(networks):
        raise ParameterError("Two runs have the same network; give each its own, for example with copy.deepcopy.")
    shapes = {(tuple(p.epochs for p in t.run.method.phases), t.n_steps, t.device) for t in trainers}
    if len(shapes) > 1:
        raise ParameterError(
            "Runs that are trained side by side need the same epochs, the same number of batches and one device; got "
            f"{sorted(map(str, shapes))}."
        )


def _run_epoch(trainers: list[Trainer], epoch: int, captured: CapturedSteps | None) -> None:
    started = time.perf_counter()
    if captured is None:
        for trainer in trainers:
            trainer.begin_epoch(epoch)
            for _ in range(trainer.n_steps):
                trainer.step()
    else:
        changed = [trainer.begin_epoch(epoch) for trainer in trainers]
        if any(changed):
            captured.forget()  # the learning rate is part of the graph
        for _ in range(trainers[0].n_steps):
            captured.replay()
    for trainer in trainers:
        trainer.finish_epoch(epoch, started)
