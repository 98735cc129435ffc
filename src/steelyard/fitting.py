"""From two tables to a folder: the model, the weights, the predictions, the findings and the report."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.arrays import BoolArray, FloatArray, IntArray
from steelyard.compare import Comparison, fit_best
from steelyard.diagnose import Findings, diagnose
from steelyard.diagnose.findings import BEYOND
from steelyard.encode import Encoding, learn_encoding, match_frames
from steelyard.errors import InputError, NoOverlapError, SteelyardWarning, TableError
from steelyard.output import csv_text
from steelyard.ratio import ULSIF
from steelyard.report import gather, render
from steelyard.store import TableModel, model_files
from steelyard.tables import Column, Frame
from steelyard.target import Target
from steelyard.weights import effective_sample_size

TASKS = ("auto", "regression", "classification")
# Whole numbers with at most so many values are classes, unless the task is given.
MOST_CLASSES = 10
SHOWN_ROWS = 5000
NEARLY_ALL = 0.95


@dataclass(frozen=True, eq=False)
class Labels:
    """The label column as numbers: quantities, or places among the classes."""

    name: str
    values: NDArray[Any]  # of the rows that have a label
    present: BoolArray  # which rows have one
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Run:
    """What a fit found, and its files by name."""

    findings: Findings
    comparison: Comparison
    model: TableModel
    notes: tuple[str, ...]
    files: dict[str, str | bytes]


def read_labels(column: Column, where: str, task: str) -> Labels:
    """Labels of the source; an error that says where for those a model cannot learn from."""
    present = column.present()
    values = column.values[present]
    if column.kind == "date":
        raise TableError(f"{where}, column {column.name!r}: the label is a date. Give a number or a category.")
    if not len(values):
        raise TableError(f"{where}, column {column.name!r}: no row has a label.")
    if not _are_classes(column.kind, values, task):
        if column.kind == "category":
            bad = int(np.flatnonzero(present)[0])
            raise TableError(
                f"{where}, line {bad + 2}, column {column.name!r}: {column.values[bad]!r} is no number, as regression "
                "needs."
            )
        return Labels(column.name, values.astype(np.float64), present, ())
    text = np.array([class_name(column.kind, v) for v in values], dtype=object)
    classes, first, codes, counts = np.unique(
        text.astype(str), return_index=True, return_inverse=True, return_counts=True
    )
    if len(classes) < 2:
        raise TableError(
            f"{where}, column {column.name!r}: every label is {str(classes[0])!r}; two classes are needed."
        )
    if counts.min() < 2:
        rare = int(counts.argmin())
        line = int(np.flatnonzero(present)[first[rare]]) + 2
        advice = ", or say --task regression" if column.kind != "category" else ""
        raise TableError(
            f"{where}, line {line}, column {column.name!r}: class {str(classes[rare])!r} has this row alone; at least "
            f"two a class are needed. Add rows, merge the class with another, or drop it{advice}."
        )
    return Labels(column.name, codes.astype(np.intp), present, tuple(str(name) for name in classes))


def _are_classes(kind: str, values: NDArray[Any], task: str) -> bool:
    if task != "auto":
        return task == "classification"
    if kind in ("category", "boolean"):
        return True
    distinct = np.unique(values)
    return len(distinct) <= MOST_CLASSES and bool(np.all(distinct == np.round(distinct)))


def class_name(kind: str, value: Any) -> str:
    """A class as text."""
    if kind == "category":
        return str(value)
    return ("true" if value else "false") if kind == "boolean" else f"{value:g}"


def fit_tables(
    source: Frame,
    target: Frame,
    label: str,
    *,
    names: tuple[str, str],
    task: str = "auto",
    seed: int = 0,
    advance: Callable[[str], None] = lambda _: None,
) -> Run:
    """Diagnose, compare, fit, and write it all down; labels of the target are set aside.

    Parameters
    ----------
    names : what the two tables are called in errors and in the report.
    advance : called before each step with its name.
    """
    import steelyard

    if task not in TASKS:
        raise InputError(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    labels = read_labels(source[label], names[0], task)
    notes = _label_notes(labels, target, label, names[1], task)
    one, other = match_frames(source.without(label), target.without(label), f"{names[0]} and {names[1]}")
    notes += unseen_levels(one, other)
    one = one.take(labels.present)
    advance("diagnosing")
    findings = diagnose(one, target=Target(other), random_state=seed)
    if findings.uncovered > BEYOND:
        notes.append(
            f"{findings.uncovered:.0%} of the target rows lie beyond the source. The scores expected for the target "
            "know nothing about them and are likely too good."
        )
    encoding = learn_encoding(one, other)
    X, goal = encoding.transform(one), encoding.transform(other)
    fitted = fit_best(
        X,
        labels.values,
        goal,
        classify=bool(labels.classes),
        shifted=findings.kind != "none",
        random_state=seed,
        advance=advance,
    )
    advance("drawing the report")
    facts = {
        "source": f"{names[0]}, {len(source):,} rows",
        "target": f"{names[1]}, {len(target):,} rows",
        "label": f"{label}, {f'{len(labels.classes)} classes' if labels.classes else 'a quantity'}",
        "seed": str(seed),
        "made by": f"steelyard {steelyard.__version__}",
    }
    about = {
        "method": fitted.comparison.methods[fitted.comparison.chosen].name,
        "plain_method": fitted.comparison.methods[fitted.comparison.plain].name,
        "kept_plain": fitted.comparison.kept_plain,
        "measure": fitted.comparison.measure,
        "performance": {key: asdict(value) for key, value in fitted.comparison.performance.items()},
        "fitted_on": facts,
    }
    model = TableModel(encoding, fitted.model, fitted.plain_model, label, labels.classes, about)
    page = report(findings, one, other, encoding, fitted.comparison, fitted.weights, facts, notes, seed)
    files: dict[str, str | bytes] = {
        **model_files(model),
        "weights.csv": _weights_csv(fitted.weights, labels.present),
        "predictions.csv": predictions_csv(model, other),
        "findings.json": findings_json(findings, fitted.comparison),
        "report.html": page,
    }
    return Run(findings, fitted.comparison, model, tuple(notes), files)


def _label_notes(labels: Labels, target: Frame, label: str, target_name: str, task: str) -> list[str]:
    notes = []
    if label in target.names:
        notes.append(
            f"{target_name} has the label column {label!r} too. It was not used for fitting or choosing; "
            "steelyard evaluate uses it."
        )
    absent = int(np.sum(~labels.present))
    if absent:
        notes.append(f"{absent:,} source rows have no label and were left out.")
    if task == "auto" and labels.classes and all(_is_number(name) for name in labels.classes):
        notes.append(
            f"The label {label!r} has {len(labels.classes)} whole numbers and was taken as classes; say "
            "--task regression if it is a quantity."
        )
    return notes


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def unseen_levels(source: Frame, target: Frame) -> list[str]:
    """A note for each category with levels that the source does not have."""
    notes = []
    for column in source.columns:
        if column.kind != "category":
            continue
        known = {value for value in column.values if value is not None}
        theirs = [value for value in target[column.name].values if value is not None and value not in known]
        if theirs:
            levels = sorted(set(theirs))
            shown = ", ".join(repr(level) for level in levels[:3]) + (", …" if len(levels) > 3 else "")
            notes.append(
                f"Column {column.name!r}: {len(theirs):,} target rows have values the source has never seen ({shown}); "
                "what they mean for the label cannot be learnt."
            )
    return notes


def report(
    findings: Findings,
    source: Frame,
    target: Frame,
    encoding: Encoding,
    comparison: Comparison | None,
    weights: FloatArray | None,
    facts: dict[str, str],
    notes: list[str],
    seed: int,
) -> str:
    """The page. Where the model's weights are equal or nearly so, those of uLSIF are shown."""
    rng = np.random.default_rng(seed)
    near, far = _some(len(source), rng), _some(len(target), rng)
    one, other = source.take(near), target.take(far)
    # Weights that are all but equal would show nothing.
    used = weights is not None and effective_sample_size(weights) < NEARLY_ALL * len(weights)
    shown = weights[near] if used and weights is not None else _ulsif_weights(encoding, one, other)
    evidence = gather(one, other, encoding, findings.columns, shown, rng)
    return render(findings, evidence, comparison, facts=facts, notes=notes, weights_used=used)


