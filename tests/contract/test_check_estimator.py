"""scikit-learn's own checks on every public estimator, without exceptions.

Once without a target (weights of one and a warning), once with a target in every `fit`.
"""

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import check_estimator

import steelyard
from steelyard import (
    KLIEP,
    KMM,
    LSIF,
    RULSIF,
    ULSIF,
    AutoRatio,
    ClassifierRatio,
    ImportanceWeightedSearchCV,
    OneStepClassifier,
    OneStepRegressor,
    StackedClassifier,
    StackedRegressor,
    Target,
    WeightedClassifier,
    WeightedRegressor,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def target_for(X):
    """Forty fixed rows that overlap with the data; the location is rounded so that repeated rows do not change it."""
    values = np.asarray(X)
    if values.ndim != 2 or 0 in values.shape:
        return None  # the estimator itself raises an error about its source
    numeric = values.dtype.kind in "fiu" and np.isfinite(values).all()
    location = 100 * np.round(values.mean() / 100) if numeric else 0.0
    rows = np.random.default_rng(0).normal(location + 0.3, 0.9, size=(40, values.shape[1]))
    if hasattr(X, "columns"):
        rows = type(X)(rows, columns=X.columns)
    return Target(rows)


class WithTarget:
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, y, target=target_for(X), sample_weight=sample_weight)


class TargetedKLIEP(WithTarget, KLIEP):
    pass


class TargetedKMM(WithTarget, KMM):
    pass


class TargetedLSIF(WithTarget, LSIF):
    pass


class TargetedRULSIF(WithTarget, RULSIF):
    pass


class TargetedULSIF(WithTarget, ULSIF):
    pass


class TargetedClassifierRatio(WithTarget, ClassifierRatio):
    pass


class TargetedAutoRatio(WithTarget, AutoRatio):
    pass


class TargetedWeightedRegressor(WithTarget, WeightedRegressor):
    pass


class TargetedWeightedClassifier(WithTarget, WeightedClassifier):
    pass


class TargetedOneStepRegressor(WithTarget, OneStepRegressor):
    pass


class TargetedOneStepClassifier(WithTarget, OneStepClassifier):
    pass


class TargetedStackedRegressor(WithTarget, StackedRegressor):
    pass


class TargetedStackedClassifier(WithTarget, StackedClassifier):
    pass


class TargetedSearch(ImportanceWeightedSearchCV):
    def fit(self, X, y=None):
        return super().fit(X, y, target=target_for(X))


def search(cls):
    return cls(WeightedRegressor(Ridge()), {"flattening": [0, 1]}, cv=3)


REGRESSORS = [("linear", Ridge()), ("tree", DecisionTreeRegressor(random_state=0))]
CLASSIFIERS = [("linear", LogisticRegression()), ("tree", DecisionTreeClassifier(random_state=0))]
PLAIN = [
    KLIEP(),
    KMM(),
    LSIF(),
    RULSIF(),
    ULSIF(),
    ClassifierRatio(),
    AutoRatio(),
    WeightedRegressor(Ridge()),
    WeightedClassifier(LogisticRegression()),
    OneStepRegressor(),
    OneStepClassifier(),
    StackedRegressor(REGRESSORS),
    StackedClassifier(CLASSIFIERS),
    search(ImportanceWeightedSearchCV),
]
TARGETED = [
    TargetedKLIEP(),
    TargetedKMM(),
    TargetedLSIF(),
    TargetedRULSIF(),
    TargetedULSIF(),
    TargetedClassifierRatio(),
    TargetedAutoRatio(),
    TargetedWeightedRegressor(Ridge()),
    TargetedWeightedClassifier(LogisticRegression()),
    TargetedOneStepRegressor(),
    TargetedOneStepClassifier(),
    TargetedStackedRegressor(REGRESSORS),
    TargetedStackedClassifier(CLASSIFIERS),
    search(TargetedSearch),
]


def name(estimator):
    return type(estimator).__name__


def test_every_public_estimator_is_checked():
    public = {
        item
        for item in map(steelyard.__dict__.get, steelyard.__all__)
        if inspect.isclass(item) and issubclass(item, BaseEstimator)
    }
    assert {type(e) for e in PLAIN} == public
    assert {base for e in TARGETED for base in type(e).__mro__[1:] if base in public} >= public


@pytest.mark.parametrize("estimator", PLAIN + TARGETED, ids=name)
def test_check_estimator(estimator):
    results = check_estimator(estimator, on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] in ("failed", "xfail")}
    assert failed == {}
    assert sum(r["status"] == "passed" for r in results) >= 40


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("estimator", PLAIN, ids=name)
def test_without_a_target_one_warning(estimator):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    with pytest.warns(steelyard.errors.NoTargetWarning) as caught:
        estimator.fit(X, y)
    assert len([w for w in caught if w.category is steelyard.errors.NoTargetWarning]) == 1
    if hasattr(estimator, "weights_"):
        assert np.all(estimator.weights_ == 1)
