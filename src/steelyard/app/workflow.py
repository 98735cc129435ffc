"""From two tables to a folder: the model, the weights, the predictions, the findings and the report."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.empirical import empirical
from steelyard._typing import BoolArray, FloatArray, IntArray
from steelyard.app.atomic_files import csv_text
from steelyard.app.comparison import Comparison, fit_best
from steelyard.app.persistence import TableModel, model_files
from steelyard.diagnostics import Findings, diagnose
from steelyard.diagnostics.findings import BEYOND
from steelyard.errors import InputError, NoOverlapError, SteelyardWarning, TableError
from steelyard.ratio import default_ratio
from steelyard.ratio._base import unseen_cells
from steelyard.report import gather, render
from steelyard.tables import Column, Frame
from steelyard.tables.encoding import Encoding, in_words, is_number, learn_encoding, match_frames
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


def read_labels(column: Column, where: str, task: str, place: Callable[[int], str]) -> Labels:
    """Labels of the source; an error that says where for those a model cannot learn from.

    Parameters
    ----------
    where : name of the table.
    place : where a row is in it, in words.
    """
    present = column.present()
    values, rows = column.values[present], np.flatnonzero(present)
    if column.kind == "date":
        raise TableError(f"{where}, column {column.name!r}: the label is a date. Give a number or a category.")
    if not len(values):
        raise TableError(f"{where}, column {column.name!r}: no row has a label.")
    if column.kind == "category":
        _refuse_stray_text(column.name, values, rows, where, task, place)
    elif not np.isfinite(values).all():
        bad = int(rows[np.flatnonzero(~np.isfinite(values))[0]])
        raise TableError(f"{where}, {place(bad)}, column {column.name!r}: the label is infinite.")
    if not _are_classes(column.kind, values, task):
        return Labels(column.name, values.astype(np.float64), present, ())
    text = np.array([in_words(column.kind, v) for v in values])
    classes, first, codes, counts = np.unique(text, return_index=True, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise TableError(
            f"{where}, column {column.name!r}: every label is {str(classes[0])!r}; two classes are needed."
        )
    if counts.min() < 2:
        rare = int(counts.argmin())
        advice = ", or say --task regression" if column.kind != "category" else ""
        raise TableError(
            f"{where}, {place(int(rows[first[rare]]))}, column {column.name!r}: class {str(classes[rare])!r} has this "
            f"row alone; at least two a class are needed. Add rows, merge the class with another, or drop it{advice}."
        )
    return Labels(column.name, codes.astype(np.intp), present, tuple(str(name) for name in classes))


def _refuse_stray_text(
    name: str, values: NDArray[Any], rows: IntArray, where: str, task: str, place: Callable[[int], str]
) -> None:
    """A label that is no number, where a number is wanted or nearly all the others are one."""
    numeric = np.array([is_number(value) for value in values])
    stray = task == "regression" or (
        task == "auto" and NEARLY_ALL <= numeric.mean() < 1 and len(set(values[numeric])) > MOST_CLASSES
    )
    if stray and not numeric.all():
        bad = int(np.flatnonzero(~numeric)[0])
        why = "as regression needs" if task == "regression" else "and nearly all other labels are"
        raise TableError(f"{where}, {place(int(rows[bad]))}, column {name!r}: {values[bad]!r} is no number, {why}.")


def _are_classes(kind: str, values: NDArray[Any], task: str) -> bool:
    if task != "auto":
        return task == "classification"
    if kind in ("category", "boolean"):
        return True
    distinct = np.unique(values)
    return len(distinct) <= MOST_CLASSES and bool(np.all(distinct == np.round(distinct)))


def fit_tables(
    source: Frame,
    target: Frame,
    label: str,
    *,
    names: tuple[str, str],
    task: str = "auto",
    seed: int = 0,
    place: Callable[[int], str] = lambda row: f"row {row + 1}",
    advance: Callable[[str], None] = lambda _: None,
) -> Run:
    """Diagnose, compare, fit, and write it all down; labels of the target are set aside.

    Parameters
    ----------
    names : what the two tables are called in errors and in the report.
    place : where a source row is in its table, in words.
    advance : called before each step with its name.
    """
    import steelyard

    if task not in TASKS:
        raise InputError(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    labels = read_labels(source[label], names[0], task, place)
    notes = _label_notes(labels, target, label, names[1], task)
    one, other = match_frames(source.without(label), target.without(label), f"{names[0]} and {names[1]}")
    notes += stray_text(one) + unseen_levels(one, other)
    one = one.take(labels.present)
    encoding = learn_encoding(one, other)
    notes += unseen_combinations(one, other, encoding)
    advance("diagnosing")
    findings = diagnose(one, target=Target(other), random_state=seed)
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
    comparison = replace(fitted.comparison, classes=labels.classes)
    if "plain" in comparison.performance and findings.uncovered > BEYOND:
        notes.append(
            f"{findings.uncovered:.0%} of the target rows lie beyond the source. The scores expected for the target "
            "know nothing about them and are likely too good."
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
        "method": comparison.methods[comparison.chosen].name,
        "plain_method": comparison.methods[comparison.plain].name,
        "kept_plain": comparison.kept_plain,
        "measure": comparison.measure,
        "performance": {key: asdict(value) for key, value in comparison.performance.items()},
        "fitted_on": facts,
    }
    model = TableModel(encoding, fitted.model, fitted.plain_model, label, labels.classes, about)
    page = report(findings, one, other, encoding, comparison, fitted.weights, facts, notes, seed)
    files: dict[str, str | bytes] = {
        **model_files(model),
        "weights.csv": _weights_csv(fitted.weights, labels.present),
        "predictions.csv": predictions_csv(model, other),
        "findings.json": findings_json(findings, comparison),
        "report.html": page,
    }
    return Run(findings, comparison, model, tuple(notes), files)


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
    if task == "auto" and labels.classes and all(is_number(name) for name in labels.classes):
        notes.append(
            f"The label {label!r} has {len(labels.classes)} whole numbers and was taken as classes; say "
            "--task regression if it is a quantity."
        )
    return notes


def stray_text(frame: Frame) -> list[str]:
    """A note for each column that is text because of a few values, and would else be numbers."""
    notes = []
    for column in frame.columns:
        if column.kind != "category":
            continue
        values = column.values[column.present()]
        strays = [value for value in values if not is_number(value)]
        if 0 < len(strays) <= (1 - NEARLY_ALL) * len(values):
            notes.append(
                f"Column {column.name!r} is treated as a category because of values such as {strays[0]!r}; leave such "
                "fields empty if it is a quantity."
            )
    return notes


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
                "what they mean for the label cannot be learned."
            )
    return notes


def unseen_combinations(source: Frame, target: Frame, encoding: Encoding) -> list[str]:
    """A note where target rows have combinations of values that no source row has, in a table of few levels."""
    rng = np.random.default_rng(0)
    ours, theirs = (empirical(encoding.transform(frame), None, rng) for frame in (source, target))
    share, cell = unseen_cells(ours, theirs)
    if not share:
        return []
    row = int(np.flatnonzero(theirs.position == cell)[0])
    values = [(column, column.values[row], bool(column.present()[row])) for column in target.columns]
    named = ", ".join(f"{c.name} = {in_words(c.kind, value) if known else 'missing'}" for c, value, known in values)
    return [
        f"{share:.0%} of the target rows have a combination of values that no source row has; the most common is "
        f"({named}). No weight can stand for such rows: what is said of the target says nothing about them."
    ]


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
    """The page. Where the model's weights are equal or nearly so, those of `AutoRatio` are shown."""
    rng = np.random.default_rng(seed)
    near, far = _some(len(source), rng), _some(len(target), rng)
    one, other = source.take(near), target.take(far)
    # Weights that are all but equal would show nothing.
    used = weights is not None and effective_sample_size(weights) < NEARLY_ALL * len(weights)
    shown = weights[near] if used and weights is not None else _importance_weights(encoding, one, other)
    evidence = gather(one, other, encoding, findings, shown, rng)
    return render(findings, evidence, comparison, facts=facts, notes=notes, weights_used=used)


def _some(n_rows: int, rng: np.random.Generator) -> IntArray:
    return np.sort(rng.permutation(n_rows)[:SHOWN_ROWS])


def _importance_weights(encoding: Encoding, source: Frame, target: Frame) -> FloatArray | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # the report shows effective rows and the tail
        try:
            fitted = default_ratio().fit(encoding.transform(source), target=Target(encoding.transform(target)))
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
    return {**findings.to_dict(), "comparison": found}
