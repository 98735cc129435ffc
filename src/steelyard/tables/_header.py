"""Whether the first line of a CSV file names the columns, or is a row already."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.errors import TableError
from steelyard.tables.missing import SIGNS_AMONG_NUMBERS, is_number

YEARS = (1800, 2199)
# Numbers at equal distances, such as the wavelengths of a spectrum, are names where there are at least this many.
LEAST_SERIES = 4


def check_header(names: list[str], rows: Any, decimal_point: str, where: str) -> None:
    """An error where the first line looks like data.

    It does where all of its fields are numbers, or where it has a value of the right type for each column of numbers,
    dates or booleans, or words that all come again in their columns. Years, the numbers from 0 or 1 on and other series
    are names, unless a word beside them comes again.

    Parameters
    ----------
    names : list of str
        The fields of the first line.
    rows : pyarrow.Table
        The first rows below it, with the types that they have.
    decimal_point : str
        What separates whole numbers from fractions.
    where : str
        Name of the file.
    """

    # An empty field may be the name of an index or a missing value: it says nothing.
    filled = [
        (name.replace(decimal_point, "."), column)
        for name, column in zip(names, rows.columns, strict=True)
        if name and name.lower() not in SIGNS_AMONG_NUMBERS
    ]
    numbers = [float(name) for name, _ in filled if is_number(name)]
    words = [(name, column) for name, column in filled if _is_text(column.type)]
    typed = [(name, column.type) for name, column in filled if not _is_text(column.type)]
    again = [name for name, column in words if name in {str(value).strip() for value in column.unique().to_pylist()}]
    if len(numbers) == len(filled):
        data = bool(filled) and not _is_series(numbers)
    elif typed:
        data = all(_fits(name, kind) for name, kind in typed) and (bool(again) or not _is_series(numbers))
    else:
        data = 1 < len(filled) == len(again)
    if data:
        shown = ", ".join(name for name in names[:3]) + (", …" if len(names) > 3 else "")
        raise TableError(
            f"{where}: the first line looks like data ({shown}), not like column names. Add a header line with "
            "the names of the columns."
        )


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind))


def _fits(name: str, kind: Any) -> bool:
    """Whether the name would be a value of the column below it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return is_number(name)
    try:
        pc.cast(pa.array([name]), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # no cast reads times of day
        return pa.types.is_time(kind) and is_number(name.replace(":", ""))
    return True


def _is_series(numbers: list[float]) -> bool:
    """Whether numbers could be names: years, 0 or 1 and so on, or a longer row at equal distances."""
    values = np.array(numbers)
    if not len(values) or len(set(numbers)) < len(numbers):
        return False
    whole = bool(np.all(values == np.round(values)))
    years = whole and YEARS[0] <= values.min() and values.max() <= YEARS[1]
    counted = values[0] in (0, 1) and np.array_equal(values, values[0] + np.arange(len(values)))
    return bool(
        years or counted or (len(values) >= LEAST_SERIES and np.allclose(np.diff(values), values[1] - values[0]))
    )
