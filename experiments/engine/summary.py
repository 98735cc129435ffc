"""From cells to numbers: mean, standard deviation, median, and which methods are best or comparable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from scipy.stats import ttest_rel

from experiments.engine.cells import Arrays, Cell, D, Experiment, M, Settings
from experiments.engine.printed import Printed
from experiments.engine.store import Outcome
from steelyard._typing import FloatArray

LEVEL = 0.05
K = TypeVar("K")


@dataclass(frozen=True)
class Row(Generic[D, M]):
    """One method on one data set, over all trials."""

    data: D
    method: M
    mean: float
    sd: float
    median: float
    best: bool  # the leader of its group, or not significantly above it
    p_value: float  # paired t-test against the leader
    seconds: float
    trials: int
    paper: Printed | None


@dataclass(frozen=True, eq=False)
class Summary(Generic[D, M]):
    """A whole table."""

    rows: list[Row[D, M]]
    errors: dict[tuple[D, M], FloatArray]  # of each trial; NaN where one was not run
    settings: Settings
    paper: Mapping[tuple[D, M], Printed] = field(default_factory=dict)
    arrays: Mapping[tuple[D, M], Arrays] = field(default_factory=dict)  # of deep tables: curves and weights of a group
    drawn: Arrays = field(default_factory=dict)  # arrays of pictures that belong to no group

    def row(self, data: D, method: M) -> Row[D, M]:
        """The row of a method on a data set."""
        return next(row for row in self.rows if (row.data, row.method) == (data, method))

    def of(self, data: D) -> list[Row[D, M]]:
        """The rows of a data set."""
        return [row for row in self.rows if row.data == data]


def paired_p_value(errors: FloatArray, others: FloatArray) -> float:
    """Two-sided paired t-test; 1 where the two are the same in every trial, 0 where they differ by a constant.

    Trials that one of the two lacks are left out.
    """
    both = np.isfinite(errors) & np.isfinite(others)
    errors, others = errors[both], others[both]
    difference = errors - others
    if len(errors) < 2 or not difference.any():
        return 1.0
    if np.ptp(difference) <= 1e-12 * np.max(np.abs(difference)):
        return 0.0
    return float(ttest_rel(errors, others).pvalue)


def leader(errors: Mapping[K, FloatArray]) -> K:
    """The method with the least mean among those that have the most trials, so that a few lucky trials do not win."""
    trials = {method: int(np.isfinite(values).sum()) for method, values in errors.items()}
    most = [method for method, n in trials.items() if n == max(trials.values())]
    return min(most, key=lambda method: float(np.nanmean(errors[method])))


def best_and_comparable(errors: Mapping[K, FloatArray]) -> dict[K, tuple[bool, float]]:
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


def summarize(
    experiment: Experiment[D, M],
    settings: Settings,
    trials: range,
    outcomes: Mapping[Cell[D, M], Outcome],
    paper: Mapping[tuple[D, M], Printed],
) -> Summary[D, M]:
    """Rows of every data set and method that was run, over those trials that were run."""
    rows: list[Row[D, M]] = []
    errors, controls = {}, experiment.controls
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
            printed_as = experiment.printed_as(method)
            rows.append(
                _row(data, method, found[method], best, p, paper.get((data, printed_as)) if printed_as else None)
            )
            errors[data, method] = values[method]
    return Summary(rows, errors, settings, paper)


def _row(data: D, method: M, outcomes: list[Outcome], best: bool, p: float, paper: Printed | None) -> Row[D, M]:
    errors = np.array([outcome.error for outcome in outcomes])
    return Row(
        data,
        method,
        float(errors.mean()),
        float(errors.std(ddof=1)) if len(errors) > 1 else 0.0,
        float(np.median(errors)),
        best,
        p,
        float(np.mean([outcome.seconds for outcome in outcomes])),
        len(errors),
        paper,
    )
