"""StackedRegressor and StackedClassifier: exact held-out predictions, weighting as repeating, learners that fail."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from steelyard import ULSIF, OneStepRegressor, StackedClassifier, StackedRegressor, Target, WeightedRegressor
from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._splits.rows import folds_of_table
from steelyard.errors import InputError, LearnerFailedWarning, NoTargetWarning, ParameterError
from steelyard.stacking.learners import default_learners

LEARNERS = [("linear", Ridge()), ("tree", DecisionTreeRegressor(min_samples_leaf=5, random_state=0))]


def shifted(n=150, seed=0, center=0.8):
    rng = np.random.default_rng(seed)
    X, X_target = rng.normal(size=(n, 2)), rng.normal(center, 1, size=(n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)
    return X, y, X_target


def test_predictions_are_the_shares_of_the_learners():
    X, y, X_target = shifted()
    model = StackedRegressor(LEARNERS).fit(X, y, target=Target(X_target))
    by_hand = sum(model.shares_[name] * learner.predict(X_target) for name, learner in model.estimators_)
    np.testing.assert_allclose(model.predict(X_target), by_hand)
    assert sum(model.shares_.values()) == pytest.approx(1)
    assert min(model.shares_.values()) >= 0


def test_the_losses_are_those_of_cross_validation_by_hand():
    X, y, X_target = shifted(600)  # one draw of the folds
    model = StackedRegressor(LEARNERS, ULSIF(random_state=0), random_state=3).fit(X, y, target=Target(X_target))
    order = np.argsort(units_of_rows(table_columns(X, y)), kind="stable")
    X, y, weights = X[order], y[order], model.weights_[order]
    fold = folds_of_table([*X.T, y], 5, np.random.default_rng(3))
    for weighted, label in ((False, "linear"), (True, "linear, weighted")):
        loss = 0.0
        for f in range(5):
            train, test = fold != f, fold == f
            keywords = {"sample_weight": weights[train] / weights[train].mean()} if weighted else {}
            found = Ridge().fit(X[train], y[train], **keywords).predict(X[test])
            loss += weights[test] @ np.square(found - y[test])
        assert model.losses_[label] == pytest.approx(loss / weights.sum(), rel=1e-6)


def test_flattening_zero_is_stacking_without_weights():
    X, y, X_target = shifted()
    one = StackedRegressor(LEARNERS, flattening=0).fit(X, y, target=Target(X_target))
    with pytest.warns(NoTargetWarning):
        other = StackedRegressor(LEARNERS).fit(X, y)
    assert np.all(one.weights_ == 1)
    assert set(one.losses_) == {"linear", "tree"}
    np.testing.assert_array_equal(one.predict(X_target), other.predict(X_target))


def test_weights_help_where_no_learner_is_right():
    """A line fitted to a sine under weights; the tree is given too few leaves to be right anywhere."""
    rng = np.random.default_rng(1)
    X, X_target = rng.normal(0, 1, (800, 1)), rng.normal(1.2, 0.4, (800, 1))
    y, y_target = (np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=800) for x in (X, X_target))
    learners = [("linear", LinearRegression()), ("mean", DummyRegressor())]
    weighted = StackedRegressor(learners, flattening=1.0).fit(X, y, target=Target(X_target))
    plain = StackedRegressor(learners, flattening=0.0).fit(X, y, target=Target(X_target))
    errors = [np.mean((m.predict(X_target) - y_target) ** 2) for m in (weighted, plain)]
    assert errors[0] < 0.5 * errors[1]
    assert "linear, weighted" in weighted.shares_


@pytest.mark.parametrize(
    "estimators", [None, [("forest", RandomForestRegressor(20, random_state=0)), ("linear", Ridge())]]
)
def test_weighting_is_repeating_also_for_trees(estimators):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 60), rng.integers(0, 3, 60)]).astype(float)
    y = X[:, 0] + rng.normal(size=60)
    counts = rng.integers(0, 4, 60)
    target = Target(np.column_stack([rng.integers(1, 4, 50), rng.integers(0, 3, 50)]).astype(float))
    weighted = StackedRegressor(estimators).fit(X, y, target=target, sample_weight=counts)
    rows = rng.permutation(np.repeat(np.arange(60), counts))
    repeated = StackedRegressor(estimators).fit(X[rows], y[rows], target=target)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6, atol=1e-8)
    assert weighted.shares_.keys() == repeated.shares_.keys()


def test_weights_that_are_no_counts_reach_the_learners():
    X, y, X_target = shifted()
    heavy = np.where(X[:, 0] > 0, 1.0, 1e-6) * 0.5
    model = StackedRegressor([("linear", Ridge())], flattening=0).fit(
        X, y, target=Target(X_target), sample_weight=heavy
    )
    only = Ridge(alpha=np.mean(X[:, 0] > 0)).fit(X[X[:, 0] > 0], y[X[:, 0] > 0])
    np.testing.assert_allclose(model.predict(X_target), only.predict(X_target), atol=0.02)


def test_the_order_of_the_rows_does_not_matter():
    X, y, X_target = shifted()
    order = np.random.default_rng(9).permutation(len(X))
    one = StackedRegressor(LEARNERS).fit(X, y, target=Target(X_target))
    other = StackedRegressor(LEARNERS).fit(X[order], y[order], target=Target(X_target))
    np.testing.assert_allclose(one.predict(X_target), other.predict(X_target), rtol=1e-8)
    np.testing.assert_allclose(one.weights_[order], other.weights_, rtol=1e-8)


class FailsOnAFold(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        if 0.0 not in X:
            raise ValueError("a row is missing")
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


def test_a_learner_that_fails_on_one_fold_is_left_out_and_named():
    X, y, X_target = shifted()
    X[7, 0] = 0.0
    with pytest.warns(LearnerFailedWarning, match="sick: ValueError: a row is missing"):
        model = StackedRegressor([*LEARNERS, ("sick", FailsOnAFold())]).fit(X, y, target=Target(X_target))
    assert set(model.failed_) == {"sick"}
    assert "sick" not in model.shares_


def test_where_all_fail_the_error_says_why():
    X, y, X_target = shifted()
    X[7, 0] = 0.0
    with pytest.raises(InputError, match=r"No learner could be fitted.*a row is missing"):
        StackedRegressor([("sick", FailsOnAFold())]).fit(X, y, target=Target(X_target))


def test_a_learner_without_weights_and_one_that_adapts_by_itself():
    X, y, X_target = shifted()
    learners = [("neighbors", KNeighborsRegressor()), ("one-step", OneStepRegressor(random_state=0))]
    model = StackedRegressor(learners).fit(X, y, target=Target(X_target))
    assert set(model.losses_) == {"neighbors", "one-step"}
    own = StackedRegressor([("own", WeightedRegressor(Ridge(), ULSIF(random_state=0)))]).fit(
        X, y, target=Target(X_target)
    )
    same = WeightedRegressor(Ridge(), ULSIF(random_state=0)).fit(X, y, target=Target(X_target))
    np.testing.assert_allclose(own.predict(X_target), same.predict(X_target), rtol=1e-6)


def test_a_frozen_ratio_is_used_as_it_is():
    X, y, X_target = shifted()
    ratio = ULSIF(random_state=0).fit(X, target=Target(X_target))
    model = StackedRegressor(LEARNERS, FrozenEstimator(ratio)).fit(X, y, target=Target(X_target))
    np.testing.assert_allclose(model.weights_, ratio.weights_**0.5 / np.mean(ratio.weights_**0.5))


class ProbabilitiesOfLabels(ClassifierMixin, BaseEstimator):
    """No probabilities and no decision values."""

    def fit(self, X, y):
        self.tree_ = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X):
        return self.tree_.predict(X)


def test_classifiers_with_probabilities_decision_values_or_neither():
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(200, 2)), rng.normal(0.5, 1, (150, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * rng.normal(size=200), [-0.5, 0.5])]
    learners = [("bayes", GaussianNB()), ("svm", LinearSVC()), ("labels", ProbabilitiesOfLabels())]
    model = StackedClassifier(learners).fit(X, y, target=Target(X_target))
    shares = model.predict_proba(X_target)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert not model.failed_
    assert np.mean(model.predict(X) == y) > 0.7
    assert list(model.classes_) == ["a", "b", "c"]


def test_a_fold_may_lack_a_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.r_[np.zeros(20), np.ones(19), 2]
    model = StackedClassifier([("bayes", GaussianNB()), ("linear", LogisticRegression())])
    with pytest.warns(NoTargetWarning):
        model.fit(X, y)
    assert model.predict_proba(X).shape == (40, 3)


def test_a_class_of_one_row_leaves_a_fold_with_one_class():
    """Fitted to one class, boosted trees have two columns of probabilities all the same."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = StackedClassifier([("trees", HistGradientBoostingClassifier(max_iter=2)), ("bayes", GaussianNB())])
    with pytest.warns(NoTargetWarning):
        model.fit(X, np.arange(40) == 7)
    assert model.failed_ == {}
    assert model.predict_proba(X).shape == (40, 2)


