"""What the commands do: files in, findings, weights, models and pages out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from steelyard._numerics.weighted_means import paired_gain
from steelyard._numerics.written import written, written_p, written_share
from steelyard._typing import FloatArray, IntArray
from steelyard.app.atomic_files import (
    MARK,
    check_file,
    check_folder,
    write_file,
    write_file_in_parts,
    write_folder,
)
from steelyard.app.cluster import mapped
from steelyard.app.fitting import N_STEPS
from steelyard.app.inputs import labeled, match_unlabeled, read, read_pair, require_label, split_label
from steelyard.app.long_files import (
    SAMPLE,
    MissingCounts,
    any_long,
    encoded_block,
)
from steelyard.app.notes import reading_notes, unseen_combinations, unseen_levels
from steelyard.app.persistence import FILES, TableModel, load_model
from steelyard.app.workflow import FittedTables, diagnosis_report, fit_tables, predictions_csv
from steelyard.diagnostics import Diagnosis, Findings, diagnose_pair
from steelyard.diagnostics.columns import DRIFT_LEVEL
from steelyard.diagnostics.findings import LEAST_ROWS
from steelyard.diagnostics.recommendation import HEAVY_TAIL
from steelyard.errors import InputError, TableError
from steelyard.model_selection.bootstrap import Interval, bootstrap_t
from steelyard.report import phrases
from steelyard.stacking.learners import choose_learners, default_learners
from steelyard.tables import (
    Column,
    TableFile,
    TablePair,
    encode_pair,
    place_of_row,
    read_blocks,
    regular_files,
)
from steelyard.tables.encoding import in_words
from steelyard.tables.missing import is_number

# Rows of a file that a model is fitted to; of a longer one it is a sample.
MOST_FITTED = 200_000
# What the commands write into their folders, in addition to the mark.
DIAGNOSE_FILES = ("findings.json", "report.html")
FIT_FILES = (*FILES, "weights.csv", "predictions.csv", *DIAGNOSE_FILES)


def diagnose_files(
    source: Path,
    target: Path,
    label: str | None,
    seed: int,
    progress: Progress,
    out: Path | None,
    overwrite: bool = False,
    missing: Sequence[str] = (),
    client: Any = None,
) -> tuple[Findings, list[str]]:
    """Findings and notes about two files, and where there is a folder for it a report."""
    if out is not None:
        check_folder(out, DIAGNOSE_FILES, source, target, made_by="diagnose", overwrite=overwrite)
    with progress, regular_files(source, target) as files:
        frames = read_pair(files, progress, at_most=SAMPLE, seed=seed, missing=missing, least=LEAST_ROWS)
        task = progress.add_task("comparing", total=None, rows="")
        names = files[0].name, files[1].name
        notes = reading_notes(*frames)
        require_label(frames[0], label, names[0])
        (source_frame, y), (target_frame, y_target) = (
            split_label(frame, label) for frame in labeled(*frames, label, names)
        )
        pair = encode_pair(*match_unlabeled(source_frame, target_frame, label, names))
        (diagnosis,) = mapped(client, _diagnosed, pair, [(y, y_target, seed)])
        findings = diagnosis.findings
        notes += unseen_levels(pair.source, pair.target, pair.encoding) + unseen_combinations(pair)
        if out is not None:
            progress.update(task, description="drawing the report")
            facts = {"source": names[0], "target": names[1], "seed": str(seed)}
            facts["rows compared"] = f"{findings.n_source:,} and {findings.n_target:,}"
            page = diagnosis_report(diagnosis, facts, notes, seed)
            contents = dict(zip(DIAGNOSE_FILES, (findings.to_json() + "\n", page), strict=True))
            write_folder(out, contents, source, target, made_by="diagnose", overwrite=overwrite)
        progress.remove_task(task)
    return findings, notes


def _diagnosed(pair: TablePair, y: Any, y_target: Any, seed: int) -> Diagnosis:
    return diagnose_pair(pair, y, y_target, random_state=seed)


def show_notes(notes: Sequence[str], console: Console) -> None:
    """Each note in a line of its own."""
    for note in notes:
        console.print(escape(f"Note: {note}"), style="yellow", highlight=False, soft_wrap=True)


def show_findings(findings: Findings, console: Console) -> None:
    """The verdict, what was found, the advice, the evidence and the columns."""
    console.print(f"[bold]{escape(phrases.headline(findings, None))}[/]", highlight=False)
    for words in (f"{findings.reason} {phrases.drift(findings)}", findings.advice, phrases.unseen(findings)):
        console.print(escape(words), highlight=False)
    evidence = Table(box=None, show_header=False, padding=(0, 2))
    rows = [
        ("domain classifier", f"AUC {findings.auc:.2f} ({written_p(findings.classifier_p)})"),
        ("maximum mean discrepancy (MMD²)", f"{written(findings.mmd)} ({written_p(findings.mmd_p)})"),
        ("target rows outside the source's support", written_share(findings.uncovered)),
        ("importance weights by", findings.ratio or "none: source and target do not overlap"),
        ("rows compared", f"{findings.n_source:,} source, {findings.n_target:,} target"),
    ]
    if findings.balance:
        before, after = (np.mean([abs(getattr(c, when)) for c in findings.balance]) for when in ("before", "after"))
        size = f"{findings.effective_share * findings.n_source:,.0f} of {findings.n_source:,} rows"
        rows += [
            ("effective sample size", f"{size} ({written_share(findings.effective_share)})"),
            ("mean difference of the columns (sd)", f"{before:.3f}, weighted {after:.3f}"),
            ("tail of the weights (Pareto k)", f"{findings.pareto_k:.2f} (above {HEAVY_TAIL} is heavy)"),
        ]
    if findings.labels is not None:
        rows += [
            ("label differs", written_p(findings.labels.label_p)),
            ("label differs given x", written_p(findings.labels.concept_p)),
            ("x differs given label", written_p(findings.labels.class_conditional_p)),
        ]
    for name, value in rows:
        evidence.add_row(name, value)
    console.print(evidence)
    drift = f"distance at least {findings.columns[0].threshold:.2f}, corrected p below {DRIFT_LEVEL:.3f}"
    columns = Table(title=f"Most shifted columns (drifted: {drift})", title_justify="left")
    for name in ("column", "kind", "difference\n(sd)", "distance", "corrected\np", "drifted"):
        columns.add_column(name, justify="left" if name in ("column", "kind") else "right", overflow="fold")
    for c in findings.columns[:10]:
        numbers = f"{c.standardized_difference:+.2f}", f"{c.distance:.2f}"
        columns.add_row(escape(c.name), c.kind, *numbers, written_p(c.p_value, ""), "yes" if c.drifted else "no")
    console.print(columns)


def fit_files(
    source: Path,
    target: Path,
    label: str,
    task: str,
    seed: int,
    out: Path,
    progress: Progress,
    overwrite: bool = False,
    missing: Sequence[str] = (),
    learners: Sequence[str] = (),
) -> FittedTables:
    """Fit on two files and write the folder."""
    check_folder(out, FIT_FILES, source, target, made_by="fit", overwrite=overwrite)
    choose_learners(learners, default_learners(False, 0))  # an unknown name is an error before anything is read
    run = fit_pair(source, target, label, task, seed, progress, missing=missing, learners=learners)
    write_folder(out, run.files, source, target, made_by="fit", overwrite=overwrite)
    return run


def fit_pair(
    source: Path,
    target: Path,
    label: str,
    task: str,
    seed: int,
    progress: Progress,
    *,
    names: tuple[str, str] | None = None,
    missing: Sequence[str] = (),
    learners: Sequence[str] = (),
) -> FittedTables:
    """Fit on two files, which the report calls by these names; writes nothing."""
    with progress, regular_files(source, target) as files:
        frames = read_pair(
            files, progress, at_most=MOST_FITTED, seed=seed, missing=missing, least=LEAST_ROWS, label=label
        )
        require_label(frames[0], label, files[0].name)
        bar = progress.add_task("fitting", total=N_STEPS + 2, rows="")
        return fit_tables(
            *frames,
            label,
            names=names or (files[0].name, files[1].name),
            task=task,
            seed=seed,
            learners=learners,
            place=lambda row: place_of_row(files[0], row),
            advance=lambda step: progress.update(bar, advance=1, description=step),
        )


def show_run(run: FittedTables, out: Path, console: Console) -> None:
    """What was done and why, the methods, the expected scores, and where the files are."""
    findings, comparison = run.findings, run.comparison
    console.print(f"[bold]{escape(phrases.headline(findings, comparison))}[/]", highlight=False)
    found = f"{findings.reason} {phrases.drift(findings)}"
    for words in (found, phrases.outcome(findings, comparison), phrases.unseen(findings)):
        console.print(escape(words), highlight=False)
    show_notes((*run.notes, *comparison.failed), console)
    shares = dict(comparison.methods[comparison.chosen].shares)
    domain = phrases.compared_domain(findings, comparison)
    error = phrases.error_name(comparison)
    table = Table(title=f"Estimated {error} of each method on the {domain}", title_justify="left")
    for name in ("method", error, "gain over plain", *(["share"] if shares else [])):
        table.add_column(name, justify="left" if name == "method" else "right", overflow="fold")
    for i, m in enumerate(comparison.methods):
        marked, gain = m.name, written(m.gain) + (f" ± {written(m.gain_error)}" if np.isfinite(m.gain_error) else "")
        if i == comparison.plain:
            marked, gain = f"{marked} (plain)", ""
        if i == comparison.chosen and i != comparison.plain:
            marked = f"{marked} (chosen)"
        style = "bold green" if i == comparison.chosen else "bold" if i == comparison.plain else ""
        share = [written_share(shares[m.name]) if m.name in shares else ""] if shares else []
        table.add_row(escape(marked), written(m.loss), gain, *share, style=style)
    console.print(table)
    two_estimates = phrases.two_estimates(findings, comparison)
    if two_estimates:
        console.print(two_estimates, highlight=False)
    console.print(f"Expected {phrases.score_name(comparison.measure)}:", highlight=False)
    for name, value, about in phrases.scores(findings, comparison):
        console.print(f"  {name}: {value}; {about}", highlight=False)
    console.print(phrases.weights_file(comparison), highlight=False)
    console.print(f"In {escape(str(out))}: {', '.join(sorted(run.files))}", highlight=False, soft_wrap=True)
    console.print(f"Report: {escape(str(out / 'report.html'))}", highlight=False, soft_wrap=True)


def predict_file(
    folder: Path,
    table: Path,
    out: Path,
    progress: Progress,
    overwrite: bool = False,
    missing: Sequence[str] = (),
    client: Any = None,
) -> dict[str, Any]:
    """Write the predictions of a saved model for a file. A long one goes to a cluster, if any."""
    inputs = table, *(folder / name for name in (*FILES, MARK))
    check_file(out, *inputs, overwrite=overwrite)
    model = load_model(folder)
    signs = (*model.missing, *missing)
    with progress, regular_files(table) as (file,):
        if any_long(file):
            n_rows, notes = _predict_long_file(model, file, out, progress, overwrite, signs, inputs, client)
        else:
            frame = read(file, progress, at_most=None, seed=0, kinds=model.kinds, missing=signs)
            predictions = predictions_csv(model, model.encode(frame, file.name), frame.running_numbers())
            write_file(out, predictions, *inputs, overwrite=overwrite)
            n_rows, notes = len(frame), reading_notes(frame)
    return {"rows": n_rows, "method": model.about["method"], "out": str(out), "notes": notes}


def _predicted_block(model: TableModel, rows: FloatArray, numbers: IntArray) -> str:
    return predictions_csv(model, rows, numbers, header=bool(numbers[0] == 0))


def _predict_long_file(
    model: TableModel,
    file: TableFile,
    out: Path,
    progress: Progress,
    overwrite: bool,
    signs: Sequence[str],
    inputs: Sequence[Path],
    client: Any,
) -> tuple[int, list[str]]:
    """Predict a file block by block; its number of rows, and notes on how it was read."""
    task = progress.add_task(f"predicting {file.name}", total=None, rows="")
    counts = MissingCounts()
    n_rows = 0

    def blocks() -> Iterator[tuple[FloatArray, IntArray]]:
        nonlocal n_rows
        for frame in read_blocks(file, kinds=model.kinds, missing=signs):
            counts.add(frame)
            n_rows += len(frame)
            progress.update(task, rows=f"{n_rows:,} rows")
            yield encoded_block(frame, model.encoding, file.name), frame.running_numbers()

    write_file_in_parts(out, mapped(client, _predicted_block, model, blocks()), *inputs, overwrite=overwrite)
    return n_rows, reading_notes(counts.frame(file.name))


def evaluate_file(
    folder: Path, table: Path, seed: int, progress: Progress, missing: Sequence[str] = ()
) -> dict[str, Any]:
    """How good a saved model and the plain one are on labeled rows, beside what the fit had promised."""
    from scipy.stats import binomtest

    model = load_model(folder)
    with progress:
        frame = read(table, progress, at_most=None, seed=0, kinds=model.kinds, missing=(*model.missing, *missing))
        if model.label not in frame.names:
            raise TableError(
                f"{table} has no label column {model.label!r}, which evaluate needs; to predict, use steelyard predict."
            )
        notes = reading_notes(frame)
        column = frame[model.label]
        keep = column.present()
        frame = frame.take(keep)
        if not len(frame):
            raise TableError(f"{table}, column {model.label!r}: no row has a label.")
        encoded, label = model.encode(frame, str(table)), column.take(keep)
        rows = {
            name: row_scores_of(model, encoded, label, plain=name == "plain", table=str(table))
            for name in ("chosen", "plain")
        }
    gain, error = paired_gain(rows["chosen"], rows["plain"], np.ones(len(frame)))
    found = {}
    for name, scores in rows.items():
        if model.classes:  # a share of right ones has Wilson's interval, which knows that 3 of 3 is not certain
            around = binomtest(int(scores.sum()), len(scores)).proportion_ci(method="wilson")
            found[name] = Interval(float(scores.mean()), float(around.low), float(around.high))
        else:
            found[name] = bootstrap_t(scores, np.ones(len(scores)), np.random.default_rng(seed))
    measure, kept_plain = model.about["measure"], model.about["kept_plain"]
    promised = model.about["performance"].get("chosen")
    result = {
        "rows": len(frame),
        "method": model.about["method"],
        "plain_method": model.about["plain_method"],
        "kept_plain": kept_plain,
        "measure": measure,
        "found": {name: asdict(interval) for name, interval in found.items()},
        "promised": model.about["performance"],
        "difference": gain,
        "difference_error": error if np.isfinite(error) else None,
        "notes": notes,
    }
    told = None if promised is None else Interval(**promised)
    kept = "The plain model was kept, so there is no other model to compare it with."
    choice = kept if kept_plain else compared(result)
    return {**result, "promise": phrases.promise(found["chosen"], told, measure), "choice": choice}


def row_scores_of(model: TableModel, rows: FloatArray, label: Column, *, plain: bool, table: str) -> FloatArray:
    """Right or wrong, or the squared error, of each encoded row."""
    predicted = model.predict(rows, plain=plain)
    at = f"{table}, column {label.name!r}"
    if model.classes:
        truth = np.array([in_words(label.kind, value) for value in label.values], dtype=object)
        unseen = sorted(set(truth) - set(model.classes))
        if unseen:
            raise InputError(
                f"{at} holds classes the model has not seen: {', '.join(unseen[:5])}. It knows "
                f"{', '.join(model.classes)}."
            )
        return (predicted == truth).astype(np.float64)
    if label.kind == "category":
        bad = next(value for value in label.values if not is_number(value))
        raise TableError(f"{at}: the model predicts a number, and not all labels are one (such as {bad!r}).")
    if not np.isfinite(label.values).all():
        raise TableError(f"{at}: a label is infinite.")
    return np.square(predicted.astype(np.float64) - label.values)


def show_evaluation(found: dict[str, Any], console: Console) -> None:
    """Expected and observed scores, side by side."""
    table = Table(title=f"{phrases.score_name(found['measure']).capitalize()} on {found['rows']:,} labeled rows")
    for name in ("model", "observed", "expected by fit"):
        table.add_column(name, justify="left" if name == "model" else "right", overflow="fold")
    shown = [("plain", found["plain_method"])]
    if not found["kept_plain"]:
        shown.append(("chosen", found["method"]))
    for key, name in shown:
        sides = [found[side].get(key) for side in ("found", "promised")]
        values = ["unknown" if side is None else phrases.score(Interval(**side), found["measure"]) for side in sides]
        table.add_row(f"{name} ({key})", *values)
    console.print(table)
    for key in ("promise", "choice"):
        console.print(found[key], highlight=False)


def compared(found: dict[str, Any]) -> str:
    """Whether the choice of a fit was right: is the chosen model better than the plain one?"""
    from scipy.stats import t

    difference, error = found["difference"], found["difference_error"]
    if difference == 0:
        return "The choice made no difference: the chosen model and the plain one are equally good here."
    better = (difference > 0) == (found["measure"] == "accuracy")
    said = f"the chosen model is {'better' if better else 'worse'} than the plain one"
    if error is not None and found["rows"] > 1 and abs(difference) > t.ppf(0.975, found["rows"] - 1) * error:
        return f"The choice was {'right' if better else 'wrong'}: {said}."
    return f"Whether the choice was right cannot be told: {said} on these rows, by no more than chance could explain."
