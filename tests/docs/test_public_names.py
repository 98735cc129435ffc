"""Code that is a public name leads to the page of that name, and to no other."""

import sys
from pathlib import Path

import pytest

for package in ("sphinx", "torch", "lightning", "transformers"):
    pytest.importorskip(package, reason=f"{package} is not installed; the site is built with it")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))
from public_names import page_of, pages_of_names


@pytest.mark.parametrize(
    ("written", "page", "target"),
    [
        ("KMM", "glossary", "api/generated/steelyard.KMM"),
        ("steelyard.ratio.default_ratio", "glossary", "api/generated/steelyard.ratio.default_ratio"),
        ("deep.DynamicWeights", "index", "api/generated/steelyard.deep.DynamicWeights"),
        ("one_step", "architecture", "api/steelyard.one_step"),
        ("one_step", "api/steelyard.deep.training", "api/generated/steelyard.deep.training.one_step"),
        ("train", "api/generated/steelyard.deep.training.TrainingRun", "api/generated/steelyard.deep.training.train"),
        ("train", "guide/index", None),
        ("ratio", "guide/index", None),  # mostly the parameter
        ("render", "guide/index", None),
        ("render", "api/steelyard.report", "api/generated/steelyard.report.render"),
        ("diagnose", "start", "api/generated/steelyard.diagnose"),
        ("weights_", "start", None),
    ],
)
def test_a_name_leads_to_its_page(written, page, target):
    assert page_of(written, page, pages_of_names()) == target
