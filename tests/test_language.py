"""One language: the words of the field, and none that were retired."""

import shutil
from pathlib import Path

import pytest

from tests.language import REQUIRED_TERMS, retired_names, retired_phrases

ROOT = Path(__file__).parent.parent


def test_no_retired_name():
    assert retired_names(ROOT) == []


def test_no_retired_phrase():
    assert retired_phrases(ROOT) == []


@pytest.mark.parametrize("term", REQUIRED_TERMS)
def test_terms_of_the_literature_are_found(term):
    text = " ".join(" ".join(path.read_text("utf-8").split()) for path in (ROOT / "src").rglob("*.py"))
    assert term in text.lower()


def test_a_planted_word_is_noticed(tmp_path):
    shutil.copytree(ROOT / "src/steelyard/_splits", tmp_path / "src/steelyard/_splits")
    path = tmp_path / "src/steelyard/_splits/rows.py"
    assert (retired_names(tmp_path), retired_phrases(tmp_path)) == ([], [])
    path.write_text(f"{path.read_text('utf-8')}\n\ngoal_rows = 1  # one weight a\n# source row\n")
    assert retired_names(tmp_path) == ["src/steelyard/_splits/rows.py: goal_rows"]
    assert retired_phrases(tmp_path) == ["src/steelyard/_splits/rows.py: one weight a source row"]
