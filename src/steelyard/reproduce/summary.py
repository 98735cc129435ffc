"""From cells to numbers: mean, spread, median, and which methods are best or comparable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import ttest_rel

from steelyard.arrays import FloatArray
from steelyard.reproduce.plan import Cell, Experiment, Printed, Settings
from steelyard.reproduce.store import Outcome

LEVEL = 0.05


@dataclass(frozen=True)
class Row:
    """One method on one data set, over all trials."""

    data: str
    method: str
    mean: float
    sd: float
    median: float
    best: bool  # the least mean of its group, or not significantly above it
    p_value: float  # paired t-test against the least mean
    seconds: float
    trials: int
    paper: Printed | None


@dataclass(frozen=True, eq=False)
class Summary:
    """A whole table."""

    rows: list[Row]
    errors: dict[tuple[str, str], FloatArray]  # per trial
    settings: Settings
    folder: Path = Path()  # where groups of trials left more than their errors

    def row(self, data: str, method: str) -> Row:
        """The row of a method on a data set."""
        return next(row for row in self.rows if (row.data, row.method) == (data, method))

    def of(self, data: str) -> list[Row]:
        """The rows of a data set."""
        return [row for row in self.rows if row.data == data]


def paired_p_value(one: FloatArray, other: FloatArray) -> float:
    """Two-sided paired t-test; 1 where the two are the same in every trial, 0 where they differ by a constant."""
    difference = one - other
    if len(one) < 2 or not difference.any():
        return 1.0
    if np.ptp(difference) <= 1e-12 * np.max(np.abs(difference)):
        return 0.0
    return float(ttest_rel(one, other).pvalue)


def best_and_comparable(errors: Mapping[str, FloatArray]) -> dict[str, tuple[bool, float]]:
    """For each method whether it is best or comparable, and its p-value against the best."""
    leader = min(errors, key=lambda method: float(np.mean(errors[method])))
    found = {}
    for method, values in errors.items():
        p = paired_p_value(values, errors[leader])
        found[method] = (method == leader or p >= LEVEL, p)
    return found


def summarise(
    experiment: Experiment,
    settings: Settings,
    trials: range,
    outcomes: Mapping[Cell, Outcome],
    paper: Mapping[tuple[str, str], Printed],
) -> Summary:
    """Rows of every data set and method that was run."""
    rows, errors, controls = [], {}, experiment.controls
    for data in experiment.data(settings):
        methods = [m for m in experiment.methods(data) if all(Cell(data, m, t) in outcomes for t in trials)]
        if not set(methods) - controls:
            continue
        values = {m: np.array([outcomes[Cell(data, m, t)].error for t in trials]) for m in methods}
        seconds = {m: np.mean([outcomes[Cell(data, m, t)].seconds for t in trials]) for m in methods}
        marks = best_and_comparable({m: v for m, v in values.items() if m not in controls})
        leader = min((m for m in methods if m not in controls), key=lambda m: float(values[m].mean()))
        for method in methods:
            best, p = marks.get(method, (False, paired_p_value(values[method], values[leader])))
            rows.append(
                Row(
                    data,
                    method,
                    float(values[method].mean()),
                    float(values[method].std(ddof=1)) if len(trials) > 1 else 0.0,
                    float(np.median(values[method])),
                    best,
                    p,
                    float(seconds[method]),
                    len(trials),
                    paper.get((data, method)),
                )
            )
            errors[data, method] = values[method]
    return Summary(rows, errors, settings)
