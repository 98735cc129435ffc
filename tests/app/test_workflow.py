"""From two files to a decision: a mixed table through every command, and everything that can be wrong with one."""

import csv
import html
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from steelyard.app.cli import app
from steelyard.app.notes import possible_copies
from steelyard.app.workflow import fit_tables, read_labels
from steelyard.report import phrases
from steelyard.tables import Column, Frame, as_frame, read_table


def steelyard(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path, header, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


HEADER = ["age", "city", "<script>alert(1)</script>", "=cmd()", "member", "since", "bought"]


def people(path, seed, *, old, n=160, label=True, classes=("no", "yes")):
    """Numbers, categories, booleans, dates and missing values; whether a row is there depends on its age."""
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < n:
        age = rng.normal(45, 12)
        if rng.random() > 1 / (1 + np.exp((-1 if old else 1) * (age - 45) / 8)):
            continue
        city = rng.choice(["oslo", "rome", "<b>bern</b>"])
        text = classes[int(age / 20 + (city == "rome") + rng.normal() > 2.8)]
        row = ["" if rng.random() < 0.1 else f"{age:.2f}", city, f"{rng.normal():.3f}", f"{rng.normal():.3f}"]
        row += ["true" if rng.random() < 0.5 else "false", f"20{10 + int(age) % 10}-03-01"]
        rows.append(row + ([text] if label else []))
    return write_rows(path, HEADER if label else HEADER[:-1], rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run on a mixed table, with the source biased by a column."""
    place = tmp_path_factory.mktemp("fit")
    people(place / "source.csv", 1, old=False)
    people(place / "target.csv", 2, old=True)
    said = steelyard(
        "fit", place / "source.csv", place / "target.csv", "--label", "bought", "--out", place / "run", "--seed", 5
    )
    assert said.exit_code == 0, said.output
    (place / "said.txt").write_text(said.output)
    return place


def test_fit_leaves_six_files_and_a_mark_and_says_where(folder):
    names = {path.name for path in (folder / "run").iterdir()} - {"run.json"}
    assert names == {"model.skops", "model.json", "weights.csv", "predictions.csv", "findings.json", "report.html"}
    assert set(json.loads((folder / "run" / "run.json").read_text())["files"]) == names
    said = (folder / "said.txt").read_text()
    assert said.strip().endswith("report.html")
    assert "has the label column 'bought' too. It was not used" in said
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_the_files_agree_with_each_other(folder):
    described = json.loads((folder / "run" / "model.json").read_text())
    findings = json.loads((folder / "run" / "findings.json").read_text())
    chosen = findings["comparison"]["methods"][findings["comparison"]["chosen"]]
    assert described["method"] == chosen["name"]
    assert described["classes"] == ["no", "yes"]
    weights = rows_of(folder / "run" / "weights.csv")
    assert [int(row["row"]) for row in weights] == list(range(1, 161))
    values = np.array([float(row["weight"]) for row in weights])
    assert values.mean() == pytest.approx(1)
    assert findings["comparison"]["weights_used"] == chosen["weighted"]
    assert np.ptp(values) > 0
    power = findings["comparison"]["flattening"]
    assert power == (0.5 if chosen["weighted"] else 1.0)
    page = html.unescape((folder / "run" / "report.html").read_text())
    for story in (page, (folder / "said.txt").read_text()):
        assert findings["weights_file"] in " ".join(story.split())
    size = f"Effective sample size {values.sum() ** 2 / np.square(values).sum():,.0f} of 160 rows"
    assert size in (folder / "run" / "report.html").read_text()  # what weights.csv holds is what is drawn
    predictions = rows_of(folder / "run" / "predictions.csv")
    assert len(predictions) == 160
    for row in predictions:
        shares = {name: float(row[f"probability of {name}"]) for name in ("no", "yes")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert row["prediction"] == max(shares, key=shares.get) or max(shares.values()) < 0.5 + 1e-5


def test_predict_gives_what_fit_gave(folder, tmp_path):
    out = tmp_path / "again.csv"
    said = steelyard("predict", folder / "run", folder / "target.csv", "--out", out)
    assert said.exit_code == 0, said.output
    assert out.read_text() == (folder / "run" / "predictions.csv").read_text()
    words = "--out", out, "--overwrite", "--json"
    summary = json.loads(steelyard("predict", folder / "run", folder / "target.csv", *words).stdout)
    assert summary["rows"] == 160


def test_evaluate_counts_right_predictions(folder):
    found = json.loads(steelyard("evaluate", folder / "run", folder / "target.csv", "--json").stdout)
    truth = [row["bought"] for row in rows_of(folder / "target.csv")]
    predicted = [row["prediction"] for row in rows_of(folder / "run" / "predictions.csv")]
    assert found["found"]["chosen"]["mean"] == pytest.approx(
        np.mean([t == p for t, p in zip(truth, predicted, strict=True)])
    )
    assert found["found"]["chosen"]["low"] < found["found"]["chosen"]["mean"] < found["found"]["chosen"]["high"]
    said = steelyard("evaluate", folder / "run", folder / "target.csv").output
    assert "Accuracy on 160 labeled rows" in said
    words = " ".join(said.split())
    for key in ("promise", "choice"):
        assert found[key] in words
    promised, mean = found["promised"]["chosen"], found["found"]["chosen"]["mean"]
    if promised["low"] is not None:
        held = promised["low"] <= mean <= promised["high"]
        assert found["promise"].startswith("The promise held: ") == held
    assert found["choice"].startswith(("The choice ", "Whether the choice was right cannot be told", "The plain model"))


def test_diagnose_and_weigh_take_the_same_table(folder, tmp_path):
    files = folder / "source.csv", folder / "target.csv"
    found = json.loads(steelyard("diagnose", *files, "--label", "bought", "--json").stdout)
    assert found["columns"][0]["name"] in ("age", "since")
    said = steelyard("weigh", *files, "--label", "bought", "--out", tmp_path / "w.csv")
    assert said.exit_code == 0, said.output
    assert len(rows_of(tmp_path / "w.csv")) == 160


def test_labels_of_the_target_change_nothing(folder, tmp_path):
    """Target labels replaced by nonsense: every file but the ones that name the target is the same."""
    lines = (folder / "target.csv").read_text().splitlines()
    nonsense = [lines[0], *(line.rsplit(",", 1)[0] + ",yes" for line in lines[1:])]
    (tmp_path / "target.csv").write_text("\n".join(nonsense) + "\n")
    words = "--label", "bought", "--out", tmp_path / "run", "--seed", 5, "--quiet"
    said = steelyard("fit", folder / "source.csv", tmp_path / "target.csv", *words)
    assert said.exit_code == 0, said.output
    for name in ("weights.csv", "predictions.csv", "findings.json"):
        assert (tmp_path / "run" / name).read_text() == (folder / "run" / name).read_text()


def test_names_that_want_to_be_code_stay_text(folder):
    page = (folder / "run" / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>bern" not in page


def test_pandas_polars_and_csv_give_the_same_weights(folder):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pl = pytest.importorskip("polars", reason="polars is not installed")
    paths = folder / "source.csv", folder / "target.csv"
    readers = {
        "csv": lambda path: read_table(path),
        "pandas": lambda path: as_frame(pd.read_csv(path, parse_dates=["since"])),
        "polars": lambda path: as_frame(pl.read_csv(path, try_parse_dates=True)),
    }
    found = {}
    for name, read in readers.items():
        run = fit_tables(*(read(path) for path in paths), "bought", names=("s", "t"), seed=5)
        found[name] = np.array([float(line.split(",")[1]) for line in run.files["weights.csv"].splitlines()[1:]])
    written = np.array([float(row["weight"]) for row in rows_of(folder / "run" / "weights.csv")])
    for weights in found.values():
        np.testing.assert_allclose(weights, written, rtol=1e-12)


def test_rows_that_may_be_copies_are_mentioned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(2)
    y = (X[:, 0] + rng.normal(size=60)).round(2)
    (note,) = possible_copies(np.repeat(X, 5, axis=0), np.repeat(y, 5))
    assert note.startswith("240 of the 300 source rows repeat another one, label included.")
    assert possible_copies(X, y) == []
    assert possible_copies(np.repeat(X + 1e-9 * rng.normal(size=X.shape), 5, axis=0), np.repeat(y, 5)) == []  # together
    few = rng.choice(3, size=(300, 3)).astype(float)
    assert possible_copies(few, rng.choice(2, size=300)) == []


def test_far_from_the_source_no_score_is_promised():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(200, 3)), rng.normal(7.0, 1, size=(100, 3))
    table = as_frame(X)
    source = Frame((*table.columns, Column("y", "number", X[:, 0] + 0.1 * rng.normal(size=200))), 200)
    found = fit_tables(source, as_frame(T), label="y", names=("s", "t"), learners=["linear", "forest"])
    assert found.findings.kind == "disjoint"
    assert set(found.comparison.performance) == {"source"}
    assert phrases.scores(found.findings, found.comparison)[1][1:] == ("unknown", "source and target hardly overlap")
    assert "cannot be known from these tables" in found.files["report.html"]
    assert not any("wider for it" in note for note in found.notes)
    assert set(found.model.about["performance"]) == {"source"}


def test_a_quantity_is_regressed(tmp_path):
    rng = np.random.default_rng(0)
    for name, center in (("s", 0.0), ("t", 0.8)):
        x = rng.normal(center, 1, 90)
        write_rows(tmp_path / f"{name}.csv", ["x", "y"], np.column_stack([x, -np.sin(x) + 0.1 * rng.normal(size=90)]))
    said = steelyard("fit", tmp_path / "s.csv", tmp_path / "t.csv", "--label", "y", "--out", tmp_path / "run", "--json")
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["comparison"]["measure"] == "squared error"
    predicted = rows_of(tmp_path / "run" / "predictions.csv")
    assert all(np.isfinite(float(row["prediction"])) for row in predicted)  # negative ones are no formulas
    assert min(float(row["prediction"]) for row in predicted) < 0
    found = json.loads(steelyard("evaluate", tmp_path / "run", tmp_path / "t.csv", "--json").stdout)
    truth = np.array([float(row["y"]) for row in rows_of(tmp_path / "t.csv")])
    errors = (truth - [float(row["prediction"]) for row in predicted]) ** 2
    assert found["found"]["chosen"]["mean"] == pytest.approx(errors.mean())


GOOD = "x,city,y\n" + "".join(f"{i % 7}.5,{'ab'[i % 2]},{'no' if i % 3 else 'yes'}\n" for i in range(60))
TARGET = "x,city\n" + "".join(f"{i % 9}.5,{'ab'[i % 2]}\n" for i in range(60))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (GOOD.replace("x,city,y", "x,city,z"), TARGET, "source.csv: there is no column 'y' for --label"),
        (GOOD + "1,a,maybe\n", TARGET, "source.csv, line 62, column 'y': class 'maybe' has only this row"),
        (GOOD.replace(",yes", ",no"), TARGET, "source.csv, column 'y': every label is 'no'"),
        (GOOD, TARGET.replace("x,city", "x,town"), "Only in the source: 'city'; only in the target: 'town'"),
        (GOOD, TARGET + "1\n", "target.csv, line 62: 1 fields where the header has 2"),
        (GOOD, "", "target.csv: the file is empty"),
        (GOOD, "x,city\n", "target.csv: there is a header but no row"),
        (GOOD, "x,x\n1,2\n", "target.csv: the column name 'x' comes more than once"),
        (GOOD, "PAR1 no", "target.csv: this cannot be read as a Parquet file"),
        (GOOD, TARGET[:60], "t.csv: 9 rows; at least 20 are needed"),
        ("x,y\n" + "1.5,\n" * 40, TARGET, "source.csv, column 'y': no row has a label"),
        ("x,city,y\n" + "1.5,a,2020-01-01\n" * 40, TARGET, "column 'y': the label is a date"),
        (",".join(f"c{i}" for i in range(10_001)) + "\n", TARGET, "source.csv: 10,001 columns"),
    ],
)
def test_bad_tables_are_one_line_exit_2_and_nothing_written(tmp_path, source, target, message):
    (tmp_path / "source.csv").write_text(source)
    (tmp_path / "target.csv").write_text(target)
    words = "--label", "y", "--out", tmp_path / "run"
    said = steelyard("fit", tmp_path / "source.csv", tmp_path / "target.csv", *words)
    assert said.exit_code == 2, said.output
    assert message in said.output
    assert len(said.output.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"source.csv", "target.csv"}


def test_out_is_checked_before_anything_else(tmp_path):
    (tmp_path / "run").write_text("a file")
    said = steelyard("fit", "nowhere.csv", "nowhere.csv", "--label", "y", "--out", tmp_path / "run")
    assert said.exit_code == 2
    assert "run is a file" in said.output


def test_an_unknown_task(tmp_path):
    for name, text in (("s.csv", GOOD), ("t.csv", TARGET)):
        (tmp_path / name).write_text(text)
    words = "--label", "y", "--task", "magic", "--out", tmp_path / "run"
    said = steelyard("fit", tmp_path / "s.csv", tmp_path / "t.csv", *words)
    assert said.exit_code == 2
    assert "must be one of auto, regression, classification" in said.output


def test_an_existing_folder_keeps_what_is_not_ours(tmp_path):
    for name, text in (("s.csv", GOOD), ("t.csv", TARGET)):
        (tmp_path / name).write_text(text)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    words = "--label", "y", "--out", tmp_path / "run", "--quiet", "--overwrite"
    said = steelyard("fit", tmp_path / "s.csv", tmp_path / "t.csv", *words)
    assert said.exit_code == 0, said.output
    assert len(said.output.strip().splitlines()) == 1
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "run" / "report.html").exists()


def test_a_category_unseen_in_the_source_is_said_and_predicted(tmp_path):
    (tmp_path / "s.csv").write_text(GOOD)
    (tmp_path / "t.csv").write_text(TARGET + "2.5,atlantis\n")
    said = steelyard("fit", tmp_path / "s.csv", tmp_path / "t.csv", "--label", "y", "--out", tmp_path / "run")
    assert said.exit_code == 0, said.output
    assert "Column 'city': 1 target rows have values that no source row has ('atlantis')" in said.output
    assert len(rows_of(tmp_path / "run" / "predictions.csv")) == 61


def test_evaluate_and_predict_refuse_in_one_line(folder, tmp_path):
    (tmp_path / "bad.csv").write_text("age,city\n1,oslo\n")
    for words, message in (
        (("predict", folder / "run", tmp_path / "bad.csv", "--out", tmp_path / "p.csv"), "lacks the columns"),
        (("predict", tmp_path, tmp_path / "bad.csv"), "There is no"),
        (
            ("evaluate", folder / "run", tmp_path / "bad.csv"),
            "has no label column 'bought', which evaluate needs; to predict, use steelyard predict.",
        ),
    ):
        said = steelyard(*words)
        assert said.exit_code == 2
        assert message in said.output
        assert len(said.output.strip().splitlines()) == 1
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("values", "kind", "task", "classes"),
    [
        ([0.0, 1.0] * 10, "number", "auto", ("0", "1")),
        ([0.0, 1.0] * 10, "number", "regression", ()),
        ([0.5, 1.5] * 10, "number", "auto", ()),
        (list(np.arange(20.0)), "number", "auto", ()),
        ([0.5, 1.5] * 10, "number", "classification", ("0.5", "1.5")),
        ([0.0, 1.0] * 10, "boolean", "auto", ("false", "true")),
    ],
)
def test_what_counts_as_classes(values, kind, task, classes):
    assert read_labels(Column("y", kind, np.array(values)), "t", task, str).classes == classes


def test_demo_ends_with_the_report(tmp_path):
    said = steelyard("demo", "--out", tmp_path / "demo")
    assert said.exit_code == 0, said.output
    assert said.output.strip().endswith("report.html")
    assert (tmp_path / "demo" / "report.html").stat().st_size > 20_000
    assert "steelyard evaluate finds" in said.output
