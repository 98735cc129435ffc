"""Scores from tables of any length: an even sample of rows and the labels that belong to them."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

pd = pytest.importorskip("pandas", reason="pandas is not installed (the extra tables)")

from steelyard import ULSIF, TableBlocks, Target, WeightedRegressor, iwcv_score, target_performance
from steelyard.datasets import gaussian_pair
from steelyard.errors import InputError
from steelyard.model_selection import _streams

PAIR = gaussian_pair(3000, 2000, 2, random_state=0)
Y = PAIR.X @ [1.0, -2.0] + np.random.default_rng(0).normal(0, 0.1, 3000)
MODEL = WeightedRegressor(Ridge(), ratio=ULSIF(random_state=0))


@pytest.fixture
def files(tmp_path):
    pd.DataFrame(np.column_stack([PAIR.X, Y]), columns=["a", "b", "y"]).to_parquet(tmp_path / "s.parquet")
    pd.DataFrame(PAIR.X_target, columns=["a", "b"]).to_parquet(tmp_path / "t.parquet")
    return tmp_path


def test_a_short_stream_has_the_scores_of_the_table(files):
    expected = iwcv_score(MODEL, PAIR.X, Y, target=PAIR.X_target, ratio=ULSIF(random_state=0))
    blocks = np.split(PAIR.X, [100, 2500]), np.split(Y, [100, 2500])
    found = iwcv_score(MODEL, *blocks, target=Target([PAIR.X_target]), ratio=ULSIF(random_state=0))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    source, labels = (TableBlocks(files / "s.parquet", columns) for columns in (["a", "b"], ["y"]))
    found = iwcv_score(MODEL, source, labels, target=files / "t.parquet", ratio=ULSIF(random_state=0))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    found = iwcv_score(MODEL, source, Y, target=files / "t.parquet", ratio=ULSIF(random_state=0))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    model = Ridge().fit(PAIR.X[:10], Y[:10])
    some = target_performance(model, [PAIR.X], [Y], target=[PAIR.X_target])
    assert some == target_performance(model, PAIR.X, Y, target=PAIR.X_target)


def test_a_long_stream_is_sampled_with_its_labels(monkeypatch):
    monkeypatch.setattr(_streams, "SAMPLE_ROWS", 500)
    X, y, target = _streams.in_memory([PAIR.X[:900], PAIR.X[900:]], [Y[:900], Y[900:]], [PAIR.X_target])
    assert len(X) == len(y) == len(target.X) == 500
    position = {row.tobytes(): i for i, row in enumerate(PAIR.X)}
    numbers = [position[row.tobytes()] for row in X]
    assert numbers == sorted(numbers)
    np.testing.assert_array_equal(y, Y[numbers])
    words = np.array([f"row {i}" for i in range(3000)])
    np.testing.assert_array_equal(_streams.in_memory([PAIR.X], words, None)[1], words[numbers])
    assert abs(np.mean(numbers) - 1500) < 4 * 3000 / np.sqrt(12 * 500)  # even over the table
    whole = iwcv_score(MODEL, PAIR.X, Y, target=PAIR.X_target, ratio=ULSIF(random_state=0)).mean()
    some = iwcv_score(MODEL, [PAIR.X], [Y], target=[PAIR.X_target], ratio=ULSIF(random_state=0)).mean()
    assert some != whole
    assert some == pytest.approx(whole, rel=0.2)


def test_dask_collections_are_sampled():
    da = pytest.importorskip("dask.array", reason="Dask is not installed (the extra distributed)")
    X, y, target = (da.from_array(table, chunks=700) for table in (PAIR.X, Y, PAIR.X_target))
    found = iwcv_score(MODEL, X, y, target=target, ratio=ULSIF(random_state=0))
    expected = iwcv_score(MODEL, PAIR.X, Y, target=PAIR.X_target, ratio=ULSIF(random_state=0))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("labels", [[Y[:2900]], Y[:2900]], ids=["blocks", "array"])
def test_labels_that_lack_rows_are_an_error(labels, monkeypatch):
    monkeypatch.setattr(_streams, "SAMPLE_ROWS", 500)
    with pytest.raises(InputError, match="The source has 3,000 rows and there are 2,900 labels"):
        iwcv_score(MODEL, [PAIR.X], labels, target=[PAIR.X_target])
