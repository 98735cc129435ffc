"""What ``python -m experiments TABLE`` does: compute the missing cells, then show and write the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from experiments import EXPERIMENTS, STUDIES
from experiments.engine.cells import Arrays, Cell, Experiment
from experiments.engine.curves import all_arrays, gather_arrays, group_name, keep_arrays, read_arrays
from experiments.engine.deep_runner import run_deep
from experiments.engine.errors import CellError
from experiments.engine.page import show, write
from experiments.engine.pictures import require_matplotlib
from experiments.engine.printed import printed
from experiments.engine.provenance import environment, note
from experiments.engine.runner import run_missing
from experiments.engine.store import Outcome, TrialStore
from experiments.engine.study import Study, run_study
from experiments.engine.summary import summarize
from steelyard._progress import progress_bar
from steelyard.errors import ParameterError

Cells = list[Cell[Any, Any]]


@dataclass(frozen=True)
class Options:
    """Options of the command line.

    `device`, `minutes` and `only` are for the deep tables: cells that are missing when the minutes are over, or whose
    "data: method" has none of the texts, are shown as not run. With 0 minutes nothing is computed in any table.
    """

    out: Path = Path("results")
    trials: int | None = None
    first_trial: int | None = None
    seed: int = 0
    jobs: int = 1
    changed: Sequence[str] = ()
    device: str = "cpu"
    minutes: float | None = None
    only: Sequence[str] = ()


def list_tables(console: Console) -> None:
    """Explain every table and study, with their settings."""
    found: list[Experiment[Any, Any] | Study] = [*EXPERIMENTS.values(), *STUDIES.values()]
    for each in found:
        console.print(f"[bold]{each.name}[/]  {escape(each.title)}")
        console.print(f"  {escape(each.explains)}")
        for name, setting in each.settings.items():
            console.print(f"  --set {name}={setting.default}  [dim]{escape(setting.meaning)}[/]", highlight=False)
        console.print()


def reproduce(name: str, options: Options, console: Console) -> None:
    """A table, or a study."""
    changed = dict(_pair(text) for text in options.changed)
    if name in EXPERIMENTS:
        Run(EXPERIMENTS[name], options, changed, console).reproduce()
    elif name in STUDIES:
        run_study(STUDIES[name], changed, options.out, console)
    else:
        names = ", ".join((*EXPERIMENTS, *STUDIES))
        raise ParameterError(f"There is no table {name!r}; there are {names}. --list explains them.")


class Run:
    """One call of the command for one table."""

    def __init__(
        self, experiment: Experiment[Any, Any], options: Options, changed: Mapping[str, str], console: Console
    ) -> None:
        self.experiment, self.options, self.changed, self.console = experiment, options, changed, console
        first = experiment.trials.start if options.first_trial is None else options.first_trial
        self.trials = range(first, first + (options.trials or len(experiment.trials)))
        self.settings, self.seed = experiment.settled(changed), options.seed
        self.folder = options.out / experiment.folder
        self.store = TrialStore(self.folder, experiment, self.settings, self.seed)
        self.cells = experiment.cells(self.settings, self.trials)

    def reproduce(self) -> None:
        """Compute the cells that are not stored yet, then show and write the table."""
        require_matplotlib()
        stored = self.store.outcomes()
        missing = [cell for cell in self.cells if cell not in stored]
        counts = f"{len(self.cells)} cells, {len(self.cells) - len(missing)} stored, {len(missing)} to compute"
        self.console.print(counts, style="dim")
        if missing and self.options.minutes != 0:
            self._compute(missing)
        self.page()

    def page(self, *, draw: bool = True) -> None:
        """Show and write the table from the stored trials."""
        stored = self.store.outcomes()
        outcomes = {cell: stored[cell] for cell in self.cells if cell in stored}
        if not outcomes:
            return
        if self.experiment.job is None and len(outcomes) < len(self.cells):
            lacking = len(self.cells) - len(outcomes)
            raise CellError(f"{lacking} of {len(self.cells)} cells are not stored; run without --minutes 0.")
        self.store.tidy()
        summary = summarize(self.experiment, self.settings, self.trials, outcomes, printed(self.experiment))
        drawn = self._drawn()
        gather_arrays(self.folder)
        arrays = all_arrays(self.folder, self.experiment, self.settings, self.store.key, self.seed)
        summary = replace(summary, arrays=arrays, drawn=drawn)
        sections = self.experiment.sections(summary)
        for section in sections:
            show(section, self.console)
        for path in write(self.experiment, summary, sections, self.seed, self._facts(outcomes), self.folder, draw=draw):
            self.console.print(f"Wrote {path}", highlight=False)

    def _compute(self, missing: Cells) -> None:
        experiment, options = self.experiment, self.options
        device = None if experiment.job is None else options.device
        chosen = self._chosen(missing)
        noted = {"environment": environment(device)}
        note(self.folder, experiment.name, self.store.key, self.seed, self.settings, noted)
        if experiment.job is not None:
            run_deep(
                experiment,
                chosen,
                self.settings,
                self.seed,
                self.store,
                self.folder,
                device=options.device,
                minutes=options.minutes,
                say=self.console.print,
            )
            return
        if experiment.before is not None:
            with self.console.status("Computing what the cells share"):
                experiment.before(missing, self.settings, self.seed, options.jobs)
        try:
            with progress_bar("{task.completed}/{task.total}", console=self.console) as bar:
                total = len(self.cells)
                task = bar.add_task(experiment.name, total=total, completed=total - len(missing))
                run_missing(
                    experiment,
                    missing,
                    self.settings,
                    self.seed,
                    self.store,
                    jobs=options.jobs,
                    advance=lambda: bar.advance(task),
                )
        except KeyboardInterrupt:
            self.console.print("Stopped. Everything computed so far is stored; the same command resumes.")
            raise

    def _chosen(self, missing: Cells) -> Cells:
        """Missing cells with one of the texts of --only in their label."""
        only = self.options.only
        labels = dict.fromkeys(cell.label for cell in self.cells)
        for text in only:
            if not any(text in label for label in labels):
                raise ParameterError(f"--only {text}: no cell has that in its name. The names are {'; '.join(labels)}.")
        return [cell for cell in missing if not only or any(text in cell.label for text in only)]

    def _drawn(self) -> Arrays:
        """Arrays of the pictures that belong to no group, computed where they are not stored."""
        if self.experiment.drawn is None:
            return {}
        group = group_name(self.store.key, self.seed)
        found = read_arrays(self.folder, group)
        if found is None:
            keep_arrays(self.folder, group, self.experiment.drawn(self.settings, self.seed))
        return found or read_arrays(self.folder, group) or {}

    def _facts(self, outcomes: Mapping[Cell[Any, Any], Outcome]) -> dict[str, Any]:
        """What provenance.json says of the page."""
        dates = [outcome.date for outcome in outcomes.values()]
        unit = "cpu_seconds" if self.experiment.job is None else "seconds_of_the_device"
        return {
            "command": self._command(),
            "changed": dict(self.changed),
            "trials": [self.trials.start, self.trials.stop - 1],
            "computed": [min(dates), max(dates)],
            unit: round(sum(outcome.seconds for outcome in outcomes.values()), 1),
        }

    def _command(self) -> str:
        """The command that makes this page."""
        words = [f"python -m experiments {self.experiment.name}"]
        default = self.experiment.trials
        words += [f"--first-trial {self.trials.start}"] * (self.trials.start != default.start)
        words += [f"--trials {len(self.trials)}"] * (len(self.trials) != len(default))
        words += [f"--seed {self.seed}"] * (self.seed != 0)
        words += [f"--set {name}={value}" for name, value in self.changed.items()]
        return " ".join(words)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ParameterError(f"--set {text} cannot be read; name=value is needed.")
    return name.strip(), value.strip()
