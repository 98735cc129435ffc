"""Table 2: four regression tables with natural shift, five of two classes with synthetic shift (section 5.3.2)."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.kernel_ridge import KernelRidge

from experiments.engine.cells import Cell, Experiment, Setting, Settings, stream
from experiments.engine.drawing import draw_benchmark
from experiments.engine.page import Entry, Section
from experiments.engine.summary import LEVEL, Row, Summary, paired_p_value
from experiments.kernel_methods import (
    OPEN_SETTINGS,
    EIWERMClassifier,
    EIWERMRegressor,
    ERMClassifier,
    ERMRegressor,
    RIWERMClassifier,
    RIWERMRegressor,
    estimator,
)
from steelyard._typing import FloatArray, IntArray
from steelyard.datasets import Table, biased_split, load_table, natural_split
from steelyard.errors import InputError, ParameterError
from steelyard.one_step.estimators import OneStepClassifier, OneStepRegressor
from steelyard.target import Target

NATURAL = {"auto": "auto_mpg", "bike": "bike_sharing_day", "parkinsons": "parkinsons", "wine": "wine"}
SYNTHETIC = {
    "australian": "australian",
    "breast": "breast_cancer",
    "diabetes": "diabetes",
    "heart": "heart",
    "sonar": "sonar",
}
REGRESSORS: dict[str, Any] = {
    "ERM": ERMRegressor,
    "EIWERM": EIWERMRegressor,
    "RIWERM": RIWERMRegressor,
    "one-step": OneStepRegressor,
}
CLASSIFIERS: dict[str, Any] = {
    "ERM": ERMClassifier,
    "EIWERM": EIWERMClassifier,
    "RIWERM": RIWERMClassifier,
    "one-step": OneStepClassifier,
}
OFF, CONSTANT = "one-step, coupling off", "constant"
METHODS = [*REGRESSORS, OFF, CONSTANT]


def read_protocol(settings: dict[str, Any]) -> dict[str, Any]:
    """The file of sizes, sides and directions; what it says is part of the settings."""
    named = settings["protocol"]
    try:
        own = Path(__file__).with_name("benchmark.toml")
        text = own.read_text("utf-8") if named == "benchmark.toml" else Path(named).read_text("utf-8")
        content = tomllib.loads(text)
        missing = {"sizes", "synthetic", "variants"} - set(content)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ParameterError(f"The protocol {named} cannot be read: {error}") from error
    if missing:
        raise ParameterError(f"The protocol {named} lacks the sections {sorted(missing)}.")
    return {**settings, "protocol": content}


def data_sets(settings: Settings) -> list[str]:
    """The nine sets, then each again in every variant."""
    names = [name for name in (*NATURAL, *SYNTHETIC) if name in settings["protocol"]["sizes"]]
    variants = settings["protocol"]["variants"]
    return names + [f"{name}, {variant}" for variant in variants for name in names]


class Split:
    """Labelled source rows, unlabelled target rows, and target rows for the error."""

    def __init__(self, source: Table, target: Table, rows: IntArray, unlabelled: IntArray) -> None:
        rest = np.setdiff1d(np.arange(len(target.y)), unlabelled)
        self.X, self.y, self.X_target = source.X[rows], source.y[rows], target.X[unlabelled]
        self.X_test, self.y_test = target.X[rest], target.y[rest]


def split(data: str, trial: int, settings: Settings, seed: int) -> Split:
    """One draw of a data set."""
    name, _, variant = data.partition(", ")
    protocol = settings["protocol"]
    change = protocol["variants"].get(variant, {})
    # Variants of a trial share its direction and start from the same draw.
    rng = stream(seed, "benchmark", name, trial)
    if name in NATURAL:
        source, target = _natural(name)
    else:
        source, target = _worst_direction(_table(name), rng, **protocol["synthetic"])
    if change.get("swap", False):
        source, target = target, source
    sizes = protocol["sizes"][name]
    n_source = min(round(sizes["source"] * change.get("source_share", 1.0)), len(source.y))
    n_target = min(sizes["target"], len(target.y) // 2)
    unlabelled = rng.permutation(len(target.y))[:n_target]
    return Split(source, target, _draw(source, n_source, name in SYNTHETIC, rng), unlabelled)


@lru_cache
def _natural(name: str) -> tuple[Table, Table]:
    return natural_split(NATURAL[name])


@lru_cache
def _table(name: str) -> Table:
    return load_table(SYNTHETIC[name])


def _draw(source: Table, n_rows: int, classes: bool, rng: np.random.Generator) -> IntArray:
    """Rows without replacement; again where a class would be missing."""
    for _ in range(100):
        rows = rng.permutation(len(source.y))[:n_rows]
        if not classes or min(np.sum(source.y[rows] == 0), np.sum(source.y[rows] == 1)) >= 2:
            return rows
    raise InputError("In 100 draws of source rows one class was always missing.")


def _worst_direction(
    table: Table, rng: np.random.Generator, *, slope: float, directions: int, least_of_a_class: int
) -> tuple[Table, Table]:
    """Of several random directions, the split under which a classifier generalises worst."""
    worst, found = -1.0, None
    for _ in range(directions):
        w = rng.normal(size=(table.X.shape[1],))
        source, target = biased_split(table.X, direction=w, slope=slope, random_state=rng)
        counts = [np.sum(table.y[source] == label) for label in (0, 1)]
        if min(counts) < least_of_a_class:
            continue
        error = _kernel_ridge_error(table, source, target)
        if error > worst:
            worst, found = error, (source, target)
    if found is None:
        raise InputError(f"None of {directions} directions left {least_of_a_class} source rows of each class.")
    return tuple(Table(table.X[rows], table.y[rows], table.columns) for rows in found)  # type: ignore[return-value]


def _kernel_ridge_error(table: Table, source: IntArray, target: IntArray) -> float:
    scaled = (table.X - table.X.mean(axis=0)) / np.maximum(table.X.std(axis=0), 1e-12)
    signs = 2 * table.y - 1
    # Half the mean squared distance of z-scored rows is the number of columns: the customary width.
    model = KernelRidge(alpha=1.0, kernel="rbf", gamma=0.5 / scaled.shape[1]).fit(scaled[source], signs[source])
    return float(np.mean(np.sign(model.predict(scaled[target])) != signs[target]))


def compute(cell: Cell, settings: Settings, seed: int) -> float:
    """Mean squared error, or percentage of wrong classes, on target rows that were in no fit."""
    draw = split(cell.data, cell.trial, settings, seed)
    name, _, variant = cell.data.partition(", ")
    regression = name in NATURAL
    change = settings["protocol"]["variants"].get(variant, {})
    open_settings = {**settings, **{key: change[key] for key in ("rule", "largest_reg") if key in change}}
    fit_seed = int(stream(seed, "benchmark", name, cell.trial, "fit").integers(2**31))
    predicted = fit(cell.method, regression, open_settings, fit_seed, draw).predict(draw.X_test)
    if regression:
        return float(np.mean(np.square(predicted - draw.y_test)))
    return float(100 * np.mean(predicted != draw.y_test))


def fit(method: str, regression: bool, settings: Settings, random_state: int, draw: Split) -> Any:
    """The fitted model of a cell."""
    if method == CONSTANT:
        dummy = DummyRegressor() if regression else DummyClassifier()
        return dummy.fit(draw.X, draw.y)
    cls = (REGRESSORS if regression else CLASSIFIERS)["one-step" if method == OFF else method]
    chosen = {"loss_bound": np.inf} if method == OFF else {}
    return estimator(cls, settings, random_state=random_state, **chosen).fit(
        draw.X, draw.y, target=Target(draw.X_target)
    )


def sections(summary: Summary) -> list[Section]:
    """The table and its variants."""
    names = [data for data in data_sets(summary.settings) if ", " not in data]
    found = [_section(summary, names, "", "Table 2: error on the target")]
    for variant in summary.settings["protocol"]["variants"]:
        found.append(_section(summary, names, f", {variant}", f"Variant: {variant}"))
    return found


def scale_of(summary: Summary, data: str) -> float:
    """Regression errors are divided by ERM's mean, as in the survey; percentages stay."""
    return summary.row(data, "ERM").mean if data.partition(", ")[0] in NATURAL else 1.0


