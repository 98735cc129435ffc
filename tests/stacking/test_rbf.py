"""Kernel ridge regression with leave-one-out choices: against brute force, and beside a support vector machine."""

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from steelyard.stacking.rbf import RBFClassifier, RBFRegressor, leave_one_out


def weighted_ridge(features, labels, weights, reg):
    """Coefficients with an unpenalized intercept, by the normal equations."""
    Z = np.column_stack([features, np.ones(len(features))])
    penalty = np.diag(np.append(np.full(features.shape[1], reg), 0.0))
    return np.linalg.solve((Z * weights[:, None]).T @ Z + penalty, (Z * weights[:, None]).T @ labels)


@pytest.mark.parametrize("reg", [1e-3, 0.1, 10.0])
def test_leave_one_out_is_what_it_says(reg):
    rng = np.random.default_rng(0)
    features, labels, weights = rng.normal(size=(15, 4)), rng.normal(size=(15, 2)), rng.exponential(size=15)
    total = 0.0
    for i in range(15):
        kept = np.arange(15) != i
        coef = weighted_ridge(features[kept], labels[kept], weights[kept], reg)
        total += weights[i] * np.sum((np.append(features[i], 1.0) @ coef - labels[i]) ** 2)
    found = leave_one_out(features, labels, weights, np.array([reg]))
    assert found[0] == pytest.approx(total / weights.sum(), rel=1e-9)


def test_the_fit_solves_its_normal_equations():
    rng = np.random.default_rng(1)
    X, weights = rng.normal(size=(700, 3)), rng.exponential(size=700)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=700)
    model = RBFRegressor().fit(X, y, sample_weight=weights)
    features = model.basis_.transform(model.scaler_.transform(X))
    coef = weighted_ridge(features, y[:, None], weights / weights.mean(), model.reg_)
    fitted = features @ coef[:-1] + coef[-1]
    np.testing.assert_allclose(model.predict(X), fitted[:, 0], atol=1e-6)


def test_whole_weights_and_repeated_rows_agree_where_the_choice_is_the_same():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 2))
    y = X[:, 0] ** 2 + 0.1 * rng.normal(size=80)
    one, two = RBFRegressor().fit(X, y), RBFRegressor().fit(X, y, sample_weight=np.full(80, 2.0))
    np.testing.assert_allclose(one.predict(X), two.predict(X), rtol=1e-9)


def test_it_is_as_good_as_a_support_vector_machine():
    ratios = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(400, 4))
        y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=400)
        ours = RBFRegressor().fit(X[:150], y[:150])
        grid = {"svr__C": [1, 10, 100], "svr__gamma": [0.03, 0.1, 0.3], "svr__epsilon": [0.03, 0.3]}
        peer = GridSearchCV(make_pipeline(StandardScaler(), SVR()), grid).fit(X[:150], y[:150])
        errors = [np.mean((m.predict(X[150:]) - y[150:]) ** 2) for m in (ours, peer)]
        ratios.append(errors[0] / errors[1])
    assert np.mean(ratios) < 1.1


def test_the_classifier_is_as_good_as_a_support_vector_machine():
    wrong = np.zeros(2)
    for seed in range(5):
        X, y = make_moons(500, noise=0.3, random_state=seed)
        ours = RBFClassifier().fit(X[:150], y[:150])
        grid = {"svc__C": [0.1, 1, 10, 100], "svc__gamma": [0.1, 0.3, 1, 3]}
        peer = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid).fit(X[:150], y[:150])
        wrong += [np.mean(m.predict(X[150:]) != y[150:]) for m in (ours, peer)]
    assert wrong[0] < 1.15 * wrong[1]


def test_probabilities_are_probabilities():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    found = RBFClassifier().fit(X, y).predict_proba(10 * X)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_rows_that_are_all_equal_predict_the_mean():
    model = RBFRegressor().fit(np.ones((20, 2)), np.arange(20.0))
    np.testing.assert_allclose(model.predict(np.ones((3, 2))), 9.5, atol=1e-6)


def test_in_a_table_of_few_distinct_rows_every_fit_succeeds_and_centers_differ():
    """With equal centers the decomposition of the kernel matrix failed in one of twenty fits."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = np.column_stack([*rng.choice(3, (2, 480), p=[0.6, 0.25, 0.15]), rng.choice(5, 480), rng.choice(2, 480)])
        model = RBFClassifier().fit(X, rng.random(480) < 0.2 + 0.1 * X[:, 2])
        assert len(model.basis_.components_) == len(np.unique(X, axis=0))
