"""The command line on tables with signs of missing values, stray text, no header or few rows, and on pipes."""

import json
import os
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from steelyard.app.cli import app
from steelyard.app.notes import reading_notes
from steelyard.tables import Column, Frame
from steelyard.tables.frame import Reading


def steelyard(*words, **options):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"}, **options)


@pytest.fixture
def tables(tmp_path):
    """Six question marks in x, three stray words in z, -999 in w."""
    rng = np.random.default_rng(0)
    for name, shift in (("s", 0.0), ("t", 0.5)):
        rows = [
            [f"{rng.normal(shift):.3f}", f"{rng.normal():.3f}", f"{rng.normal():.3f}", f"{rng.normal():.3f}"]
            for _ in range(120)
        ]
        for i in range(6):
            rows[10 * i][0] = "?"
        for i in (15, 40, 90) if name == "t" else ():
            rows[i][1] = "abc"
        for i in range(0, 120, 8):
            rows[i][2] = "-999"
        (tmp_path / f"{name}.csv").write_text("x,z,w,y\n" + "\n".join(map(",".join, rows)) + "\n")
    return tmp_path / "s.csv", tmp_path / "t.csv"


def of_column(notes, name):
    return [note for note in notes if f"column '{name}'" in note]


@pytest.mark.parametrize("command", ["diagnose", "weigh", "fit"])
def test_every_command_notes_what_was_missing_or_stray(tables, tmp_path, command):
    out = {"diagnose": (), "weigh": ("--out", tmp_path / "w.csv"), "fit": ("--out", tmp_path / "run")}[command]
    said = steelyard(command, *tables, "--label", "y", "--missing", "-999", "--json", *out)
    assert said.exit_code == 0, said.output
    notes = json.loads(said.stdout)["notes"]
    signs = [f"{path}, column 'x': 6 values '?' were read as missing." for path in tables]
    assert sorted(of_column(notes, "x")) == sorted(signs)
    assert [f"{path}, column 'w': 15 values '-999' were read as missing." in notes for path in tables] == [True, True]
    (stray,) = (note for note in of_column(notes, "z") if "is read as text" in note)
    assert stray.startswith(f"{tables[1]}, column 'z' is read as text because of 'abc' (3 rows, first in line 17).")


def test_notes_are_shown_and_do_not_flood(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    rows = [",".join("NA" if (i + j) % 20 == 0 else f"{rng.normal():.3f}" for j in range(30)) for i in range(60)]
    path = tmp_path / "s.csv"
    path.write_text(",".join(f"c{j}" for j in range(30)) + "\n" + "\n".join(rows))
    monkeypatch.setenv("COLUMNS", "200")
    # Without click's runner, which mixes the two streams in its older versions.
    app(["diagnose", str(path), str(path)], standalone_mode=False)
    said = capsys.readouterr()
    assert "Note:" in said.err
    assert "Note:" not in said.out
    assert said.err.count("3 values 'NA' were read as missing.") == 10
    assert said.err.count("The same is true of 25 more columns.") == 2


def test_the_signs_of_a_column_are_listed():
    frame = Frame((Column("x", "number", np.zeros(3), Reading("t.csv", {"?": 2, "NA": 1, "-": 3})),), 3)
    assert reading_notes(frame) == [
        "t.csv, column 'x': 2 values '?', 1 value 'NA' and 3 values '-' were read as missing."
    ]


def test_a_saved_model_reads_with_the_signs_of_its_fit(tables, tmp_path):
    said = steelyard("fit", *tables, "--label", "y", "--missing", "-999", "--missing", "abc", "--out", tmp_path / "run")
    assert said.exit_code == 0, said.output
    assert json.loads((tmp_path / "run" / "model.json").read_text())["missing"] == ["-999", "abc"]
    found = []
    for name, sign in (("own", "-999"), ("empty", "")):
        new = tmp_path / f"{name}.csv"
        new.write_text(f"x,z,w,y\n0.5,1,{sign},1\n{sign or '?'},abc,0.5,2\n")
        said = steelyard("predict", tmp_path / "run", new, "--out", tmp_path / f"{name}_p.csv", "--json")
        assert said.exit_code == 0, said.output
        found.append((tmp_path / f"{name}_p.csv").read_text())
        assert steelyard("evaluate", tmp_path / "run", new).exit_code == 0
    assert found[0] == found[1]
    new.write_text("x,z,w,y\nlost,1,2,1\n")
    words = ("predict", tmp_path / "run", new, "--out", tmp_path / "p.csv")
    assert "holds text now (for example 'lost')" in steelyard(*words).output
    assert "1 value 'lost' was read as missing." in steelyard(*words, "--missing", "lost").output


def test_standard_input_and_named_pipes_are_read(tables, tmp_path):
    words = ("--label", "y", "--json")
    expected = json.loads(steelyard("diagnose", *tables, *words).stdout)
    said = steelyard("diagnose", "-", tables[1], *words, input=tables[0].read_bytes())
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert any(note.startswith("standard input, column 'x'") for note in found["notes"])
    assert {**found, "notes": []} == {**expected, "notes": []}
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(tables[0].read_bytes()))
    writer.start()
    said = steelyard("diagnose", pipe, tables[1], *words)
    writer.join()
    assert {**json.loads(said.stdout), "notes": []} == {**expected, "notes": []}


