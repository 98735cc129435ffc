"""The label column of the source: a quantity or classes, and errors that say where a label cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._typing import BoolArray
from steelyard.app.notes import reading_notes
from steelyard.errors import TableError
from steelyard.tables.encoding import in_words
from steelyard.tables.frame import Column, Frame
from steelyard.tables.missing import is_number

# Whole numbers with at most this many values are classes, unless the task is given.
MOST_CLASSES = 10
NEARLY_ALL = 0.95


@dataclass(frozen=True, eq=False)
class Labels:
    """The label column as numbers.

    Attributes
    ----------
    name : str
        Name of the column.
    values : array
        The labels of the rows that have one: quantities, or positions in `classes`.
    present : boolean array
        Which rows of the table have a label.
    classes : tuple of str
        The classes as written in the table; empty for regression.
    column : Column
        The column that they were read from.
    """

    name: str
    values: NDArray[Any]
    present: BoolArray
    classes: tuple[str, ...]
    column: Column

    def notes(self, target: Frame, target_name: str, task: str) -> list[str]:
        """What the user should know about the labels, and about how they and the target were read."""
        notes = reading_notes(Frame((self.column,), len(self.column.values)), target)
        if self.name in target.names:
            notes.append(
                f"{target_name} has the label column {self.name!r} too. It was not used for fitting or choosing; "
                "steelyard evaluate uses it."
            )
        absent = int(np.sum(~self.present))
        if absent:
            notes.append(f"{absent:,} source rows have no label and were left out.")
        if task == "auto" and self.classes and all(is_number(name) for name in self.classes):
            notes.append(
                f"The label {self.name!r} has {len(self.classes)} different whole numbers and was treated as classes; "
                "use --task regression if it is a quantity."
            )
        return notes


def read_labels(column: Column, table: str, task: str, place: Callable[[int], str]) -> Labels:
    """Labels of the source; raises `TableError` for labels that a model cannot learn from.

    Parameters
    ----------
    column : Column
        The label column.
    table : str
        Name of the table, for errors.
    task : {"auto", "regression", "classification"}
        Whether labels are quantities or classes; "auto" decides by the column.
    place : callable
        From the number of a row to where it is in the table, in words.

    Returns
    -------
    Labels
    """
    present = column.present()
    values, rows = column.values[present], np.flatnonzero(present)
    where = f"column {column.name!r}"
    if column.kind == "date":
        raise TableError(f"{table}, {where}: the label is a date. Give a number or a category.")
    if not len(values):
        raise TableError(f"{table}, {where}: no row has a label.")
    if column.kind == "category":
        stray = _first_stray_text(values, task)
        if stray is not None:
            why = "as regression needs" if task == "regression" else "and nearly all other labels are"
            raise TableError(f"{table}, {place(int(rows[stray]))}, {where}: {values[stray]!r} is not a number, {why}.")
    elif not np.isfinite(values).all():
        bad = int(rows[np.flatnonzero(~np.isfinite(values))[0]])
        raise TableError(f"{table}, {place(bad)}, {where}: the label is infinite.")
    if task == "auto" and column.kind not in ("category", "boolean"):
        distinct = np.unique(values)
        are_classes = len(distinct) <= MOST_CLASSES and bool(np.all(distinct == np.round(distinct)))
    else:
        are_classes = task in ("auto", "classification")
    if not are_classes:
        return Labels(column.name, values.astype(np.float64), present, (), column)
    text = np.array([in_words(column.kind, value) for value in values])
    classes, first, codes, counts = np.unique(text, return_index=True, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise TableError(f"{table}, {where}: every label is {str(classes[0])!r}; two classes are needed.")
    if counts.min() < 2:
        rare = int(counts.argmin())
        advice = ", or use --task regression" if column.kind != "category" else ""
        raise TableError(
            f"{table}, {place(int(rows[first[rare]]))}, {where}: class {str(classes[rare])!r} has only this row; at "
            f"least two rows per class are needed. Add rows, merge the class with another, or drop it{advice}."
        )
    return Labels(column.name, codes.astype(np.intp), present, tuple(str(name) for name in classes), column)


def _first_stray_text(values: NDArray[Any], task: str) -> int | None:
    """The first label that is not a number, where numbers are needed or nearly all other labels are numbers."""
    numeric = np.array([is_number(value) for value in values])
    mostly_numbers = NEARLY_ALL <= numeric.mean() < 1 and len(set(values[numeric])) > MOST_CLASSES
    if numeric.all() or not (task == "regression" or (task == "auto" and mostly_numbers)):
        return None
    return int(np.flatnonzero(~numeric)[0])
