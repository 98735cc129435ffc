"""When does the coupling of weights and predictor act? Generated data beyond the survey's toy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.engine.cells import Cell, Experiment, Settings, stream
from experiments.engine.drawing import draw_changes
from experiments.engine.page import Entry, Section
from experiments.engine.summary import Summary, paired_p_value
from experiments.kernel_methods import OPEN_SETTINGS, EIWERMRegressor, ERMRegressor, RIWERMRegressor, estimator
from steelyard._typing import FloatArray
from steelyard.one_step.estimators import OneStepRegressor
from steelyard.target import Target

# What each problem changes of the toy: rows, noise (its standard deviation, where it is ten times that, the share of
# labels with twenty times that), and the width of f's Gaussians.
PROBLEMS: dict[str, dict[str, float]] = {
    "the toy": {},
    "noise 1": {"noise": 1.0},
    "uneven noise": {"uneven": 2.0},
    "outliers": {"outliers": 0.1},
    "few rows": {"rows": 30},
    "f nearly straight": {"width": 5.0},
    "uneven noise, f nearly straight": {"uneven": 2.0, "width": 5.0},
    "outliers, f nearly straight": {"outliers": 0.1, "width": 5.0},
}
OFF = "one-step, coupling off"
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ERM": (ERMRegressor, {}),
    "EIWERM": (EIWERMRegressor, {}),
    "RIWERM": (RIWERMRegressor, {}),
    "one-step": (OneStepRegressor, {}),
    OFF: (OneStepRegressor, {"loss_bound": np.inf}),
    "one-step (Tukey)": (OneStepRegressor, {"loss": "tukey"}),
}


def problem(data: str, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Source rows, labels and target rows."""
    change = PROBLEMS[data]
    n_rows = int(change.get("rows", 150))
    X, X_target = rng.normal(1, 0.5, (n_rows, 1)), rng.normal(2, 0.25, (n_rows, 1))
    size = np.full(n_rows, change.get("noise", 0.1))
    size[X[:, 0] > change.get("uneven", np.inf)] *= 10
    size[rng.random(n_rows) < change.get("outliers", 0.0)] *= 20
    return X, np.sinc(X[:, 0]) + size * rng.normal(size=n_rows), X_target


def compute(cell: Cell, settings: Settings, seed: int) -> float:
    """Mean squared distance from the true function on the target."""
    X, y, X_target = problem(cell.data, stream(seed, "coupling", cell.data, cell.trial))
    cls, options = METHODS[cell.method]
    fit_seed = int(stream(seed, "coupling", cell.data, cell.trial, "fit").integers(2**31))
    model = estimator(cls, settings, width=PROBLEMS[cell.data].get("width"), random_state=fit_seed, **options)
    model.fit(X, y, target=Target(X_target))
    x = stream(seed, "coupling", "points").normal(2, 0.25, 2000)
    return float(np.mean(np.square(model.predict(x[:, None]) - np.sinc(x))))


def sections(summary: Summary) -> list[Section]:
    """The methods side by side, and what the coupling adds."""
    lines = []
    for data in PROBLEMS:
        on, off = summary.errors[data, "one-step"], summary.errors[data, OFF]
        entries = [Entry(f"{row.mean:.4f} ({row.sd:.4f})", row.best) for row in summary.of(data)]
        change = Entry(f"{100 * (on.mean() / off.mean() - 1):+.1f} % (p = {paired_p_value(on, off):.2g})")
        lines.append([Entry(data), *entries, change])
    remark = (
        "Mean (sd) of the squared distance from the true function; bold: best of all but the coupling-off column, or "
        "not significantly worse (paired t-test, 5 %). Last column: one-step against itself without coupling."
    )
    return [Section("When does the coupling act?", ["problem", *METHODS, "coupling adds"], lines, remark)]


def figures(summary: Summary, folder: Path) -> list[Path]:
    """What the coupling adds, as a picture."""
    return draw_changes(
        {data: (summary.errors[data, "one-step"], summary.errors[data, OFF]) for data in PROBLEMS},
        "change of the mean error by the coupling, % (bars: 95 %)",
        "Left of zero, the coupling helps",
        folder / "coupling.png",
    )


EXPERIMENT = Experiment(
    name="coupling",
    file="coupling",
    title="One-step: when does the coupling act?",
    explains=(
        "Not a table of the survey. The toy of table 1 made harder: larger noise (standard deviation 1 instead of "
        "0.1), noise that is ten times larger beyond x = 2, one label in ten with twenty times the noise, 30 rows "
        "instead of 150, an f too wide to follow the curve. One-step beside itself with the coupling of weights and "
        "losses switched off, and beside the two-step methods, all with the same basis, grids, folds and rule."
    ),
    settings=OPEN_SETTINGS,
    data=lambda settings: list(PROBLEMS),
    methods=lambda data: list(METHODS),
    compute=compute,
    sections=sections,
    figures=figures,
    controls=frozenset([OFF]),
)
