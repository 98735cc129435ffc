"""Do the tests of `diagnose` keep their level, see what they should, and are its verdicts right?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge

from experiments.engine.cells import Cell, Experiment, Setting, Settings, stream
from experiments.engine.drawing import draw_rates
from experiments.engine.page import Entry, Section
from experiments.engine.summary import Summary
from steelyard._typing import FloatArray
from steelyard.diagnostics.conditional import class_conditional_test, concept_test
from steelyard.diagnostics.findings import column_shifts, diagnose
from steelyard.diagnostics.two_sample import classifier_test, mmd_test
from steelyard.model_selection.performance import target_performance
from steelyard.tables import as_frame
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
    "MMD": lambda X, T, rng: mmd_test(X, T, rng).p_value,
    "columns": lambda X, T, rng: column_shifts(as_frame(X), as_frame(T))[0].p_value,
}


def rejects(data: str, test: str, n: int, rng: Rng) -> bool:
    """Whether a test of x rejects at 5 %."""
    X, T = gaussians(rng, n, shift=0.5 if data == "half a standard deviation" else 0.0)
    return TESTS[test](X, T, rng) < LEVEL


def rejects_labels(test: str, n: int, rng: Rng) -> bool:
    """Whether a test of labels rejects where it should not: y given x, and x given y, are the same in both domains."""
    domain = np.repeat([0.0, 1.0], n)
    if test == "y given x":
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


def _copied_rows(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500, shift=0.5)
    return (np.repeat(X, 3, axis=0), None), (np.repeat(T, 3, axis=0), None)


def _copied_without_shift(rng: Rng) -> tuple[Any, Any]:
    X, T = gaussians(rng, 500)
    return (np.repeat(X, 3, axis=0), None), (np.repeat(T, 3, axis=0), None)


VERDICTS: dict[str, tuple[Callable[[Rng], tuple[Any, Any]], set[str]]] = {
    "no shift": (_no_shift, {"no weighting"}),
    "mild": (_mild, {"flattened", "relative"}),
    "strong": (_strong, {"relative"}),
    "disjoint": (_disjoint, {"collect data"}),
    "heavy tails": (_heavy_tails, {"relative"}),
    "label shift": (_label_shift, {"label"}),
    "concept shift": (_concept_shift, {"concept"}),
    "one column of 200": (_one_of_many, {"x0"}),
    "copied rows, mild": (_copied_rows, {"flattened", "relative"}),
    "copied rows, no shift": (_copied_without_shift, {"no weighting"}),
}


def right(scene: str, rng: Rng) -> bool:
    """Whether the verdict is right: the recommendation, the kind of shift, or the column that is named."""
    make, allowed = VERDICTS[scene]
    (X, y), (T, y_target) = make(rng)
    found = diagnose(X, y, target=Target(T, y_target), random_state=int(rng.integers(2**31)))
    if "shift" in scene and y is not None:
        return found.kind in allowed and found.recommendation == "not by x"
    return (found.columns[0].name if scene == "one column of 200" else found.recommendation) in allowed


RATES = {
    "no shift": list(TESTS),
    "half a standard deviation": list(TESTS),
    "no shift given the rest": ["y given x", "x given y"],
    "interval of the target risk": ["covers"],
    "verdict": list(VERDICTS),
}


def compute(cell: Cell, settings: Settings, seed: int) -> float:
    """1 where the test rejects, the interval covers or the verdict is right, else 0."""
    rng, n = stream(seed, "calibration", cell.data, cell.method, cell.trial), int(settings["rows"])
    if cell.data == "verdict":
        return float(right(cell.method, rng))
    if cell.data == "interval of the target risk":
        return float(covers(n, rng))
    if cell.data == "no shift given the rest":
        return float(rejects_labels(cell.method, n, rng))
    return float(rejects(cell.data, cell.method, n, rng))


def sections(summary: Summary) -> list[Section]:
    """How often, with what was asked for."""
    asked = {
        "no shift": "0.02 to 0.08",
        "half a standard deviation": "at least 0.90",
        "no shift given the rest": "0.02 to 0.08",
        "interval of the target risk": "0.90 to 0.99",
        "verdict": "at least 0.90",
    }
    lines = [
        [Entry(row.data), Entry(row.method), Entry(f"{row.mean:.3f}"), Entry(asked[row.data]), Entry(str(row.trials))]
        for row in summary.rows
    ]
    return [Section("How often", ["situation", "test or scene", "rate", "asked for", "draws"], lines)]


def figures(summary: Summary, folder: Path) -> list[Path]:
    """The rates as a picture."""
    return draw_rates([(f"{row.data}: {row.method}", row.mean, row.trials) for row in summary.rows], folder)


EXPERIMENT = Experiment(
    name="calibration",
    file="calibration",
    title="Calibration of the diagnosis",
    explains=(
        "Not a table of the survey. How often the tests of `diagnose` reject at 5 % where nothing differs and where "
        "one of five columns has moved by half a standard deviation; how often tests given x or given y reject where "
        "only the other differs; how often the 95 % interval of the target risk covers it; how often the verdict on "
        "made-up tables is right. 500 rows on each side."
    ),
    settings={"rows": Setting(500, "rows of each sample (verdicts: always 500)")},
    data=lambda settings: list(RATES),
    methods=lambda data: RATES[data],
    compute=compute,
    sections=sections,
    figures=figures,
)
