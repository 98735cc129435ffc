"""The comparison of methods: an unbiased error, the choice by its rule, and fits that are what they say."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from steelyard import AutoRatio
from steelyard._numerics.weighted_means import paired_gain
from steelyard._splits.rows import folds_of_table
from steelyard.app.candidates import EQUAL_SHARES, STACKING, WEIGHTED_STACKING, Candidate
from steelyard.app.comparison import compare
from steelyard.app.fitting import compare_methods, validation_weights
from steelyard.errors import InputError, ParameterError
from steelyard.report import phrases
from steelyard.stacking.held_out import Data, HeldOut, Learner, class_probabilities
from steelyard.stacking.learners import choose_learners, default_learners
from steelyard.weights import normalize


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
def compared(shifted):
    X, y, X_target = shifted
    return compare_methods(X, y, X_target, classify=False, shifted=True, random_state=3)


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


def made_up(errors, *, combined=True):
    """Candidates whose held-out predictions are off by these errors: two learners, and their combination."""
    truth = np.zeros(len(next(iter(errors.values()))))
    parts = {
        name: HeldOut(Learner(name.split(",")[0], None, weighted=name.endswith("weighted")), error[None, :, None])
        for name, error in errors.items()
    }
    found = [
        Candidate(name, (part,), np.ones(1), part.predictions, part.learner.weighted) for name, part in parts.items()
    ]
    if combined:
        mean = np.mean([part.predictions for part in parts.values()], axis=0)
        shares = np.full(len(parts), 1 / len(parts))
        found.append(Candidate(WEIGHTED_STACKING, tuple(parts.values()), shares, mean, True))
    data = Data(np.zeros((len(truth), 1)), truth, None, np.ones(len(truth)), np.zeros(0))
    return found, data


def noise(scale, seed, n=400):
    return scale * np.random.default_rng(seed).normal(size=n)


def test_the_combination_is_chosen_where_no_learner_is_clearly_better():
    candidates, data = made_up({"a": noise(1.0, 1), "b": noise(1.0, 2)})
    found = compare(candidates, data, np.ones(400), shifted=True)
    assert found.methods[found.chosen].name == WEIGHTED_STACKING
    assert found.weights_used
    assert dict(found.methods[found.chosen].shares) == {"a": 0.5, "b": 0.5}
    assert "less loss than" in found.reason


def test_a_learner_that_is_clearly_better_takes_the_place_of_the_combination():
    candidates, data = made_up({"a": noise(0.1, 1), "b": noise(3.0, 2)})
    found = compare(candidates, data, np.ones(400), shifted=True)
    assert found.methods[found.chosen].name == "a"
    assert found.kept_plain
    assert not found.weights_used
    lead, error = paired_gain(
        *(np.square(c.predictions[0, :, 0]) for c in (candidates[2], candidates[0])), np.ones(400)
    )
    assert f"by {lead / error:.1f} standard errors" in found.reason


def test_a_learner_that_is_clearly_better_is_chosen_though_another_is_better_on_average():
    """The combination is hardly more than b with an error added; a is better on average, by chance."""
    b, a = 1.0 + noise(0.1, 1), np.r_[np.zeros(200), np.full(200, 1.38)] + noise(0.1, 2)
    candidates, data = made_up({"a": a, "b": b})
    stacked = replace(candidates[2], predictions=np.abs(candidates[1].predictions) + 0.01)
    found = compare([*candidates[:2], stacked], data, np.ones(400), shifted=True)
    losses = [np.square(each.predictions[0, :, 0]) for each in (*candidates[:2], stacked)]
    leads = [paired_gain(losses[2], loss, np.ones(400)) for loss in losses[:2]]
    assert leads[0][0] > leads[1][0] > 0
    assert leads[0][0] < 2 * leads[0][1]
    assert leads[1][0] > 2 * leads[1][1]
    assert found.methods[found.chosen].name == "b"


def test_where_the_plain_model_is_kept_one_score_is_promised():
    rng = np.random.default_rng(1)
    X, X_target = rng.normal(size=(60, 1)), rng.normal(0.5, 1, size=(60, 1))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    found = compare_methods(X, y, X_target, classify=False, shifted=True, learners=["linear"]).comparison
    assert found.kept_plain
    assert found.performance["plain"].low is not None
    assert found.performance["plain"] == found.performance["chosen"]


def test_a_combination_of_one_learner_is_that_learner():
    candidates, data = made_up({"a": noise(1.0, 1), "b": noise(1.2, 2)})
    alone = replace(candidates[2], shares=np.array([1.0, 0.0]))
    found = compare([*candidates[:2], alone], data, np.ones(400), shifted=True)
    assert found.kept_plain
    assert found.methods[found.chosen].name == "a"
    assert not found.weights_used
    assert found.reason == "On held-out rows the best combination consists of a alone."


@pytest.mark.parametrize(("factor", "chosen"), [(0.5, "a, weighted"), (0.999, "a")])
def test_one_learner_is_weighted_where_that_is_better_by_a_standard_error(factor, chosen):
    error = noise(1.0, 1)
    candidates, data = made_up({"a": error, "a, weighted": factor * error + noise(0.1, 2)}, combined=False)
    found = compare(candidates, data, np.ones(400), shifted=True)
    assert found.methods[found.chosen].name == chosen
    assert found.plain == 0


def test_the_plain_method_is_the_best_on_the_source_and_the_gain_is_weighted():
    half = np.arange(400) < 200
    candidates, data = made_up({"a": np.where(half, 0.1, 2.0), "b": np.where(half, 1.9, 1.5)})
    found = compare(candidates, data, np.where(half, 0.01, 1.99), shifted=True)
    assert found.methods[found.plain].name == "a"  # 2.0 against 2.9 on the source, and 4.0 against 2.3 on the target
    for m in found.methods:
        assert found.methods[found.plain].loss - m.loss == pytest.approx(m.gain)


def test_without_a_shift_losses_are_those_of_the_source():
    candidates, data = made_up({"a": noise(1.0, 1), "b": noise(1.0, 2)})
    found = compare(candidates, data, np.random.default_rng(0).exponential(size=400), shifted=False)
    assert all(m.loss == pytest.approx(m.source_loss) for m in found.methods)
    assert "no shift" in found.reason


def test_every_method_is_there(compared):
    names = [m.name for m in compared.comparison.methods]
    learners = ["linear", "RBF", "boosted trees", "forest"]
    weighted = [f"{name}, weighted" for name in learners]
    assert names == [*learners, "one-step", *weighted, EQUAL_SHARES, STACKING, WEIGHTED_STACKING]
    for m in compared.comparison.methods:
        assert m.shares == () or sum(share for _, share in m.shares) == pytest.approx(1)
    plain = compared.comparison.methods[compared.comparison.plain]
    assert plain.source_loss == min(m.source_loss for m in compared.comparison.methods[:4])


def test_the_models_are_those_of_their_learners(shifted, compared):
    X, y, X_target = shifted
    found = compared.fit()
    plain = found.comparison.methods[found.comparison.plain].name
    same = dict(default_learners(False, len(X)))[plain].fit(X, y)
    np.testing.assert_allclose(found.plain_model.predict(X_target), same.predict(X_target), rtol=1e-8, atol=1e-8)
    by_hand = sum(found.model.shares_[name] * model.predict(X_target) for name, model in found.model.estimators_)
    np.testing.assert_allclose(found.model.predict(X_target), by_hand)
    assert found.weights.mean() == pytest.approx(1)


def test_no_learner_is_fitted_twice_to_the_same_rows(shifted, monkeypatch):
    X, y, X_target = shifted
    fits, fit = Counter(), Learner.fit

    def counted(self, data, rows=slice(None)):
        fits[self.label, None if isinstance(rows, slice) else rows.tobytes()] += 1
        return fit(self, data, rows)

    monkeypatch.setattr(Learner, "fit", counted)
    compare_methods(X, y, X_target, classify=False, shifted=True, learners=["linear", "boosted-trees"]).fit()
    assert sum(fits.values()) > 40
    assert max(fits.values()) == 1


def test_held_out_losses_are_those_of_plain_cross_validation():
    """The linear learner's source loss by hand, with the folds assigned by the same generator."""
    rng = np.random.default_rng(5)
    X, y = curve(rng, 60, 0.0)
    X_target, _ = curve(rng, 50, 0.5)
    options = {"classify": False, "shifted": True, "learners": ["linear"], "random_state": 11}
    found = compare_methods(X, y, X_target, **options).comparison
    again = np.random.default_rng(11)
    again.permutation(60), again.permutation(50)
    losses = np.zeros(60)
    for fold in [folds_of_table([*X.T, y], 5, again) for _ in range(2)]:
        for f in range(5):
            model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13))).fit(X[fold != f], y[fold != f])
            losses[fold == f] += (model.predict(X[fold == f]) - y[fold == f]) ** 2 / 2
    linear = found.methods[0]
    assert linear.source_loss == pytest.approx(losses.mean())
    validation = validation_weights(X, X_target, AutoRatio(random_state=0).fit(X, target=X_target).weights_)
    assert linear.loss == pytest.approx(losses @ validation / validation.sum())


