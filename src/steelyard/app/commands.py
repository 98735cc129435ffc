"""What the commands do: files in, findings, weights, models and pages out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from steelyard._typing import FloatArray
from steelyard.app.atomic_files import MARK, check_file, check_folder, csv_text, write_file, write_folder
from steelyard.app.comparison import N_STEPS, paired_gain
from steelyard.app.persistence import FILES, TableModel, load_model, require_known
from steelyard.app.workflow import Run, fit_tables, predictions_csv, report, unseen_combinations, unseen_levels
from steelyard.balance import Balance, ColumnBalance, balance_in_words, cross_fitted_balance
from steelyard.diagnostics import Findings, diagnose
from steelyard.errors import SteelyardWarning, TableError, UnseenCellsWarning
from steelyard.model_selection.performance import Interval, bootstrap_t
from steelyard.ratio import RULSIF, AutoRatio
from steelyard.ratio.candidates import mixture_in_words
from steelyard.report import phrases as words
from steelyard.tables import Column, Frame, place_of_row, read_table
from steelyard.tables.encoding import Encoding, in_words, is_number, learn_encoding, match_frames, mismatched
from steelyard.target import Target
from steelyard.weights import effective_sample_size

# Rows of a file that are kept for a diagnosis, which looks at fewer.
SAMPLE = 20_000
# What the commands write into their folders, beside the mark.
DIAGNOSE_FILES = ("findings.json", "report.html")
FIT_FILES = (*FILES, "weights.csv", "predictions.csv", *DIAGNOSE_FILES)


def read(
    path: Path, progress: Progress, *, at_most: int | None, seed: int, kinds: Mapping[str, str] | None = None
) -> Frame:
    """A table from a file, with a bar that counts its rows."""
    task = progress.add_task(f"reading {path.name}", total=None, rows="")
    count = 0

    def advance(n_rows: int) -> None:
        nonlocal count
        count += n_rows
        progress.update(task, rows=f"{count:,} rows")

    frame = read_table(path, at_most=at_most, seed=seed, kinds=kinds, advance=advance)
    progress.remove_task(task)
    return frame


def read_pair(source: Path, target: Path, progress: Progress, *, at_most: int | None, seed: int) -> tuple[Frame, Frame]:
    """Two tables. A column that is text in one of them is read as text in both: 007 stays 007."""
    kinds: dict[str, str] = {}
    while True:
        near = read(source, progress, at_most=at_most, seed=seed, kinds=kinds)
        far = read(target, progress, at_most=at_most, seed=seed + 1, kinds=kinds)
        differ = [name for name in mismatched(near, far) if name not in kinds]
        if not differ:
            return near, far
        kinds |= dict.fromkeys(differ, "category")


def require_label(frame: Frame, label: str | None, path: Path) -> None:
    """An error where there is no such column."""
    if label is not None and label not in frame.names:
        raise TableError(
            f"{path}: there is no column {label!r} for --label; the columns are {', '.join(frame.names[:10])}"
            f"{', …' if len(frame.names) > 10 else ''}."
        )


def split_label(frame: Frame, label: str | None) -> tuple[Frame, NDArray[Any] | None]:
    """The table without its label, and the label where there is one."""
    if label is None or label not in frame.names:
        return frame, None
    return frame.without(label), frame[label].values


def diagnose_files(
    source: Path,
    target: Path,
    label: str | None,
    seed: int,
    progress: Progress,
    out: Path | None,
    overwrite: bool = False,
) -> Findings:
    """Findings about two files, and where there is a folder for it a report."""
    if out is not None:
        check_folder(out, DIAGNOSE_FILES, source, target, made_by="diagnose", overwrite=overwrite)
    with progress:
        near, far = read_pair(source, target, progress, at_most=SAMPLE, seed=seed)
        task = progress.add_task("comparing", total=None, rows="")
        near, far = _labeled(near, far, label, source, target)
        require_label(near, label, source)
        (X, y), (X_target, y_target) = split_label(near, label), split_label(far, label)
        one, other = match_frames(X, X_target, f"{source} and {target}")
        findings = diagnose(one, y, target=Target(other, y_target), random_state=seed)
        if out is not None:
            progress.update(task, description="drawing the report")
            facts = {"source": str(source), "target": str(target), "seed": str(seed)}
            facts["rows looked at"] = f"{findings.n_source:,} and {findings.n_target:,}"
            encoding = learn_encoding(one, other)
            notes = unseen_levels(one, other) + unseen_combinations(one, other, encoding)
            page = report(findings, one, other, encoding, None, None, facts, notes, seed)
            files = dict(zip(DIAGNOSE_FILES, (findings.to_json() + "\n", page), strict=True))
            write_folder(out, files, source, target, made_by="diagnose", overwrite=overwrite)
        progress.remove_task(task)
    return findings


def _labeled(near: Frame, far: Frame, label: str | None, source: Path, target: Path) -> tuple[Frame, Frame]:
    """Where both have labels, the rows that have one; a target without any keeps its rows and loses the column."""
    if label is None or label not in near.names or label not in far.names:
        return near, far
    if not far[label].present().any():
        return near, far.without(label)
    for frame, path in ((near, source), (far, target)):
        if frame[label].kind != "category" and np.isinf(frame[label].values).any():
            raise TableError(f"{path}, column {label!r}: a label is infinite.")
    return near.take(near[label].present()), far.take(far[label].present())


def show_findings(findings: Findings, console: Console) -> None:
    """The verdict, the evidence, the most shifted columns."""
    console.print(
        f"[bold]{findings.recommendation}[/]  ({findings.kind} shift)"
        if findings.kind != "none"
        else f"[bold]{findings.recommendation}[/]"
    )
    console.print(escape(findings.reason), highlight=False)
    evidence = Table(box=None, show_header=False, padding=(0, 2))
    for name, value in (
        ("a classifier tells rows apart", f"AUC {findings.auc:.2f} (p = {findings.classifier_p:.2g})"),
        ("kernel distance (MMD²)", f"{findings.mmd:.4f} (p = {findings.mmd_p:.2g})"),
        ("target rows without a source row nearby", f"{findings.uncovered:.0%}"),
        ("importance weights by", findings.ratio or "none: there is no overlap"),
        ("effective sample size of the weights", f"{findings.effective_share:.0%} of the rows"),
        ("mean difference of the columns (sd)", _balance_in_short(findings.balance)),
        ("tail of the weights (Pareto k)", f"{findings.pareto_k:.2f}"),
        ("rows looked at", f"{findings.n_source:,} source, {findings.n_target:,} target"),
    ):
        evidence.add_row(name, value)
    if findings.labels is not None:
        evidence.add_row("label differs", f"p = {findings.labels.label_p:.2g}")
        evidence.add_row("label differs given x", f"p = {findings.labels.concept_p:.2g}")
        evidence.add_row("x differs given label", f"p = {findings.labels.class_conditional_p:.2g}")
    console.print(evidence)
    columns = Table(title="Most shifted columns", title_justify="left")
    for name in ("column", "kind", "difference (sd)", "distance", "p (corrected)"):
        columns.add_column(name, justify="left" if name in ("column", "kind") else "right")
    for c in findings.columns[:10]:
        columns.add_row(
            escape(c.name), c.kind, f"{c.standardized_difference:+.2f}", f"{c.distance:.2f}", f"{c.p_value:.2g}"
        )
    console.print(columns)


def _balance_in_short(columns: Sequence[ColumnBalance]) -> str:
    if not columns:
        return "not weighted"
    before, after = (np.mean([abs(getattr(c, when)) for c in columns]) for when in ("before", "after"))
    return f"{before:.3f}, weighted {after:.3f}"


def weigh_files(
    source: Path,
    target: Path,
    label: str | None,
    eta: float,
    seed: int,
    out: Path,
    progress: Progress,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write one weight a source row; give back what there is to say about them."""
    check_file(out, source, target, overwrite=overwrite)
    with progress:
        tables = read_pair(source, target, progress, at_most=None, seed=seed)
        require_label(tables[0], label, source)
        near, far = (split_label(table, label)[0] for table in tables)
        task = progress.add_task("weighing", total=None, rows="")
        one, other = match_frames(near, far, f"{source} and {target}")
        encoding = learn_encoding(one, other)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", SteelyardWarning)
            warnings.simplefilter("ignore", UnseenCellsWarning)  # said below, by the names of the columns
            found = _weigh(encoding, encoding.transform(one), encoding.transform(other), eta, seed)
        progress.remove_task(task)
    weights, method, balance = found
    text = csv_text(["row", "weight"], ([i + 1, float(w)] for i, w in enumerate(weights)))
    write_file(out, text, source, target, overwrite=overwrite)
    unbalanced = balance_in_words(balance.by_column())
    return {
        "rows": len(weights),
        "ratio": method,
        "effective_sample_size": effective_sample_size(weights),
        "largest": float(weights.max()),
        "mean_difference": {"before": balance.mean_before, "after": balance.mean_after},
        "balance": [asdict(column) for column in balance.by_column()],
        "out": str(out),
        "notes": [
            *unseen_levels(one, other),
            *unseen_combinations(one, other, encoding),
            *(str(warning.message) for warning in said),
            *([] if unbalanced is None else [unbalanced]),
        ],
    }


