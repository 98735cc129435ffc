"""Commands of a page are run by the build, with what they print, and one that fails ends it."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the extra 'docs' is not installed")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
from commands import printed
from sphinx.errors import ExtensionError

import steelyard


def test_what_a_command_prints_is_shown(tmp_path):
    assert steelyard.__version__ in printed("steelyard --version  # which one is it?", tmp_path)


def test_a_command_that_fails_ends_the_build(tmp_path):
    with pytest.raises(ExtensionError, match=r"town\.csv"):
        printed("steelyard diagnose town.csv suburbs.csv", tmp_path)