def _some(n_rows: int, rng: np.random.Generator) -> IntArray:
    return np.sort(rng.permutation(n_rows)[:SHOWN_ROWS])


def _ulsif_weights(encoding: Encoding, source: Frame, target: Frame) -> FloatArray | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # the report shows effective rows and the tail
        try:
            fitted = ULSIF(random_state=0).fit(encoding.transform(source), target=Target(encoding.transform(target)))
        except NoOverlapError:
            return None
    return np.asarray(fitted.weights_)


def _weights_csv(weights: FloatArray, present: BoolArray) -> str:
    rows = np.flatnonzero(present) + 1
    return csv_text(["row", "weight"], ([int(r), float(w)] for r, w in zip(rows, weights, strict=True)))


def predictions_csv(model: TableModel, frame: Frame, where: str = "table") -> str:
    """One line a row: its number, the prediction, and for classes their probabilities."""
    found = model.predict(frame, where=where)
    if not model.classes:
        return csv_text(["row", "prediction"], ([i + 1, float(v)] for i, v in enumerate(found)))
    shares = model.probabilities(frame, where)
    header = ["row", "prediction", *(f"probability of {name}" for name in model.classes)]
    return csv_text(header, ([i + 1, v, *(f"{p:.6g}" for p in shares[i])] for i, v in enumerate(found)))


def findings_json(findings: Findings, comparison: Comparison) -> str:
    """Findings and comparison as one JSON text."""
    return json.dumps(run_dict(findings, comparison), indent=2, ensure_ascii=False) + "\n"


def run_dict(findings: Findings, comparison: Comparison) -> dict[str, Any]:
    """Findings and comparison as dictionaries, lists and numbers."""
    found = asdict(comparison)
    for method in found["methods"]:
        if not np.isfinite(method["gain_error"]):
            method["gain_error"] = None  # JSON has no infinity
    found["classes"] = list(comparison.classes)
    return {**findings.to_dict(), "comparison": found}
