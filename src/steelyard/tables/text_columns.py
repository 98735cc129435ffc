"""A column of text: numbers, dates or categories, and which of its values are signs of missing values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.tables.frame import Column, Reading
from steelyard.tables.missing import CODE, SIGNS, SIGNS_AMONG_NUMBERS, is_number

# A column is nearly numbers if at most this share of its values, or this many, are something else;
FEW_STRAYS, LEAST_STRAYS = 0.05, 3
# or if at most half of its values are, but only a few different ones among many different numbers, such as "unknown".
MOST_STRAYS, FEW_WORDS, MANY_NUMBERS = 0.5, 3, 20
DAY = "1970-01-01 "
POINTED_DATE = r"^\d\d?\.\d\d?\.\d{4}$"  # with points the day comes first
FIRST_ROWS = 20  # a kind that does not fit these is not tried on the whole column


@dataclass(frozen=True)
class TextFormat:
    """How text is to be read.

    Attributes
    ----------
    missing : sequence of str
        Signs of missing values in addition to the usual ones, in columns of every kind.
    decimal_point : str
        What separates whole numbers from fractions.
    table : str
        Name of the table, for notes.
    place : callable
        From the number of a row to where it is in the table, in words.
    """

    missing: Sequence[str] = ()
    decimal_point: str = "."
    table: str = "The table"
    place: Callable[[int], str] = field(default=lambda row: f"row {row + 1}")


def column_of_text(name: str, values: Any, kind: str | None, how: TextFormat) -> Column:
    """A column of a text file; its kind is found by its values unless it is given as "number" or "category"."""
    import pyarrow.compute as pc

    numbers = None if kind == "category" else _typed(values, "number", how.decimal_point)
    if numbers is not None and not np.isnan(numbers[1]).any():  # most columns: nothing is missing
        return with_missing(Column(name, *numbers, Reading(how.table)), how.missing, how.table)
    text = pc.utf8_trim_whitespace(values)
    text, own = _take_out(text, _is_one_of(text, ("", *how.missing)))
    rest, signs = _take_out(text, _is_one_of(pc.utf8_lower(text), SIGNS_AMONG_NUMBERS))
    typed = None if kind == "category" else _typed(rest, kind, how.decimal_point)
    if typed is not None:
        return with_missing(Column(name, *typed, Reading(how.table, {**own, **signs})), how.missing, how.table)
    text, signs = _take_out(text, _is_one_of(text, SIGNS))
    reading = Reading(how.table, {**own, **signs}, *_strays(rest, how))
    return Column(name, "category", np.array(text.to_pylist(), dtype=object), reading)


def numbers_but_for_signs(name: str, values: Any, table: str) -> Column | None:
    """A column of text that would be numbers, dates or booleans but for signs of missing values; None for any other.

    Text without such a sign stays text, and so do numbers that start with 0, which are codes.
    """
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(values)
    rest, signs = _take_out(text, _is_one_of(pc.utf8_lower(text), ("", *SIGNS_AMONG_NUMBERS)))
    if not signs or rest.null_count == len(rest) or pc.any(pc.match_substring_regex(rest, CODE)).as_py():
        return None
    typed = _typed(rest, None, ".")
    return None if typed is None else Column(name, *typed, Reading(table, signs))


def with_missing(column: Column, signs: Sequence[str], table: str) -> Column:
    """The column without values that are a sign of a missing one, such as -999 among numbers."""
    values, found = column.values.copy(), dict[str, int]()
    for sign in signs:
        if column.kind == "category":
            rows = values == sign
        elif column.kind == "number" and is_number(sign):
            rows = values == float(sign)
        else:
            continue
        values[rows] = None if column.kind == "category" else np.nan
        found[sign] = int(np.sum(rows))
    if not any(found.values()):
        return column
    before = column.reading or Reading(table)
    missing = {sign: before.missing.get(sign, 0) + found.get(sign, 0) for sign in (*before.missing, *found)}
    kept = {sign: count for sign, count in missing.items() if count}
    return replace(column, values=values, reading=replace(before, missing=kept))


def _is_one_of(text: Any, signs: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(text, value_set=pa.array(signs, text.type))


def _take_out(text: Any, rows: Any) -> tuple[Any, dict[str, int]]:
    """The text with nothing in these rows, and how often each value was in them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(rows).as_py():
        return text, {}
    counts = pc.value_counts(text.filter(rows))
    found = {pair["values"]: pair["counts"] for pair in counts.to_pylist() if pair["values"]}
    return pc.if_else(rows, pa.scalar(None, text.type), text), found


def _typed(text: Any, kind: str | None, decimal_point: str) -> tuple[str, NDArray[Any]] | None:
    """Kind and values of text that is all numbers, booleans, dates or times of day (hours); None for any other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A point is not a decimal comma: 1.234 is then 1234 for some, and a number for nobody.
    numbers = pc.replace_substring(pc.replace_substring(text, ".", "?"), ",", ".") if decimal_point == "," else text
    trials: list[tuple[str, Any, Any]] = [("number", numbers, pa.float64())]
    if kind is None:
        dates = [pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("s", "ns")]
        times = pc.binary_join_element_wise(DAY, text, "")
        trials += [("boolean", text, pa.bool_()), *(("date", text, date) for date in dates)]
        trials += [("time", times, pa.timestamp("ns"))]
    for found, values, wanted in trials:
        try:
            pc.cast(values[:FIRST_ROWS], wanted)  # Arrow goes through the whole column even if its first value fails
            cast = pc.cast(values, wanted)
        except pa.ArrowInvalid:
            continue
        if found == "date":
            return found, as_days(cast)
        return ("number", as_days(cast) * 24) if found == "time" else (found, as_floats(cast))
    if kind is None and pc.all(pc.match_substring_regex(text, POINTED_DATE)).as_py():
        with suppress(pa.ArrowInvalid):
            return "date", as_days(pc.strptime(text, "%d.%m.%Y", "s"))
    return None


def as_floats(values: Any) -> NDArray[np.float64]:
    """An Arrow array of numbers or booleans as floats, with NaN where a value is missing."""
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def as_days(values: Any) -> NDArray[np.float64]:
    """An Arrow array of dates as days since 1970."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return as_floats(pc.cast(pc.cast(values, pa.timestamp("ms"), safe=False), pa.int64())) / 86_400_000


def _strays(text: Any, how: TextFormat) -> tuple[Mapping[str, int], str]:
    """The values that are not numbers in a column that is nearly numbers, with counts, and where the first one is."""
    import pyarrow.compute as pc

    counts = pc.value_counts(text.drop_null())
    values, n_rows = counts.field("values"), counts.field("counts").to_numpy()
    point = "[,]" if how.decimal_point == "," else "[.]"
    pattern = rf"(?i)^[+-]?((\d+{point}?\d*|{point}\d+)(e[+-]?\d+)?|inf|infinity|nan)$"
    stray = ~pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False).astype(bool)
    n_strays, total = int(n_rows[stray].sum()), int(n_rows.sum())
    n_words = int(stray.sum())
    words_among_numbers = n_words <= FEW_WORDS and len(stray) - n_words >= MANY_NUMBERS
    share = MOST_STRAYS if words_among_numbers else FEW_STRAYS
    if not 0 < n_strays <= max(share * total, min(LEAST_STRAYS, total / 2 - 1)):
        return {}, ""
    found = values.filter(stray)
    first = pc.index(pc.is_in(text, value_set=found), True).as_py()
    most_common = np.argsort(-n_rows[stray], kind="stable")
    return {str(found[int(i)]): int(n_rows[stray][i]) for i in most_common}, how.place(first)
