"""Do the tests of `diagnose` keep their level, do they have power, and are its recommendations right?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge

from experiments.engine.cells import Cell, Condition, Experiment, Setting, Settings, stream
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.summary import Summary
from experiments.kernel_drawing import draw_rates
from steelyard._typing import FloatArray
from steelyard.diagnostics.columns import column_shifts
from steelyard.diagnostics.conditional import class_conditional_test, concept_test
from steelyard.diagnostics.findings import diagnose
from steelyard.diagnostics.two_sample import classifier_test, mmd_test
from steelyard.model_selection.performance import target_performance
from steelyard.tables import as_frame, encode_pair
from steelyard.target import Target

Rng = np.random.Generator
LEVEL = 0.05


def gaussians(rng: Rng, n: int, d: int = 5, shift: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Two samples of which the second has its first column moved."""
    X, T = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    T[:, 0] += shift
    return X, T


def outcome(X: FloatArray, rng: Rng) -> FloatArray:
    """Labels by a curve and noise."""
    return np.asarray(X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=len(X)))


TESTS: dict[str, Callable[[FloatArray, FloatArray, Rng], float]] = {
    "classifier": lambda X, T, rng: classifier_test(X, T, rng).p_value,
    "mmd": lambda X, T, rng: mmd_test(X, T, rng).p_value,
    "columns": lambda X, T, rng: column_shifts(encode_pair(as_frame(X), as_frame(T)))[0].p_value,
}


def rejects_labels(given_x: bool, n: int, rng: Rng) -> bool:
    """Whether a test of labels rejects although y given x, or x given y, is the same in both domains."""
    domain = np.repeat([0.0, 1.0], n)
    if given_x:
        rows = np.concatenate(gaussians(rng, n, shift=0.5))
        return concept_test(rows, outcome(rows, rng)[:, None], domain, rng).p_value < LEVEL
    y = (rng.random(2 * n) < np.where(domain == 1, 0.7, 0.4)).astype(np.float64)
    rows = rng.normal(size=(2 * n, 5)) + y[:, None] * np.array([1.0, 0.5, 0.0, 0.0, 0.0])
    return class_conditional_test(rows, y[:, None], domain, rng).p_value < LEVEL


def covers(n: int, rng: Rng) -> bool:
    """Whether the interval of the risk on the target covers it: half a standard deviation in two of five columns."""
    X, T = rng.normal(size=(2 * n, 5)), rng.normal(size=(n, 5))
    T[:, :2] += 0.5

    def truth(rows: FloatArray) -> FloatArray:
        return np.asarray(rows[:, 0] + np.sin(2 * rows[:, 1]))

    y = truth(X) + 0.5 * rng.normal(size=2 * n)
    model = Ridge().fit(X[:n], y[:n])
    many = rng.normal(size=(200_000, 5))
    many[:, :2] += 0.5
    real = -float(np.mean(np.square(model.predict(many) - truth(many)))) - 0.25
    found = target_performance(model, X[n:], y[n:], target=Target(T)).target
    return found.low is not None and found.high is not None and found.low <= real <= found.high


def _no_shift(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500)
    return (X, None), (T, None)


def _mild(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500, shift=0.5)
    return (X, None), (T, None)


def _strong(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500, shift=1.5)
    T[:, 1] *= 0.7
    return (X, None), (T, None)


def _disjoint(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500, shift=8.0)
    return (X, None), (T, None)


def _heavy_tails(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500)
    T[:, 0] *= 2.5
    return (X, None), (T, None)


def _label_shift(rng: Rng) -> tuple[Any, Any]:
    y, y_target = (rng.random(500) < 0.3).astype(int), (rng.random(500) < 0.8).astype(int)
    X, T = (rng.normal(size=(500, 5)) + v[:, None] * np.array([1, 0.5, 0, 0, 0]) for v in (y, y_target))
    return (X, y), (T, y_target)


def _concept_shift(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500)
    return (X, outcome(X, rng)), (T, outcome(T, rng) + 0.8 * T[:, 2])


def _one_of_many(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500, d=200, shift=0.5)
    return (X, None), (T, None)


def _duplicated(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500, shift=0.5)
    return (np.repeat(X, 3, axis=0), None), (np.repeat(T, 3, axis=0), None)


def _duplicated_without_shift(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500)
    return (np.repeat(X, 3, axis=0), None), (np.repeat(T, 3, axis=0), None)


@dataclass(frozen=True)
class Scene:
    """Made-up tables, the findings that are right for them, and the finding that counts."""

    label: str
    make: Callable[[Rng], tuple[Any, Any]]
    allowed: frozenset[str]
    finding: str = "recommendation"  # or the kind of shift, or the column that differs most
    stream_name: str = ""


def _scene(label: str, make: Callable[[Rng], tuple[Any, Any]], *allowed: str, **options: str) -> Scene:
    return Scene(label, make, frozenset(allowed), **options)


