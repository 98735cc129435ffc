"""No measured number on the pages of evidence is typed: each is read from a file while the site is built."""

from pathlib import Path

import pytest

from tests.docs.numbers import typed

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
NAMES = ["benchmarks.md", "scale.md", "reliability.md"]
PAGES = [EVIDENCE / name for name in NAMES] + sorted((EVIDENCE / "reproduction").glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_number_is_typed(path):
    assert typed(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_planted_number_is_noticed(path):
    text = path.read_text("utf-8")
    assert len(typed(f"{text}\nThe error is 0.0127 there.\n")) == 1
    first, rest = text.split("\n", 1)
    assert len(typed(f"{first} 12 % lower\n{rest}")) == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("one-step has 0.0127", 1),
        ("between 3 and 4 points", 2),
        ("| 5 | of |", 1),
        ("best on five of nine sets", 1),
        ("(17 times)", 1),
        ("has {result}`toy/table.csv: method=ERM -> mean -> .3f`, printed 0.145", 1),
        ("has {result}`toy/table.csv: method=ERM -> mean -> .3f`", 0),
        ("``{result}`` and ``method=95 % `fit` covers``", 0),
        ("tables 4 and 5, section 5.3.1, theorem 3, equations (1) to (3)", 0),
        ("DIW2-L on CIFAR-10 with LeNet-5 and float32, in 2026, version 0.6.4", 0),
        ("with $\\gamma = 0.4$ and [study](table1.md)", 0),
        ("```{result-table} toy/README.md#5\n```", 0),
        ("```{result-table} toy/README.md#5\n```\n7 of them", 1),
    ],
)
def test_what_counts_as_typed(text, count):
    assert len(typed(text)) == count
