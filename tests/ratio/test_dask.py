"""Fits to Dask collections, on real clusters of processes."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from steelyard import (
    KLIEP,
    KMM,
    LSIF,
    RULSIF,
    ULSIF,
    AutoRatio,
    ClassifierRatio,
    ImportanceWeightedSearchCV,
    StackedRegressor,
    Target,
    WeightedClassifier,
    WeightedRegressor,
)
from steelyard.datasets import gaussian_pair
from steelyard.errors import ClusterError, ColumnMismatchError, InputError, InputTypeError, NotFiniteError

da = pytest.importorskip("dask.array", reason="Dask is not installed (the extra distributed)")
distributed = pytest.importorskip("distributed", reason="distributed is not installed (the extra distributed)")
import dask.dataframe as dd
import pandas as pd

# Dask's own: sockets that are closed late, and its note on the port of a dashboard.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PAIR = gaussian_pair(6000, 4000, 2, random_state=0)
SOURCE, TARGET = da.from_array(PAIR.X, chunks=(701, 1)), da.from_array(PAIR.X_target, chunks=(903, 2))
RATIOS = {
    "ULSIF": lambda: ULSIF(random_state=0),
    "RULSIF": lambda: RULSIF(0.3, random_state=0),
    "LSIF": lambda: LSIF(random_state=0),
    "KLIEP": lambda: KLIEP(random_state=0),
    "ClassifierRatio": lambda: ClassifierRatio(random_state=0),
    "AutoRatio": lambda: AutoRatio(random_state=0),
}


def two_workers():
    return distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")


@pytest.fixture(scope="module")
def client():
    with two_workers() as cluster, distributed.Client(cluster) as client:
        yield client


def in_blocks(name):
    fit = RATIOS[name]().fit([PAIR.X], target=[PAIR.X_target])
    return fit, np.concatenate(list(fit.weights_))


@pytest.mark.parametrize("name", RATIOS)
def test_threads_give_the_fit_of_one_process(name):
    expected, weights = in_blocks(name)
    fit = RATIOS[name]().fit(SOURCE, target=Target(TARGET))
    assert fit.weights_.chunks == (SOURCE.chunks[0],)
    np.testing.assert_allclose(fit.weights_.compute(), weights, rtol=1e-8)
    np.testing.assert_allclose(fit.predict(SOURCE).compute(), expected.predict(PAIR.X), rtol=1e-8)
    assert fit.effective_sample_size_ == pytest.approx(expected.effective_sample_size_)


@pytest.mark.parametrize("name", ["ULSIF", "ClassifierRatio"])
def test_two_workers_give_the_coefficients_of_one_process(name, client):
    expected, weights = in_blocks(name)
    fit = RATIOS[name]().fit(SOURCE, target=TARGET)
    np.testing.assert_allclose(fit.weights_.compute(), weights, rtol=1e-8)
    if name == "ULSIF":
        np.testing.assert_allclose(fit.coef_, expected.coef_, rtol=1e-8, atol=1e-12)


class Deadly:
    """Kills its process when it sees the block with a given first value for the second time: in the second pass."""

    def __init__(self, value, folder):
        self.value, self.folder = value, folder

    def __call__(self, block):
        if len(block) and block[0, 0] == self.value:
            seen = len(list(Path(self.folder).iterdir()))
            (Path(self.folder) / str(seen)).touch()
            if seen == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return block


def test_a_worker_that_is_killed_is_replaced_and_the_result_is_the_same(tmp_path):
    expected, _ = in_blocks("ULSIF")
    with two_workers() as cluster, distributed.Client(cluster):
        whole = da.from_array(PAIR.X, chunks=(700, 2))
        source = whole.map_blocks(Deadly(PAIR.X[1400, 0], str(tmp_path)), dtype=float, meta=np.zeros((0, 2)))
        fit = ULSIF(random_state=0).fit(source, target=TARGET)
    assert len(list(tmp_path.iterdir())) > 2  # the process died in the second pass, and the block was read again
    np.testing.assert_allclose(fit.coef_, expected.coef_, rtol=1e-8, atol=1e-12)


def test_data_frames_are_matched_by_column_name():
    frame = dd.from_pandas(pd.DataFrame(PAIR.X, columns=["a", "b"]), npartitions=5, sort=False)
    target = dd.from_pandas(pd.DataFrame(PAIR.X_target, columns=["a", "b"])[["b", "a"]], npartitions=3, sort=False)
    _, weights = in_blocks("ULSIF")
    fit = ULSIF(random_state=0).fit(frame, target=target)
    np.testing.assert_allclose(fit.weights_.compute(), weights, rtol=1e-8)
    with pytest.raises(ColumnMismatchError, match=r"Missing: \['b'\]"):
        ULSIF().fit(frame, target=target[["a"]])


def test_partitions_of_unknown_length_and_empty_ones():
    _, weights = in_blocks("ULSIF")
    frame = dd.from_pandas(pd.DataFrame(PAIR.X, columns=["a", "b"]), npartitions=4, sort=False)
    rows = frame.to_dask_array()
    assert np.isnan(rows.shape[0])
    fit = ULSIF(random_state=0).fit(rows, target=TARGET)
    np.testing.assert_allclose(fit.weights_.compute(), weights, rtol=1e-8)
    with_empty = da.concatenate([SOURCE[:0], SOURCE[:3000], SOURCE[:0], SOURCE[3000:]])
    fit = ULSIF(random_state=0).fit(with_empty, target=TARGET)
    np.testing.assert_allclose(fit.weights_.compute(), weights, rtol=1e-8)


class LeastSquares(RegressorMixin, BaseEstimator):
    """Weighted least squares from sums, as an estimator that trains from Dask data."""

    def fit(self, X, y, sample_weight):
        weighted = X * sample_weight[:, None]
        self.coef_ = np.linalg.solve((weighted.T @ X).compute(), (weighted.T @ y).compute())
        return self

    def predict(self, X):
        return X @ self.coef_


@pytest.mark.parametrize("flattening", [0.5, 1.0])
def test_lazy_weights_are_those_of_one_process(flattening):
    y = np.sin(PAIR.X.sum(axis=1))
    model = WeightedRegressor(LeastSquares(), ratio=ULSIF(random_state=0), flattening=flattening)
    model.fit(SOURCE, da.from_array(y, chunks=701), target=TARGET)
    weights = in_blocks("ULSIF")[1] ** flattening
    np.testing.assert_allclose(model.weights_.compute(), weights / weights.mean(), rtol=1e-8)
    assert model.effective_sample_size_ == pytest.approx(weights.sum() ** 2 / np.square(weights).sum(), rel=1e-8)
    expected = np.linalg.lstsq(PAIR.X * np.sqrt(weights)[:, None], y * np.sqrt(weights), rcond=None)[0]
    np.testing.assert_allclose(model.predict(SOURCE).compute(), PAIR.X @ expected, atol=1e-8)


def test_an_estimator_that_trains_from_dask_gets_lazy_weights(client):
    xgboost_dask = pytest.importorskip("xgboost.dask", reason="XGBoost is not installed (xgboost-cpu)")
    from xgboost import XGBRegressor

    y = np.sin(PAIR.X.sum(axis=1))
    settings = {"n_estimators": 20, "max_depth": 3, "tree_method": "hist"}
    model = WeightedRegressor(xgboost_dask.DaskXGBRegressor(**settings), ratio=ULSIF(random_state=0))
    rows = SOURCE.rechunk((701, 2))
    model.fit(rows, da.from_array(y, chunks=701), target=TARGET)
    weights = in_blocks("ULSIF")[1]
    assert isinstance(model.weights_, da.Array)
    np.testing.assert_allclose(model.weights_.compute(), weights, rtol=1e-8)
    found = model.predict(rows).compute()
    weighted, plain = (
        XGBRegressor(**settings).fit(PAIR.X, y, sample_weight=w).predict(PAIR.X) for w in (weights, np.ones(6000))
    )
    # Bins of the columns differ a little between one table and its parts.
    assert np.mean(np.abs(found - weighted)) < 0.7 * np.mean(np.abs(found - plain))


def test_a_classifier_that_trains_from_dask_gives_lazy_probabilities(client):
    xgboost_dask = pytest.importorskip("xgboost.dask", reason="XGBoost is not installed (xgboost-cpu)")
    y = (np.sin(PAIR.X.sum(axis=1)) > 0).astype(int)
    estimator = xgboost_dask.DaskXGBClassifier(n_estimators=10, max_depth=3, tree_method="hist")
    rows = SOURCE.rechunk((701, 2))
    model = WeightedClassifier(estimator, ratio=ULSIF(random_state=0))
    model.fit(rows, da.from_array(y, chunks=701), target=TARGET)
    probabilities = model.predict_proba(rows)
    assert isinstance(probabilities, da.Array)
    np.testing.assert_array_equal(probabilities.compute().argmax(axis=1), model.predict(rows).compute())
    assert model.score(rows, y) > 0.9


def test_the_search_and_stacking_run_on_a_cluster(client):
    import joblib
    from sklearn.linear_model import Ridge

    X, target = PAIR.X[:200], Target(PAIR.X_target[:200])
    y = np.sin(X.sum(axis=1))
    model = WeightedRegressor(Ridge(), ratio=ULSIF(random_state=0))
    search = ImportanceWeightedSearchCV(model, {"flattening": [0, 0.5, 1]}, n_jobs=2)
    stacked = StackedRegressor([("a", Ridge()), ("b", Ridge(100.0))], ratio=ULSIF(random_state=0), n_jobs=2)
    with joblib.parallel_config(backend="dask"):
        scores = search.fit(X, y, target=target).cv_results_["mean_test_score"]
        predictions = stacked.fit(X, y, target=target).predict(X)
    np.testing.assert_allclose(scores, search.fit(X, y, target=target).cv_results_["mean_test_score"], rtol=1e-9)
    np.testing.assert_allclose(predictions, stacked.fit(X, y, target=target).predict(X), rtol=1e-9)


def test_bad_collections():
    late = PAIR.X.copy()
    late[5000, 1] = np.nan
    with pytest.raises(NotFiniteError, match=r"source contains NaN in row 5,001 \(counted from 1\), column 1"):
        ULSIF().fit(da.from_array(late, chunks=(700, 2)), target=TARGET)
    with pytest.raises(ColumnMismatchError, match="target: X has 1 features"):
        ULSIF().fit(SOURCE, target=TARGET[:, :1])
    with pytest.raises(InputError, match="source: there is no row in 1 partition"):
        ULSIF().fit(SOURCE[:0], target=TARGET)
    with pytest.raises(InputTypeError, match="KMM needs its rows in memory"):
        KMM().fit(SOURCE, target=TARGET)
    text = dd.from_pandas(pd.DataFrame({"a": ["x", "y"] * 10}), npartitions=2)
    with pytest.raises(InputError, match="Every block needs rows and columns of numbers"):
        ULSIF().fit(text, target=text)
    from sklearn.linear_model import Ridge

    with pytest.raises(InputTypeError, match="Dask data take no sample_weight"):
        WeightedRegressor(Ridge()).fit(SOURCE, SOURCE[:, 0], target=TARGET, sample_weight=SOURCE[:, 0])


def test_a_cluster_that_goes_away_is_an_error_that_says_so():
    with two_workers() as cluster:
        client = distributed.Client(cluster)
        held = client.persist(SOURCE)
        distributed.wait(held)
    fit = ULSIF()
    with pytest.raises(ClusterError, match="lost with the cluster"):
        fit.fit(held, target=TARGET)
    assert not hasattr(fit, "coef_")
    client.close()
