"""A finished table: on the terminal, as CSV, as Markdown, as a picture, with where it comes from."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from experiments.engine.cells import Experiment
from experiments.engine.summary import Row, Summary
from steelyard import __version__
from steelyard.errors import OutputError

PACKAGES = ("numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Entry:
    """One entry of a printed table."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Section:
    """One printed table: a title, a header, rows of entries and a remark."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    remark: str = ""


def show(section: Section, console: Console) -> None:
    """On the terminal."""
    grid = Grid(title=section.title, caption=section.remark or None, title_justify="left", caption_justify="left")
    for place, name in enumerate(section.header):
        grid.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in section.rows:
        grid.add_row(*(Text(entry.text, style="bold green" if entry.bold else "") for entry in row))
    console.print(grid)


def markdown(section: Section, level: int = 3) -> str:
    """As a Markdown table."""
    lines = ["#" * level + " " + section.title, ""]
    lines.append("| " + " | ".join(section.header) + " |")
    lines.append("|---" + "|--:" * (len(section.header) - 1) + "|")
    for row in section.rows:
        lines.append("| " + " | ".join(f"**{e.text}**" if e.bold and e.text else e.text for e in row) + " |")
    if section.remark:
        lines += ["", section.remark]
    return "\n".join(lines) + "\n"


def write(experiment: Experiment, summary: Summary, run: dict[str, Any], folder: Path) -> list[Path]:
    """CSV, Markdown, provenance and pictures, beside each other."""
    sections = experiment.sections(summary)
    stem = folder / experiment.file
    try:
        _write_csv(summary.rows, stem.with_suffix(".csv"))
        provenance = {**run, "settings": dict(summary.settings)}
        stem.with_suffix(".json").write_text(json.dumps(provenance, indent=2, ensure_ascii=False) + "\n", "utf-8")
        pictures = experiment.figures(summary, folder)
        text = [f"# {experiment.title}\n", experiment.explains + "\n", *(markdown(section) for section in sections)]
        text += [f"![{picture.stem}]({picture.name})\n" for picture in pictures]
        text.append(
            f"Made by `python -m experiments {experiment.name}`; version, settings, seed, date and seconds are in "
            f"{stem.name}.json, every trial is in {stem.name}.sqlite.\n"
        )
        stem.with_suffix(".md").write_text("\n".join(text), "utf-8")
    except OSError as error:
        raise OutputError(
            f"Results cannot be written to {folder} ({error}). Give a folder that can be written with --out."
        ) from error
    return [stem.with_suffix(suffix) for suffix in (".csv", ".md", ".json")] + pictures


def _write_csv(rows: Sequence[Row], path: Path) -> None:
    names = ["data", "method", "mean", "sd", "median", "best_or_comparable", "p_value", "trials", "seconds"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, "paper_mean", "paper_sd", "paper_seconds"])
        for row in rows:
            paper = row.paper
            theirs = ["", "", ""] if paper is None else [paper.mean, paper.sd, paper.seconds or ""]
            ours = [f"{value:.6g}" for value in (row.mean, row.sd, row.median)]
            marks = ["yes" if row.best else "no", f"{row.p_value:.3g}", row.trials, f"{row.seconds:.3f}"]
            writer.writerow([row.data, row.method, *ours, *marks, *theirs])


def environment(device: str | None = None) -> dict[str, Any]:
    """What this process computes with; `device` where it trains networks."""
    found: dict[str, Any] = {
        "versions": {"steelyard": __version__, **{name: version(name) for name in PACKAGES}},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    if device is not None:
        import torch

        found["versions"]["torch"] = torch.__version__
        found["device"] = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return found
