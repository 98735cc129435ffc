"""When does the coupling of weights and predictor act? Generated data beside the survey's toy problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from experiments.engine.cells import Cell, Condition, Experiment, Settings, stream
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.summary import Summary, paired_p_value
from experiments.kernel_drawing import draw_changes
from experiments.kernel_methods import OPEN_SETTINGS, estimator
from experiments.kernel_regressors import EIWERMRegressor, ERMRegressor, RIWERMRegressor
from steelyard._typing import FloatArray
from steelyard.one_step import OneStepRegressor
from steelyard.target import Target


@dataclass(frozen=True)
class Problem:
    """A problem: its name on the page, its changes of the toy, and the name that seeds its random streams.

    Changes are the number of rows; the noise: its standard deviation, the x beyond which it is ten times that, the
    share of labels with twenty times that; and the width of the Gaussians of f.
    """

    label: str
    changes: Mapping[str, float] = field(default_factory=dict)
    stream_name: str = ""


PROBLEMS: dict[str, Problem] = {
    "toy": Problem("the toy"),
    "noise": Problem("noise 1", {"noise": 1.0}),
    "uneven": Problem("uneven noise", {"uneven": 2.0}),
    "outliers": Problem("outliers", {"outliers": 0.1}),
    "few": Problem("few rows", {"rows": 30}),
    "linear": Problem("f nearly linear", {"width": 5.0}, "f nearly straight"),
    "uneven_linear": Problem(
        "uneven noise, f nearly linear", {"uneven": 2.0, "width": 5.0}, "uneven noise, f nearly straight"
    ),
    "outliers_linear": Problem(
        "outliers, f nearly linear", {"outliers": 0.1, "width": 5.0}, "outliers, f nearly straight"
    ),
}


@dataclass(frozen=True)
class Data(Condition):
    """A problem, by its name in `PROBLEMS`."""

    name: str

    @property
    def label(self) -> str:
        """Name on the page."""
        return PROBLEMS[self.name].label

    @property
    def stream_name(self) -> str:
        """Text that seeds the random streams."""
        return PROBLEMS[self.name].stream_name or self.label


@dataclass(frozen=True)
class Method(Condition):
    """A learner with a loss; one-step may have the coupling of weights and losses switched off."""

    name: str
    loss: str = "squared"
    coupling: bool = True

    @property
    def label(self) -> str:
        """Name of the column."""
        return f"{self.name}{'' if self.coupling else ', coupling off'}{' (Tukey)' if self.loss == 'tukey' else ''}"


CLASSES: dict[str, Any] = {
    "ERM": ERMRegressor,
    "EIWERM": EIWERMRegressor,
    "RIWERM": RIWERMRegressor,
    "one-step": OneStepRegressor,
}
ON, OFF = Method("one-step"), Method("one-step", coupling=False)
METHODS = [*map(Method, CLASSES), OFF, Method("one-step", "tukey")]


def problem(data: Data, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Source rows, labels and target rows."""
    change = PROBLEMS[data.name].changes
    n_rows = int(change.get("rows", 150))
    X, X_target = rng.normal(1, 0.5, (n_rows, 1)), rng.normal(2, 0.25, (n_rows, 1))
    size = np.full(n_rows, change.get("noise", 0.1))
    size[X[:, 0] > change.get("uneven", np.inf)] *= 10
    size[rng.random(n_rows) < change.get("outliers", 0.0)] *= 20
    return X, np.sinc(X[:, 0]) + size * rng.normal(size=n_rows), X_target


def compute(cell: Cell[Data, Method], settings: Settings, seed: int) -> float:
    """Mean squared distance from the true function on the target."""
    identity = "coupling", cell.data.stream_name, cell.trial
    X, y, X_target = problem(cell.data, stream(seed, *identity))
    options: dict[str, Any] = {"loss": cell.method.loss} | ({} if cell.method.coupling else {"loss_bound": np.inf})
    fit_seed = int(stream(seed, *identity, "fit").integers(2**31))
    width = PROBLEMS[cell.data.name].changes.get("width")
    model = estimator(CLASSES[cell.method.name], settings, width=width, random_state=fit_seed, **options)
    model.fit(X, y, target=Target(X_target))
    x = stream(seed, "coupling", "points").normal(2, 0.25, 2000)
    return float(np.mean(np.square(model.predict(x[:, None]) - np.sinc(x))))


def sections(summary: Summary[Data, Method]) -> list[Section]:
    """The methods side by side, and the effect of the coupling."""
    lines = []
    for data in map(Data, PROBLEMS):
        on, off = summary.errors[data, ON], summary.errors[data, OFF]
        entries = [Entry(f"{row.mean:.4f} ({row.sd:.4f})", row.best) for row in summary.of(data)]
        change = Entry(f"{100 * (on.mean() / off.mean() - 1):+.1f} % (p = {paired_p_value(on, off):.2g})")
        lines.append([Entry(data.label), *entries, change])
    remark = (
        "Mean (sd) of the squared distance from the true function; bold: best of all but the coupling-off column, or "
        "not significantly worse (paired t-test, 5 %). Last column: one-step against itself without coupling."
    )
    header = ["problem", *(method.label for method in METHODS), "coupling adds"]
    return [Section("When does the coupling act?", header, lines, remark)]


def pictures(summary: Summary[Data, Method]) -> list[Picture]:
    """The effect of the coupling on each problem."""
    pairs = {data.label: (summary.errors[data, ON], summary.errors[data, OFF]) for data in map(Data, PROBLEMS)}
    label = "change of the mean error by the coupling, % (bars: 95 %)"
    return [Picture("changes", partial(draw_changes, pairs, label, "Left of zero, the coupling helps"))]


EXPERIMENT = Experiment(
    name="coupling",
    title="One-step: when does the coupling act?",
    explains=(
        "Not a table of the survey. The toy of table 1 made harder: larger noise (standard deviation 1 instead of "
        "0.1), noise that is ten times larger beyond x = 2, one label in ten with twenty times the noise, 30 rows "
        "instead of 150, an f too wide to follow the curve. One-step beside itself with the coupling of weights and "
        "losses switched off, and beside the two-step methods, all with the same basis, grids, folds and rule."
    ),
    settings=OPEN_SETTINGS,
    data_class=Data,
    method_class=Method,
    data=lambda settings: [*map(Data, PROBLEMS)],
    methods=lambda data: METHODS,
    compute=compute,
    sections=sections,
    pictures=pictures,
    controls=frozenset([OFF]),
)