@pytest.mark.parametrize("other", ["-", "/dev/stdin"])
def test_one_stream_cannot_be_both_tables(tables, other):
    said = steelyard("diagnose", "-", other, input=tables[0].read_bytes())
    assert said.exit_code == 2
    assert "source and target are one stream" in said.output


def test_an_error_in_a_stream_has_its_line(tables, tmp_path):
    text = tables[0].read_text() + "1,2,3,oops\n"
    said = steelyard("fit", "-", tables[1], "--label", "y", "--out", tmp_path / "run", input=text)
    assert "standard input, line 122, column 'y': 'oops' is not a number" in said.output


def test_folders_and_empty_streams_are_refused(tables, tmp_path):
    assert "this is a folder" in steelyard("diagnose", tmp_path, tables[1]).output
    assert "standard input: the file is empty" in steelyard("diagnose", "-", tables[1], input=b"").output


def test_no_header_is_said_before_missing_columns(tables, tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("\n".join(tables[1].read_text().splitlines()[2:]))
    said = steelyard("diagnose", tables[0], path)
    assert said.exit_code == 2
    assert "n.csv: the first line looks like data" in said.output


@pytest.mark.parametrize(
    ("command", "n_source", "n_target", "message"),
    [
        ("fit", 121, 4, "t.csv: 3 rows; at least 20 are needed"),
        ("fit", 4, 121, "s.csv: 3 rows with a label; at least 20 are needed"),
        ("diagnose", 121, 4, "t.csv: 3 rows; at least 20 are needed"),
        ("weigh", 121, 2, "t.csv: 1 row; at least 2 are needed"),
    ],
)
def test_few_rows_are_refused_by_the_name_of_the_file(tables, tmp_path, command, n_source, n_target, message):
    for path, n_lines in zip(tables, (n_source, n_target), strict=True):
        path.write_text("\n".join(path.read_text().splitlines()[:n_lines]))
    out = {"diagnose": (), "weigh": ("--out", tmp_path / "w.csv"), "fit": ("--out", tmp_path / "run")}[command]
    said = steelyard(command, *tables, "--label", "y", *out)
    assert said.exit_code == 2
    assert message in said.output


def test_a_sign_that_is_a_word_in_the_other_table_is_one_in_both(tmp_path):
    rng = np.random.default_rng(0)
    for name, words in (("s", ["-"]), ("t", ["-", "A", "B"])):
        rows = [f"{rng.normal():.3f},{rng.choice(words)}" for _ in range(60)]
        (tmp_path / f"{name}.csv").write_text("x,grade\n" + "\n".join(rows))
    found = json.loads(steelyard("diagnose", tmp_path / "s.csv", tmp_path / "t.csv", "--json").stdout)
    assert next(c["kind"] for c in found["columns"] if c["name"] == "grade") == "category"
    assert not any("read as missing" in note for note in found["notes"])
