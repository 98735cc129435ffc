"""What ``python -m experiments`` does: run what is missing, then show and write the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments import EXPERIMENTS
from experiments.engine.cells import Cell, Experiment, Settings, printed
from experiments.engine.deep_runner import run_deep
from experiments.engine.page import environment, show, write
from experiments.engine.runner import run_missing
from experiments.engine.store import CellStore, open_store
from experiments.engine.summary import summarise
from steelyard.errors import ParameterError


def list_tables(console: Console) -> None:
    """Every table and its settings."""
    for experiment in EXPERIMENTS.values():
        console.print(f"[bold]{experiment.name}[/]  {escape(experiment.title)}")
        console.print(f"  {escape(experiment.explains)}")
        for name, setting in experiment.settings.items():
            console.print(f"  --set {name}={setting.default}  [dim]{escape(setting.meaning)}[/]", highlight=False)
        console.print()


def reproduce_table(
    name: str,
    folder: Path,
    n_trials: int | None,
    first_trial: int,
    seed: int,
    jobs: int,
    given: list[str],
    console: Console,
    *,
    device: str = "cpu",
    minutes: float | None = None,
    only: Sequence[str] = (),
) -> None:
    """Compute the cells that are not in the folder yet, then show and write the table.

    `device`, `minutes` and `only` are for the deep tables; their cells that are not there when the minutes are over, or
    whose "data: method" has none of the texts, are shown as not run. With no minutes at all nothing is computed.
    """
    experiment = _experiment(name)
    trials = range(first_trial, first_trial + (n_trials or experiment.trials))
    settings = experiment.settled(dict(_pair(text) for text in given))
    with open_store(folder / f"{experiment.file}.sqlite", settings, seed) as store:
        cells = experiment.cells(settings, trials)
        stored = store.outcomes()
        missing = [cell for cell in cells if cell not in stored]
        console.print(f"{len(cells)} cells, {len(cells) - len(missing)} stored, {len(missing)} to compute", style="dim")
        if missing and minutes != 0:
            store.note_environment(environment(device if experiment.job is not None else None))
        if experiment.job is None:
            _compute(experiment, cells, missing, settings, seed, store, jobs, console)
        elif missing and minutes != 0:
            missing = _chosen(missing, cells, only)
            run_deep(
                experiment, missing, settings, seed, store, folder, device=device, minutes=minutes, say=console.print
            )
        stored, environments = store.outcomes(), store.environments()
    outcomes = {cell: stored[cell] for cell in cells if cell in stored}
    if not outcomes:
        return
    summary = summarise(experiment, settings, trials, outcomes, printed(f"{experiment.file}.csv"))
    summary = replace(summary, folder=folder, seed=seed)
    for section in experiment.sections(summary):
        show(section, console)
    dates = [outcome.date for outcome in outcomes.values()]
    run = {
        "table": experiment.name,
        "seed": seed,
        "trials": [trials.start, trials.stop - 1],
        "computed": [_day(min(dates)), _day(max(dates))],
        "cpu_seconds" if experiment.job is None else "seconds_of_the_device": round(
            sum(outcome.seconds for outcome in outcomes.values()), 1
        ),
        "computed_with": environments,
    }
    for path in write(experiment, summary, run, folder):
        console.print(f"Wrote {path}", highlight=False)


def _chosen(missing: list[Cell], cells: list[Cell], only: Sequence[str]) -> list[Cell]:
    """Missing cells with one of the texts in their name."""
    names = dict.fromkeys(f"{cell.data}: {cell.method}" for cell in cells)
    for text in only:
        if not any(text in name for name in names):
            raise ParameterError(f"--only {text}: nothing has that in its name. The names are {'; '.join(names)}.")
    return [cell for cell in missing if not only or any(text in f"{cell.data}: {cell.method}" for text in only)]


def _compute(
    experiment: Experiment,
    cells: list[Cell],
    missing: list[Cell],
    settings: Settings,
    seed: int,
    store: CellStore,
    jobs: int,
    console: Console,
) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    if experiment.before is not None and missing:
        with console.status("What the cells share is computed first"):
            experiment.before(missing, settings, seed, jobs)
    try:
        with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
            task = progress.add_task(experiment.name, total=len(cells), completed=len(cells) - len(missing))
            run_missing(experiment, missing, settings, seed, store, jobs=jobs, advance=lambda: progress.advance(task))
    except KeyboardInterrupt:
        console.print("Stopped. What was computed is stored; the same command goes on from there.")
        raise


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _experiment(name: str) -> Experiment:
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    raise ParameterError(f"There is no table {name!r}; there are {', '.join(EXPERIMENTS)}. --list explains them.")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ParameterError(f"--set {text} cannot be read; name=value is needed.")
    return name.strip(), value.strip()
