"""Every place that takes a ratio takes each form of it: of the package, frozen, without predict, of a user's own."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge

from steelyard import KMM, ULSIF, WeightedRegressor, effective_sample_size, iwcv_score, target_performance
from steelyard.errors import InputError, InputTypeError
from steelyard.model_selection.performance import _outcome_model

pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
RATIO = ULSIF(width=1.0, reg=0.1, random_state=0)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_ratio_without_predict_is_fitted_once_on_all_rows(frozen):
    """With equal scores the outcome model is exact; with others the estimate is the sum of both parts, by hand."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(120, 1)), rng.normal(0.7, 0.8, size=(100, 1))
    y = (np.abs(X[:, 0]) > 1).astype(float)
    kmm = KMM(random_state=0).fit(X, target=T)
    ratio = FrozenEstimator(kmm) if frozen else KMM(random_state=0)
    fold = np.arange(120) % 2
    splits = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(2)]
    found = target_performance(Ridge().fit(X, y), X, y, target=T, ratio=ratio, scoring=label, cv=splits)
    predicted, on_target = np.empty(120), 0.0
    for train, test in splits:
        model = _outcome_model(X[train], y[train])
        predicted[test], on_target = model.predict(X[test]), on_target + model.predict(T).mean() / 2
    assert found.target.mean == pytest.approx(on_target + np.average(y - predicted, weights=kmm.weights_))
    assert found.effective_sample_size == pytest.approx(kmm.effective_sample_size_)


def test_a_frozen_ratio_is_evaluated_and_not_fitted():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(120, 1)), rng.normal(0.7, 0.8, size=(100, 1))
    fitted = clone(RATIO).fit(rng.normal(size=(300, 1)), target=T)
    found = target_performance(Ridge().fit(X, X[:, 0]), X, X[:, 0], target=T, ratio=FrozenEstimator(fitted))
    assert found.effective_sample_size == pytest.approx(effective_sample_size(fitted.predict(X)))


def label(model, X, y):
    return np.asarray(y, dtype=float)


class NoWeights(BaseEstimator):
    """A ratio of a user's own that forgets its weights."""

    def fit(self, X, y=None, *, target=None):
        return self


class OwnWeights(NoWeights):
    def fit(self, X, y=None, *, target=None):
        self.weights_ = np.linspace(0.5, 1.5, len(X))
        return self


WAYS = {
    "estimator": lambda X, y, T, ratio: WeightedRegressor(Ridge(), ratio).fit(X, y, target=T),
    "scores": lambda X, y, T, ratio: iwcv_score(Ridge(), X, y, target=T, ratio=ratio),
    "performance": lambda X, y, T, ratio: target_performance(Ridge().fit(X, y), X, y, target=T, ratio=ratio),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_takes_a_ratio_of_a_users_own_and_says_what_it_lacks(way):
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(60, 1)), rng.normal(size=(40, 1))
    run = partial(WAYS[way], X, X[:, 0], T)
    run(OwnWeights())
    with pytest.raises(InputTypeError, match=r"each of the 60 source rows; NoWeights has no weights_\.") as error:
        run(NoWeights())
    assert "frozen" not in str(error.value)
    with pytest.raises(InputTypeError, match=r"ratio estimator such as ULSIF.*got Ridge"):
        run(Ridge())
    with pytest.raises(InputError, match="A frozen ratio must have been fitted on the 60 source rows"):
        run(FrozenEstimator(KMM().fit(X[:30], target=T)))


def test_weights_of_a_ratio_of_a_users_own_are_used():
    X = np.random.default_rng(0).normal(size=(60, 1))
    y = X[:, 0] ** 2
    own = np.linspace(0.5, 1.5, 60)
    model = WeightedRegressor(Ridge(), OwnWeights()).fit(X, y, target=X)
    np.testing.assert_allclose(model.weights_, own)
    np.testing.assert_allclose(model.predict(X), Ridge().fit(X, y, sample_weight=own).predict(X))
