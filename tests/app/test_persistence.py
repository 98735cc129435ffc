"""Saved models: back as they were, and never more than they should be."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression, Ridge

from steelyard import OneStepClassifier, Target
from steelyard._threads import one_openmp_thread
from steelyard.app.commands import row_scores_of
from steelyard.app.fitting import compare_methods
from steelyard.app.persistence import TRUSTED, TableModel, load_model, model_files
from steelyard.errors import InputError, ModelError
from steelyard.stacking.learners import default_learners
from steelyard.tables import as_frame, encode_pair
from steelyard.tables.encoding import learn_encoding

ABOUT = {
    "method": "one-step",
    "plain_method": "linear, no weights",
    "kept_plain": False,
    "measure": "accuracy",
    "performance": {},
}


def table(seed=0, n=80):
    rng = np.random.default_rng(seed)
    city = rng.choice(["oslo", "rome"], n)
    return as_frame(pa.table({"x": rng.normal(size=n), "city": city}))


def saved(folder, model, classes=()):
    folder.mkdir(exist_ok=True)
    for name, content in model_files(model).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def model():
    frame = table()
    encoding = learn_encoding(frame, table(1))
    X = encoding.transform(frame)
    y = (X[:, 0] > 0).astype(int)
    chosen = OneStepClassifier(random_state=0).fit(X, y, target=encoding.transform(table(1)))
    plain = LogisticRegression().fit(X, y)
    return TableModel(encoding, chosen, plain, "y", ("no", "yes"), ABOUT)


def test_a_model_comes_back_as_it_was(model, tmp_path):
    again = load_model(saved(tmp_path / "run", model))
    new = model.encode(table(2))
    for plain in (False, True):
        np.testing.assert_array_equal(again.predict(new, plain=plain), model.predict(new, plain=plain))
    np.testing.assert_array_equal(again.probabilities(new), model.probabilities(new))
    assert set(again.predict(new)) <= {"no", "yes"}
    assert (again.label, again.classes, again.about["method"]) == ("y", ("no", "yes"), "one-step")


@pytest.mark.parametrize("classify", [False, True])
def test_everything_the_comparison_can_choose_is_trusted(classify):
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(60, 2)), rng.normal(0.5, 1, size=(50, 2))
    y = (X[:, 0] > 0).astype(int) if classify else X[:, 0]
    models = [compare_methods(X, y, X_target, classify=classify, shifted=True).fit().model]
    for n_rows in (60, 30_000):  # large tables have learners of their own
        for name, learner in default_learners(classify, n_rows):
            if name == "forest" and n_rows > 60:
                learner.set_params(max_samples=20)
            with one_openmp_thread():
                models.append(learner.fit(X, y, **({"target": Target(X_target)} if name == "one-step" else {})))
    for model in models:
        data = skops.io.dumps(model)
        wanted = skops.io.get_untrusted_types(data=data)
        assert set(wanted) <= set(TRUSTED)
        loaded = skops.io.loads(data, trusted=wanted)
        np.testing.assert_array_equal(loaded.predict(X_target), model.predict(X_target))


def test_a_model_that_wants_other_types_is_not_loaded(model, tmp_path):
    folder = saved(tmp_path / "run", model)

    import subprocess

    evil = {"model": subprocess.Popen, "plain": Ridge(), "text": {}}
    (folder / "model.skops").write_bytes(skops.io.dumps(evil))
    with pytest.raises(ModelError, match=r"holds types that no model of steelyard has: \['subprocess.Popen'\]"):
        load_model(folder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.json", b"{", "cannot be read"),
        ("model.json", b"[]", "cannot be read"),
        ("model.json", b'{"format": 99}', "has format 99; this version reads 4"),
        ("model.json", b'{"format": 4, "label": "y"}', "lacks .*'method'"),
        ("model.skops", b"PK garbage", "cannot be read"),
        ("model.skops", None, "There is no"),
    ],
)
def test_damage_is_said(model, tmp_path, file, content, message):
    folder = saved(tmp_path / "run", model)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


@pytest.mark.parametrize("torn", ["model.skops", "model.json"])
def test_files_of_two_runs_are_not_one_model(model, tmp_path, torn):
    """A refit with the classes the other way round: taken together, its files would turn every prediction round."""
    folder = saved(tmp_path / "run", model)
    (folder / torn).write_bytes(model_files(replace(model, classes=("yes", "no")))[torn])
    with pytest.raises(ModelError, match=r"model\.json is not the one that model\.skops was saved with.*fit again"):
        load_model(folder)


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(ModelError, match=r"There is no .*run/model\.skops\. Give the folder"):
        load_model(tmp_path / "run")


def test_the_description_is_readable(model, tmp_path):
    described = json.loads((saved(tmp_path / "run", model) / "model.json").read_text())
    assert [c["name"] for c in described["columns"]] == ["x", "city"]
    assert described["classes"] == ["no", "yes"]


def test_unknown_classes_are_named():
    frame = as_frame(pa.table({"x": [0.0, 1.0, 2.0], "y": ["yes", "maybe", "no"]}))
    pair = encode_pair(frame.without("y"), frame.without("y"))
    plain = LogisticRegression().fit(pair.X, [1, 0, 0])
    model = TableModel(pair.encoding, plain, plain, "y", ("no", "yes"), {})
    with pytest.raises(InputError, match=r"t\.csv, column 'y' holds .* has not seen: maybe\. It knows no, yes"):
        row_scores_of(model, pair.X, frame["y"], plain=False, table="t.csv")


def test_a_text_column_survives(tmp_path):
    pytest.importorskip("skrub", reason="skrub is not installed; text columns are pooled without it")
    rng = np.random.default_rng(0)
    words = ["nurse", "teacher", "engineer", "clerk", "senior", "junior", "night", "lead", "data", "sales"]
    jobs = [" ".join(rng.choice(words, 3)) for _ in range(200)]
    frame = as_frame(pa.table({"job": jobs, "x": rng.normal(size=200)}))
    encoding = learn_encoding(frame, frame)
    assert encoding.codes[0].kind == "text"
    X = encoding.transform(frame)
    y = np.array(["nurse" in job for job in jobs]).astype(float)
    fitted = Ridge().fit(X, y)
    assert fitted.score(X, y) > 0.5  # one pooled column could not know
    model = TableModel(encoding, fitted, fitted, "y", (), ABOUT)
    again = load_model(saved(tmp_path / "run", model))
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-12)


def test_without_skrub_text_is_pooled(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "skrub", None)
    frame = as_frame(pa.table({"job": [f"job {i}" for i in range(200)]}))
    encoding = learn_encoding(frame, frame)
    assert encoding.feature_names == ["job = (other)"]