SCENES: dict[str, Scene] = {
    "none": _scene("no shift", _no_shift, "no weighting"),
    "mild": _scene("mild", _mild, "flattened", "relative"),
    "strong": _scene("strong", _strong, "relative"),
    "disjoint": _scene("disjoint", _disjoint, "collect data"),
    "heavy_tails": _scene("heavy tails", _heavy_tails, "relative"),
    "label": _scene("label shift", _label_shift, "label", finding="kind"),
    "concept": _scene("concept shift", _concept_shift, "concept", finding="kind"),
    "one_of_200": _scene("one column of 200", _one_of_many, "x0", finding="column"),
    "duplicated": _scene(
        "duplicated rows, mild", _duplicated, "flattened", "relative", stream_name="copied rows, mild"
    ),
    "duplicated_none": _scene(
        "duplicated rows, no shift", _duplicated_without_shift, "no weighting", stream_name="copied rows, no shift"
    ),
}


def right(scene: Scene, rng: Rng) -> bool:
    """Whether the finding is right: the recommendation, the kind of shift, or the column that differs most."""
    (X, y), (T, y_target) = scene.make(rng)
    found = diagnose(X, y, target=Target(T, y_target), random_state=int(rng.integers(2**31)))
    if scene.finding == "kind":
        return found.kind in scene.allowed and found.recommendation == "not by x"
    return (found.columns[0].name if scene.finding == "column" else found.recommendation) in scene.allowed


@dataclass(frozen=True)
class Situation:
    """A group of rates: its name on the page, the rate that was asked for, and its tests or scenes."""

    label: str
    asked: str
    methods: tuple[str, ...]


LABELS = {
    "classifier": "classifier",
    "mmd": "MMD",
    "columns": "columns",
    "y_given_x": "y given x",
    "x_given_y": "x given y",
    "covers": "covers",
    **{name: scene.label for name, scene in SCENES.items()},
}
SITUATIONS: dict[str, Situation] = {
    "no_shift": Situation("no shift", "0.02 to 0.08", tuple(TESTS)),
    "half_sd": Situation("half a standard deviation", "at least 0.90", tuple(TESTS)),
    "conditional": Situation("no shift given the rest", "0.02 to 0.08", ("y_given_x", "x_given_y")),
    "interval": Situation("interval of the target risk", "0.90 to 0.99", ("covers",)),
    "verdict": Situation("verdict", "at least 0.90", tuple(SCENES)),
}


@dataclass(frozen=True)
class Data(Condition):
    """A group of rates, by its name in `SITUATIONS`."""

    name: str

    @property
    def label(self) -> str:
        """Name on the page."""
        return SITUATIONS[self.name].label


@dataclass(frozen=True)
class Method(Condition):
    """A test or a scene, by its name in `LABELS`."""

    name: str

    @property
    def label(self) -> str:
        """Name on the page."""
        return LABELS[self.name]

    @property
    def stream_name(self) -> str:
        """Text that seeds the random streams."""
        return (SCENES[self.name].stream_name if self.name in SCENES else "") or self.label


def compute(cell: Cell[Data, Method], settings: Settings, seed: int) -> float:
    """1 where the test rejects, the interval covers or the verdict is right, else 0."""
    rng = stream(seed, "calibration", cell.data.stream_name, cell.method.stream_name, cell.trial)
    n, situation, name = int(settings["rows"]), cell.data.name, cell.method.name
    if situation == "verdict":
        return float(right(SCENES[name], rng))
    if situation == "interval":
        return float(covers(n, rng))
    if situation == "conditional":
        return float(rejects_labels(name == "y_given_x", n, rng))
    X, T = gaussians(rng, n, shift=0.5 if situation == "half_sd" else 0.0)
    return float(TESTS[name](X, T, rng) < LEVEL)


def sections(summary: Summary[Data, Method]) -> list[Section]:
    """Every rate beside the one that was asked for."""
    lines = [
        [row.data.label, row.method.label, f"{row.mean:.3f}", SITUATIONS[row.data.name].asked, str(row.trials)]
        for row in summary.rows
    ]
    header = ["situation", "test or scene", "rate", "asked for", "draws"]
    return [Section("How often", header, [[Entry(text) for text in line] for line in lines])]


def pictures(summary: Summary[Data, Method]) -> list[Picture]:
    """The rates as a picture."""
    rates = [(f"{row.data.label}: {row.method.label}", row.mean, row.trials) for row in summary.rows]
    return [Picture("rates", partial(draw_rates, rates))]


EXPERIMENT = Experiment(
    name="calibration",
    title="Calibration of the diagnosis",
    explains=(
        "Not a table of the survey. How often the tests of `diagnose` reject at 5 % where nothing differs and where "
        "one of five columns has moved by half a standard deviation; how often tests given x or given y reject where "
        "only the other differs; how often the 95 % interval of the target risk covers it; how often the verdict on "
        "made-up tables is right. 500 rows on each side."
    ),
    settings={"rows": Setting(500, "rows of each sample (verdicts: always 500)")},
    data_class=Data,
    method_class=Method,
    data=lambda settings: [*map(Data, SITUATIONS)],
    methods=lambda data: [*map(Method, SITUATIONS[data.name].methods)],
    compute=compute,
    sections=sections,
    pictures=pictures,
    trials=range(400),
)
