"""Frames to numbers, the same way for source and target: one encoding, learned from both, without any label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._typing import FloatArray
from steelyard.errors import ColumnMismatchError, InputError
from steelyard.tables.frame import Column, Frame
from steelyard.tables.missing import CODE, SIGNS_AMONG_NUMBERS, is_number

# A level of a category has a column of its own if a domain has this share of it; the rest are pooled.
RARE = 0.01
MOST_LEVELS = 30
# Where more than this share of the rows would be pooled, and skrub is installed, its text encoder says more than one
# pooled column would.
POOLED = 0.5
TEXT_FEATURES = 8
# Codes that hardly ever repeat, such as A-1043, identify rows: their parts say nothing, so they are pooled, not text.
IDENTIFIER = re.compile(r"[\w.:#-]*\d[\w.:#-]*")
HARDLY_ANY = 0.05
LARGEST = 1e100


@dataclass(frozen=True)
class ColumnCode:
    """How one column becomes numbers."""

    name: str
    kind: str  # that of the column, or "text" where a category is encoded by its words and their parts
    fill: float  # for missing numbers: the median over both domains
    marks_missing: bool  # whether a 0/1 column says where a value was missing
    levels: tuple[str, ...] = ()
    pools_rare: bool = False
    text: Any = None  # for kind "text": skrub's fitted encoder of character n-grams

    def feature_names(self) -> list[str]:
        """Names of the columns of numbers."""
        missing = [f"{self.name} is missing"] if self.marks_missing else []
        if self.kind == "text":
            return [*(f"{self.name}, text {i + 1}" for i in range(self.text.n_components_)), *missing]
        if self.kind != "category":
            return [self.name, *missing]
        rare = [f"{self.name} = (other)"] if self.pools_rare else []
        return [*(f"{self.name} = {level}" for level in self.levels), *rare, *missing]

    def numbers(self, column: Column) -> FloatArray:
        """Rows by features."""
        if self.kind == "text":
            text = _as_text(column)
            missing = np.array([value is None for value in text])
            parts = [np.asarray(self.text.transform(_series(column.name, text)), dtype=np.float64)]
        elif self.kind != "category":
            values = self._numbers(column)
            missing = np.isnan(values)
            parts = [np.where(missing, self.fill, values)]
        else:
            text = _as_text(column)
            missing = np.array([value is None for value in text])
            parts = [(text == level).astype(np.float64) for level in self.levels]
            if self.pools_rare:
                known = np.isin(text.astype(str), self.levels)
                parts.append((~known & ~missing).astype(np.float64))
        if self.marks_missing:
            parts.append(missing.astype(np.float64))
        return np.column_stack(parts) if parts else np.empty((len(missing), 0))

    @staticmethod
    def _numbers(column: Column) -> NDArray[np.float64]:
        if column.kind != "category":
            return np.where(np.isfinite(column.values), column.values, np.nan)
        bad = next((value for value in column.values if value is not None and not is_number(value)), None)
        if bad is None and not column.present().any():
            return np.full(len(column.values), np.nan)
        raise ColumnMismatchError(
            f"Column {column.name!r} held numbers when the model was fitted, and holds text now (for example {bad!r})."
        )


@dataclass(frozen=True)
class Encoding:
    """How every column of a table becomes numbers.

    Attributes
    ----------
    codes : tuple of ColumnCode
        One for each column.
    missing : tuple of str, default=()
        Signs of missing values that the tables were read with, in addition to the usual ones.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from steelyard.tables import as_frame, learn_encoding
    >>> frame = as_frame(pa.table({"city": ["oslo", "rome"]}))
    >>> learn_encoding(frame, frame).feature_names
    ['city = oslo', 'city = rome']
    """

    codes: tuple[ColumnCode, ...]
    missing: tuple[str, ...] = ()

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of numbers."""
        return [name for code in self.codes for name in code.feature_names()]

    @property
    def feature_columns(self) -> list[str]:
        """For each column of numbers, the column of the table it comes from."""
        return [code.name for code in self.codes for _ in code.feature_names()]

    def transform(self, frame: Frame, table: str = "table") -> FloatArray:
        """Encode the rows of a table, whose columns are found by name.

        Parameters
        ----------
        frame : Frame
            The table.
        table : str, default="table"
            Its name in errors.

        Returns
        -------
        array of shape (n_rows, n_features)
        """
        missing = [code.name for code in self.codes if code.name not in frame.names]
        if missing:
            raise ColumnMismatchError(
                f"The {table} lacks the columns {missing}. Columns are found by name; add or rename them."
            )
        return np.column_stack([code.numbers(frame[code.name]) for code in self.codes])

    @property
    def text_columns(self) -> list[str]:
        """The columns that are read as text: by their words and parts of words, not as categories."""
        return [code.name for code in self.codes if code.kind == "text"]

    @property
    def text_encoders(self) -> dict[str, Any]:
        """What `to_dict` leaves out, by column."""
        return {code.name: code.text for code in self.codes if code.kind == "text"}

    def to_dict(self) -> list[dict[str, Any]]:
        """For a JSON file; the encoders of text are left out."""
        return [asdict(replace(code, text=None)) for code in self.codes]

    @classmethod
    def from_dict(
        cls, codes: Sequence[dict[str, Any]], text_encoders: Mapping[str, Any], missing: Sequence[str] = ()
    ) -> Encoding:
        """From what `to_dict`, `text_encoders` and `missing` gave."""
        read = (
            ColumnCode(**{**code, "levels": tuple(code["levels"]), "text": text_encoders.get(code["name"])})
            for code in codes
        )
        return cls(tuple(read), tuple(missing))


