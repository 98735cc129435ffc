"""The commands on files: what they print, what they write, and how they refuse."""

import csv
import json
import stat

import numpy as np
import pytest
from typer.testing import CliRunner

from steelyard.app.atomic_files import csv_text, write_whole
from steelyard.app.cli import app
from steelyard.errors import OutputError


def steelyard(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def write_table(path, seed, shift=0.0, n=300, label=True):
    """Numbers, categories, dates, missing values, and names that want to be code."""
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "city", "=cmd|'/c calc'!A1", "when", *(["y"] if label else [])])
        for i in range(n):
            age = rng.normal(40 + 10 * shift, 10)
            city = rng.choice(
                ["oslo", "rome", "<script>alert(1)</script>"], p=[0.5 - 0.3 * shift, 0.3, 0.2 + 0.3 * shift]
            )
            row = ["" if i % 11 == 0 else f"{age:.3f}", city, f"{rng.normal():.4f}", f"2020-0{1 + i % 9}-15"]
            writer.writerow([*row, *([f"{age / 10 + rng.normal():.4f}"] if label else [])])
    return path


@pytest.fixture
def files(tmp_path):
    return write_table(tmp_path / "source.csv", 1), write_table(tmp_path / "target.csv", 2, 0.6, label=False)


def test_diagnose_says_and_writes_the_verdict(files, tmp_path):
    said = steelyard("diagnose", *files, "--label", "y", "--out", tmp_path / "run")
    assert said.exit_code == 0, said.output
    assert "The columns have shifted: use " in said.output
    assert "covariate shift and label shift cannot be told apart" in said.output
    findings = json.loads((tmp_path / "run" / "findings.json").read_text())
    assert findings["columns"][0]["name"] in ("age", "city")
    assert findings["labels"] is None
    assert "y" not in [c["name"] for c in findings["columns"]]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"findings.json", "report.html", "run.json"}  # nothing half-written is left


def test_diagnose_as_json_is_nothing_but_json_and_repeats(files):
    one, other = (steelyard("diagnose", *files, "--label", "y", "--json", "--seed", 3).stdout for _ in range(2))
    assert json.loads(one)["kind"] == "covariate"
    assert one == other


def test_labels_on_both_sides_are_tested(tmp_path):
    source, target = write_table(tmp_path / "s.csv", 1), write_table(tmp_path / "t.csv", 2, 0.6)
    found = json.loads(steelyard("diagnose", source, target, "--label", "y", "--json").stdout)
    assert set(found["labels"]) == {"label_p", "concept_p", "class_conditional_p"}


def test_weigh_gives_every_row_a_weight(files, tmp_path):
    out = tmp_path / "weights.csv"
    said = steelyard("weigh", *files, "--label", "y", "--out", out)
    assert said.exit_code == 0, said.output
    with open(out) as file:
        weights = np.array([float(row["weight"]) for row in csv.DictReader(file)])
    assert len(weights) == 300
    assert weights.mean() == pytest.approx(1)
    assert weights.std() > 0.1
    words = "--label", "y", "--out", out, "--overwrite", "--json", "--eta", 0.5
    summary = json.loads(steelyard("weigh", *files, *words).stdout)
    assert summary["rows"] == 300
    assert summary["effective_sample_size"] <= 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"age,city\n1,2,3\n", "line 2: 3 fields where the header has 2"),
        (b"", "the file is empty"),
        (b"\0\1\2", "binary file"),
        (b"other,names\n" + b"1,2\n" * 50, "different columns"),
    ],
)
def test_bad_files_are_one_line_and_exit_2(files, tmp_path, content, message):
    bad = tmp_path / "bad.csv"
    bad.write_bytes(content)
    said = steelyard("diagnose", files[0], bad, "--label", "y", "--out", tmp_path / "run")
    assert said.exit_code == 2
    assert message in said.output
    assert len(said.output.strip().splitlines()) == 1
    assert "Traceback" not in said.output
    assert not (tmp_path / "run").exists()


def test_a_label_that_is_not_there(files):
    said = steelyard("diagnose", *files, "--label", "price")
    assert said.exit_code == 2
    assert "no column 'price' for --label; the columns are age, city" in said.output


@pytest.mark.parametrize("command", ["diagnose", "weigh"])
def test_a_column_of_the_source_alone_may_be_the_label(files, tmp_path, command):
    hint = "If 'y' is the label, give --label y."
    words = ("--out", tmp_path / "w")
    said = steelyard(command, *files, *words)
    assert said.exit_code == 2
    assert hint in said.output
    more = write_table(tmp_path / "more.csv", 3)
    text = more.read_text().replace("age,city", "years,town", 1)
    more.write_text(text)
    assert "give --label" not in steelyard(command, more, files[1], *words).output  # more than a label is missing


def test_help_teaches():
    said = steelyard("diagnose", "--help").output
    assert "will weighting help" in said
    assert "--label" in said


def test_formulas_in_csv_are_defused():
    text = csv_text(["=A1", "name"], [["@cmd", 1.5], ["plain", -2.0], ["-3+4", "+1"], ["-1", "-2.5"]])
    assert text == "'=A1,name\n'@cmd,1.5\nplain,-2.0\n'-3+4,'+1\n-1,-2.5\n"


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    write_whole(tmp_path / "deep" / "file.txt", "first")
    assert (tmp_path / "deep" / "file.txt").read_text() == "first"
    assert stat.S_IMODE((tmp_path / "deep" / "file.txt").stat().st_mode) == 0o644

    def full_disk(_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OutputError, match="no space left"):
        write_whole(tmp_path / "deep" / "file.txt", "second")
    assert (tmp_path / "deep" / "file.txt").read_text() == "first"
    assert len(list((tmp_path / "deep").iterdir())) == 1