def _weigh(
    encoding: Encoding, rows: FloatArray, goal: FloatArray, eta: float, seed: int
) -> tuple[FloatArray, str, Balance]:
    """Weights, the name of what estimated them, and the balance of the columns on rows that they have not seen."""
    names = encoding.feature_names
    if eta > 0:
        relative = RULSIF(eta, random_state=seed).fit(rows, target=Target(goal))
        balance = cross_fitted_balance(RULSIF(eta, random_state=seed), rows, target=goal, columns=names)
        return relative.weights_, f"RuLSIF, eta = {eta:g}", balance
    chosen = AutoRatio(random_state=seed).fit(rows, target=Target(goal))
    return chosen.weights_, mixture_in_words(chosen.candidates_), replace(chosen.balance_, columns=tuple(names))


def fit_files(
    source: Path,
    target: Path,
    label: str,
    task: str,
    seed: int,
    out: Path,
    progress: Progress,
    overwrite: bool = False,
) -> Run:
    """Fit on two files and write the folder."""
    check_folder(out, FIT_FILES, source, target, made_by="fit", overwrite=overwrite)
    run = fit_pair(source, target, label, task, seed, progress, names=(str(source), str(target)))
    write_folder(out, run.files, source, target, made_by="fit", overwrite=overwrite)
    return run


