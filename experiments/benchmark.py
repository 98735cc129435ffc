"""Table 2: four regression tables with natural shift, five of two classes with synthetic shift (section 5.3.2)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.kernel_ridge import KernelRidge

from experiments.engine.cells import Cell, Condition, Experiment, Setting, Settings, stream
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.summary import LEVEL, Row, Summary, paired_p_value
from experiments.kernel_classifiers import EIWERMClassifier, ERMClassifier, RIWERMClassifier
from experiments.kernel_drawing import draw_ratios
from experiments.kernel_methods import DIFFERENCE, OPEN_SETTINGS, estimator
from experiments.kernel_regressors import EIWERMRegressor, ERMRegressor, RIWERMRegressor
from steelyard._typing import IntArray
from steelyard.datasets import Table, biased_split, load_table, natural_split
from steelyard.errors import InputError, ParameterError
from steelyard.one_step import OneStepClassifier, OneStepRegressor
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
CONSTANT = "constant"


@dataclass(frozen=True)
class Data(Condition):
    """A data set, drawn as in the table or by a variant of the protocol."""

    name: str
    variant: str = ""

    @property
    def label(self) -> str:
        """Names of the data set and of the variant."""
        return f"{self.name}, {self.variant}" if self.variant else self.name


@dataclass(frozen=True)
class Method(Condition):
    """A learner; one-step may have the coupling of weights and losses switched off."""

    name: str
    coupling: bool = True

    @property
    def label(self) -> str:
        """Name of the column."""
        return self.name if self.coupling else f"{self.name}, coupling off"


MAIN = [Method(name) for name in REGRESSORS]
ERM, ONE_STEP, OFF = Method("ERM"), Method("one-step"), Method("one-step", coupling=False)
METHODS = [*MAIN, OFF, Method(CONSTANT)]


def read_protocol(settings: dict[str, Any]) -> dict[str, Any]:
    """Put the content of the file of sizes, sides and directions into the settings."""
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


def data_sets(settings: Settings) -> list[Data]:
    """The nine sets, then each again in every variant."""
    return [Data(name, variant) for variant in ("", *settings["protocol"]["variants"]) for name in names(settings)]


def names(settings: Settings) -> list[str]:
    """The sets that the protocol has sizes for."""
    return [name for name in (*NATURAL, *SYNTHETIC) if name in settings["protocol"]["sizes"]]


class Split:
    """Labeled source rows, unlabeled target rows, and target rows for the error."""

    def __init__(self, source: Table, target: Table, rows: IntArray, unlabeled: IntArray) -> None:
        rest = np.setdiff1d(np.arange(len(target.y)), unlabeled)
        self.X, self.y, self.X_target = source.X[rows], source.y[rows], target.X[unlabeled]
        self.X_test, self.y_test = target.X[rest], target.y[rest]


def split(data: Data, trial: int, settings: Settings, seed: int) -> Split:
    """One draw of a data set."""
    name, protocol = data.name, settings["protocol"]
    change = protocol["variants"].get(data.variant, {})
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
    unlabeled = rng.permutation(len(target.y))[:n_target]
    return Split(source, target, _draw(source, n_source, name in SYNTHETIC, rng), unlabeled)


@lru_cache
def _natural(name: str) -> tuple[Table, Table]:
    return natural_split(NATURAL[name])


@lru_cache
def _table(name: str) -> Table:
    return load_table(SYNTHETIC[name])


def _draw(source: Table, n_rows: int, classes: bool, rng: np.random.Generator) -> IntArray:
    """Rows without replacement; drawn again where a class would be missing."""
    for _ in range(100):
        rows = rng.permutation(len(source.y))[:n_rows]
        if not classes or min(np.sum(source.y[rows] == 0), np.sum(source.y[rows] == 1)) >= 2:
            return rows
    raise InputError("In 100 draws of source rows one class was always missing.")


def _worst_direction(
    table: Table, rng: np.random.Generator, *, slope: float, directions: int, least_of_a_class: int
) -> tuple[Table, Table]:
    """Of several random directions, the split under which a classifier generalizes worst."""
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


def compute(cell: Cell[Data, Method], settings: Settings, seed: int) -> float:
    """Mean squared error, or percentage of wrong classes, on target rows that were in no fit."""
    draw = split(cell.data, cell.trial, settings, seed)
    regression = cell.data.name in NATURAL
    change = settings["protocol"]["variants"].get(cell.data.variant, {})
    open_settings = {**settings, **{key: change[key] for key in ("rule", "largest_reg") if key in change}}
    fit_seed = int(stream(seed, "benchmark", cell.data.name, cell.trial, "fit").integers(2**31))
    predicted = fit(cell.method, regression, open_settings, fit_seed, draw).predict(draw.X_test)
    if regression:
        return float(np.mean(np.square(predicted - draw.y_test)))
    return float(100 * np.mean(predicted != draw.y_test))


def fit(method: Method, regression: bool, settings: Settings, random_state: int, draw: Split) -> Any:
    """The fitted model of a cell."""
    if method.name == CONSTANT:
        dummy = DummyRegressor() if regression else DummyClassifier()
        return dummy.fit(draw.X, draw.y)
    cls = (REGRESSORS if regression else CLASSIFIERS)[method.name]
    chosen = {} if method.coupling else {"loss_bound": np.inf}
    return estimator(cls, settings, random_state=random_state, **chosen).fit(
        draw.X, draw.y, target=Target(draw.X_target)
    )


def sections(summary: Summary[Data, Method]) -> list[Section]:
    """The table and its variants."""
    found = [_section(summary, "", "Table 2: error on the target")]
    for variant, change in summary.settings["protocol"]["variants"].items():
        found.append(_section(summary, variant, f"Variant: {change.get('title', variant)}"))
    return found


def _section(summary: Summary[Data, Method], variant: str, title: str) -> Section:
    lines = []
    data = [Data(name, variant) for name in names(summary.settings)]
    for each in data:
        # Regression errors are divided by ERM's mean, as in the survey; percentages stay.
        unit = summary.row(each, ERM).mean if each.name in NATURAL else 1.0
        rows = [summary.row(each, method) for method in METHODS]
        lines.append([Entry(each.name), *(Entry(_mean_sd(row, unit), row.best) for row in rows)])
        if not variant:
            paper = [row.paper for row in rows]
            printed = [Entry("" if p is None else f"{p.mean:.2f} ({p.sd:.2f})") for p in paper]
            lines.append([Entry("  survey"), *printed])
    best = {m: sum(summary.row(each, m).best for each in data) for m in MAIN}
    lines.append([Entry("best or comparable"), *(Entry(f"{best[m]} of {len(data)}") for m in MAIN)])
    lines[-1] += [Entry(""), Entry("")]
    trials = summary.rows[0].trials
    return Section(
        title,
        ["data", *(method.label for method in METHODS)],
        lines,
        f"Mean (sd) over {trials} trials. Regression: squared error over ERM's mean; classification: % wrong. Bold: "
        "best of the first four, or not significantly worse (paired t-test, 5 %). The last two columns are controls. "
        f"{_verdict(summary, data)}",
    )


def _verdict(summary: Summary[Data, Method], data: list[Data]) -> str:
    """The data sets on which one-step falls behind, and those on which the coupling acts."""
    behind = [each.name for each in data if not summary.row(each, ONE_STEP).best]
    acts = [
        each.name for each in data if paired_p_value(summary.errors[each, ONE_STEP], summary.errors[each, OFF]) < LEVEL
    ]
    return (
        f"One-step is neither best nor comparable on {', '.join(behind) or 'none'}. Switching the coupling off changes "
        f"it significantly on {', '.join(acts) or 'none'}."
    )


def _mean_sd(row: Row[Data, Method], unit: float) -> str:
    return f"{row.mean / unit:.2f} ({row.sd / unit:.2f})"


def pictures(summary: Summary[Data, Method]) -> list[Picture]:
    """The table as a picture."""
    data = [Data(name) for name in names(summary.settings)]
    means = {each: summary.row(each, ERM).mean for each in data}
    ratios = {each.label: {m.label: summary.errors[each, m] / means[each] for m in METHODS} for each in data}
    paper = {each.label: {m.label: summary.row(each, m).paper for m in METHODS} for each in data}
    return [Picture("errors", partial(draw_ratios, ratios, paper))]


EXPERIMENT = Experiment(
    name="benchmark",
    title="Table 2: benchmark tables under covariate shift",
    explains=(
        "Section 5.3.2: auto, bike, parkinsons and wine with natural shift (regression), australian, breast, diabetes, "
        "heart and sonar with synthetic shift (two classes); ERM, EIWERM, RIWERM and one-step, squared loss. Sizes, "
        "sides and directions are in experiments/benchmark.toml. All methods have the same basis (50 Gaussians around "
        "target rows), μ grid, folds and selection; target labels enter the synthetic shift, as in the survey, and no "
        "selection. " + DIFFERENCE
    ),
    settings={"protocol": Setting("benchmark.toml", "file with sizes, sides and directions"), **OPEN_SETTINGS},
    data_class=Data,
    method_class=Method,
    data=data_sets,
    methods=lambda data: METHODS,
    compute=compute,
    sections=sections,
    pictures=pictures,
    prepare=read_protocol,
    controls=frozenset([OFF, Method(CONSTANT)]),
)