def match_frames(source: Frame, target: Frame, where: str = "Source and target") -> tuple[Frame, Frame]:
    """Give two tables the same columns, in the order of the source, and each column one kind.

    A column that is a number in one table and text in the other becomes a category in both.

    Parameters
    ----------
    source, target : Frame
        The tables.
    where : str, default="Source and target"
        What the tables are called in errors.

    Returns
    -------
    source, target : Frame

    Examples
    --------
    >>> import pyarrow as pa
    >>> from steelyard.tables import as_frame, match_frames
    >>> source, target = as_frame(pa.table({"a": [1], "b": ["x"]})), as_frame(pa.table({"b": ["y"], "a": ["1b"]}))
    >>> [(c.name, c.kind) for c in match_frames(source, target)[1].columns]
    [('a', 'category'), ('b', 'category')]
    """
    missing = [name for name in source.names if name not in target.names]
    extra = [name for name in target.names if name not in source.names]
    if missing or extra:
        raise ColumnMismatchError(
            f"{where} have different columns. Only in the source: {_some(missing)}; only in the target: "
            f"{_some(extra)}. Drop or add columns until both have the same."
        )
    if not source.names:
        raise ColumnMismatchError(f"{where} have no columns to compare.")
    for frame, side in ((source, "source"), (target, "target")):
        huge = next((c for c in frame.columns if c.kind == "number" and _largest(c) > LARGEST), None)
        if huge is not None:
            raise InputError(
                f"{where}: column {huge.name!r} of the {side} has values as large as {_largest(huge):.3g}, whose "
                "squares are out of range. Rescale it."
            )
    kinds = {column.name: _common_kind(column, target[column.name]) for column in source.columns}
    matched = [tuple(as_kind(frame[name], kind) for name, kind in kinds.items()) for frame in (source, target)]
    return replace(source, columns=matched[0]), replace(target, columns=matched[1])


def _largest(column: Column) -> float:
    finite = column.values[np.isfinite(column.values)]
    return float(np.max(np.abs(finite), initial=0.0))


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "none"


def mismatched(source: Frame, target: Frame) -> list[str]:
    """Columns that are text in one table only: their files should be read as text."""
    pairs = [(column, target[column.name]) for column in source.columns if column.name in target.names]
    return [a.name for a, b in pairs if a.kind != b.kind and _common_kind(a, b) == "category"]


def _common_kind(source: Column, target: Column) -> str:
    """The kind that both can have. A column without any value can have any; numbers and booleans are numbers.

    Text that is all numbers and signs of missing values is numbers beside numbers.
    """
    if source.kind == target.kind or not target.present().any():
        return source.kind
    if not source.present().any():
        return target.kind
    kinds = {source.kind, target.kind}
    text = source if source.kind == "category" else target
    if kinds == {"number", "category"}:
        words = {value.strip().lower() for value in text.values if value is not None} - {"", *SIGNS_AMONG_NUMBERS}
        codes = any(re.match(CODE, word) or not is_number(word) for word in words)
        return "category" if codes else "number"
    return "number" if kinds == {"number", "boolean"} else "category"


