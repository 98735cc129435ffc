"""Table 7, tiny: columns that need no network against the survey's, and networks that are trained once."""

import io

import numpy as np
import pytest
from rich.console import Console

from experiments import gasoline, gasoline_cells, gasoline_networks
from experiments.engine.cells import Cell
from experiments.engine.command import Options, reproduce
from experiments.engine.printed import printed
from experiments.gasoline_cells import Data, Method
from steelyard.datasets import load_gasoline
from steelyard.errors import DataNotFoundError

try:
    load_gasoline()
except DataNotFoundError as error:
    pytest.skip(str(error), allow_module_level=True)

SETTINGS = {"epochs": 2, "every": 1, "every_of_ours": 1, "seeds": 1, "average": 2, "rounds": 1}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def column(method, country):
    return [gasoline_cells.compute(Cell(Data(country), Method(method), split), SETTINGS, 0) for split in range(10)]


@pytest.mark.parametrize("country", gasoline.CODES)
def test_target_only_is_the_survey_s_column(country):
    """Mean and standard error to 0.01, which fixes predictor, width, λ, splits and normaliser."""
    found, theirs = column("TarOnly", country), printed(gasoline.EXPERIMENT)[Data(country), Method("TarOnly")]
    assert np.mean(found) == pytest.approx(theirs.mean, abs=0.0101)
    assert np.std(found, ddof=1) / np.sqrt(10) == pytest.approx(theirs.sd, abs=0.0101)


def test_source_and_target_is_near_the_survey_s_column():
    paper = printed(gasoline.EXPERIMENT)
    near = [
        abs(np.mean(column("S&TV", country)) / paper[Data(country), Method("S&TV")].mean - 1) <= 0.1
        for country in gasoline.CODES
    ]
    assert sum(near) >= 17


def test_whole_table_tiny(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed; the networks need it")
    pytest.importorskip("matplotlib", reason="matplotlib (needed by the pictures of the experiments) is not installed")
    monkeypatch.setattr(gasoline, "CODES", ("GBR", "USA"))
    monkeypatch.setattr(gasoline_networks, "SPLITS", 2)
    monkeypatch.setattr(gasoline_networks, "CONFIGURATIONS", [(3, 0.01)])
    monkeypatch.setattr(gasoline_networks, "countries", lambda: ["GBR", "USA"])

    def run():
        console = Console(record=True, width=220, file=io.StringIO())
        given = [f"{name}={value}" for name, value in SETTINGS.items()]
        reproduce("gasoline", Options(tmp_path, 2, changed=given), console)
        return console.export_text()

    text = run()
    assert "Prop, authors' choices" in text
    assert "1.60 (0.42)" in text  # the survey's
    folders = sorted((tmp_path / "cache" / "steelyard" / "gasoline").iterdir())
    assert len(folders) == 13  # three of each mode and control, one without the leak
    assert "0 to compute" in run()
    (page,) = (tmp_path / "gasoline").glob("*.md")
    slug = page.stem.removeprefix("variant_")
    for picture in ("inflated", "gains"):
        assert (tmp_path / "gasoline" / f"{slug}_{picture}.png").stat().st_size > 5000


def test_networks_of_a_cell_are_those_of_its_country_and_split(monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed; the networks need it")
    monkeypatch.setattr(gasoline_networks, "CONFIGURATIONS", [(3, 0.01), (4, 0.1)])
    monkeypatch.setattr(gasoline_networks, "countries", lambda: ["GBR", "USA", "JPN"])
    one, other = (gasoline_networks.networks("authors", 1, "USA", split, SETTINGS, 0) for split in (3, 4))
    assert len(one) == 2  # checkpoints
    assert one[0].center.shape[0] == 2  # configurations
    assert not np.allclose(one[0].change.detach(), other[0].change.detach())
    again = gasoline_networks.networks("authors", 1, "USA", 3, SETTINGS, 0)
    np.testing.assert_array_equal(one[1].change.detach(), again[1].change.detach())
    shared = [gasoline_networks.networks("ours", 1, "JPN", split, SETTINGS, 0) for split in (0, 5)]
    np.testing.assert_array_equal(shared[0][1].change.detach(), shared[1][1].change.detach())
    untrained = gasoline_networks.networks("untrained", 1, "JPN", 0, SETTINGS, 0)
    assert len(untrained) == 1
    assert untrained[0].center.shape[0] == 2 * 2  # as many as two configurations at two checkpoints
    assert not untrained[0].weight2.detach().any()


def test_random_splits_after_the_published_ones():
    years = [gasoline_cells.chosen_years("AUT", trial, 0) for trial in (0, 1000, 1000, 1001)]
    assert all(chosen.sum() == 6 for chosen in years)
    np.testing.assert_array_equal(years[1], years[2])
    assert not np.array_equal(years[1], years[3])
