"""Tables of every kind become the same frame, and what cannot be read says where and why."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from steelyard.errors import ColumnMismatchError, InputError, TableError
from steelyard.tables import as_frame, read_table
from steelyard.tables.encoding import Encoding, learn_encoding, match_frames


def mixed(n=200, seed=0):
    """A table of every kind of column, as an Arrow table."""
    rng = np.random.default_rng(seed)
    age = [None if i % 7 == 0 else float(value) for i, value in enumerate(rng.normal(40, 10, n))]
    city = [None if i % 9 == 0 else str(value) for i, value in enumerate(rng.choice(["oslo", "rome", "<script>"], n))]
    day = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(value)) for value in rng.integers(0, 900, n)]
    member = [bool(value) for value in rng.random(n) < 0.5]
    visits = [int(value) for value in rng.integers(0, 9, n)]
    return pa.table({"age": age, "city": city, "day": day, "member": member, "visits": visits})


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_kind_of_table_gives_the_same_numbers(tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    from pyarrow import csv

    table = mixed()
    csv.write_csv(table, tmp_path / "t.csv")
    parquet.write_table(table, tmp_path / "t.parquet")
    frames = [
        as_frame(table),
        as_frame(table.to_pandas()),
        as_frame(table.to_pandas(types_mapper=pandas.ArrowDtype)),
        as_frame(polars.from_arrow(table)),
        read_table(tmp_path / "t.csv"),
        read_table(tmp_path / "t.parquet"),
    ]
    kinds = ["number", "category", "date", "boolean", "number"]
    expected = learn_encoding(*match_frames(frames[0], frames[0])).transform(frames[0])
    for frame in frames:
        assert frame.names == ["age", "city", "day", "member", "visits"]
        assert [column.kind for column in frame.columns] == kinds
        encoding = learn_encoding(*match_frames(frame, frame))
        np.testing.assert_array_equal(encoding.transform(frame), expected)
    assert "city = <script>" in encoding.feature_names
    assert "age is missing" in encoding.feature_names


def test_arrays_have_numbered_columns():
    frame = as_frame(np.arange(6).reshape(3, 2))
    assert frame.names == ["x0", "x1"]
    mixed_up = as_frame(np.array([[1, "a"], [2, "b"]], dtype=object))
    assert [column.kind for column in mixed_up.columns] == ["number", "category"]
    with pytest.raises(InputError, match="rows and columns"):
        as_frame(np.arange(3))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(tmp_path, encoding):
    path = write(tmp_path / "t.csv", "name,größe\nå,1\né,2\n".encode(encoding))
    frame = read_table(path)
    assert frame.names == ["name", "größe"]
    assert list(frame["name"].values) == ["å", "é"]


def test_latin_1_that_shows_late(tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 2**16)
    rows = b"".join(b"plain,%d\n" % i for i in range(200_000))
    frame = read_table(write(tmp_path / "t.csv", b"name,n\n" + rows + "é,1\n".encode("latin-1")))
    assert frame["name"].values[-1] == "é"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n4,5\n", "line 3: 1 fields where the header has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 fields where the header has 2"),
        ("", "the file is empty"),
        ("  \n", "the file is empty"),
        ("a,b\n", "a header but no row"),
        ("a,b,a\n1,2,3\n", "'a' comes more than once"),
        (b"\x7fELF\0\0\1", "binary file"),
        (",".join(f"c{i}" for i in range(100_000)) + "\n" + ",".join("1" * 100_000) + "\n", "100,000 columns"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(tmp_path, content, message):
    path = write(tmp_path / "bad.csv", content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert "bad.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(TableError, match="no such file"):
        read_table(tmp_path / "nowhere.csv")


def test_a_broken_parquet_file(tmp_path):
    with pytest.raises(TableError, match="cannot be read as a Parquet file"):
        read_table(write(tmp_path / "t.parquet", b"PAR1 and then nothing"))


def test_a_column_that_turns_out_to_be_text(tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 2**12)
    body = "".join(f"{i},{i}\n" for i in range(5000)) + "unknown,2.5\n"
    frame = read_table(write(tmp_path / "t.csv", "a,b\n" + body))
    assert [column.kind for column in frame.columns] == ["category", "number"]
    assert frame["a"].values[-1] == "unknown"
    assert frame["b"].values[-1] == 2.5


def test_a_reservoir_is_an_even_sample_and_repeats(tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 2**12)
    path = write(tmp_path / "t.csv", "a\n" + "".join(f"{i}\n" for i in range(20_000)))
    seen = []
    sample = read_table(path, at_most=2000, seed=1, advance=seen.append)["a"].values
    assert len(sample) == 2000 == len(set(sample))
    assert len(seen) > 5
    assert sum(seen) == 20_000
    assert abs(sample.mean() - 9999.5) < 5 * 5774 / np.sqrt(2000)
    np.testing.assert_array_equal(read_table(path, at_most=2000, seed=1)["a"].values, sample)
    assert not np.array_equal(read_table(path, at_most=2000, seed=2)["a"].values, sample)


def test_columns_are_matched_by_name():
    one, other = (
        as_frame(pa.table({"a": [1.0, 2], "b": ["x", "y"]})),
        as_frame(pa.table({"b": ["x", "x"], "a": [3, 4]})),
    )
    source, target = match_frames(one, other)
    assert source.names == target.names == ["a", "b"]
    with pytest.raises(ColumnMismatchError, match="Only in the source: 'b'; only in the target: 'c'"):
        match_frames(one, as_frame(pa.table({"a": [1.0], "c": [2.0]})))


def test_numbers_on_one_side_and_text_on_the_other_are_categories():
    one, other = as_frame(pa.table({"zip": [10, 20]})), as_frame(pa.table({"zip": ["10", "2b"]}))
    source, target = match_frames(one, other)
    assert source["zip"].kind == target["zip"].kind == "category"
    assert list(source["zip"].values) == ["10", "20"]


def test_rare_levels_are_pooled_and_unseen_ones_do_no_harm():
    text = ["common"] * 300 + [f"rare {i}" for i in range(100)]
    frame = as_frame(pa.table({"c": text}))
    encoding = learn_encoding(frame, frame)
    assert encoding.feature_names == ["c = common", "c = (other)"]
    new = as_frame(pa.table({"c": ["common", "never seen"]}))
    np.testing.assert_array_equal(encoding.transform(new), [[1, 0], [0, 1]])


def test_an_encoding_survives_json():
    import json

    frame = as_frame(mixed())
    encoding = learn_encoding(frame, frame)
    again = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())), {})
    assert again == encoding
    np.testing.assert_array_equal(again.transform(frame), encoding.transform(frame))


def test_transform_says_what_is_missing_or_of_another_kind():
    frame = as_frame(pa.table({"a": [1.0, 2.0], "b": [1.0, 3.0]}))
    encoding = learn_encoding(frame, frame)
    with pytest.raises(ColumnMismatchError, match=r"lacks the columns \['b'\]"):
        encoding.transform(as_frame(pa.table({"a": [1.0]})))
    with pytest.raises(ColumnMismatchError, match="'b' held numbers"):
        encoding.transform(as_frame(pa.table({"a": [1.0], "b": ["text"]})))
