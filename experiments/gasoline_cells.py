"""Cells of table 7: one method on one split of one country."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.engine.cells import Cell, Condition, Settings, stream
from experiments.gasoline_networks import KINDS, load_panel, networks, one_torch_thread, standardized, train_all
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

REPETITIONS = (1, 2, 3)


@dataclass(frozen=True)
class Data(Condition):
    """A target country; `leak`: columns are standardized over all rows, those of the test included."""

    country: str
    leak: bool = True

    @property
    def label(self) -> str:
        """Name on the page."""
        return self.country if self.leak else f"{self.country}, no leak"


@dataclass(frozen=True)
class Method(Condition):
    """A column of table 7, or one repetition of it.

    `choices` of causal transfer (Prop) are the authors' or ours; with the fallback the target alone is used where
    leave-one-out prefers it. `eta` belongs to importance weighting (IW). `source_scale`: standardized by the source
    rows, as for Prop with our choices.
    """

    name: str
    choices: str = ""
    repetition: int = 0
    fallback: bool = False
    eta: float | None = None
    source_scale: bool = False

    @property
    def label(self) -> str:
        """Name on the page."""
        name = self.name if self.eta is None else f"{self.name}({f'{self.eta:g}'.lstrip('0') or '0'})"
        parts = [name + (" (authors)" if self.choices == "authors" else "")]
        parts += [str(self.repetition)] * (self.repetition > 0) + ["with fallback"] * self.fallback
        return " ".join(parts) + (", source scale" if self.source_scale else "")


TARGET_ONLY = Method("TarOnly")
BASELINES = [
    *(Method(name) for name in ("TarOnly", "SrcOnly", "pooled", "S&TV", "TrAda", "GDM", "Copula")),
    *(Method("IW", eta=eta) for eta in (0.5, 0.0, 0.95)),
]
AUTHORS, OURS = ([Method("Prop", choices, k) for k in REPETITIONS] for choices in ("authors", "ours"))
UNTRAINED, LINEAR = ([Method(kind, repetition=k) for k in REPETITIONS] for kind in ("untrained", "linear"))
CONTROLS = [*UNTRAINED, *LINEAR]
SOURCE_SCALE = Method("TarOnly", source_scale=True)
FALLBACK = Method("Prop", "ours", 1, fallback=True)
METHODS = [*BASELINES, SOURCE_SCALE, *AUTHORS, *OURS, FALLBACK, *CONTROLS]


def compute(cell: Cell[Data, Method], settings: Settings, seed: int) -> float:
    """Mean squared error on the thirteen years, over that of leaving out one year of nineteen."""
    country, leak, method = cell.data.country, cell.data.leak, cell.method
    years = chosen_years(country, cell.trial, seed)
    if _kind(method, leak) is None:
        source, rows, scale = standardized(country, leak and not method.source_scale)
        model = _baseline(method, settings, cell.trial)
        few, rest = rows[years], rows[~years]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)  # six rows are too few for a ratio, as the survey says
            model.fit(source[:, :-1], source[:, -1], target=Target(few[:, :-1], few[:, -1]))
        error = float(np.mean((model.predict(rest[:, :-1]) - rest[:, -1]) ** 2))
    else:
        source, rows, scale = standardized(country, leak and method.choices == "authors")
        candidates = candidates_of(method, cell.data, cell.trial, settings, seed)
        average = 1 if method.choices == "authors" else settings["average"]
        error = _transfer(candidates, rows[years], rows[~years], average, fallback=method.fallback)
    # In units of the label, so that all columns of a table have one denominator.
    *_, reference = standardized(country, leak)
    return error * scale.spread[-1] ** 2 / (reference_error(country, leak) * reference.spread[-1] ** 2)


def _kind(method: Method, leak: bool) -> str | None:
    """The networks of a column; None where it has none."""
    if method.name == "Prop":
        return "authors_no_leak" if method.choices == "authors" and not leak else method.choices
    return method.name if method in CONTROLS else None


def chosen_years(country: str, trial: int, seed: int) -> Any:
    """Which of the nineteen years are for training: the published split, or from trial ten on a random one."""
    panel = load_panel()
    years = panel.year[panel.country == country]
    if trial < len(panel.train_years[country]):
        return np.isin(years, panel.train_years[country][trial])
    chosen = np.zeros(len(years), dtype=bool)
    chosen[stream(seed, "gasoline", country, trial).permutation(len(years))[:6]] = True
    return chosen


@lru_cache
def reference_error(country: str, leak: bool) -> float:
    """The denominator: leave-one-out, with λ and width chosen again on the other eighteen years."""
    _, rows, _ = standardized(country, leak)
    errors = []
    for i in range(len(rows)):
        rest = np.delete(rows, i, axis=0)
        model = LeaveOneOutKernelRegressor().fit(rest[:, :-1], rest[:, -1])
        errors.append(float(model.predict(rows[i : i + 1, :-1])[0] - rows[i, -1]) ** 2)
    return float(np.mean(errors))


def _baseline(method: Method, settings: Settings, trial: int) -> Any:
    if method.eta is not None:
        return JointlyWeightedRegressor(eta=method.eta, standardize=False, random_state=trial)
    return {
        "TarOnly": TargetOnlyRegressor(standardize=False),
        "SrcOnly": SourceOnlyRegressor(standardize=False),
        "pooled": SourceAndTargetRegressor(scored="all", standardize=False),
        "S&TV": SourceAndTargetRegressor(standardize=False),
        "GDM": DiscrepancyRegressor(standardize=False),
        "Copula": CopulaRegressor(standardize=False, random_state=trial),
        "TrAda": TwoStageTrAdaBoostR2(n_estimators=settings["rounds"], standardize=False, random_state=trial),
    }[method.name]


def candidates_of(
    method: Method, data: Data, split: int, settings: Settings, seed: int
) -> list[tuple[float, FloatArray]]:
    """Leave-one-out error and synthetic rows of every candidate of a cell."""
    from steelyard.causal.inflate import combinations
    from steelyard.causal.transfer import leave_one_out_error, one_class, synthesize

    kind, country = _kind(method, data.leak), data.country
    assert kind is not None
    source, rows, _ = standardized(country, KINDS[kind].leak)
    few = rows[chosen_years(country, split, seed)]
    origin, svm = combinations(len(few), few.shape[1], 2000), one_class(source)
    with one_torch_thread():
        return [
            (leave_one_out_error(None, few, synthetic), synthetic.rows)
            for checkpoint in networks(kind, method.repetition, country, split, settings, seed)
            for synthetic in synthesize(checkpoint, few, origin, svm)
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


def before(missing: Sequence[Cell[Data, Method]], settings: Settings, seed: int, jobs: int) -> None:
    """Train the networks that the cells need, once."""
    kinds = ((_kind(cell.method, cell.data.leak), cell.method.repetition) for cell in missing)
    train_all([(kind, repetition) for kind, repetition in kinds if kind is not None], settings, seed, jobs)