def test_the_same_seed_gives_the_same_choice(shifted):
    X, y, X_target = shifted
    options = {"classify": False, "shifted": True, "learners": ["linear", "forest"], "random_state": 3}
    one, same = (compare_methods(X, y, X_target, **options).fit() for _ in range(2))
    assert one.comparison == same.comparison
    np.testing.assert_array_equal(one.weights, same.weights)
    np.testing.assert_allclose(one.weights, normalize(one.importance**one.comparison.flattening))
    np.testing.assert_array_equal(one.model.predict(X_target), same.model.predict(X_target))


def test_the_validation_weights_are_bounded_and_rise_towards_the_target():
    rng = np.random.default_rng(2)
    X, X_target = rng.normal(size=(400, 2)), rng.normal([1.0, 0.0], 1, size=(400, 2))
    importance = AutoRatio(random_state=0).fit(X, target=X_target).weights_
    validation = validation_weights(X, X_target, importance)
    assert validation.mean() == pytest.approx(1)
    truth = np.exp(X[:, 0] - 0.5)
    assert np.corrcoef(np.argsort(np.argsort(validation)), np.argsort(np.argsort(truth)))[0, 1] > 0.9
    bounded = importance / (0.9 + 0.1 * importance)
    np.testing.assert_allclose(validation, bounded / bounded.mean())


