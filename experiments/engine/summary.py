"""From cells to numbers: mean, spread, median, and which methods are best or comparable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import ttest_rel

from experiments.engine.cells import Cell, Experiment, Printed, Settings
from experiments.engine.store import Outcome
from steelyard._typing import FloatArray

LEVEL = 0.05


@dataclass(frozen=True)
class Row:
    """One method on one data set, over all trials."""

    data: str
    method: str
    mean: float
    sd: float
    median: float
    best: bool  # the leader of its group, or not significantly above it
    p_value: float  # paired t-test against the leader
    seconds: float
    trials: int
    paper: Printed | None


@dataclass(frozen=True, eq=False)
class Summary:
    """A whole table."""

    rows: list[Row]
    errors: dict[tuple[str, str], FloatArray]  # per trial; NaN where one was not run
    settings: Settings
    folder: Path = Path()  # where groups of trials left more than their errors
    seed: int = 0

    def row(self, data: str, method: str) -> Row:
        """The row of a method on a data set."""
        return next(row for row in self.rows if (row.data, row.method) == (data, method))

    def of(self, data: str) -> list[Row]:
        """The rows of a data set."""
        return [row for row in self.rows if row.data == data]


def paired_p_value(one: FloatArray, other: FloatArray) -> float:
    """Two-sided paired t-test; 1 where the two are the same in every trial, 0 where they differ by a constant.

    Trials that one of the two lacks are left out.
    """
    both = np.isfinite(one) & np.isfinite(other)
    one, other = one[both], other[both]
    difference = one - other
    if len(one) < 2 or not difference.any():
        return 1.0
    if np.ptp(difference) <= 1e-12 * np.max(np.abs(difference)):
        return 0.0
    return float(ttest_rel(one, other).pvalue)


def leader(errors: Mapping[str, FloatArray]) -> str:
    """The method with the least mean of those that have the most trials: a few lucky ones do not make it."""
    trials = {method: int(np.isfinite(values).sum()) for method, values in errors.items()}
    most = [method for method, n in trials.items() if n == max(trials.values())]
    return min(most, key=lambda method: float(np.nanmean(errors[method])))


def best_and_comparable(errors: Mapping[str, FloatArray]) -> dict[str, tuple[bool, float]]:
    """For each method whether it is best or comparable, and its p-value against the best.

    Nothing is comparable by fewer than three shared trials: a t-test of two finds next to nothing significant.
    """
    best = leader(errors)
    found = {}
    for method, values in errors.items():
        p = paired_p_value(values, errors[best])
        shared = np.isfinite(values) & np.isfinite(errors[best])
        found[method] = (method == best or (bool(shared.sum() > 2) and p >= LEVEL), p)
    return found


def summarise(
    experiment: Experiment,
    settings: Settings,
    trials: range,
    outcomes: Mapping[Cell, Outcome],
    paper: Mapping[tuple[str, str], Printed],
) -> Summary:
    """Rows of every data set and method that was run, with as many of the trials as were."""
    rows, errors, controls = [], {}, experiment.controls
    for data in experiment.data(settings):
        ran = {m: [outcomes.get(Cell(data, m, t)) for t in trials] for m in experiment.methods(data)}
        found = {m: [outcome for outcome in each if outcome is not None] for m, each in ran.items()}
        methods = [m for m in ran if found[m]]
        if not set(methods) - controls:
            continue
        values = {m: np.array([np.nan if o is None else o.error for o in ran[m]]) for m in methods}
        contenders = {m: v for m, v in values.items() if m not in controls}
        marks, first = best_and_comparable(contenders), values[leader(contenders)]
        for method in methods:
            best, p = marks.get(method, (False, paired_p_value(values[method], first)))
            there = np.array([outcome.error for outcome in found[method]])
            rows.append(
                Row(
                    data,
                    method,
                    float(there.mean()),
                    float(there.std(ddof=1)) if len(there) > 1 else 0.0,
                    float(np.median(there)),
                    best,
                    p,
                    float(np.mean([outcome.seconds for outcome in found[method]])),
                    len(there),
                    paper.get((data, experiment.printed_as.get(method, method))),
                )
            )
            errors[data, method] = values[method]
    return Summary(rows, errors, settings)
