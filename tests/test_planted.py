"""The planted bugs still have their places; `python -m tests.planted` plants them, which takes minutes."""

import pytest

from tests.planted.__main__ import ROOT, Bug, load_bugs


@pytest.mark.parametrize("bug", load_bugs(), ids=lambda bug: bug.name)
def test_each_planted_bug_has_one_place_and_tests_that_are_there(bug: Bug):
    assert (ROOT / "src" / bug.file).read_text().count(bug.old) == 1
    assert bug.old != bug.new
    assert all((ROOT / test.split("::")[0]).exists() for test in bug.tests)
