"""The files that a command reads: one table, or two whose columns are read alike."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from steelyard.errors import ColumnMismatchError, TableError
from steelyard.tables import Frame, TableFile, match_frames, read_table
from steelyard.tables.encoding import mismatched


def read(
    file: Path | TableFile,
    progress: Progress,
    *,
    at_most: int | None,
    seed: int,
    kinds: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
) -> Frame:
    """A table from a file, with a bar that counts its rows."""
    task = progress.add_task(f"reading {file.name}", total=None, rows="")
    count = 0

    def advance(n_rows: int) -> None:
        nonlocal count
        count += n_rows
        progress.update(task, rows=f"{count:,} rows")

    frame = read_table(file, at_most=at_most, seed=seed, kinds=kinds, missing=missing, advance=advance)
    progress.remove_task(task)
    return frame


def read_pair(
    files: Sequence[TableFile],
    progress: Progress,
    *,
    at_most: int | None,
    seed: int,
    missing: Sequence[str],
    least: int,
    label: str | None = None,
) -> tuple[Frame, Frame]:
    """Source and target, of at least so many rows each; those of the source have a label where its column is given.

    A column that is text in one of them is read as text in both: 007 stays 007.
    """
    kinds: dict[str, str] = {}
    while True:
        frames = (
            read(files[0], progress, at_most=at_most, seed=seed, kinds=kinds, missing=missing),
            read(files[1], progress, at_most=at_most, seed=seed + 1, kinds=kinds, missing=missing),
        )
        differ = [name for name in mismatched(*frames) if name not in kinds]
        if not differ:
            break
        kinds |= dict.fromkeys(differ, "category")
    counts = [len(frame) for frame in frames]
    with_label = label in frames[0].names
    if with_label:
        counts[0] = int(np.sum(frames[0][str(label)].present()))
    for file, count in zip(files, counts, strict=True):
        if 0 < count < least:
            rows = f"{count} row{'s' if count > 1 else ''}{' with a label' if with_label and file is files[0] else ''}"
            raise TableError(
                f"{file.name}: {rows}; at least {least} are needed to compare source and target. Add rows; a model "
                "that was fitted with more of them predicts any number."
            )
    return frames


def require_label(frame: Frame, label: str | None, table: str) -> None:
    """Raise `TableError` where there is no such column."""
    if label is not None and label not in frame.names:
        raise TableError(
            f"{table}: there is no column {label!r} for --label; the columns are {', '.join(frame.names[:10])}"
            f"{', …' if len(frame.names) > 10 else ''}."
        )


def split_label(frame: Frame, label: str | None) -> tuple[Frame, NDArray[Any] | None]:
    """The table without its label, and the label where there is one."""
    if label is None or label not in frame.names:
        return frame, None
    return frame.without(label), frame[label].values


def labeled(source: Frame, target: Frame, label: str | None, names: tuple[str, str]) -> tuple[Frame, Frame]:
    """Where both have labels, the rows that have one; a target without any keeps its rows and loses the column."""
    if label is None or label not in source.names or label not in target.names:
        return source, target
    if not target[label].present().any():
        return source, target.without(label)
    for frame, name in ((source, names[0]), (target, names[1])):
        if frame[label].kind != "category" and np.isinf(frame[label].values).any():
            raise TableError(f"{name}, column {label!r}: a label is infinite.")
    return source.take(source[label].present()), target.take(target[label].present())


def match_unlabeled(source: Frame, target: Frame, label: str | None, names: Sequence[str]) -> tuple[Frame, Frame]:
    """Both tables with the same columns; where just one is in the source alone, an error asks if it is the label."""
    try:
        return match_frames(source, target, " and ".join(names))
    except ColumnMismatchError as error:
        missing = [name for name in source.names if name not in target.names]
        if label is not None or len(missing) != 1 or not set(target.names) <= set(source.names):
            raise
        hint = f"If {missing[0]!r} is the label, give --label {shlex.quote(missing[0])}."
        raise ColumnMismatchError(f"{error} {hint}") from error
