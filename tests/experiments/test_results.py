"""The results that are part of the repository: small, with plain names, and rebuilt from the stored trials."""

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from experiments import EXPERIMENTS, STUDIES
from experiments.engine.command import Options, Run

RESULTS = Path(__file__).parents[2] / "results"
pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of this copy of the package")
MOST_BYTES = 8_000_000
PAGES = [
    (name, int(seed), entry)
    for name, experiment in EXPERIMENTS.items()
    if (RESULTS / experiment.folder / "provenance.json").exists()
    for about in json.loads((RESULTS / experiment.folder / "provenance.json").read_text())["settings"].values()
    for seed, entry in about["seeds"].items()
]


def files():
    return [path for path in RESULTS.rglob("*") if path.is_file() and ".work" not in path.parts]


def test_names_are_ascii_and_the_folder_is_small():
    assert all(str(path.relative_to(RESULTS)).isascii() for path in files())
    assert sum(path.stat().st_size for path in files()) <= MOST_BYTES


def test_every_table_has_its_folder():
    names = {"README.md", "table.csv", "trials.csv", "provenance.json"}
    for experiment in EXPERIMENTS.values():
        there = {path.name for path in (RESULTS / experiment.folder).iterdir()}
        assert names <= there
        assert not {path for path in there if path.endswith((".sqlite", ".json", ".npz"))} - {
            "provenance.json",
            "curves.npz",
        }
    folders = {path.name for path in RESULTS.iterdir() if path.is_dir()}
    known = {each.folder for each in (*EXPERIMENTS.values(), *STUDIES.values())}
    assert folders == known | {"benchmarks"}


@pytest.mark.parametrize(("name", "seed", "entry"), PAGES, ids=lambda value: str(value)[:40] if value else "0")
def test_every_page_is_rebuilt_from_the_stored_trials(name, seed, entry, tmp_path):
    """Page, table, trials and provenance byte for byte; pictures by their names."""
    folder = RESULTS / EXPERIMENTS[name].folder
    kept = (".work", "*.png")
    shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns(*kept))
    (tmp_path / folder.name / entry["page"]).unlink()
    first, last = entry["trials"]
    changed = [f"{key}={value}" for key, value in entry["changed"].items()]
    options = Options(out=tmp_path, trials=last - first + 1, first_trial=first, seed=seed, changed=changed)
    run = Run(EXPERIMENTS[name], options, entry["changed"], Console(file=io.StringIO(), width=200))
    run.page(draw=False)
    for path in folder.iterdir():
        if path.is_file() and path.suffix != ".png":
            assert (tmp_path / folder.name / path.name).read_bytes() == path.read_bytes(), path.name
    shown = [line.split("](")[1][:-1] for line in (folder / entry["page"]).read_text().splitlines() if line[:2] == "!["]
    assert all((folder / picture).stat().st_size > 5000 for picture in shown)


def test_every_picture_is_shown_on_a_page():
    for each in (*EXPERIMENTS.values(), *STUDIES.values()):
        folder = RESULTS / each.folder
        text = "".join(path.read_text() for path in folder.glob("*.md"))
        assert all(f"({path.name})" in text for path in folder.glob("*.png"))
