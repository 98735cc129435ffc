"""The numbers that the survey prints."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from experiments.engine.cells import D, Experiment, M

FOLDER = Path(__file__).parent.parent / "printed"


@dataclass(frozen=True)
class Printed:
    """A cell of the survey's own table."""

    mean: float
    sd: float
    seconds: float | None = None


def printed(experiment: Experiment[D, M]) -> dict[tuple[D, M], Printed]:
    """The survey's numbers, by data set and method; empty where the survey has no such table."""
    path = FOLDER / f"{experiment.folder}.csv"
    if not path.is_file():
        return {}
    return {
        experiment.conditions([row.get(name) or "" for name in experiment.columns]): number(row)
        for row in read_printed(path.name)
    }


def read_printed(name: str) -> list[dict[str, str]]:
    """Rows of a file of printed numbers."""
    with (FOLDER / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(row: dict[str, str]) -> Printed:
    """Mean, standard deviation and, where printed, seconds of a row."""
    return Printed(float(row["mean"]), float(row["sd"]), float(row["seconds"]) if row.get("seconds") else None)
