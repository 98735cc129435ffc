"""Every public estimator that was fitted, and every public result, in a notebook and in a terminal."""

import dataclasses
import importlib
import os
import pickle
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge

for package in ("torch", "pyvinecopulib", "clarabel", "lightning", "transformers"):
    pytest.importorskip(package, reason=f"{package} is not installed; some public estimators need it")

import torch

import steelyard
from steelyard import Target
from steelyard.report.notebook import ShowsFit

ROOT = Path(__file__).parents[2]
PACKAGES = runpy.run_path(str(ROOT / "docs" / "make_api.py"))["PACKAGES"]
PUBLIC = {
    name: value
    for package in PACKAGES
    for name in importlib.import_module(package).__all__
    if isinstance(value := getattr(importlib.import_module(package), name), type)
}
ESTIMATORS = {name: cls for name, cls in PUBLIC.items() if issubclass(cls, BaseEstimator)}
# Arguments that an estimator needs, or that make its fit quick.
ARGUMENTS = {
    "WeightedRegressor": {"estimator": Ridge(), "ratio": steelyard.ULSIF(random_state=0)},
    "WeightedClassifier": {"estimator": LogisticRegression(), "ratio": steelyard.ULSIF(random_state=0)},
    "StackedRegressor": {"estimators": [("<ridge>", Ridge()), ("flat", Ridge(alpha=1e3))]},
    "StackedClassifier": {"estimators": [("logistic", LogisticRegression()), ("flat", LogisticRegression(C=1e-3))]},
    "ImportanceWeightedSearchCV": {
        "estimator": steelyard.WeightedRegressor(Ridge(), steelyard.ULSIF(random_state=0)),
        "param_grid": {"flattening": [0, 0.5, 1]},
        "ratio": steelyard.ULSIF(random_state=0),
    },
    "DynamicWeightedClassifier": {"module": torch.nn.Linear(2, 2), "epochs": 3, "batch_size": 32},
    "NonlinearICA": {"epochs": 2, "n_starts": 2},
    "CausalTransferRegressor": {"epochs": 2, "n_seeds": 1, "fallback": False},
    "TwoStageTrAdaBoostR2": {"n_steps": 3},
}


def made(name):
    cls, arguments = ESTIMATORS[name], dict(ARGUMENTS.get(name, {}))
    known = cls._get_param_names()
    return cls(**arguments, **{key: value for key, value in (("random_state", 0), ("progress", False)) if key in known})


def fitted(name):
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(120, 2)), rng.normal(0.4, 1, (60, 2))
    y, y_target = (rows.sum(axis=1) + 0.1 * rng.normal(size=len(rows)) for rows in (X, X_target))
    domain, model = np.arange(120) % 4, made(name)
    if name in ("NonlinearICA",):
        return model.fit(np.column_stack([X, y]), domain=domain)
    if name == "CausalTransferRegressor":
        return model.fit(X, y, domain=domain, target=Target(X_target[:8], y_target[:8]))
    if type(model).__module__.startswith("steelyard.baselines"):
        return model.fit(X, y, target=Target(X_target[:8], y_target[:8]))
    if name.endswith("Classifier"):
        y, y_target = y > 0, y_target > 0
    if name == "DynamicWeightedClassifier":
        return model.fit(X.astype(np.float32), y, target=Target(X_target.astype(np.float32), y_target))
    return model.fit(X, y, target=Target(X_target))


def words_of(html):
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_fitted_estimator_says_what_it_found(name):
    assert isinstance(made(name), ShowsFit)
    assert "\n  " not in str(made(name)).replace(repr(made(name)), "")  # nothing is found before the fit
    model = fitted(name)
    html, printed = model._repr_html_(), str(model)
    assert "sk-top-container" in html  # the diagram of scikit-learn
    assert '<div class="steelyard">' in html
    assert printed.startswith(repr(model))
    found = model._shown()
    assert found, "it says nothing of its fit"
    for key, value in found.items():
        assert " ".join(f"{key}: {value}".split()) in " ".join(printed.split())
        assert key.replace("<", "&lt;").replace(">", "&gt;") in html
    assert max(map(len, printed.splitlines())) <= 120
    assert len(printed.splitlines()) <= 30
    assert str(pickle.loads(pickle.dumps(model))) == printed


def test_what_each_kind_says():
    for name, said in {
        "KMM": r"certificate: solved in \d+ iterations: relative gap \S+, residuals",
        "AutoRatio": r"shares: \w.* \d+%",
        "StackedRegressor": r"shares: <?\w.* \d+%",
        "ImportanceWeightedSearchCV": r"chosen: flattening=[\d.]+\n(.|\n)*candidate \d: flattening=.*: -\S+ ± \d",
        "OneStepRegressor": r"bound of the risk: at most \S+ with probability 0.95 \(it says nothing",
        "DynamicWeightedClassifier": r"epochs: 3, with loss \S+ in the first and \S+ in the last",
    }.items():
        assert re.search(said, str(fitted(name))), name


