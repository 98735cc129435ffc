"""Tables as people have them: what could go wrong without a word."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from steelyard import diagnose
from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard.app.cli import app
from steelyard.app.commands import compared
from steelyard.app.fitting import COMPARED_ROWS, compare_methods, sample_rows
from steelyard.errors import InputError
from steelyard.stacking.held_out import draw_folds
from steelyard.tables import place_of_row, read_table


def steelyard(*words, **env):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", **env})


def write(path, text):
    path.write_text(text)
    return path


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def fitted(folder, source, target, *words):
    write(folder / "s.csv", source)
    write(folder / "t.csv", target)
    said = steelyard("fit", folder / "s.csv", folder / "t.csv", "--label", "y", "--out", folder / "run", *words)
    assert said.exit_code == 0, said.output
    return said.output


def mixed(n, seed, shift=0.0, label=True):
    """A flag that may be unknown and a code that may start with 0."""
    rng = np.random.default_rng(seed)
    lines = ["x,flag,code" + (",y" if label else "")]
    for _ in range(n):
        flag, code = rng.choice(["true", "false", "unknown"]), rng.choice(["01234", "05678", "AB12"])
        x = rng.normal(shift)
        y = x + 3 * (flag == "true") - 2 * (code == "01234") + 0.1 * rng.normal()
        lines.append(f"{x:.4f},{flag},{code}" + (f",{y:.4f}" if label else ""))
    return lines


def test_a_row_is_predicted_the_same_whatever_stands_beside_it(tmp_path):
    fitted(tmp_path, "\n".join(mixed(120, 0)), "\n".join(mixed(100, 1, 0.5, label=False)))
    new = mixed(60, 2, label=False)
    plain = [new[0], *(line for line in new[1:] if "unknown" not in line and "AB12" not in line)]
    whole, part = write(tmp_path / "whole.csv", "\n".join(new)), write(tmp_path / "part.csv", "\n".join(plain))
    found = {}
    for path in (whole, part):
        out = tmp_path / f"p_{path.name}"
        assert steelyard("predict", tmp_path / "run", path, "--out", out).exit_code == 0
        lines = path.read_text().splitlines()[1:]
        found[path.name] = {line: row["prediction"] for line, row in zip(lines, rows_of(out), strict=True)}
    assert len(found["part.csv"]) > 10
    for line, value in found["part.csv"].items():
        assert float(value) == pytest.approx(float(found["whole.csv"][line]))


def test_one_unknown_among_booleans_is_no_shift(tmp_path):
    rng = np.random.default_rng(0)
    for name, extra in (("s", ""), ("t", "0.5,unknown,0100\n")):
        lines = [f"{rng.normal():.5f},{rng.choice(['true', 'false'])},{rng.integers(100, 110):05d}" for _ in range(200)]
        write(tmp_path / f"{name}.csv", "x,flag,code\n" + "\n".join(lines) + "\n" + extra)
    found = json.loads(steelyard("diagnose", tmp_path / "s.csv", tmp_path / "t.csv", "--json").stdout)
    assert found["kind"] == "none"
    assert found["uncovered"] < 0.1


def test_numbers_against_dates_are_not_merged(tmp_path):
    write(tmp_path / "s.csv", "a,b\n" + "".join(f"{i % 50},{i}.5\n" for i in range(100)))
    write(tmp_path / "t.csv", "a,b\n" + "".join(f"2020-01-{1 + i % 28:02d},{i}.5\n" for i in range(100)))
    found = json.loads(steelyard("diagnose", tmp_path / "s.csv", tmp_path / "t.csv", "--json").stdout)
    assert next(c["kind"] for c in found["columns"] if c["name"] == "a") == "category"


@pytest.mark.parametrize("levels", [2, 10])
def test_a_discrete_column_is_not_taken_for_copies(levels):
    rng = np.random.default_rng(0)
    source = rng.integers(0, levels, (150, 1))
    target = np.where(rng.random((150, 1)) < 0.9, levels - 1, source)
    found = diagnose(source, target=target)
    assert found.n_duplicates == 0
    assert found.shift_p < 0.001


def test_copies_of_continuous_rows_are_still_found():
    rows = np.random.default_rng(0).normal(size=(60, 1))
    assert diagnose(np.repeat(rows, 3, axis=0), target=np.repeat(rows + 0.1, 2, axis=0)).n_duplicates == 180


def test_long_numbers_stay_different_classes(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal():.3f},{1234567 + i % 2}" for i in range(80)]
    fitted(tmp_path, "x,y\n" + "\n".join(lines), "x\n" + "\n".join(f"{rng.normal():.3f}" for _ in range(50)))
    assert json.loads((tmp_path / "run" / "model.json").read_text())["classes"] == ["1234567", "1234568"]
    assert json.loads((tmp_path / "run" / "findings.json").read_text())["comparison"]["classes"] == [
        "1234567",
        "1234568",
    ]
    write(tmp_path / "e.csv", "x,y\n" + "\n".join(f"{line}.0" for line in lines))
    assert steelyard("evaluate", tmp_path / "run", tmp_path / "e.csv").exit_code == 0


def test_minus_one_is_a_class_and_no_formula(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    source = "x,y\n" + "\n".join(f"{v:.3f},{1 if v > 0 else -1}" for v in x)
    fitted(tmp_path, source, "x\n" + "\n".join(f"{v:.3f}" for v in x))
    assert {row["prediction"] for row in rows_of(tmp_path / "run" / "predictions.csv")} == {"-1", "1"}


def test_duplicates_share_a_fold_whatever_the_order_of_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(40), 3))

    def folds(X, y):
        columns = table_columns(X, y)
        return draw_folds(columns, None, units_of_rows(columns), np.random.default_rng(2))

    for fold in folds(X[order], y[order]):
        assert all(len(set(fold[order == i])) == 1 for i in range(40))
        assert len(set(fold)) == 5
    (first, *_), (again, *_) = folds(X, y), folds(X[::-1], y[::-1])
    np.testing.assert_array_equal(first, again[::-1])


def test_copied_noise_is_not_learned():
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(60, 3)), 3, axis=0), np.repeat(rng.normal(size=60), 3)
    found = compare_methods(X, y, rng.normal(size=(60, 3)), classify=False, shifted=False).comparison
    assert found.performance["source"].mean > 0.7  # the variance is 1; boosting on copies would promise a third


def test_a_rare_class_is_never_lost_in_the_draw():
    codes = np.zeros(5000, dtype=int)
    codes[[7, 4000, 4999]] = 1
    for seed in range(20):
        rows = sample_rows(5000, np.random.default_rng(seed), codes)
        assert len(rows) == COMPARED_ROWS
        assert codes[rows].sum() == 3


def test_the_expected_score_covers_the_truth():
    """Half a standard deviation of shift and a plane: the interval is that of target_performance.

    A plane, because then a fit on four fifths of the rows, of which the interval is, is as good as one on all.
    """
    covered = 0
    for seed in range(5):
        rng = np.random.default_rng(1000 + seed)
        X, goal = rng.normal(size=(500, 2)), rng.normal([0.5, 0], 1, (500, 2))
        y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=500)
        found = compare_methods(X, y, goal, classify=False, shifted=True, learners=["linear"]).fit()
        many = rng.normal([0.5, 0], 1, (20_000, 2))
        truth = 0.09 + np.mean((found.plain_model.predict(many) - many[:, 0] + many[:, 1]) ** 2)
        interval = found.comparison.performance["plain"]
        assert not found.comparison.rough
        covered += interval.low <= truth <= interval.high
    assert covered >= 4


def test_few_rows_give_no_certainty(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    text = "x,y\n" + "\n".join(f"{v:.3f},{'yes' if v > 0 else 'no'}" for v in x)
    fitted(tmp_path, text, "x\n" + "\n".join(f"{v:.3f}" for v in x))
    write(tmp_path / "three.csv", "x,y\n2.0,yes\n-2.0,no\n1.5,yes\n")
    found = json.loads(steelyard("evaluate", tmp_path / "run", tmp_path / "three.csv", "--json").stdout)["found"][
        "plain"
    ]
    assert found["mean"] == 1
    assert found["low"] < 0.5
    assert found["high"] == 1


@pytest.mark.parametrize(
    ("difference", "error", "rows", "words"),
    [
        (0.0, 0.1, 50, "equally good"),
        (0.2, 0.05, 50, "is better than the plain one."),
        (-0.2, 0.05, 50, "is worse than the plain one."),
        (0.2, 0.15, 50, "better than the plain one on these rows, by no more than chance"),
        (0.2, 0.05, 2, "by no more than chance"),
    ],
)
def test_how_models_are_compared(difference, error, rows, words):
    found = {"difference": difference, "difference_error": error, "rows": rows, "measure": "accuracy"}
    assert words in compared(found)


NUMBERS = [f"{i * 0.37 % 7:.3f}" for i in range(60)]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([f"{v},,{v}" for v in NUMBERS], [f"{v}," for v in NUMBERS]),  # a column that is empty in both
        ([f"{v},5,{v}" for v in NUMBERS], [f"{v},5" for v in NUMBERS]),  # constant in both
        ([f"{v},1.5,{v}" for v in NUMBERS], [f"{v}," for v in NUMBERS]),  # empty in the target
        ([f"{v},inf,{v}" for v in NUMBERS], [f"{v},2" for v in NUMBERS]),
    ],
)
def test_poor_columns_do_no_harm(tmp_path, source, target):
    fitted(tmp_path, "\n".join(["x,z,y", *source]), "\n".join(["x,z", *target]))
    write(tmp_path / "n.csv", "x,z\n1.5,\n")
    said = steelyard("predict", tmp_path / "run", tmp_path / "n.csv", "--out", tmp_path / "p.csv")
    assert said.exit_code == 0, said.output


@pytest.mark.parametrize(
    ("source", "words", "message"),
    [
        ("x,y\n" + "1,2.5\n" * 60, (), "Every row of the source is the same"),
        ("x,y\n" + "".join(f"{v}e200,{v}\n" for v in NUMBERS), (), "column 'x' of the source has values as large as"),
        (
            "x,y\n" + "".join(f"{v},{v}\n" for v in NUMBERS) + "1,12;5\n",
            (),
            "line 62, column 'y': '12;5' is not a number",
        ),
        ('x,y\n"1\n2",3\n\n' + "".join(f"{v},{v}\n" for v in NUMBERS) + "1,oops\n", (), "line 65, column 'y': 'oops'"),
        (
            "x,y\n" + "".join(f"{v},{v}\n" for v in NUMBERS) + "1,inf\n",
            (),
            "line 62, column 'y': the label is infinite",
        ),
        (
            "x,y\n" + "".join(f"{v},b\n" for v in NUMBERS),
            ("--task", "regression"),
            "line 2, column 'y': 'b' is not a number",
        ),
    ],
)
def test_refusals_name_the_right_place(tmp_path, source, words, message):
    write(tmp_path / "s.csv", source)
    write(tmp_path / "t.csv", "x\n" + "\n".join(NUMBERS))
    said = steelyard("fit", tmp_path / "s.csv", tmp_path / "t.csv", "--label", "y", "--out", tmp_path / "run", *words)
    assert said.exit_code == 2, said.output
    assert message in said.output
    assert len(said.output.strip().splitlines()) == 1


def test_diagnose_takes_labels_as_they_come(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{v:.3f}" for v in rng.normal(size=80)]
    source = write(tmp_path / "s.csv", "x,y\n" + "\n".join(f"{v},{'ab'[i % 2]}" for i, v in enumerate(rows)))
    for labels in ([""] * 80, [str(i % 2) for i in range(80)]):
        target = write(tmp_path / "t.csv", "x,y\n" + "\n".join(f"{v},{y}" for v, y in zip(rows, labels, strict=True)))
        said = steelyard("diagnose", source, target, "--label", "y", "--json")
        assert said.exit_code == 0, said.output
        assert (json.loads(said.stdout)["labels"] is None) == (labels[0] == "")


def test_a_cut_utf16_file_is_refused(tmp_path):
    text = ("x,y\n" + "".join(f"{v},{v}\n" for v in NUMBERS)).encode("utf-16")
    (tmp_path / "s.csv").write_bytes(text[:-1])
    said = steelyard("diagnose", tmp_path / "s.csv", tmp_path / "s.csv")
    assert said.exit_code == 2
    assert "utf-16" in said.output


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_are_seen(tmp_path, separator):
    text = "\n".join(separator.join(["1.5", "a"]) for _ in range(5))
    frame = read_table(write(tmp_path / "t.csv", separator.join(["x", "c"]) + "\n" + text))
    assert frame.names == ["x", "c"]
    assert frame["x"].kind == "number"


def test_decimal_commas_with_semicolons(tmp_path):
    frame = read_table(write(tmp_path / "t.csv", "x;c\n1,5;a\n2,25;b\n"))
    np.testing.assert_array_equal(frame["x"].values, [1.5, 2.25])


def test_places_count_lines_as_an_editor_does(tmp_path):
    path = write(tmp_path / "t.csv", 'a,b\n"x\ny",1\n\nz,2\n')
    assert place_of_row(path, 1) == "line 5"


def test_outputs_do_not_overwrite_inputs(tmp_path):
    path = write(tmp_path / "s.csv", "x\n" + "\n".join(NUMBERS))
    said = steelyard("weigh", path, path, "--out", path)
    assert said.exit_code == 2
    assert "is an input" in said.output
    assert path.read_text().startswith("x\n")


def test_weigh_says_its_doubts_in_words(tmp_path):
    source = write(tmp_path / "s.csv", "x\n" + "\n".join(f"{v:.3f}" for v in np.linspace(0, 1, 60)))
    target = write(tmp_path / "t.csv", "x\n" + "\n".join(f"{v:.3f}" for v in np.linspace(0.9, 1.6, 60)))
    out = tmp_path / "w[red].csv"
    said = steelyard("weigh", source, target, "--out", out)
    assert said.exit_code == 0, said.output
    assert "w[red].csv" in said.output.replace("\n", "")
    assert "Warning:" not in said.output


def test_too_few_rows_say_so():
    X = np.random.default_rng(0).normal(size=(4, 1))
    with pytest.raises(InputError, match="4 labeled rows that are not duplicates of one another: too few"):
        compare_methods(X, X[:, 0], X, classify=False, shifted=True)


def test_a_table_of_few_levels_can_be_fitted():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (120, 1)).astype(float)
    y = np.where(rng.random(120) < 0.8, X[:, 0], 1 - X[:, 0]).astype(int)
    found = compare_methods(X, y, rng.integers(0, 2, (120, 1)).astype(float), classify=True, shifted=True)
    assert found.comparison.performance["source"].mean > 0.6
