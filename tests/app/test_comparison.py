"""The comparison of methods: an unbiased error, a rule that leans to ERM, and fits that are what they say."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from steelyard import AutoRatio
from steelyard.app.comparison import ComparedMethod, choose, fit_best, paired_gain, validation_weights
from steelyard.app.held_out import learners, probabilities
from steelyard.errors import InputError


def curve(rng, n, center):
    X = rng.normal(center, 1, size=(n, 2))
    return X, X[:, 0] ** 2 + X[:, 1] + rng.normal(0, 0.3, n)


@pytest.fixture(scope="module")
def shifted():
    rng = np.random.default_rng(0)
    X, y = curve(rng, 120, 0.0)
    X_target, _ = curve(rng, 120, 1.0)
    return X, y, X_target


@pytest.fixture(scope="module")
def fitted(shifted):
    X, y, X_target = shifted
    return fit_best(X, y, X_target, classify=False, shifted=True, random_state=3)


def test_the_standard_error_is_right_where_few_rows_carry_the_weight():
    rng = np.random.default_rng(0)
    weights = np.array([5.0, 3.0, 1.0, 1.0, 0.5, 0.5])
    found = [paired_gain(rng.normal(size=6), np.zeros(6), weights) for _ in range(20_000)]
    gains, errors = np.array(found).T
    # The mean of the squared errors is the variance of the gains; the usual formula would give 0.6 of it.
    assert np.mean(errors**2) == pytest.approx(gains.var(), rel=0.03)
    shares = weights / weights.sum()
    assert np.mean(errors**2) == pytest.approx(np.sum(shares**2), rel=0.03)


def test_with_equal_weights_it_is_the_textbook_error():
    difference = np.random.default_rng(1).normal(size=50)
    gain, error = paired_gain(difference, np.zeros(50), np.full(50, 7.0))
    assert gain == pytest.approx(difference.mean())
    assert error == pytest.approx(difference.std(ddof=1) / np.sqrt(50))


def test_one_row_with_all_the_weight_says_nothing():
    assert paired_gain(np.arange(3.0), np.zeros(3), np.array([1.0, 0.0, 0.0]))[1] == np.inf


PLAIN = ComparedMethod("linear, no weights", "linear", "no weights", 1.0, 1.0, 0.0, 0.0, 100.0)


@pytest.mark.parametrize(("gain", "error", "expected"), [(0.11, 0.1, 1), (0.1, 0.1, 0), (-0.2, 0.1, 0)])
def test_another_method_is_taken_for_more_than_one_standard_error(gain, error, expected):
    rival = replace(PLAIN, name="one-step", gain=gain, gain_error=error)
    best = 1 if gain > 0 else 0
    assert choose((PLAIN, rival), 0, best, shifted=True)[0] == expected


def test_without_a_shift_the_plain_fit_stays_whatever_the_numbers():
    rival = replace(PLAIN, name="one-step", gain=0.9, gain_error=0.01)
    chosen, reason = choose((PLAIN, rival), 0, 1, shifted=False)
    assert chosen == 0
    assert "no shift" in reason


def test_every_method_is_there_and_the_rule_was_followed(fitted):
    found = fitted.comparison
    assert len(found.methods) == 10
    assert {m.weighting for m in found.methods} == {"no weights", "flattened, γ=½", "relative, η=½", "one-step"}
    plain = found.methods[found.plain]
    assert plain.source_loss == min(m.source_loss for m in found.methods if m.weighting == "no weights")
    best = max(found.methods, key=lambda m: m.gain)
    expected = best if best.gain > best.gain_error else plain
    assert found.methods[found.chosen] == expected
    for m in found.methods:
        assert plain.loss - m.loss == pytest.approx(m.gain)


def test_the_plain_model_is_plain_scikit_learn(shifted, fitted):
    X, y, X_target = shifted
    name = fitted.comparison.methods[fitted.comparison.plain].learner
    same = learners(False, len(X), X.shape[1])[name].fit(X, y)
    np.testing.assert_allclose(fitted.plain_model.predict(X_target), same.predict(X_target), rtol=1e-8, atol=1e-8)


def test_held_out_losses_are_those_of_plain_cross_validation():
    """The linear learner's source loss by hand, with the folds assigned by the same generator."""
    from steelyard._splits.rows import folds_of_table

    rng = np.random.default_rng(5)
    X, y = curve(rng, 60, 0.0)
    X_target, _ = curve(rng, 50, 0.5)
    found = fit_best(X, y, X_target, classify=False, shifted=True, random_state=11).comparison
    again = np.random.default_rng(11)
    again.permutation(60), again.permutation(50)
    losses = np.zeros(60)
    for fold in [folds_of_table([*X.T, y], 5, again) for _ in range(3)]:
        for f in range(5):
            model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(X[fold != f], y[fold != f])
            losses[fold == f] += (model.predict(X[fold == f]) - y[fold == f]) ** 2 / 3
    linear = next(m for m in found.methods if m.name == "linear, no weights")
    assert linear.source_loss == pytest.approx(losses.mean())
    validation, _ = validation_weights(X, X_target, AutoRatio(random_state=0).fit(X, target=X_target).weights_)
    assert linear.loss == pytest.approx(losses @ validation / validation.sum())


def test_the_same_seed_gives_the_same_choice(shifted, fitted):
    X, y, X_target = shifted
    again = fit_best(X, y, X_target, classify=False, shifted=True, random_state=3)
    assert again.comparison == fitted.comparison
    np.testing.assert_array_equal(again.weights, fitted.weights)


def test_the_validation_weights_are_bounded_and_rise_towards_the_target():
    rng = np.random.default_rng(2)
    X, X_target = rng.normal(size=(400, 2)), rng.normal([1.0, 0.0], 1, size=(400, 2))
    importance = AutoRatio(random_state=0).fit(X, target=X_target).weights_
    validation, _ = validation_weights(X, X_target, importance)
    assert validation.mean() == pytest.approx(1)
    truth = np.exp(X[:, 0] - 0.5)
    assert np.corrcoef(np.argsort(np.argsort(validation)), np.argsort(np.argsort(truth)))[0, 1] > 0.9
    bounded = importance / (0.9 + 0.1 * importance)
    np.testing.assert_allclose(validation, bounded / bounded.mean())


def test_disjoint_domains_leave_the_plain_methods():
    rng = np.random.default_rng(3)
    X, X_target = rng.normal(size=(60, 2)), rng.normal(100, 1, size=(60, 2))
    found = fit_best(X, X[:, 0], X_target, classify=False, shifted=True)
    assert {m.weighting for m in found.comparison.methods} == {"no weights"}
    assert found.comparison.kept_plain
    assert "cannot be estimated" in found.comparison.reason
    assert set(found.comparison.performance) == {"source"}
    np.testing.assert_array_equal(found.weights, np.ones(60))


def test_three_classes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=150), [-0.5, 0.5])
    X_target = rng.normal(0.7, 1, size=(100, 2))
    found = fit_best(X, y, X_target, classify=True, shifted=True)
    assert found.comparison.classes == (0, 1, 2)
    assert found.comparison.measure == "accuracy"
    shares = probabilities(found.model, X_target)
    assert shares.shape == (100, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert all(0 <= m.loss <= 2 for m in found.comparison.methods)


def test_too_few_rows_are_refused():
    X = np.arange(8.0)[:, None]
    with pytest.raises(InputError, match="too few to compare"):
        fit_best(X, X[:, 0], X, classify=False, shifted=True)
