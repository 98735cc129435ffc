"""Signs of missing values: among numbers and dates they are missing, among words only those that are no word."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from steelyard.tables import as_frame, match_frames, read_table
from steelyard.tables.missing import SIGNS_AMONG_NUMBERS

pd = pytest.importorskip("pandas")


def read(folder, text, **options):
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path, **options)


@pytest.mark.parametrize(
    "sign",
    [*("?", "NA", "N/A", "n/a", "null", "NULL", "None", "nan", "NaN", "-", "--", ".", "#N/A"), *(" ? ", "  NA", "na ")],
)
@pytest.mark.parametrize(("values", "kind"), [(("1.5", "2"), "number"), (("2020-01-01", "2021-05-06"), "date")])
def test_a_sign_among_numbers_or_dates_is_missing_and_counted(tmp_path, sign, values, kind):
    column = read(tmp_path, f"a,b\n{values[0]},x\n{sign},y\n{values[1]},z\n{sign},z\n,z\n")["a"]
    assert column.kind == kind
    np.testing.assert_array_equal(column.present(), [True, False, True, False, False])
    assert column.reading.missing == {sign.strip(): 2}  # empty fields are not counted
    assert column.reading.strays == {}


def test_among_words_a_question_mark_is_a_word(tmp_path):
    column = read(tmp_path, "a,b\nx,1\n?,2\n-,3\n.,4\nNone,5\nNA,6\n n/a,7\n  ,8\n")["a"]
    assert list(column.values) == ["x", "?", "-", ".", "None", None, None, None]
    assert column.reading.missing == {"NA": 1, "n/a": 1}


def test_the_same_sign_late_in_a_large_file(tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 2**16)
    rows = "".join(f"{i}.5,2020-01-01,{i}\n" for i in range(120_000))
    assert len(rows) > 2 * 2**20
    frame = read(tmp_path, "a,d,b\n" + rows + "?,NA,1\n?,--,oops\n")
    assert [column.kind for column in frame.columns] == ["number", "date", "category"]
    assert frame["a"].reading.missing == {"?": 2}
    assert frame["d"].reading.missing == {"NA": 1, "--": 1}
    assert frame["b"].reading.strays == {"oops": 1}
    assert frame["b"].reading.first_stray == "line 120003"
    np.testing.assert_array_equal(frame["a"].values[:3], [0.5, 1.5, 2.5])


def test_decimal_commas_with_a_sign_in_the_first_row(tmp_path):
    frame = read(tmp_path, "x;d\n?;01.02.2020\n1,5;02.02.2020\n2;03.02.2020\n-0,25;04.02.2020\n")
    np.testing.assert_array_equal(frame["x"].values, [np.nan, 1.5, 2, -0.25])
    # A point is then a separator of thousands, or a mistake, but never a decimal point.
    assert read(tmp_path, "x;y\n1,5;a\n1.234;b\n1.234,5;c\n")["x"].kind == "category"


def test_a_column_of_nothing_but_signs_has_no_values(tmp_path):
    column = read(tmp_path, "a,b\n-,1\n?,2\n,3\n")["a"]
    assert column.kind == "number"
    assert not column.present().any()
    known = read(tmp_path, "a,b\n-,1\n?,2\n,3\n", kinds={"a": "category"})["a"]
    assert list(known.values) == ["-", "?", None]


def test_own_signs_hold_in_columns_of_every_kind(tmp_path):
    text = "n,w,d\n1,a,2020-01-01\n-999,unknown,unknown\n-999.0,b,2020-01-02\n"
    frame = read(tmp_path, text, missing=("-999", "unknown"))
    assert [column.kind for column in frame.columns] == ["number", "category", "date"]
    np.testing.assert_array_equal(frame["n"].values, [1, np.nan, np.nan])
    assert list(frame["w"].values) == ["a", None, "b"]
    assert frame["n"].reading.missing == {"-999": 2}
    assert frame.missing == frame.take(np.array([0])).without("n").missing == ("-999", "unknown")
    parquet.write_table(pa.table({"n": [1, -999], "w": ["a", "unknown"]}), tmp_path / "t.parquet")
    stored = read_table(tmp_path / "t.parquet", missing=("-999", "unknown"))
    np.testing.assert_array_equal(stored["n"].values, [1, np.nan])
    assert list(stored["w"].values) == ["a", None]
    assert stored["n"].reading.table == str(tmp_path / "t.parquet")


def test_values_that_make_text_of_numbers_are_named(tmp_path):
    rows = [f"{i}.5" for i in range(100)]
    rows[15] = rows[40] = "abc"
    rows[60], rows[70] = "12;5", "?"
    column = read(tmp_path, "price,y\n" + "".join(f"{row},1\n" for row in rows))["price"]
    assert column.kind == "category"
    assert column.reading.strays == {"abc": 2, "12;5": 1}
    assert column.reading.first_stray == "line 17"
    words = read(tmp_path, "w,y\n" + "".join(f"{'abc' if i % 3 else i},1\n" for i in range(60)))["w"]
    assert words.reading.strays == {}


def test_names_and_words_lose_the_spaces_around_them(tmp_path):
    frame = read(tmp_path, "x , c\n 1.5 , a\n2 ,b \n")
    assert frame.names == ["x", "c"]
    np.testing.assert_array_equal(frame["x"].values, [1.5, 2])
    assert list(frame["c"].values) == ["a", "b"]


def test_times_of_day_are_hours(tmp_path):
    np.testing.assert_array_equal(read(tmp_path, "t,x\n12:30,1\n?,2\n06:00:00,3\n")["t"].values, [12.5, np.nan, 6])


def test_signs_among_numbers_are_in_lower_case():
    assert [sign for sign in SIGNS_AMONG_NUMBERS if sign != sign.lower()] == []


@pytest.mark.parametrize("values", [["130", "?", "2.5", None], [130, "?", 2.5, None], ["130", " NA", "2.5", ""]])
def test_text_of_a_frame_that_is_numbers_but_for_signs(values):
    column = as_frame(pd.DataFrame({"a": pd.Series(values, dtype=object)}))["a"]
    assert column.kind == "number"
    np.testing.assert_array_equal(column.values, [130, np.nan, 2.5, np.nan])


@pytest.mark.parametrize("values", [["130", "7"], ["007", "?"], ["?", "-"], ["a", "?"]])
def test_other_text_of_a_frame_stays_text(values):
    column = as_frame(pa.table({"a": values}))["a"]
    assert column.kind == "category"
    assert list(column.values) == values


def test_text_that_is_numbers_beside_numbers():
    source = as_frame(pa.table({"a": ["130.0", "?"], "b": ["007", "1"], "c": ["?", "-"]}))
    target = as_frame(pa.table({"a": ["2", "130.0"], "b": [7, 1], "c": [1, 2]}))
    matched = match_frames(source, target)
    assert [[column.kind for column in frame.columns] for frame in matched] == [["number", "category", "number"]] * 2
    np.testing.assert_array_equal(matched[1]["a"].values, [2, 130])
    np.testing.assert_array_equal(matched[0]["c"].values, [np.nan, np.nan])


@pytest.mark.parametrize(
    ("words", "n_numbers", "strays"),
    [
        (["unknown"] * 30, 100, {"unknown": 30}),
        (["unknown"] * 20 + ["ca. 3"] * 10, 100, {"unknown": 20, "ca. 3": 10}),
        (["unknown"] * 101, 100, {}),  # most of the column
        (["unknown"] * 30, 15, {}),  # fifteen numbers may be codes
        ([f"{i}A" for i in range(30)], 100, {}),  # house numbers
    ],
)
def test_a_few_words_among_many_numbers_are_named_however_frequent(tmp_path, words, n_numbers, strays):
    rows = [f"{i % n_numbers}.5" for i in range(100)] + words
    column = read(tmp_path, "price,y\n" + "".join(f"{row},1\n" for row in rows))["price"]
    assert column.kind == "category"
    assert column.reading.strays == strays


def test_dates_with_points_have_the_day_first(tmp_path):
    frame = read(tmp_path, "d,v\n31.12.2023,1.2.3\n?,4.5.6\n1.2.1969,\n")
    assert frame["d"].kind == "date"
    np.testing.assert_array_equal(frame["d"].values, [19722, np.nan, -334])
    assert frame["d"].reading.missing == {"?": 1}
    assert frame["v"].kind == "category"
    assert read(tmp_path, "d,v\n31.12.2023,1\n12.31.2023,2\n")["d"].kind == "category"
