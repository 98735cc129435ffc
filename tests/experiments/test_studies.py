"""Studies of one page: the page that is written, and the pages that are stored."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from experiments import STUDIES
from experiments.engine.cells import Setting
from experiments.engine.study import Study, run_study
from experiments.studies import cvxopt_weights, weights_on_tables
from experiments.studies.discrete_tables import ratio_of_counts, ten_cells
from steelyard import RULSIF, ULSIF
from steelyard.errors import DependencyError

RESULTS = Path(__file__).parents[2] / "results"


def test_a_study_writes_its_page(tmp_path):
    def page(settings, folder):
        assert folder.is_dir()
        return f"{settings['draws']} draws\n"

    study = Study("made-up", "A title", "An explanation.", page, {"draws": Setting(2, "how many")})
    console = Console(record=True, file=io.StringIO())
    run_study(study, {"draws": "5"}, tmp_path, console)
    text = "# A title\n\nAn explanation.\n\n5 draws\n\nMade by `python -m experiments made-up --set draws=5`.\n"
    assert (tmp_path / "made_up" / "README.md").read_text() == text
    assert "5 draws" in console.export_text()


@pytest.mark.parametrize("name", STUDIES)
def test_the_stored_page_is_of_the_study(name):
    page = RESULTS / STUDIES[name].folder / "README.md"
    if not page.exists():
        pytest.skip("the results are not part of this copy of the package")
    assert page.read_text().startswith(f"# {STUDIES[name].title}\n")


def test_without_cvxopt_its_study_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(cvxopt_weights, "AUTHORS_SOLVER", "piqp")
    with pytest.raises(DependencyError, match=r"pip install cvxopt==1\.3\.3"):
        cvxopt_weights.page({}, tmp_path)


def test_relative_weights_are_compared_with_the_relative_ratio():
    truth = ratio_of_counts(*ten_cells(0))
    np.testing.assert_array_equal(weights_on_tables.estimand(ULSIF(), truth), truth)
    relative = weights_on_tables.estimand(RULSIF(0.3), truth)
    assert relative.mean() == pytest.approx(1)
    assert relative.max() / relative[truth.argmin()] < truth.max() / truth.min()
    expected = truth / (0.7 + 0.3 * truth)
    np.testing.assert_allclose(relative, expected / expected.mean())
