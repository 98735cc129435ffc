"""Trials on disk: one line for each cell in trials.csv, written as soon as it is computed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic

from experiments.engine.cells import Cell, D, Experiment, M, Settings, settings_key, texts
from experiments.engine.files import append_line, locked, replace_file, whole_lines
from steelyard.errors import OutputError


@dataclass(frozen=True)
class Outcome:
    """The error of a cell, and what it took."""

    error: float
    seconds: float
    date: str  # the day, as in 2026-01-31

    @classmethod
    def now(cls, error: float, seconds: float) -> Outcome:
        """An outcome of today."""
        return cls(float(error), round(seconds, 3), datetime.now(UTC).date().isoformat())


class TrialStore(Generic[D, M]):
    """The file trials.csv in the folder of a table, which holds the cells of all settings and seeds.

    A line is appended with one write and synchronized, under a lock that all processes share. A kill can leave a torn
    last line: it is ignored when the file is read and cut off before the next line.
    """

    def __init__(self, folder: Path, experiment: Experiment[D, M], settings: Settings, seed: int) -> None:
        self.folder, self.path, self.experiment = folder, folder / "trials.csv", experiment
        self.key, self.seed = settings_key(settings), seed
        self.columns = ["settings", "seed", *experiment.columns, "trial", "error", "seconds", "date"]

    def outcomes(self) -> dict[Cell[D, M], Outcome]:
        """Every stored cell of these settings and this seed; of a cell that is there twice, the last one."""
        found: dict[Cell[D, M], Outcome] = {}
        conditions: dict[tuple[str, ...], tuple[D, M]] = {}  # every pair is there once for each trial
        for row in self._rows():
            if row[:2] == [self.key, str(self.seed)]:
                pair = tuple(row[2:-4])
                if pair not in conditions:
                    conditions[pair] = self.experiment.conditions(pair)
                found[Cell(*conditions[pair], int(row[-4]))] = Outcome(float(row[-3]), float(row[-2]), row[-1])
        return found

    def put(self, cell: Cell[D, M], outcome: Outcome) -> None:
        """Store one cell, durably."""
        row = [self.key, str(self.seed), *texts(cell.data), *texts(cell.method), str(cell.trial)]
        row += [repr(outcome.error), repr(outcome.seconds), outcome.date]  # digits that give the same numbers back
        with locked(self.folder):
            append_line(self.path, _lines([row]), _lines([self.columns]))

    def tidy(self) -> None:
        """Bring the lines into an order that does not depend on when cells were computed, each cell once."""
        with locked(self.folder):
            found = {tuple(row[:-3]): row for row in self._rows()}
            rows = sorted(found.values(), key=lambda row: (*row[:-4], int(row[-4])))
            replace_file(self.path, _lines([self.columns, *rows]).encode())

    def _rows(self) -> list[list[str]]:
        found = list(csv.reader(whole_lines(self.path)))
        if found and found[0] != self.columns:
            raise OutputError(
                f"{self.path} has the columns {','.join(found[0])}; {self.experiment.name} has "
                f"{','.join(self.columns)}. Move the file away, or give another folder with --out."
            )
        for number, row in enumerate(found, 1):
            if len(row) != len(self.columns):
                raise OutputError(f"{self.path}, line {number}, has {len(row)} fields instead of {len(self.columns)}.")
        return found[1:]


def _lines(rows: Iterable[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
