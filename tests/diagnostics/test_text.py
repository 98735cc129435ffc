"""Columns of text: compared by their words, named where these shift, and told apart from codes."""

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom, ks_2samp
from typer.testing import CliRunner

from steelyard import Target, diagnose
from steelyard.app.cli import app
from steelyard.app.notes import unseen_levels
from steelyard.diagnostics import diagnose_pair
from steelyard.diagnostics.columns import column_shifts
from steelyard.diagnostics.recommendation import recommend
from steelyard.diagnostics.two_sample import text_test
from steelyard.report import gather, phrases
from steelyard.tables import as_frame, encode_pair, learn_encoding

pytest.importorskip("skrub", reason="skrub is not installed; text columns are pooled without it")

HOME = ("mild", "pain", "left", "knee", "running", "fever", "takes", "aspirin", "daily", "sleeps", "well", "reports")
WARD = ("severe", "cough", "breath", "admitted", "overnight", "oxygen", "chest", "scan", "ordered", "family", "given")


def table(rng, share, n=200):
    """A number, and notes with this share of their words from the second list."""
    notes = [
        " ".join(rng.choice(WARD if rng.random() < share else HOME) for _ in range(rng.integers(7, 12)))
        for _ in range(n)
    ]
    return pa.table({"age": rng.normal(size=n), "note": notes})


def tables(seed, share, n=200):
    """A source with a tenth of its words from the second list, and a target with this share."""
    rng = np.random.default_rng(seed)
    return as_frame(table(rng, 0.1, n)), as_frame(table(rng, share, n))


@pytest.mark.parametrize("seed", range(1000, 1003))
def test_a_column_whose_words_shift_is_named(seed):
    source, target = tables(seed, 0.4)
    found = diagnose_pair(encode_pair(source, target)).findings
    first = found.columns[0]
    assert (first.name, first.kind, first.drifted) == ("note", "text", True)
    assert first.p_value < 0.001
    assert 0.1 <= first.distance <= 1
    assert abs(first.standardized_difference) > 0.2
    assert "Most shifted: note." in found.reason
    assert phrases.drift(found) == "Drift is seen in 1 of 2 columns."


def test_without_shift_text_is_rejected_at_the_level():
    """At the level of five percent, more rejections come in fewer than one of a thousand runs."""
    shifts = []
    for seed in range(1000, 1040):
        found = column_shifts(encode_pair(*tables(seed, 0.1, 100)))
        shifts.append(next(column for column in found if column.kind == "text"))
    assert sum(column.p_value < 0.05 for column in shifts) <= binom.ppf(0.999, len(shifts), 0.05)
    assert np.median([column.distance for column in shifts]) <= 0.83 / np.sqrt(50)  # that of one test of a hundred rows


def test_the_test_of_text_is_that_of_its_most_different_number():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(120, 4)), rng.normal(size=(80, 4)) + np.array([0.0, 0.5, 0.0, 0.1])
    found, alone = text_test(X, T), [ks_2samp(a, b, method="asymp") for a, b in zip(X.T, T.T, strict=True)]
    assert found.p_value == pytest.approx(4 * min(one.pvalue for one in alone))
    largest = max(one.statistic for one in alone)
    assert found.statistic == pytest.approx(np.sqrt(largest**2 - np.log(4) / 96))  # nm / (n + m) = 48
    assert text_test(X, X).statistic == 0
    assert text_test(X, X).p_value == 1
    assert text_test(X[:, :1], T[:, :1]).statistic == pytest.approx(alone[0].statistic)  # nothing to correct


def test_codes_that_identify_rows_are_categories():
    rng = np.random.default_rng(0)
    ids = [f"A-{i:05d}" for i in rng.permutation(400)]
    names = ["".join(rng.choice(list("aeioklmnrst"), 9)) for _ in range(400)]
    source, target = (
        as_frame(pa.table({"x": rng.normal(size=200), "id": ids[rows], "name": names[rows]}))
        for rows in (slice(200), slice(200, 400))
    )
    pair = encode_pair(source, target)
    assert pair.encoding.text_columns == ["name"]
    kinds = {column.name: column.kind for column in column_shifts(pair)}
    assert kinds == {"x": "number", "id": "category", "name": "text"}
    (note,) = unseen_levels(source, target, pair.encoding)
    assert note.startswith("Column 'id': 200 target rows have values that no source row has")
    codes = as_frame(pa.table({"code": [f"K{i % 100}" for i in range(1000)]}))
    assert learn_encoding(codes, codes).text_columns == ["code"]  # they repeat: their parts may say something


def test_the_picture_of_text_is_that_of_its_most_shifted_number():
    diagnosis = diagnose_pair(encode_pair(*tables(1000, 0.4)))
    evidence = gather(diagnosis.compared, diagnosis.findings, None, np.random.default_rng(0))
    shown = evidence.marginals[0]
    of_text = [column for column in evidence.balance if column.name.startswith("note, text ")]
    assert shown.name == max(of_text, key=lambda column: abs(column.before)).name
    assert shown.kind == "number"
    assert abs(np.subtract(shown.source, shown.target)).sum() / 2 > 0.1


def test_the_commands_and_the_page_name_the_text(tmp_path):
    import pyarrow.csv

    rng = np.random.default_rng(1000)
    files = tmp_path / "source.csv", tmp_path / "target.csv"
    for file, share in zip(files, (0.1, 0.4), strict=True):
        pyarrow.csv.write_csv(table(rng, share), file)
    words = [str(word) for word in ("diagnose", *files, "--out", tmp_path / "run")]
    said = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert said.exit_code == 0, said.output
    assert "Most shifted: note." in said.output
    assert "Drift is seen in 1 of 2 columns." in said.output
    row = next(line for line in said.output.splitlines() if line.startswith("│ note"))
    assert [cell.strip() for cell in row.strip("│").split("│")][:2] == ["note", "text"]
    assert row.rstrip(" │").endswith("yes")
    assert "values that no source row has" not in said.output
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "A column of text is compared by the numbers that its words and parts of words become" in page
    assert "values that no source row has" not in page
    found = json.loads((tmp_path / "run" / "findings.json").read_text("utf-8"))
    assert (found["columns"][0]["name"], found["columns"][0]["kind"]) == ("note", "text")


def test_a_concept_shift_does_not_hide_that_x_differs():
    rng = np.random.default_rng(1)
    X, T = rng.normal(size=(300, 3)), rng.normal(size=(300, 3))
    T[:, 0] += 0.7
    y, y_target = (rows[:, 0] + k * rows[:, 1] + 0.3 * rng.normal(size=300) for rows, k in ((X, 0), (T, 1)))
    found = diagnose(X, y, target=Target(T, y_target))
    assert found.kind == "concept"
    assert found.x_shifted
    assert "The distribution of x differs as well (p" in found.reason
    assert found.reason.endswith("Most shifted: x0.")
    _, reason, _ = recommend("concept", 0.5, found.columns, 0.0, 1.0, 0.0, found.labels)
    assert "differs as well" not in reason