def _section(summary: Summary, names: list[str], variant: str, title: str) -> Section:
    lines = []
    for name in names:
        unit = scale_of(summary, name + variant)
        rows = [summary.row(name + variant, method) for method in METHODS]
        lines.append([Entry(name), *(Entry(_mean_sd(row, unit), row.best) for row in rows)])
        if not variant:
            theirs = [row.paper for row in rows]
            printed = [Entry("" if p is None else f"{p.mean:.2f} ({p.sd:.2f})") for p in theirs]
            lines.append([Entry("  survey"), *printed])
    best = {m: sum(summary.row(name + variant, m).best for name in names) for m in REGRESSORS}
    lines.append([Entry("best or comparable"), *(Entry(f"{best[m]} of {len(names)}") for m in REGRESSORS)])
    lines[-1] += [Entry(""), Entry("")]
    trials = summary.rows[0].trials
    return Section(
        title,
        ["data", *METHODS],
        lines,
        f"Mean (sd) over {trials} trials. Regression: squared error over ERM's mean; classification: % wrong. Bold: "
        "best of the first four, or not significantly worse (paired t-test, 5 %). The last two columns are controls. "
        f"{_verdict(summary, [name + variant for name in names])}",
    )


def _verdict(summary: Summary, data: list[str]) -> str:
    """Where one-step falls behind, and how much of it is the coupling."""
    behind = [name.partition(", ")[0] for name in data if not summary.row(name, "one-step").best]
    acts = [
        name.partition(", ")[0]
        for name in data
        if paired_p_value(summary.errors[name, "one-step"], summary.errors[name, OFF]) < LEVEL
    ]
    return (
        f"One-step is neither best nor comparable on {', '.join(behind) or 'none'}. Switching the coupling off changes "
        f"it significantly on {', '.join(acts) or 'none'}."
    )