def test_a_label_that_is_constant_in_every_training_fold():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.zeros(40)
    y[3] = 5.0
    model = StackedRegressor().fit(X, y, target=Target(rng.normal(size=(30, 2))))
    assert np.isfinite(model.predict(X)).all()


def test_a_target_of_three_rows():
    X, y, X_target = shifted()
    assert len(StackedRegressor(LEARNERS).fit(X, y, target=Target(X_target[:3])).predict(X_target)) == len(X_target)


@pytest.mark.parametrize("estimators", [[], [Ridge()], [("a", Ridge()), ("a", LinearRegression())]])
def test_lists_that_are_no_learners(estimators):
    X, y, X_target = shifted()
    with pytest.raises(ParameterError):
        StackedRegressor(estimators).fit(X, y, target=Target(X_target))


def test_before_the_fit_there_is_no_prediction():
    with pytest.raises(NotFittedError):
        StackedRegressor(LEARNERS).predict(np.zeros((2, 2)))


@pytest.mark.parametrize(("classify", "most"), [(False, 0.85), (True, 0.9)])
def test_the_combination_is_close_to_the_best_learner(classify, most):
    """On the sum of a line, a curve and a step no learner is right everywhere."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(2):
        X, X_new = rng.normal(size=(150, 3)), rng.normal(0.4, 1, size=(1000, 3))
        f = [x[:, 0] + np.sin(2 * x[:, 1]) + 1.5 * (x[:, 2] > 0) for x in (X, X_new)]
        y, y_new = (v + 0.3 * rng.normal(size=len(v)) for v in f)
        if classify:
            y, y_new = (y > 0.7).astype(int), (y_new > 0.7).astype(int)
        target = Target(X_new[:200])
        models = [(StackedClassifier if classify else StackedRegressor)().fit(X, y, target=target)]
        for name, learner in default_learners(classify, 150):
            models.append(learner.fit(X, y, **({"target": target} if name == "one-step" else {})))
        losses = np.array([np.mean(np.square(model.predict(X_new) - y_new)) for model in models])
        ratios.append(losses[0] / losses[1:])
    assert np.mean(ratios) < most
    assert np.max(np.mean(ratios, axis=0)) < 1.1
