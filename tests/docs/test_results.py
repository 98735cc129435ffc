"""Numbers of the site are those of the files in results/: the queries of the pages, and what is refused."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "results").exists(), reason="this copy of the package has no results")
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from counts import count
from measured import QueryError, answer, cells, load, markdown_tables, read

EVIDENCE = ROOT / "docs" / "evidence"


def roles(name):
    """Every use of a role on the pages of evidence."""
    found = []
    for path in sorted(EVIDENCE.rglob("*.md")):
        text = re.sub(r"^```+\n.*?^```+$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for _, query in re.findall(rf"\{{{name}\}}(`+)(.+?)\1", text):
            found.append(pytest.param(query, id=f"{path.stem}: {query[:60]}"))
    return found


@pytest.mark.parametrize("query", roles("result"))
def test_every_number_of_the_pages_is_found(query):
    assert answer(query)


@pytest.mark.parametrize("query", roles("count"))
def test_every_count_of_the_pages_is_found(query):
    assert count(query) > 0


@pytest.mark.parametrize("path", sorted(EVIDENCE.rglob("*.md")), ids=lambda path: path.stem)
def test_fences_are_directives(path):
    """A backtick in the first line of a fence would make it text, without a warning."""
    text = path.read_text("utf-8")
    assert re.findall(r"^```\{.*`.*$", text, re.MULTILINE) == []
    assert len(re.findall(r"^(?:```|:::)\{", text, re.MULTILINE)) == len(
        re.findall(r"^(?:```|:::)$", text, re.MULTILINE)
    )


def test_a_cell_is_that_of_the_file():
    lines = [line for line in read("toy/table.csv").splitlines() if ",0,,one-step,,," in line]
    header = read("toy/table.csv").splitlines()[0].split(",")
    (row,) = (dict(zip(header, line.split(","), strict=True)) for line in lines)
    assert answer("toy/table.csv: method=one-step -> mean") == row["mean"]
    assert answer("toy/table.csv: method=one-step -> mean -> .4f") == f"{float(row['mean']):.4f}"
    assert answer("toy/table.csv: method=one-step -> 100 * (mean - sd) -> .3f") == (
        f"{100 * (float(row['mean']) - float(row['sd'])):.3f}".replace("-", "−")
    )
    ratio = "toy/table.csv: method=one-step vs method=ERM -> mean / other.mean -> .3f"
    erm = float(answer("toy/table.csv: method=ERM -> mean"))
    assert answer(ratio) == f"{float(row['mean']) / erm:.3f}"


def test_a_p_value_is_that_of_the_page():
    """The page of the study has it from its own code; here it comes from the trials."""
    assert answer("coupling/trials.csv: data=uneven; method=one-step vs coupling=no -> p -> .2g") == (
        answer('coupling/README.md: problem=uneven noise -> second("coupling adds")')
    )
    rows = [line.split(",") for line in read("coupling/trials.csv").splitlines()[1:]]
    errors = {
        coupling: {row[6]: float(row[7]) for row in rows if row[2:6] == ["uneven", "one-step", "", coupling]}
        for coupling in ("", "no")
    }
    both = np.array([[errors[""][trial], errors["no"][trial]] for trial in errors[""]])
    assert answer("coupling/trials.csv: data=uneven; method=one-step vs coupling=no -> p -> .6g") == (
        f"{ttest_rel(*both.T).pvalue:.6g}"
    )


def test_only_reported_trials_of_the_settings_of_the_page_count():
    """The file has trials of two settings, and only the table's own enter without another page's name."""
    where = "images=fashion_mnist; a=2; b=4; method=EIWERM"
    own = answer(f"images/trials.csv: {where} -> average(error) -> .4f")
    assert own == answer(f"images/table.csv: {where} -> mean -> .4f")
    once = answer(f"images/trials.csv: page=variant_angles_once.md; {where} -> average(error) -> .4f")
    assert once == answer(f"images/table.csv: page=variant_angles_once.md; {where} -> mean -> .4f")
    assert own != once


def test_tables_of_a_page():
    page = "### One: of two\n\n| x | `y` | y |  |\n|---|--:|--:|--:|\n| a | **1,000 (2)** | 3 | 4 |\n\nSaid.\n\nNo."
    ((heading, table),) = markdown_tables("page.md", page)
    assert (heading, table.columns, table.remark) == ("One: of two", ("x", "y", "y 2", "row"), "Said.")
    assert table.rows == ({"x": "a", "y": "**1,000 (2)**", "y 2": "3", "row": "4"},)
    assert cells("| a |  |") == ["a", ""]
    assert [t.name for t in load("coupling/README.md")] == ["coupling/README.md#When does the coupling act?"]


def test_a_table_has_other_heads_where_they_are_named():
    pytest.importorskip("sphinx", reason="the extra 'docs' is not installed")
    from results import chosen

    ((_, table),) = markdown_tables("page.md", "### One\n\n| x | y |\n|---|--:|\n| a | 1 |\n")
    assert chosen(table, "x; y", "") == ["| x | y |", "|---|--:|", "| a | 1 |"]
    assert chosen(table, "x; y", "", "name; times faster")[0] == "| name | times faster |"
    with pytest.raises(QueryError, match="2 columns and 1 heads"):
        chosen(table, "x; y", "", "name")


def test_sentences():
    assert answer("choice/README.md ~ Mean over {} trials.") == "100"
    assert answer("choice/README.md ~ Mean over {} trials. -> .1f") == "100.0"
    assert answer("choice/README.md ~ Significantly better than the pick ... on {} of") == "5"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("nothing/table.csv: a=1 -> mean", "no file results/nothing/table.csv"),
        ("toy/table.csv: method=two -> mean", "no row"),
        ("toy/table.csv: methods=ERM -> mean", "no column 'methods'"),
        ("toy/table.csv: method=ERM -> average_error", "no column 'average_error'"),
        ("toy/table.csv: variant=eta_0 -> mean", "4 rows"),
        ("toy/table.csv: method=ERM", "names no column"),
        ("toy/table.csv: method -> mean", "write field=value"),
        ("toy/table.csv: method=ERM -> mean - 1", "how it is written"),
        ("toy/table.csv: method=ERM -> (lambda: 1)() -> .2f", "not an expression"),
        ("toy/table.csv: method=constant; page=other.md -> mean", "no page 'other.md'"),
        ("toy/README.md#Nothing: method=ERM -> median", "no table below"),
        ("toy/README.md: method=ERM (squared) -> second(median)", "no such number"),
        ("toy/README.md ~ there are {} lines", "0 different numbers"),
        ("toy/README.md ~ no place for a number", "needs one {}"),
        ("toy/README.md ~ ({})", "different numbers"),
    ],
)
def test_what_cannot_be_answered_is_an_error(query, message):
    with pytest.raises(QueryError, match=re.escape(message)):
        answer(query)


def test_counts(tmp_path):
    assert count("tests in tests/docs/test_results.py") == len([name for name in globals() if name.startswith("test_")])
    assert count("files in tests/docs") == len(list((ROOT / "tests/docs").glob("test_*.py")))
    text = "".join(path.read_text() for path in (ROOT / "tests/planted").glob("*.toml"))
    assert count("bugs") == len(re.findall(r"^\[\[bug\]\]", text, re.MULTILINE))
    for wrong in ("nonsense", "tests in tests/planted", "entries of NOTHING in tests/contract/test_laws.py"):
        with pytest.raises(ValueError, match=r"is not a count|no test file|has no list"):
            count(wrong)
