"""Notes for the user about the two tables: how they were read, and target values that the source has never seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.duplicates import LEAST_LEVELS, table_columns, units_of_rows
from steelyard._numerics.empirical import empirical
from steelyard._typing import FloatArray
from steelyard.ratio._overlap import unseen_cells
from steelyard.tables import Frame, TablePair
from steelyard.tables.encoding import Encoding, in_words
from steelyard.tables.frame import Reading

# Columns of a table that are named in notes of one kind.
NAMED = 5
# Share of source rows that repeat another one above which they are mentioned.
MANY_COPIES = 0.2


def reading_notes(*frames: Frame) -> list[str]:
    """Notes on the columns with values that were read as missing, or that made text of numbers."""
    notes = []
    for frame in frames:
        missing, strays = [], []
        for column in frame.columns:
            found = column.reading or Reading("")
            where = f"{found.table}, column {column.name!r}"
            if found.missing:
                signs = _listed([f"{_count(n, 'value')} {sign!r}" for sign, n in found.missing.items()])
                verb = "was" if sum(found.missing.values()) == 1 else "were"
                missing.append(f"{where}: {signs} {verb} read as missing.")
            if found.strays:
                shown = ", ".join(repr(value) for value in list(found.strays)[:3])
                shown += ", …" if len(found.strays) > 3 else ""
                n_rows = _count(sum(found.strays.values()), "row")
                strays.append(
                    f"{where} is read as text because of {shown} ({n_rows}, first in {found.first_stray}). If it is a "
                    "quantity, mend these values or name them with --missing."
                )
        for kind in (missing, strays):
            notes += kind[:NAMED]
            if len(kind) > NAMED:
                notes.append(f"The same is true of {_count(len(kind) - NAMED, 'more column')}.")
    return notes


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' if n > 1 else ''}"


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def sampling_notes(frames: Sequence[Frame], names: Sequence[str]) -> list[str]:
    """A note where a model is fitted to a sample of a table."""
    sides = zip(frames, names, ("weights.csv", "predictions.csv"), ("weigh", "predict"), strict=True)
    return [
        f"The model is learned from an even sample, {len(frame):,} of the {frame.sampled_from:,} rows of {name}. "
        f"{file} has these rows, with their numbers in the file; steelyard {command} takes files of any length."
        for frame, name, file, command in sides
        if frame.sampled_from is not None
    ]


def unseen_levels(source: Frame, target: Frame, encoding: Encoding) -> list[str]:
    """A note for each category with levels that the source does not have; text is known by its words."""
    notes, text = [], encoding.text_columns
    for column in source.columns:
        if column.kind != "category" or column.name in text:
            continue
        seen = {value for value in column.values if value is not None}
        unseen = [value for value in target[column.name].values if value is not None and value not in seen]
        if unseen:
            levels = sorted(set(unseen))
            shown = ", ".join(repr(level) for level in levels[:3]) + (", …" if len(levels) > 3 else "")
            notes.append(
                f"Column {column.name!r}: {len(unseen):,} target rows have values that no source row has ({shown}); "
                "what they mean for the label cannot be learned."
            )
    return notes


def possible_copies(rows: FloatArray, labels: NDArray[Any]) -> list[str]:
    """A note where many source rows repeat another one and are yet held out one by one, as rows of few levels are.

    Where a column has about as many levels as there are different rows, they may be copies of one another.
    """
    columns = table_columns(rows, labels)
    factors, keys = np.random.default_rng(0).normal(size=len(columns)), np.zeros(len(rows))
    for factor, column in zip(factors, columns, strict=True):
        keys += factor * column  # equal rows have equal keys
    _, first = np.unique(keys, return_index=True)
    n_copies = len(rows) - len(first)
    if n_copies < MANY_COPIES * len(rows) or len(np.unique(units_of_rows(columns))) < len(rows):
        return []  # hardly any, or held out together
    if max(len(np.unique(column[first])) for column in columns) < max(LEAST_LEVELS, len(first) / 2):
        return []
    return [
        f"{n_copies:,} of the {len(rows):,} source rows repeat another one, label included. If they are copies and not "
        "observations of their own, drop them: otherwise the scores on held-out rows are too good."
    ]


def unseen_combinations(pair: TablePair) -> list[str]:
    """A note where target rows have combinations of values that no source row has, in a table of few levels."""
    rng = np.random.default_rng(0)
    target = empirical(pair.X_target, None, rng)
    share, cell = unseen_cells(empirical(pair.X, None, rng), target)
    if not share:
        return []
    row = int(np.flatnonzero(target.position == cell)[0])
    named = ", ".join(
        f"{column.name} = {in_words(column.kind, column.values[row]) if column.present()[row] else 'missing'}"
        for column in pair.target.columns
    )
    return [
        f"{share:.0%} of the target rows have a combination of values that no source row has; the most common is "
        f"({named}). No importance weight can represent such rows: estimates for the target say nothing about them."
    ]
