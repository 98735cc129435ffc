"""Cells of table 7: one method on one split of one country."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.engine.cells import Cell, Settings, stream
from experiments.gasoline_networks import KINDS, load_panel, networks, one_torch_thread, standardised, train_all
from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
from steelyard._typing import FloatArray
from steelyard.baselines import (
    CopulaRegressor,
    DiscrepancyRegressor,
    JointlyWeightedRegressor,
    SourceAndTargetRegressor,
    SourceOnlyRegressor,
    TargetOnlyRegressor,
    TwoStageTrAdaBoostR2,
)
from steelyard.errors import SteelyardWarning
from steelyard.target import Target

NO_LEAK = ", no leak"
REPETITIONS = (1, 2, 3)
NAIVE = ["TarOnly", "SrcOnly", "pooled", "S&TV", "TrAda", "GDM", "Copula", "IW(.5)", "IW(0)", "IW(.95)"]
AUTHORS = [f"Prop (authors) {k}" for k in REPETITIONS]
OURS = [f"Prop {k}" for k in REPETITIONS]
UNTRAINED, LINEAR = ([f"{kind} {k}" for k in REPETITIONS] for kind in ("untrained", "linear"))
CONTROLS = [*UNTRAINED, *LINEAR]
SOURCE_SCALE = "TarOnly, source scale"  # as Prop, ours, sees it
FALLBACK = "Prop 1 with fallback"
METHODS = [*NAIVE, SOURCE_SCALE, *AUTHORS, *OURS, FALLBACK, *CONTROLS]


def compute(cell: Cell, settings: Settings, seed: int) -> float:
    """Mean squared error on the thirteen years, over that of leaving out one year of nineteen."""
    country, leak = cell.data.removesuffix(NO_LEAK), not cell.data.endswith(NO_LEAK)
    years = chosen_years(country, cell.trial, seed)
    if cell.method in (*NAIVE, SOURCE_SCALE):
        source, rows, scale = standardised(country, leak and cell.method != SOURCE_SCALE)
        model = _naive(cell.method, settings, cell.trial)
        few, rest = rows[years], rows[~years]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)  # six rows are too few for a ratio, as the survey says
            model.fit(source[:, :-1], source[:, -1], target=Target(few[:, :-1], few[:, -1]))
        error = float(np.mean((model.predict(rest[:, :-1]) - rest[:, -1]) ** 2))
    else:
        kind, repetition = _kind(cell.method, leak)
        source, rows, scale = standardised(country, leak and kind == "authors")
        candidates = candidates_of(kind, repetition, country, cell.trial, settings, seed)
        average = 1 if kind.startswith("authors") else settings["average"]
        error = _transfer(candidates, rows[years], rows[~years], average, fallback=cell.method == FALLBACK)
    # In units of the label, so that all columns of a table have one denominator.
    *_, reference = standardised(country, leak)
    return error * scale.spread[-1] ** 2 / (reference_error(country, leak) * reference.spread[-1] ** 2)


def _kind(method: str, leak: bool) -> tuple[str, int]:
    if method in CONTROLS:
        return method[:-2], int(method[-1])
    if method in AUTHORS:
        return ("authors" if leak else "authors, no leak"), int(method[-1])
    return "ours", 1 if method == FALLBACK else int(method[-1])


def chosen_years(country: str, trial: int, seed: int) -> Any:
    """Which of the nineteen years are learnt from: the published split, or from trial ten on a random one."""
    panel = load_panel()
    years = panel.year[panel.country == country]
    if trial < len(panel.train_years[country]):
        return np.isin(years, panel.train_years[country][trial])
    chosen = np.zeros(len(years), dtype=bool)
    chosen[stream(seed, "gasoline", country, trial).permutation(len(years))[:6]] = True
    return chosen


@lru_cache
def reference_error(country: str, leak: bool) -> float:
    """The normaliser: λ and width are chosen anew on the other eighteen years."""
    _, rows, _ = standardised(country, leak)
    errors = []
    for i in range(len(rows)):
        rest = np.delete(rows, i, axis=0)
        model = LeaveOneOutKernelRegressor().fit(rest[:, :-1], rest[:, -1])
        errors.append(float(model.predict(rows[i : i + 1, :-1])[0] - rows[i, -1]) ** 2)
    return float(np.mean(errors))


def _naive(method: str, settings: Settings, trial: int) -> Any:
    if method.startswith("IW"):
        return JointlyWeightedRegressor(alpha=float(method[3:-1]), standardize=False, random_state=trial)
    return {
        "TarOnly": TargetOnlyRegressor(standardize=False),
        SOURCE_SCALE: TargetOnlyRegressor(standardize=False),
        "SrcOnly": SourceOnlyRegressor(standardize=False),
        "pooled": SourceAndTargetRegressor(scored="all", standardize=False),
        "S&TV": SourceAndTargetRegressor(standardize=False),
        "GDM": DiscrepancyRegressor(standardize=False),
        "Copula": CopulaRegressor(standardize=False, random_state=trial),
        "TrAda": TwoStageTrAdaBoostR2(n_estimators=settings["rounds"], standardize=False, random_state=trial),
    }[method]


def candidates_of(
    kind: str, repetition: int, country: str, split: int, settings: Settings, seed: int
) -> list[tuple[float, FloatArray]]:
    """Leave-one-out error and synthetic rows of every candidate of a cell."""
    from steelyard.causal.inflate import combinations
    from steelyard.causal.transfer import leave_one_out_error, one_class, synthesize

    source, rows, _ = standardised(country, KINDS[kind].leak)
    few = rows[chosen_years(country, split, seed)]
    origin, svm = combinations(len(few), few.shape[1], 2000), one_class(source)
    with one_torch_thread():
        return [
            (leave_one_out_error(None, few, one), one.rows)
            for checkpoint in networks(kind, repetition, country, split, settings, seed)
            for one in synthesize(checkpoint, few, origin, svm)
        ]


def _transfer(
    candidates: list[tuple[float, FloatArray]], few: FloatArray, rest: FloatArray, average: int, *, fallback: bool
) -> float:
    """Error of the mean prediction of the best candidates by leave-one-out on the few rows."""
    from steelyard.causal.transfer import fit_augmented, leave_one_out_error

    best = sorted(candidates, key=lambda pair: pair[0])
    if fallback:
        alone = leave_one_out_error(None, few, None)
        best = [pair for pair in best if pair[0] < alone] or [(alone, few[:0])]
    predicted = [fit_augmented(None, few, rows).predict(rest[:, :-1]) for _, rows in best[:average]]
    return float(np.mean((np.mean(predicted, axis=0) - rest[:, -1]) ** 2))


def before(missing: Sequence[Cell], settings: Settings, seed: int, jobs: int) -> None:
    """Train what the cells need, once."""
    wanted = [
        _kind(cell.method, not cell.data.endswith(NO_LEAK))
        for cell in missing
        if cell.method not in (*NAIVE, SOURCE_SCALE)
    ]
    train_all(wanted, settings, seed, jobs)