def fit_pair(
    source: Path, target: Path, label: str, task: str, seed: int, progress: Progress, *, names: tuple[str, str]
) -> Run:
    """Fit on two files, which the report calls by these names; nothing is written."""
    with progress:
        near, far = read_pair(source, target, progress, at_most=None, seed=seed)
        require_label(near, label, source)
        bar = progress.add_task("fitting", total=N_STEPS + 2, rows="")
        return fit_tables(
            near,
            far,
            label,
            names=names,
            task=task,
            seed=seed,
            place=lambda row: place_of_row(source, row),
            advance=lambda step: progress.update(bar, advance=1, description=step),
        )


def show_run(run: Run, out: Path, console: Console) -> None:
    """The verdict, the methods, what the models are worth, and where everything lies."""
    console.print(f"[bold]{escape(words.headline(run.findings, run.comparison))}[/]", highlight=False)
    console.print(escape(run.findings.reason), highlight=False)
    console.print(escape(run.comparison.reason), highlight=False)
    for note in run.notes:
        console.print(escape(f"Note: {note}"), style="yellow", highlight=False)
    table = Table(title="Judged for the target, without its labels", title_justify="left")
    for name in ("method", "loss", "better than plain by", "effective rows"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for i, m in enumerate(run.comparison.methods):
        gain = "" if i == run.comparison.plain else f"{m.gain:+.3g} ± {m.gain_error:.2g}"
        style = "bold green" if i == run.comparison.chosen else "bold" if i == run.comparison.plain else ""
        table.add_row(m.name, f"{m.loss:.4g}", gain, f"{m.effective_sample_size:.0f}", style=style)
    console.print(table)
    console.print(f"Expected {words.score_name(run.comparison.measure)}:", highlight=False)
    for name, value in words.scores(run.comparison):
        console.print(f"  {name}: {value}", highlight=False)
    console.print(f"In {escape(str(out))}: {', '.join(sorted(run.files))}", highlight=False, soft_wrap=True)
    console.print(f"Report: {escape(str(out / 'report.html'))}", highlight=False, soft_wrap=True)


def predict_file(folder: Path, table: Path, out: Path, progress: Progress, overwrite: bool = False) -> dict[str, Any]:
    """Write the predictions of a saved model for a file."""
    inputs = table, *(folder / name for name in (*FILES, MARK))
    check_file(out, *inputs, overwrite=overwrite)
    model = load_model(folder)
    with progress:
        frame = read(table, progress, at_most=None, seed=0, kinds=model.kinds)
        write_file(out, predictions_csv(model, frame, str(table)), *inputs, overwrite=overwrite)
    return {"rows": len(frame), "method": model.about["method"], "out": str(out)}


def evaluate_file(folder: Path, table: Path, seed: int, progress: Progress) -> dict[str, Any]:
    """How good a saved model and the plain one are on labeled rows, beside what the fit had promised."""
    model = load_model(folder)
    with progress:
        frame = read(table, progress, at_most=None, seed=0, kinds=model.kinds)
        require_label(frame, model.label, table)
        column = frame[model.label]
        keep = column.present()
        frame = frame.take(keep)
        if not len(frame):
            raise TableError(f"{table}, column {model.label!r}: no row has a label.")
        rows = {
            name: row_scores_of(model, frame, column.take(keep), plain=name == "plain", where=str(table))
            for name in ("chosen", "plain")
        }
    gain, error = paired_gain(rows["chosen"], rows["plain"], np.ones(len(frame)))
    return {
        "rows": len(frame),
        "method": model.about["method"],
        "plain_method": model.about["plain_method"],
        "kept_plain": model.about["kept_plain"],
        "measure": model.about["measure"],
        "found": {name: asdict(_found(scores, model, seed)) for name, scores in rows.items()},
        "promised": model.about["performance"],
        "difference": gain,
        "difference_error": error if np.isfinite(error) else None,
    }


def _found(scores: FloatArray, model: TableModel, seed: int) -> Interval:
    """The mean score; a share of right ones has Wilson's interval, which knows that 3 of 3 is not certain."""
    if not model.classes:
        return bootstrap_t(scores, np.ones(len(scores)), np.random.default_rng(seed))
    from scipy.stats import binomtest

    around = binomtest(int(scores.sum()), len(scores)).proportion_ci(method="wilson")
    return Interval(float(scores.mean()), float(around.low), float(around.high))


def row_scores_of(model: TableModel, frame: Frame, label: Column, *, plain: bool, where: str) -> FloatArray:
    """Right or wrong, or the squared error, of each row."""
    predicted = model.predict(frame, plain=plain, where=where)
    at = f"{where}, column {label.name!r}"
    if model.classes:
        truth = np.array([in_words(label.kind, value) for value in label.values], dtype=object)
        require_known(truth, model.classes, at)
        return (predicted == truth).astype(np.float64)
    if label.kind == "category":
        bad = next(value for value in label.values if not is_number(value))
        raise TableError(f"{at}: the model predicts a number, and not all labels are one (such as {bad!r}).")
    if not np.isfinite(label.values).all():
        raise TableError(f"{at}: a label is infinite.")
    return np.square(predicted.astype(np.float64) - label.values)


def show_evaluation(found: dict[str, Any], console: Console) -> None:
    """Promised and found, side by side."""
    table = Table(title=f"{words.score_name(found['measure']).capitalize()} on {found['rows']:,} labeled rows (95 %)")
    for name in ("model", "found", "expected by fit"):
        table.add_column(name, justify="left" if name == "model" else "right")
    shown = [("plain", found["plain_method"])]
    if not found["kept_plain"]:
        shown.append(("chosen", found["method"]))
    for key, name in shown:
        sides = [found[side].get(key) for side in ("found", "promised")]
        values = ["not known" if side is None else words.score(Interval(**side), found["measure"]) for side in sides]
        table.add_row(f"{name} ({key})", *values)
    console.print(table)
    if found["kept_plain"]:
        console.print("The plain model was kept.")
        return
    console.print(compared(found), highlight=False)


def compared(found: dict[str, Any]) -> str:
    """Whether the chosen model is better than the plain one, in words."""
    difference, error = found["difference"], found["difference_error"]
    if difference == 0:
        return "The chosen model and the plain one are equally good here."
    better = (difference > 0) == (found["measure"] == "accuracy")
    words_of = f"The chosen model is {'better' if better else 'worse'} than the plain one"
    from scipy.stats import t

    sure = error is not None and found["rows"] > 1 and abs(difference) > t.ppf(0.975, found["rows"] - 1) * error
    return f"{words_of}." if sure else f"{words_of} on these rows, by no more than chance could explain."
