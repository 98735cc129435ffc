"""What a table of the survey is made of: cells, each with a random stream of its own."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.errors import ParameterError

Settings = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Cell:
    """One method on one draw of one data set."""

    data: str
    method: str
    trial: int


@dataclass(frozen=True)
class Setting:
    """What the survey does not say: the value used, and why or what else there is."""

    default: Any
    meaning: str


@dataclass(frozen=True)
class Experiment:
    """A table: its cells, how one is computed, and how the result is laid out."""

    name: str
    file: str  # stem of the files it writes
    title: str
    explains: str
    settings: Mapping[str, Setting]
    data: Callable[[Settings], list[str]]  # the data sets, variants included
    methods: Callable[[str], list[str]]  # those of a data set
    compute: Callable[[Cell, Settings, int], float] | None  # the error of a cell; None for those that train together
    sections: Callable[[Any], list[Any]]  # the tables to print, from a `Summary`
    figures: Callable[[Any, Path], list[Path]]  # pictures beside the plot of the table
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda settings: settings  # reads what settings point to
    controls: frozenset[str] = frozenset()  # methods that are shown but do not compete for best
    printed_as: Mapping[str, str] = field(default_factory=dict)  # methods whose printed column has another name
    trials: int = 100
    # What must be there before cells are computed side by side: cells, settings, seed, processes.
    before: Callable[[Any, Settings, int, int], None] | None = None
    # Deep tables: what trains the trials of a method on a data set side by side, and which groups come first.
    job: Callable[[str, str, list[int], Settings, int, str], Any] | None = None
    urgency: Callable[[str, str], int] = lambda data, method: 0

    def cells(self, settings: Settings, trials: range) -> list[Cell]:
        """Every cell, trial by trial, so that an unfinished run has whole trials."""
        return [
            Cell(data, method, trial)
            for trial in trials
            for data in self.data(settings)
            for method in self.methods(data)
        ]

    def settled(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Settings with the given ones replaced, each as the type of its default."""
        unknown = sorted(set(given) - set(self.settings))
        if unknown:
            raise ParameterError(
                f"{self.name} has no setting {unknown[0]!r}; it has {', '.join(self.settings) or 'none'}."
            )
        values = {name: setting.default for name, setting in self.settings.items()}
        for name, text in given.items():
            values[name] = _parse(name, text, values[name])
        return self.prepare(values)


def _parse(name: str, text: str, default: Any) -> Any:
    words = {"true": True, "yes": True, "false": False, "no": False}
    try:
        if isinstance(default, bool):
            return words[text.lower()]
        return type(default)(text)
    except (KeyError, ValueError) as error:
        kind = "yes or no" if isinstance(default, bool) else f"a value like {default!r}"
        raise ParameterError(f"{name}={text} cannot be read; {kind} is needed.") from error


def stream(seed: int, *identity: str | int) -> np.random.Generator:
    """A random stream that depends on the seed and an identity alone, never on the order of cells or the worker."""
    text = "/".join(map(str, (seed, *identity)))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))


@dataclass(frozen=True)
class Printed:
    """A cell of the survey's own table."""

    mean: float
    sd: float
    seconds: float | None = None


def printed(name: str) -> dict[tuple[str, str], Printed]:
    """The survey's numbers, by data set and method; none where the survey has no such table."""
    path = Path(__file__).parent.parent / "printed" / name
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8") as file:
        return {
            (row["data"], row["method"]): Printed(
                float(row["mean"]), float(row["sd"]), float(row["seconds"]) if row.get("seconds") else None
            )
            for row in csv.DictReader(file)
        }
