"""One small training loop for every method: phases of epochs, checkpoints, several trials side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from steelyard.deep.training import checkpoint
from steelyard.deep.training.graphs import Captured
from steelyard.deep.training.run import Run, Settings, Trial
from steelyard.errors import ParameterError


def train(
    trials: Trial | Sequence[Trial],
    settings: Settings,
    *,
    checkpoint_path: str | Path | None = None,
    checkpoint_seconds: float = 0.0,
    deadline: float | None = None,
    progress: bool = True,
) -> bool:
    """Train the networks of the trials in place, from the checkpoint on where there is one.

    With the same seed and data the result is the same, to the bit on a CPU, whether or not the training was stopped
    and resumed. On a GPU each step is one captured graph and the steps of several trials run side by side. Trials that
    are trained together need phases of the same lengths, equally many batches and networks of their own.

    Parameters
    ----------
    trials : Trial or sequence of them
    settings : Settings
    checkpoint_path : str or Path, default=None
        Written after every epoch; read first where it exists.
    checkpoint_seconds : float, default=0
        Write only if the last time is as long ago, or after the last epoch.
    deadline : float, default=None
        A value of `time.monotonic`: the epoch in which it passes is the last one, and the same call goes on from the
        checkpoint another time.
    progress : bool, default=True
        A bar on stderr, where that is a terminal.

    Returns
    -------
    finished : bool
        False where the deadline came first.
    """
    runs = [Run(trial, settings) for trial in ([trials] if isinstance(trials, Trial) else trials)]
    _require_alike(runs)
    description: dict[str, Any] = {}
    begun = 0
    for run in runs:
        run.trial.log.clear()
    if checkpoint_path is not None:
        checkpoint_path = Path(checkpoint_path)
        for k, run in enumerate(runs):
            description |= {key if not k else f"{key} of trial {k}": value for key, value in run.describe().items()}
        state = checkpoint.load(checkpoint_path, description, runs[0].device)
        if state is not None:
            begun = state["epoch"]
            for run, its_state in zip(runs, state["runs"], strict=True):
                run.restore(its_state)
    epochs = runs[0].trial.method.epochs
    with _random_state_kept(runs[0].device), _bar(progress, epochs, begun) as advance:
        at, saved = 0, time.monotonic()
        for phase_number, phase in enumerate(runs[0].trial.method.phases):
            if at + phase.epochs <= begun:
                at += phase.epochs
                continue
            for run in runs:
                run.begin_phase(run.trial.method.phases[phase_number])
            captured = Captured([run.step for run in runs]) if runs[0].device.type == "cuda" else None
            for epoch in range(max(at, begun), at + phase.epochs):
                _run_epoch(runs, epoch, captured)
                advance(runs[0].trial.log[-1])
                late = deadline is not None and time.monotonic() >= deadline
                last = late or epoch + 1 == epochs
                if checkpoint_path is not None and (last or time.monotonic() - saved >= checkpoint_seconds):
                    state = {"epoch": epoch + 1, "runs": [run.state() for run in runs]}
                    checkpoint.save(checkpoint_path, description, state)
                    saved = time.monotonic()
                if late:
                    return epoch + 1 == epochs
            at += phase.epochs
    return True


def _run_epoch(runs: list[Run], epoch: int, captured: Captured | None) -> None:
    started = time.perf_counter()
    if captured is None:
        for run in runs:
            run.begin_epoch(epoch)
            for _ in range(run.n_steps):
                run.step()
    else:
        changed = [run.begin_epoch(epoch) for run in runs]
        if any(changed):
            captured.forget()  # the learning rate is part of the graph
        for _ in range(runs[0].n_steps):
            captured.replay()
    for run in runs:
        run.finish_epoch(epoch, started)


def _require_alike(runs: list[Run]) -> None:
    if not runs:
        raise ParameterError("There is nothing to train: give at least one Trial.")
    networks = [id(network) for run in runs for network in run.trial.method.networks.values()]
    if len(set(networks)) < len(networks):
        raise ParameterError("Two trials have the same network; each needs one of its own, such as a copy.deepcopy.")
    shapes = {(tuple(p.epochs for p in run.trial.method.phases), run.n_steps, run.device) for run in runs}
    if len(shapes) > 1:
        raise ParameterError(
            "Trials that train side by side need the same epochs, equally many batches and one device; got "
            f"{sorted(map(str, shapes))}."
        )


@contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    """The caller's random numbers go on as if nothing had been trained."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


@contextmanager
def _bar(wanted: bool, epochs: int, begun: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    console = Console(stderr=True)
    columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal)) as progress:
        shown = progress.add_task("training", total=epochs, completed=begun)

        def advance(entry: dict[str, Any]) -> None:
            words = f"{entry['phase']}, epoch {entry['epoch'] + 1}/{epochs}, loss {entry['loss']:.3f}"
            for name, share in entry.get("accuracy", {}).items():
                words += f", {name} {share:.1%}"
            progress.update(shown, advance=1, description=words)

        yield advance