def _mean_sd(row: Row, unit: float) -> str:
    return f"{row.mean / unit:.2f} ({row.sd / unit:.2f})"


def figures(summary: Summary, folder: Path) -> list[Path]:
    """The table as a picture."""
    names = [data for data in data_sets(summary.settings) if ", " not in data]
    ratios: dict[str, dict[str, FloatArray]] = {
        name: {m: summary.errors[name, m] / summary.row(name, "ERM").mean for m in METHODS} for name in names
    }
    return draw_benchmark(summary, ratios, folder)


EXPERIMENT = Experiment(
    name="benchmark",
    file="table2_benchmark",
    title="Table 2: benchmark tables under covariate shift",
    explains=(
        "Section 5.3.2: auto, bike, parkinsons and wine with natural shift (regression), australian, breast, diabetes, "
        "heart and sonar with synthetic shift (two classes); ERM, EIWERM, RIWERM and one-step, squared loss. Sizes, "
        "sides and directions are in reproduce/benchmark.toml. All methods have the same basis (50 Gaussians around "
        "target rows), μ grid, folds and selection; target labels enter the synthetic shift, as in the survey, and no "
        "selection."
    ),
    settings={"protocol": Setting("benchmark.toml", "file with sizes, sides and directions"), **OPEN_SETTINGS},
    data=data_sets,
    methods=lambda data: METHODS,
    compute=compute,
    sections=sections,
    figures=figures,
    prepare=read_protocol,
    controls=frozenset([OFF, CONSTANT]),
)