def as_kind(column: Column, kind: str) -> Column:
    """The column with its values as another kind that can hold them."""
    if column.kind == kind:
        return column
    if kind == "category":
        return replace(column, kind=kind, values=_as_text(column))
    if column.kind == "category":  # numbers as text, or no value at all
        numbers = [float(value) if value is not None and is_number(value) else np.nan for value in column.values]
        return replace(column, kind=kind, values=np.array(numbers))
    return replace(column, kind=kind)  # a boolean among numbers, or no value at all


def learn_encoding(source: Frame, target: Frame) -> Encoding:
    """Learn how columns become numbers, from two matched tables and without labels.

    Parameters
    ----------
    source, target : Frame
        Tables with the same columns (see `match_frames`).

    Returns
    -------
    Encoding

    Examples
    --------
    >>> import pyarrow as pa
    >>> from steelyard.tables import as_frame, learn_encoding
    >>> source, target = as_frame(pa.table({"age": [1.0, None]})), as_frame(pa.table({"age": [3.0, 5.0]}))
    >>> learn_encoding(source, target).transform(source)
    array([[1., 0.],
           [3., 1.]])
    """
    return Encoding(tuple(_code(column, target[column.name]) for column in source.columns), source.missing)


def _code(source: Column, target: Column) -> ColumnCode:
    name = source.name
    if source.kind != "category":
        values = np.concatenate([source.values, target.values])
        present = values[np.isfinite(values)]
        fill = float(np.median(present)) if len(present) else 0.0
        return ColumnCode(name, source.kind, fill, bool(len(present) < len(values) and len(present)))
    levels: set[str] = set()
    seen: Counter[str] = Counter()
    for column in (source, target):
        counts = Counter(value for value in column.values if value is not None)
        seen.update(counts)
        levels |= {level for level, count in counts.items() if count >= RARE * len(column.values)}
    kept = sorted(sorted(levels), key=lambda level: -seen[level])[:MOST_LEVELS]
    missing = any(value is None for column in (source, target) for value in column.values)
    pooled = 1 - sum(seen[level] for level in kept) / max(1, seen.total())
    text = None
    if pooled > POOLED and len(seen) > MOST_LEVELS and not _identifies(seen):
        text = _text_encoder(name, np.concatenate([source.values, target.values]))
    if text is not None:
        return ColumnCode(name, "text", 0.0, missing, text=text)
    return ColumnCode(name, "category", 0.0, missing, tuple(sorted(kept)), len(seen) > len(kept))


def _identifies(seen: Counter[str]) -> bool:
    """Whether the values are codes that hardly ever repeat; each of both tables may have the same ones."""
    n_codes = sum(IDENTIFIER.fullmatch(value) is not None for value in seen)
    n_repeated = sum(count > 2 for count in seen.values())
    return n_codes >= (1 - HARDLY_ANY) * len(seen) and n_repeated <= HARDLY_ANY * len(seen)


def _text_encoder(name: str, text: NDArray[Any]) -> Any:
    """skrub's encoder of short texts, fitted on both domains; None where skrub is not installed."""
    try:
        from skrub import StringEncoder
    except ImportError:
        return None
    encoder = StringEncoder(n_components=TEXT_FEATURES, random_state=0)
    encoder.fit_transform(_series(name, text))
    return encoder


def _series(name: str, text: NDArray[Any]) -> Any:
    import pandas as pd

    return pd.Series(text, name=name, dtype=object)


def _as_text(column: Column) -> NDArray[Any]:
    if column.kind == "category":
        return column.values
    return np.array(
        [None if np.isnan(value) else in_words(column.kind, value) for value in column.values], dtype=object
    )


def in_words(kind: str, value: Any) -> str:
    """A value of a column as text, as a table would have it."""
    if kind == "category":
        return str(value)
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "date":
        return str(np.datetime64(round(float(value) * 86_400_000), "ms")).removesuffix("T00:00:00.000")
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
