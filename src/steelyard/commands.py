"""What the commands do: files in, findings and weights out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from steelyard.diagnose import Findings, diagnose
from steelyard.encode import learn_encoding, match_frames
from steelyard.errors import TableError
from steelyard.output import csv_text, write_whole
from steelyard.ratio import RULSIF, ULSIF
from steelyard.tables import Frame, read_table
from steelyard.target import Target
from steelyard.weights import effective_sample_size

# Rows of a file that are kept for a diagnosis, which looks at fewer.
SAMPLE = 20_000


def read(path: Path, progress: Progress, *, at_most: int | None, seed: int) -> Frame:
    """A table from a file, with a bar that counts its rows."""
    task = progress.add_task(f"reading {path.name}", total=None, rows="")
    count = 0

    def advance(n_rows: int) -> None:
        nonlocal count
        count += n_rows
        progress.update(task, rows=f"{count:,} rows")

    frame = read_table(path, at_most=at_most, seed=seed, advance=advance)
    progress.remove_task(task)
    return frame


def split_label(frame: Frame, label: str | None, path: Path, *, needed: bool) -> tuple[Frame, NDArray[Any] | None]:
    """The table without its label, and the label; rows without a label lose it as a whole."""
    if label is None or label not in frame.names:
        if needed and label is not None:
            raise TableError(
                f"{path}: there is no column {label!r} for --label; the columns are {', '.join(frame.names[:10])}"
                f"{', …' if len(frame.names) > 10 else ''}."
            )
        return frame, None
    return frame.without(label), frame[label].values


def diagnose_files(source: Path, target: Path, label: str | None, seed: int, progress: Progress) -> Findings:
    """Findings about two files."""
    with progress:
        near = read(source, progress, at_most=SAMPLE, seed=seed)
        far = read(target, progress, at_most=SAMPLE, seed=seed + 1)
        X, y = split_label(near, label, source, needed=True)
        X_target, y_target = split_label(far, label, target, needed=False)
        task = progress.add_task("comparing", total=None, rows="")
        if y is not None and y_target is not None:
            keep, keep_target = _present(y), _present(y_target)
            X, y, X_target, y_target = X.take(keep), y[keep], X_target.take(keep_target), y_target[keep_target]
        findings = diagnose(X, y, target=Target(X_target, y_target), random_state=seed)
        progress.remove_task(task)
    return findings


def _present(labels: NDArray[Any]) -> NDArray[np.bool_]:
    return np.array([value is not None for value in labels]) if labels.dtype == object else ~np.isnan(labels)


def write_findings(findings: Findings, folder: Path) -> None:
    """``findings.json`` in a folder."""
    write_whole(folder / "findings.json", findings.to_json() + "\n")


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
        ("what weights leave of the rows", f"{findings.effective_share:.0%}"),
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
            escape(c.name), c.kind, f"{c.standardised_difference:+.2f}", f"{c.distance:.2f}", f"{c.p_value:.2g}"
        )
    console.print(columns)


def weigh_files(
    source: Path, target: Path, label: str | None, eta: float, seed: int, out: Path, progress: Progress
) -> dict[str, Any]:
    """Write one weight a source row; give back what there is to say about them."""
    with progress:
        near = split_label(read(source, progress, at_most=None, seed=seed), label, source, needed=True)[0]
        far = split_label(read(target, progress, at_most=None, seed=seed), label, target, needed=False)[0]
        task = progress.add_task("weighing", total=None, rows="")
        one, other = match_frames(near, far)
        encoding = learn_encoding(one, other)
        ratio = RULSIF(eta, random_state=seed) if eta > 0 else ULSIF(random_state=seed)
        weights = ratio.fit(encoding.transform(one), target=Target(encoding.transform(other))).weights_
        progress.remove_task(task)
    write_whole(out, csv_text(["row", "weight"], ([i + 1, repr(float(w))] for i, w in enumerate(weights))))
    return {
        "rows": len(weights),
        "effective_rows": effective_sample_size(weights),
        "largest": float(weights.max()),
        "out": str(out),
    }
