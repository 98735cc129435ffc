"""Notes for the user about the two tables: stray text, and target values that the source has never seen."""

from __future__ import annotations

import numpy as np

from steelyard._numerics.empirical import empirical
from steelyard.app.labels import NEARLY_ALL
from steelyard.ratio._overlap import unseen_cells
from steelyard.tables import Frame, TablePair
from steelyard.tables.encoding import in_words, is_number


def stray_text(frame: Frame) -> list[str]:
    """A note for each column that is read as text because of a few values, and would otherwise hold numbers."""
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
