"""`steelyard fit` fits every density ratio once: nothing is computed twice for the same rows and seed."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from steelyard.app import fitting, workflow
from steelyard.ratio._base import RatioEstimator
from steelyard.stacking.held_out import predict_held_out
from steelyard.tables import as_frame, encoding


def frames(n_rows, classify=False):
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(n_rows, 3)), rng.normal([0.8, 0.0, 0.0], 1, size=(n_rows, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n_rows)
    y = (y > 0).astype(float) if classify else y
    source = as_frame(np.column_stack([X, y]))
    return source, as_frame(np.column_stack([X_target, np.zeros(n_rows)])).without("x3")


@pytest.fixture
def fits(monkeypatch):
    """How often each ratio estimator, with its parameters, was fitted on the same rows."""
    found = Counter()
    fit = RatioEstimator.fit

    def counted(self, X, y=None, *, target=None, sample_weight=None):
        rows = np.ascontiguousarray(X), np.ascontiguousarray(getattr(target, "X", target))
        digest = hashlib.sha256(b"".join(part.tobytes() for part in rows)).hexdigest()
        found[type(self).__name__, repr(self.get_params()), digest] += 1
        return fit(self, X, y, target=target, sample_weight=sample_weight)

    monkeypatch.setattr(RatioEstimator, "fit", counted)
    # Processes of their own would not be counted.
    monkeypatch.setattr("steelyard.app.fitting.ENOUGH_FOR_PROCESSES", 10**9)
    return found


@pytest.mark.parametrize("classify", [False, True])
def test_no_ratio_is_fitted_twice_on_the_same_rows(fits, classify):
    run = workflow.fit_tables(*frames(400, classify), "x3", names=("s", "t"))
    assert run.comparison.weights_used
    assert sum(fits.values()) >= 3
    assert {key: count for key, count in fits.items() if count > 1} == {}


@pytest.mark.parametrize(("n_cores", "n_jobs"), [(1, 1), (3, 3), (64, 4)])
def test_a_large_machine_does_not_start_a_process_for_each_core(monkeypatch, n_cores, n_jobs):
    """Every process imports scikit-learn anew, for more than a second of computing."""
    asked = []

    def predicted(learners, data, folds, *, n_jobs):
        asked.append(n_jobs)
        return predict_held_out(learners, data, folds)

    monkeypatch.setattr(fitting, "ENOUGH_FOR_PROCESSES", 0)
    monkeypatch.setattr(fitting, "predict_held_out", predicted)
    monkeypatch.setattr("os.cpu_count", lambda: n_cores)
    monkeypatch.setattr("joblib.cpu_count", lambda: n_cores)
    workflow.fit_tables(*frames(100), "x3", names=("s", "t"), learners=("linear", "RBF"))
    assert asked == [n_jobs]


def test_tables_are_matched_and_encoded_once(monkeypatch):
    counts = Counter()

    def count(module, name):
        function = getattr(module, name)

        def counted(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    count(workflow, "match_frames")
    count(workflow, "encode_pair")
    count(encoding.Encoding, "transform")
    workflow.fit_tables(*frames(200), "x3", names=("s", "t"))
    assert counts == {"match_frames": 1, "encode_pair": 1, "transform": 2}  # source and target


def test_a_small_csv_file_is_opened_once(tmp_path, monkeypatch):
    import builtins

    import pyarrow as pa
    from pyarrow import csv

    from steelyard.tables import read_table

    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    opened = []
    plain_open, arrow_open = builtins.open, csv.open_csv
    monkeypatch.setattr(builtins, "open", lambda file, *a, **k: opened.append(file) or plain_open(file, *a, **k))

    def open_csv(place, *args, **kwargs):
        assert isinstance(place, pa.BufferReader)
        return arrow_open(place, *args, **kwargs)

    monkeypatch.setattr(csv, "open_csv", open_csv)
    assert len(read_table(path)) == 2
    assert opened == [path]
