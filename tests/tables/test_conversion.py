"""Columns of every type that data frames have: what they become, and what is refused."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from steelyard.errors import InputError
from steelyard.tables import as_frame

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

HOUR = datetime.timedelta(hours=12)
PRICES = [decimal.Decimal("1.5"), None]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.arrays.SparseArray([0.0, 2.5]), [0, 2.5]),
        (pd.arrays.SparseArray([0, 2], fill_value=0), [0, 2]),
        (pd.array([1, None], dtype="Int64"), [1, np.nan]),
        (pd.array([1.5, None], dtype="Float64"), [1.5, np.nan]),
        (pd.array([True, None], dtype="boolean"), [1, np.nan]),
        (pd.Categorical([7, 8]), [7, 8]),
        (pd.Series(PRICES, dtype=object), [1.5, np.nan]),
        (pd.to_timedelta([12, None], unit="h"), [0.5, np.nan]),
        (np.array([1, 2], dtype=np.longdouble), [1, 2]),
        (np.array([1, 2], dtype=np.float16), [1, 2]),
        (pl.Series([HOUR, None]), [0.5, np.nan]),
        (pl.Series(PRICES), [1.5, np.nan]),
        (pl.Series([datetime.time(6, 30), None]), [6.5, np.nan]),
        (pl.Series([1, None], dtype=pl.Int128), [1, np.nan]),
        (pa.array(PRICES), [1.5, np.nan]),
        (pa.array([HOUR, None], pa.duration("s")), [0.5, np.nan]),
        (pa.array([7, 7], pa.int8()).dictionary_encode(), [7, 7]),
        (pa.RunEndEncodedArray.from_arrays([2], [7]), [7, 7]),
    ],
)
def test_numbers(column, expected):
    frame = {pl.Series: pl.DataFrame}.get(type(column), pa.table if isinstance(column, pa.Array) else pd.DataFrame)
    found = as_frame(frame({"a": column}))["a"]
    assert found.kind in ("number", "boolean")
    np.testing.assert_array_equal(found.values, expected)


@pytest.mark.parametrize(
    "column",
    [
        pd.array(["x", None], dtype="string"),
        pd.Categorical(["x", None]),
        pl.Series(["x", None], dtype=pl.Categorical),
        pl.Series(["x", None], dtype=pl.Enum(["x", "y"])),
        pa.array(["x", None], pa.large_string()),
        pa.array(["x", None], pa.large_string()).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays([1, 2], ["x", None]),
    ],
)
def test_words(column):
    frame = {pl.Series: pl.DataFrame}.get(type(column), pa.table if isinstance(column, pa.Array) else pd.DataFrame)
    found = as_frame(frame({"a": column}))["a"]
    assert (found.kind, list(found.values)) == ("category", ["x", None])


def test_a_category_of_digits_and_a_sign_stays_one():
    assert as_frame(pd.DataFrame({"a": pd.Categorical(["1", "?"])}))["a"].kind == "category"


def test_a_record_batch_keeps_its_names():
    assert as_frame(pa.record_batch({"a": [1, 2]})).names == ["a"]


@pytest.mark.parametrize("dtype", [float, int])
def test_masked_entries_are_missing(dtype):
    table = np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]], dtype=dtype)
    np.testing.assert_array_equal(as_frame(table)["x1"].values, [np.nan, 4])
    words = np.ma.array([["a", "b"], ["c", "d"]], mask=[[True, False], [False, False]])
    assert list(as_frame(words)["x0"].values) == [None, "c"]


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (np.array([[1.0, 2j]]), "x0"),
        (pd.DataFrame({"a": [1.0], "b": [2j]}), "b"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": np.array([1, 2j], dtype=object)}), "b"),
    ],
)
def test_complex_numbers_are_refused(table, name):
    with pytest.raises(InputError, match=f"column '{name}': complex numbers such as .* are not supported"):
        as_frame(table)
