"""Tables of other libraries, in memory, as a `Frame`: pandas, polars and Arrow objects, and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import InputError, InputTypeError
from steelyard.tables.frame import Column, Frame, check_names
from steelyard.tables.text_columns import as_days, as_floats, numbers_but_for_signs


def as_frame(table: Any) -> Frame:
    """Convert a table to a `Frame`.

    A column of text whose values are all numbers, dates or booleans but for signs of missing values (``?``, ``NA``,
    ``-`` and the like) is read as such, with these values missing; a categorical stays as it is. Sparse columns are
    numbers, durations are days, times of day are hours. Masked entries of an array are missing.

    Parameters
    ----------
    table : data frame (pandas, polars, Arrow), two-dimensional array, or Frame
        The table; columns of an array are called x0, x1, …

    Returns
    -------
    Frame

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.tables import as_frame
    >>> as_frame(np.array([[1.0, 2.0]]))["x1"].values
    array([2.])
    >>> as_frame(np.array([[130, "oslo"], ["?", "rome"]], dtype=object))["x0"].values
    array([130.,  nan])
    """
    if isinstance(table, Frame):
        return table
    import narwhals as nw
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    try:
        data = nw.from_native(table, eager_only=True)
    except TypeError:
        return _from_array(table)
    names = [str(name) for name in data.columns]
    check_names(names, "The table")
    columns = []
    for i, name in enumerate(names):
        series = data[:, i]
        native = series.to_native()
        try:
            # Of pandas' sparse columns Arrow would read the text.
            sparse = hasattr(native, "sparse")
            columns.append(_from_objects(name, np.asarray(native)) if sparse else from_arrow(name, series.to_arrow()))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # Arrow has no such type
            plain = isinstance(getattr(native, "dtype", None), np.dtype)
            objects = np.asarray(native) if plain else np.array(series.to_list(), dtype=object)
            columns.append(_from_objects(name, objects))
    return Frame(tuple(columns), len(data))


def _from_array(table: Any) -> Frame:
    values = np.asarray(table)
    if values.ndim != 2:
        raise InputTypeError(
            f"A table needs rows and columns; got {type(table).__name__} of shape {values.shape}. Give a data frame "
            "(a lazy one collected), an Arrow table or a dense two-dimensional array."
        )
    if np.ma.is_masked(table):
        numeric = values.dtype.kind in "fiu"
        values = values.astype(np.float64 if numeric else object)
        values[np.ma.getmaskarray(table)] = np.nan if numeric else None
    columns = [_from_objects(f"x{i}", values[:, i]) for i in range(values.shape[1])]
    return Frame(tuple(columns), len(values))


def _from_objects(name: str, values: NDArray[Any]) -> Column:
    """A column of numbers, or of objects of any types: text where nothing better can be made of them."""
    import pyarrow as pa

    if values.dtype.kind in "fiub":
        return Column(name, "boolean" if values.dtype.kind == "b" else "number", values.astype(np.float64))
    objects = values.tolist()
    number = next((value for value in objects if isinstance(value, complex | np.complexfloating)), None)
    if number is not None:
        raise InputError(
            f"The table, column {name!r}: complex numbers such as {number} are not supported. Give the real and the "
            "imaginary part, or modulus and phase, as columns of their own."
        )
    try:
        return from_arrow(name, pa.array(objects, from_pandas=True))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        text = pa.array([None if value is None or value != value else str(value) for value in objects], pa.string())
        return from_arrow(name, text)


def from_arrow(name: str, values: Any, where: str = "The table") -> Column:
    """A column of an Arrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_run_end_encoded(kind):
        values = pc.run_end_decode(values)
        kind = values.type
    coded = pa.types.is_dictionary(kind)
    if coded:
        values = values.cast(kind.value_type)
        kind = values.type
    if pa.types.is_boolean(kind):
        return Column(name, "boolean", as_floats(values))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Column(name, "number", as_floats(values))
    if pa.types.is_duration(kind):
        return Column(name, "number", as_floats(values.cast(pa.duration("us"), safe=False).cast(pa.int64())) / 86_400e6)
    if pa.types.is_time(kind):
        return Column(name, "number", as_floats(values.cast(pa.time64("us")).cast(pa.int64())) / 3_600e6)
    if pa.types.is_temporal(kind):
        return Column(name, "date", as_days(values))
    if values.null_count == len(values):  # nothing says what it would be
        return Column(name, "number", np.full(len(values), np.nan))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        found = None if coded else numbers_but_for_signs(name, values.cast(pa.string()), where)
        return found or Column(name, "category", np.array(values.to_pylist(), dtype=object))
    raise InputError(
        f"{where}, column {name!r}: values of type {kind} are not numbers, booleans, dates or text. Convert or drop it."
    )
