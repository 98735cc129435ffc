"""The page from the paper to the code: everything the survey numbers is on it, and everything it names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "paper_to_code.md"
SECTIONS = re.findall(
    r"[\d.]+",
    "1 2.1 2.2 3.1 3.2 3.2.1 3.2.2 4.1 4.2 5.1 5.2 5.3.1 5.3.2 5.3.3 6.1 6.2.1 6.2.2 6.2.3 6.2.4 6.3.1 6.3.2 "
    "6.3.3 6.3.4 6.3.5 7.1.1 7.1.2 7.2.1 7.2.2 7.2.3 7.3.1 7.3.2 7.4.1 7.4.2 7.4.3 8",
)
# How many the survey has; theorems and lemmas are numbered together, and lemma 2 is the only lemma.
NUMBERED = {"table": 7, "figure": 12, "algorithm": 4, "equation": 23, "assumption": 1}
FOLDERS = {"survey": "", "name": "", "file": "src/steelyard", "test": "tests"}  # of the files in each column


def numbers(text, kind):
    """Every number of a kind that the text names, ranges written out."""
    found = set()
    for run in re.findall(rf"\b{kind}s? ([(\d][\d.()]*(?:(?:, | and | to )[(\d][\d.()]*)*)", text):
        plain = run.replace("(", "").replace(")", "")
        for first, last in re.findall(r"(\d+) to (\d+)", plain):
            found |= {str(n) for n in range(int(first), int(last) + 1)}
        found |= {number.rstrip(".") for number in re.findall(r"[\d.]+", plain)}
    return found


def missing(text):
    """What the survey numbers and the text does not name."""
    wanted = {("section", number) for number in SECTIONS}
    wanted |= {(kind, str(n)) for kind, last in NUMBERED.items() for n in range(1, last + 1)}
    wanted |= {("theorem", str(n)) for n in (1, 3, 4, 5, 6, 7)} | {("lemma", "2")}
    here = {(kind, number) for kind, _ in wanted for number in numbers(text, kind)}
    return sorted(wanted - here)


def rows():
    """Cells of the lines of the page's tables whose columns are survey, name, file, test."""
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and not set(line) <= set("|- :"):
            yield cells


def code():
    """Every piece of code on the page, files with their folder."""
    text = PAGE.read_text("utf-8")
    for cells in rows():
        for column, cell in zip(FOLDERS, cells, strict=True):
            for span in re.findall(r"`([^`]+)`", cell):
                outside = column == "file" and span.startswith("experiments/")
                yield span if outside or not FOLDERS[column] else f"{FOLDERS[column]}/{span}"
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    yield from (span for _, span in re.findall(r"(`+)(.+?)\1", prose))


def public_names():
    """All names in an `__all__` of the package; read, not imported, because some need PyTorch."""
    found = set()
    for path in (ROOT / "src").rglob("__init__.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found |= set(ast.literal_eval(node.value))
    return found


def identifiers():
    """All names, arguments and attributes in the package."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for field in ("id", "attr", "arg", "name"):
                name = getattr(node, field, None)
                if isinstance(name, str):
                    found.add(name)
    return found


def unknown(span, public, known):
    """What is wrong with a piece of code on the page; nothing where all it names exists."""
    file, _, test = span.partition("::")
    if "/" in span or span in ("tests", "experiments"):
        path = ROOT / file
        if path.is_dir():
            return []
        defined = [] if not path.is_file() else re.findall(r"^def (\w+)", path.read_text("utf-8"), re.MULTILINE)
        return [span] if not path.is_file() or (test and test not in defined) else []
    names = re.findall(r"[A-Za-z_]\w*", re.sub(r"\"[^\"]*\"", "", span))
    if span.startswith("steelyard."):
        return [] if (ROOT / "src" / span.replace(".", "/")).is_dir() else [span]
    return [name for name in names if name not in (public if name[0].isupper() and len(name) > 1 else known)]


def test_everything_the_survey_numbers_is_on_the_page():
    assert missing(PAGE.read_text("utf-8")) == []


@pytest.mark.parametrize("planted", ["theorem 4", "algorithm 3", "table 7", "section 6.2.3", "lemma 2", "assumption 1"])
def test_what_is_taken_away_is_noticed(planted):
    text = PAGE.read_text("utf-8")
    assert (*planted.split(),) in missing(re.sub(rf"\b{re.escape(planted)}\b", "", text, flags=re.IGNORECASE))


def test_everything_the_page_names_exists():
    public, known = public_names(), identifiers() | {"inf"}
    assert {span: wrong for span in code() if (wrong := unknown(span, public, known))} == {}


@pytest.mark.parametrize(
    "span",
    ["src/steelyard/ratio/kmn.py", "tests/oracle/test_kmm.py::test_nothing", "KernelMeanMatch", "a_name_of_nobody"],
)
def test_what_does_not_exist_is_noticed(span):
    assert unknown(span, public_names(), identifiers()) == [span]


def test_what_is_implemented_has_a_file_and_a_test():
    for survey, name, file, test in rows():
        if survey == "survey" or "not computed" in name or "not part of" in name or survey == "what":
            continue
        assert ".py`" in file, survey
        assert ".py" in test, survey


def test_numbers_of_a_line():
    assert numbers("equations (1) to (3), tables 4 and 5", "equation") == {"1", "2", "3"}
    assert numbers("equations (1) to (3), tables 4 and 5", "table") == {"4", "5"}
    assert numbers("figures 5, 6, 7 and 8: noise", "figure") == {"5", "6", "7", "8"}
