"""From two tables to the files of a run: the model, the weights, the predictions, the findings and the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import steelyard
from steelyard._numerics.written import written_share
from steelyard._typing import FloatArray, IntArray
from steelyard.app.atomic_files import csv_text
from steelyard.app.comparison import Comparison
from steelyard.app.fitting import BestFit, compare_methods
from steelyard.app.labels import Labels, read_labels
from steelyard.app.notes import possible_copies, reading_notes, sampling_notes, unseen_combinations, unseen_levels
from steelyard.app.persistence import TableModel, model_files
from steelyard.diagnostics import Diagnosis, Findings, diagnose_pair
from steelyard.diagnostics.recommendation import ALL_UNCOVERED, OUTSIDE_SUPPORT
from steelyard.errors import InputError
from steelyard.report import gather, phrases, render
from steelyard.tables import Frame, TablePair, encode_pair, match_frames

TASKS = ("auto", "regression", "classification")


@dataclass(frozen=True, eq=False)
class FittedTables:
    """What a fit found, and the files of its run by name."""

    findings: Findings
    comparison: Comparison
    model: TableModel
    notes: tuple[str, ...]
    files: dict[str, str | bytes]


def fit_tables(
    source: Frame,
    target: Frame,
    label: str,
    *,
    names: tuple[str, str],
    task: str = "auto",
    seed: int = 0,
    learners: Sequence[str] = (),
    place: Callable[[int], str] = lambda row: f"row {row + 1}",
    advance: Callable[[str], None] = lambda _: None,
) -> FittedTables:
    """Diagnose the shift, compare methods, fit the best one, and prepare the files; target labels are not used.

    Parameters
    ----------
    source, target : Frame
        The tables; the source has the label column.
    label : str
        Name of the label column.
    names : pair of str
        What the two tables are called in errors and in the report.
    task : {"auto", "regression", "classification"}, default="auto"
        Whether labels are quantities or classes.
    seed : int, default=0
        Seed of all random choices.
    learners : sequence of str, default=()
        Names of the learners that are tried; all where there are none.
    place : callable, default=None
        From the number of a source row to where it is in its table, in words.
    advance : callable, default=None
        Called before each step with its name.

    Returns
    -------
    FittedTables
    """
    if task not in TASKS:
        raise InputError(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    numbers = source.running_numbers()
    labels = read_labels(source[label], names[0], task, lambda row: place(int(numbers[row])))
    notes = [*sampling_notes((source, target), names), *labels.notes(target, names[1], task)]
    matched, target_rows = match_frames(source.without(label), target.without(label), f"{names[0]} and {names[1]}")
    pair = encode_pair(matched.take(labels.present), target_rows)
    notes += reading_notes(matched) + unseen_levels(matched, target_rows, pair.encoding)
    notes += unseen_combinations(pair) + possible_copies(pair.X, labels.values)
    advance("diagnosing")
    findings = diagnose_pair(pair, random_state=seed).findings
    best = compare_methods(
        pair.X,
        labels.values,
        pair.X_target,
        classify=bool(labels.classes),
        shifted=findings.kind != "none",
        overlap=findings.kind != "disjoint",
        learners=learners,
        random_state=seed,
        advance=advance,
    ).fit(advance)
    comparison = replace(best.comparison, classes=labels.classes)
    if findings.uncovered > ALL_UNCOVERED:  # no source row vouches for the target: any score would be a guess
        comparison = replace(comparison, performance={"source": comparison.performance["source"]})
    if "plain" in comparison.performance and findings.uncovered > OUTSIDE_SUPPORT:
        notes.append(
            f"{written_share(findings.uncovered)} of the target rows lie outside the source's support: predictions "
            "there are extrapolation, and the intervals of the scores expected on the target are wider for it."
        )
    advance("drawing the report")
    facts = {
        "source": f"{names[0]}, {len(source):,} rows",
        "target": f"{names[1]}, {len(target):,} rows",
        "label": f"{label}, {f'{len(labels.classes)} classes' if labels.classes else 'a quantity'}",
        "seed": str(seed),
        "made by": f"steelyard {steelyard.__version__}",
    }
    model = _table_model(pair, labels, comparison, best, facts)
    numbered = zip(numbers[labels.present] + 1, best.weights, strict=True)
    files: dict[str, str | bytes] = {
        **model_files(model),
        "weights.csv": csv_text(["row", "weight"], ([int(row), float(weight)] for row, weight in numbered)),
        "predictions.csv": predictions_csv(model, pair.X_target, target.running_numbers()),
        "findings.json": json.dumps(run_dict(findings, comparison), indent=2, ensure_ascii=False) + "\n",
        "report.html": _fit_report(findings, pair, comparison, best, facts, notes, seed),
    }
    return FittedTables(findings, comparison, model, tuple(notes), files)


def _table_model(
    pair: TablePair, labels: Labels, comparison: Comparison, best: BestFit, facts: dict[str, str]
) -> TableModel:
    about = {
        "method": comparison.methods[comparison.chosen].name,
        "plain_method": comparison.methods[comparison.plain].name,
        "kept_plain": comparison.kept_plain,
        "measure": comparison.measure,
        "performance": {key: asdict(value) for key, value in comparison.performance.items()},
        "fitted_on": facts,
    }
    return TableModel(pair.encoding, best.model, best.plain_model, labels.name, labels.classes, about)


def _fit_report(
    findings: Findings,
    pair: TablePair,
    comparison: Comparison,
    best: BestFit,
    facts: dict[str, str],
    notes: list[str],
    seed: int,
) -> str:
    """The report of a fit. It shows the rows that were compared, with the weights that weights.csv gives them."""
    shown = pair.take(*best.compared_rows)
    weights = None if best.importance is None else best.weights[best.compared_rows[0]]
    evidence = gather(shown, findings, weights, np.random.default_rng(seed))
    return render(findings, evidence, comparison, facts=facts, notes=notes)


def diagnosis_report(diagnosis: Diagnosis, facts: dict[str, str], notes: list[str], seed: int) -> str:
    """The report of a diagnosis, with the rows that were compared and their importance weights.

    Parameters
    ----------
    diagnosis : Diagnosis
        Findings, rows and weights.
    facts : dict
        Names of the files, numbers of rows, seed.
    notes : list of str
        What the reader should know first.
    seed : int
        Seed of the choice of rows on the map.

    Returns
    -------
    str
        The HTML page.
    """
    findings, rng = diagnosis.findings, np.random.default_rng(seed)
    evidence = gather(diagnosis.compared, findings, diagnosis.weights, rng, balance=findings.balance)
    return render(findings, evidence, None, facts=facts, notes=notes)


def predictions_csv(model: TableModel, rows: FloatArray, numbers: IntArray, *, header: bool = True) -> str:
    """CSV with the number, the prediction and, for classes, the probabilities of each encoded row.

    Parameters
    ----------
    model : TableModel
        A fitted or loaded model.
    rows : array of shape (n_rows, n_features)
        Encoded rows.
    numbers : array of shape (n_rows,)
        Their numbers in the table, from 0 on.
    header : bool, default=True
        Whether the first line names the columns.

    Returns
    -------
    str
    """
    found = model.predict(rows)
    names = ["row", "prediction", *(f"probability of {name}" for name in model.classes)]
    if not model.classes:
        lines = ([int(i) + 1, float(value)] for i, value in zip(numbers, found, strict=True))
        return csv_text(names if header else None, lines)
    shares = (tuple(f"{p:.6g}" for p in row) for row in model.probabilities(rows))
    return csv_text(
        names if header else None,
        ([int(i) + 1, value, *row] for i, value, row in zip(numbers, found, shares, strict=True)),
    )


def run_dict(findings: Findings, comparison: Comparison) -> dict[str, Any]:
    """Findings and comparison as dictionaries, lists and numbers, and what weights.csv holds in words."""
    found = asdict(comparison)
    for method in found["methods"]:
        if not np.isfinite(method["gain_error"]):
            method["gain_error"] = None  # JSON has no infinity
    return {**findings.to_dict(), "comparison": found, "weights_file": phrases.weights_file(comparison)}