def test_names_are_escaped():
    html = fitted("StackedRegressor")._repr_html_()
    assert "&lt;ridge&gt;" in html.partition('<div class="steelyard">')[2]


class Untouchable:
    """Weights that are not computed yet, and must stay so; scikit-learn's diagram shows their type and shape."""

    shape, dtype = (120,), np.dtype(float)

    def __repr__(self):
        return "weights that are not computed"

    def __array__(self, *arguments, **keywords):
        raise AssertionError("the weights were computed")

    __iter__ = __len__ = __getitem__ = compute = __array__


def test_nothing_lazy_is_computed_and_a_broken_fit_shows_nothing():
    model = fitted("WeightedRegressor")
    model.weights_ = Untouchable()
    assert "Histogram" not in model._repr_html_()
    assert "effective sample size" in str(model)
    del model.estimator_
    assert str(model) == repr(model)


def results():
    source, target = np.random.default_rng(0).normal(size=(2, 80, 2)) + np.array([0, 0.5])[:, None, None]
    ratio = steelyard.KMM(random_state=0).fit(source, target=target)
    model = fitted("WeightedRegressor")
    one_step = fitted("OneStepRegressor")
    from steelyard.diagnostics import diagnose_pair
    from steelyard.tables import as_frame, encode_pair

    pair = encode_pair(as_frame(source), as_frame(target))
    return {
        "Balance": ratio.balance_,
        "Certificate": ratio.certificate_,
        "Findings": steelyard.diagnose(source, target=target),
        "Diagnosis": diagnose_pair(pair),
        "Performance": steelyard.target_performance(model, source, source.sum(axis=1), target=target),
        "RiskBound": one_step.risk_bound(),
        "TablePair": pair,
        "Frame": pair.source,
    }


@pytest.fixture(scope="module")
def shown():
    return results()


@pytest.mark.parametrize("name", ["Balance", "Certificate", "Findings", "Diagnosis", "Performance"])
def test_results_show_themselves(shown, name):
    html = shown[name]._repr_html_()
    assert "<table>" in html
    assert "<script" not in html
    said = {"Balance": "before", "Certificate": "relative gap", "Performance": "95 % interval"}
    assert said.get(name, "corrected p") in words_of(html)


@pytest.mark.parametrize("name", ["Balance", "Certificate", "Findings", "Diagnosis", "Performance", "RiskBound"])
def test_results_print_in_a_few_lines(shown, name):
    lines = repr(shown[name]).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 300
    assert "array(" not in repr(shown[name])


@pytest.mark.parametrize("name", sorted(name for name, cls in PUBLIC.items() if dataclasses.is_dataclass(cls)))
def test_no_public_result_prints_whole_arrays(name):
    """A data class that holds tables writes a line of its own instead of the one of data classes."""
    fields = [field for field in dataclasses.fields(PUBLIC[name]) if re.search("Array|Tensor|Frame", str(field.type))]
    own = PUBLIC[name].__repr__.__qualname__ != "__create_fn__.<locals>.__repr__"
    assert own or not fields, fields


def test_short_repr():
    from steelyard.datasets import gaussian_pair

    assert repr(gaussian_pair(30, 20, 2, random_state=0)).startswith(
        "GaussianPair(X=ndarray of shape (30, 2), X_target=ndarray of shape (20, 2), shift="
    )


CELLS = (
    "import warnings; warnings.simplefilter('ignore')\nfrom tests.report.test_notebook import fitted, results",
    "fitted('KMM')",
    "fitted('StackedRegressor')",
    "fitted('ImportanceWeightedSearchCV')",
    "fitted('OneStepRegressor')",
    "fitted('DynamicWeightedClassifier')",
    "print(fitted('AutoRatio'))",
    "shown = results(); shown['Findings']",
    "shown['Performance']",
    "shown['Balance']",
    "shown['Certificate']",
)


def test_a_notebook_shows_them(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed; a notebook needs it")
    nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed; it draws the notebook")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed; it runs the notebook")
    from nbconvert.preprocessors import ExecutePreprocessor

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    ExecutePreprocessor(timeout=300, kernel_name="python3").preprocess(notebook, {"metadata": {"path": str(tmp_path)}})
    html, _ = nbconvert.HTMLExporter(embed_images=True).from_notebook_node(notebook)
    (tmp_path / "notebook.html").write_text(html, "utf-8")
    assert html.count('<div class="steelyard">') == len(CELLS) - 2  # all but the imports and what is printed
    for words in ("shares", "candidate 0: flattening=0", "bound of the risk", "certificate", "mean squared error on"):
        assert words in html
