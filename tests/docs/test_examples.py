"""Every example of the gallery runs at its small size, says something, draws something, and leaves nothing behind."""

import ast
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from steelyard.datasets import data_folder
from tests.test_package import imported

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WITHOUT_PICTURE = {"13_lightning.py", "14_trainer.py"}
OPTIONAL = {"matplotlib", "torch", "lightning", "transformers", "pandas", "dask", "distributed"}
COLORS = {"#64748b", "#c2410c", "#0f766e"}


def names(paths):
    return [path.name for path in paths]


@pytest.mark.parametrize("path", EXAMPLES, ids=names(EXAMPLES))
def test_an_example_runs(path, monkeypatch, tmp_path, capsys):
    needs = {*imported(path)}
    for name in sorted(OPTIONAL & needs):
        pytest.importorskip(name, reason=f"{name} is not installed; the example needs it")
    if "wine" in path.name and not (data_folder() / "wine_quality_red.csv").is_file():
        pytest.skip(f"the published tables of wine quality are not in {data_folder()} (set STEELYARD_DATA)")
    if {"lightning", "transformers"} & needs:
        warnings.simplefilter("ignore")  # they warn of their own plans, and advise
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.delenv("DISPLAY", raising=False)  # with one, plt.show() warns that Agg shows nothing
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.chdir(tmp_path)
    before = files_of_checkout()
    figures = run(path)
    assert len(capsys.readouterr().out.splitlines()) >= 1
    assert figures == 0 if path.name in WITHOUT_PICTURE else 1 <= figures <= 2
    assert [*tmp_path.iterdir()] == []
    assert files_of_checkout() == before


def run(path):
    """Run an example as a terminal would; the number of its figures."""
    if path.name in WITHOUT_PICTURE:
        runpy.run_path(str(path), run_name="__main__")
        return 0
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    plt.close("all")
    try:
        runpy.run_path(str(path), run_name="__main__")
        figures = [plt.figure(number) for number in plt.get_fignums()]
        for axes in (axes for figure in figures for axes in figure.axes if axes.axison):
            assert axes.get_ylabel() or axes.get_yticklabels()
            assert axes.get_xlabel() or axes.get_xticklabels()
        return len(figures)
    finally:
        plt.close("all")


def files_of_checkout():
    """Files that are neither committed nor compiled."""
    folders = [ROOT / "examples", ROOT / "docs"]
    return {file for folder in folders for file in folder.rglob("*") if "__pycache__" not in file.parts}


@pytest.mark.parametrize("path", EXAMPLES, ids=names(EXAMPLES))
def test_an_example_is_a_short_story(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    docstring = ast.get_docstring(ast.parse(text))
    title, underline, *_ = docstring.splitlines()
    assert underline == "=" * len(title)
    assert re.search(r"(takes about (two|three|four|five|six|eight|ten|fifteen) seconds)", " ".join(docstring.split()))
    assert '"--full" in sys.argv' in text
    assert set(re.findall(r'"(#[0-9a-f]{6})"', text)) <= COLORS


def test_the_stories_are_numbered():
    assert [path.name[:2] for path in EXAMPLES] == [f"{i:02}" for i in range(1, len(EXAMPLES) + 1)]


def test_without_the_data_an_example_says_so(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; the example needs it")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "02_red_to_white_wine.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"STEELYARD_DATA": str(tmp_path), "MPLBACKEND": "Agg"},
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "wine_quality_red.csv is not in" in done.stderr
    assert len(done.stderr.splitlines()) == 1
