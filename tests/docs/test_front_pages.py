"""The first pages of the site tell the truth: their commands run, their words are those of the report."""

import re
import sys
from pathlib import Path

import pytest

from steelyard.report.phrases import ADVICE

pytest.importorskip("sphinx", reason="the extra 'docs' is not installed")
DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
from commands import printed


def words_of(name):
    return " ".join((DOCS / name).read_text("utf-8").split())


@pytest.mark.parametrize("advice", ADVICE.values())
def test_the_decision_page_has_every_recommendation_of_the_report(advice):
    assert f"**{advice}**" in words_of("which_method.md")


def test_the_commands_of_the_first_page_run(tmp_path):
    blocks = re.findall(
        r"```\{commands\}\n(?::quiet:\n)?\n?(.*?)```", (DOCS / "start.md").read_text("utf-8"), re.DOTALL
    )
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 4
    said = [printed(command, tmp_path) for command in commands]
    assert said[1].startswith("Covariate shift: use relative weights")
    assert (tmp_path / "run" / "report.html").is_file()
    assert "The promise held" in said[3]


def test_the_python_of_the_pages_is_that_of_the_readme():
    """Which `test_package` runs: a page with a block of its own would not be run."""
    for name in ("index.md", "start.md", "which_method.md"):
        text = (DOCS / name).read_text("utf-8")
        assert not re.search(r"^```python", text, re.MULTILINE)
        assert (name == "which_method.md") or "{literalinclude} ../README.md\n:language: python\n" in text


@pytest.mark.parametrize("name", ["balance", "tree"])
def test_drawn_pictures_come_in_light_and_dark(name):
    light, dark = ((DOCS / "images" / f"{name}{ending}.svg").read_text("utf-8") for ending in ("", "-dark"))
    without_colors = [re.sub(r"#[0-9a-f]{6}\b", "", text) for text in (light, dark)]
    assert without_colors[0] == without_colors[1]
    assert light != dark
    assert "prefers-reduced-motion" in light or "animation" not in light


def test_the_tree_is_the_one_that_is_drawn():
    sys.path.insert(0, str(DOCS))
    import draw_tree

    for ending, colors in (("", draw_tree.LIGHT), ("-dark", draw_tree.DARK)):
        drawn = (DOCS / "images" / f"tree{ending}.svg").read_text("utf-8")
        assert drawn == draw_tree.svg(colors), "run: python docs/make_pictures.py"
