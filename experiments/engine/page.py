"""A finished table: on the terminal, as Markdown, as CSV and as pictures, with its provenance."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from experiments.engine.cells import D, Experiment, M, settings_key, texts
from experiments.engine.files import locked, replace_file, whole_lines
from experiments.engine.pictures import save_figure
from experiments.engine.provenance import note, read_provenance
from experiments.engine.summary import Row, Summary


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


def page_slug(experiment: Experiment[D, M], settings: Mapping[str, Any], seed: int) -> str:
    """What tells the files of these settings and this seed from the table's own; empty for these."""
    return "_".join(part for part in (experiment.variant(settings), f"seed_{seed}" if seed else "") if part)


def page_name(slug: str) -> str:
    """File name of a page."""
    return f"variant_{slug}.md" if slug else "README.md"


def write(
    experiment: Experiment[D, M],
    summary: Summary[D, M],
    sections: Sequence[Section],
    seed: int,
    facts: Mapping[str, Any],
    folder: Path,
    *,
    draw: bool = True,
) -> list[Path]:
    """Table, provenance, page and pictures; without `draw` the pictures that are there stay."""
    key, slug = settings_key(summary.settings), page_slug(experiment, summary.settings, seed)
    page, pictures = page_name(slug), experiment.pictures(summary)
    note(folder, experiment.name, key, seed, summary.settings, {"page": page, **facts})
    files = [f"{slug}_{picture.name}.png".removeprefix("_") for picture in pictures]
    if draw:
        for picture, file in zip(pictures, files, strict=True):
            save_figure(picture.draw(), folder / file)
    text = [f"# {experiment.title}\n", *_other_settings(slug, facts["changed"]), experiment.explains + "\n"]
    text += [markdown(section) for section in sections]
    text += [f"![{picture.name}]({file})\n" for picture, file in zip(pictures, files, strict=True)]
    text.append(
        f"Made by `{facts['command']}` (settings {key}). Every trial is in trials.csv, the means are in table.csv; "
        "settings, seeds, dates, versions and seconds are in provenance.json.\n"
    )
    text += [] if slug else _links(folder)
    with locked(folder):
        _write_table(experiment, summary.rows, key, seed, folder / "table.csv")
        replace_file(folder / page, "\n".join(text).encode())
    return [folder / name for name in (page, "table.csv", "trials.csv", "provenance.json", *files)]


def _other_settings(slug: str, changed: Mapping[str, str]) -> list[str]:
    """The settings that differ from those of the table's own page."""
    if not changed:
        return [] if not slug else ["The [table](README.md) with another seed.\n"]
    said = ", ".join(f"{name} = {value}" for name, value in changed.items())
    return [f"The [table](README.md) with other settings: {said}.\n"]


def _links(folder: Path) -> list[str]:
    """Pages of the same table with other settings or seeds."""
    entries = [entry for about in read_provenance(folder)["settings"].values() for entry in about["seeds"].values()]
    pages = {each["page"]: each["command"] for each in entries if each.get("page", "README.md") != "README.md"}
    if not pages:
        return []
    return ["With other settings:\n", *(f"* [{page}]({page}), by `{pages[page]}`" for page in sorted(pages)), ""]


def _write_table(experiment: Experiment[D, M], rows: Sequence[Row[D, M]], key: str, seed: int, path: Path) -> None:
    """Replace the rows of these settings and this seed; the others stay."""
    header = ["settings", "seed", *experiment.columns, "mean", "sd", "median", "best_or_comparable", "p_value"]
    header += ["trials", "seconds", "paper_mean", "paper_sd", "paper_seconds"]
    stored = list(csv.reader(whole_lines(path)))[1:]
    mine = [[key, str(seed), *texts(row.data), *texts(row.method), *_numbers(row)] for row in rows]
    others = [row for row in stored if row[:2] != mine[0][:2] and len(row) == len(header)]
    text = io.StringIO()
    # Sorted by settings and seed alone: rows of a table keep the table's order.
    csv.writer(text, lineterminator="\n").writerows([header, *sorted(others + mine, key=lambda row: row[:2])])
    replace_file(path, text.getvalue().encode())


def _numbers(row: Row[D, M]) -> list[str]:
    paper = row.paper
    printed = ["", "", ""] if paper is None else [str(paper.mean), str(paper.sd), str(paper.seconds or "")]
    computed = [f"{value:.6g}" for value in (row.mean, row.sd, row.median)]
    return [
        *computed,
        "yes" if row.best else "no",
        f"{row.p_value:.3g}",
        str(row.trials),
        f"{row.seconds:.3f}",
        *printed,
    ]