def test_disjoint_domains_leave_the_methods_without_weights():
    rng = np.random.default_rng(3)
    X, X_target = rng.normal(size=(60, 2)), rng.normal(100, 1, size=(60, 2))
    found = compare_methods(X, X[:, 0], X_target, classify=False, shifted=True, learners=["linear", "forest"]).fit()
    assert not any(m.weighted for m in found.comparison.methods)
    assert not found.comparison.weights_used
    assert "hardly overlap" in found.comparison.reason
    assert set(found.comparison.performance) == {"source"}
    assert found.importance is None
    np.testing.assert_array_equal(found.weights, np.ones(60))
    assert found.comparison.flattening is None
    assert "every row weighs 1" in phrases.weights_file(found.comparison)


def test_without_overlap_by_the_diagnosis_no_method_is_weighted():
    rng = np.random.default_rng(3)
    X, X_target = rng.normal(size=(80, 2)), rng.normal([3.0, 0.0], 1, size=(60, 2))
    y, names = X[:, 0] + 0.1 * rng.normal(size=80), ["linear", "forest"]
    weighted = compare_methods(X, y, X_target, classify=False, shifted=True, learners=names).comparison
    assert any(m.weighted for m in weighted.methods)
    found = compare_methods(X, y, X_target, classify=False, shifted=True, overlap=False, learners=names).comparison
    assert not any(m.weighted for m in found.methods)
    assert "hardly overlap" in found.reason
    assert found.validation_sample_size == 0


def test_three_classes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=150), [-0.5, 0.5])
    X_target = rng.normal(0.7, 1, size=(100, 2))
    found = compare_methods(X, y, X_target, classify=True, shifted=True, learners=["linear", "rbf"]).fit()
    assert found.comparison.classes == (0, 1, 2)
    assert found.comparison.measure == "accuracy"
    shares = class_probabilities(found.model, X_target)
    assert shares.shape == (100, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert all(0 <= m.loss <= 2 for m in found.comparison.methods)


def test_too_few_rows_are_refused():
    X = np.arange(8.0)[:, None]
    with pytest.raises(InputError, match="too few to compare"):
        compare_methods(X, X[:, 0], X, classify=False, shifted=True)


def test_a_learner_that_fails_is_named_and_the_rest_goes_on(shifted, monkeypatch):
    from steelyard.stacking.rbf import RBFRegressor

    def fails(self, X, y, sample_weight=None):
        raise FloatingPointError("out of range")

    monkeypatch.setattr(RBFRegressor, "fit", fails)
    X, y, X_target = shifted
    found = compare_methods(X, y, X_target, classify=False, shifted=True, learners=["linear", "rbf"]).comparison
    assert {m.name for m in found.methods} >= {"linear", "linear, weighted"}
    assert found.failed[0] == "The learner RBF was left out: FloatingPointError: out of range."


def test_names_of_learners():
    learners = default_learners(True, 100)
    assert [name for name, _ in choose_learners(["Boosted-Trees", "rbf"], learners)] == ["RBF", "boosted trees"]
    assert choose_learners([], learners) == learners
    with pytest.raises(ParameterError, match="no learner 'svm'; the learners are linear, RBF, boosted trees, forest"):
        choose_learners(["svm"], learners)
