"""Tables of few levels: weights are the ratio of the cells' shares, for every estimator and all that use it."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import steelyard
from steelyard import (
    KLIEP,
    KMM,
    LSIF,
    RULSIF,
    ULSIF,
    ClassifierRatio,
    OneStepClassifier,
    WeightedClassifier,
    iwcv_score,
    target_performance,
)
from tests.made_up_tables import binary_columns, labeled_ten_cells, ratio_of_counts, target_accuracy, ten_cells

pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
# Largest RMSE to the ratio of the counts (uniform weights have 1.03).
TEN_CELLS = {
    "ULSIF": (ULSIF(random_state=0), 0.10),
    "LSIF": (LSIF(random_state=0), 0.10),
    "KLIEP": (KLIEP(random_state=0), 0.10),
    "KMM": (KMM(random_state=0), 0.10),
    "ClassifierRatio": (ClassifierRatio(random_state=0), 0.25),
}


def rmse(weights, truth):
    return float(np.sqrt(np.mean(np.square(weights - truth))))


def auto():
    return steelyard.AutoRatio(random_state=0)


@pytest.mark.parametrize("name", [*TEN_CELLS, "AutoRatio"])
def test_weights_are_the_ratio_of_the_counts(name):
    ratio, most = TEN_CELLS[name] if name in TEN_CELLS else (auto(), 0.15)
    errors = []
    for seed in range(3):
        X, target = ten_cells(seed)
        errors.append(rmse(clone(ratio).fit(X, target=target).weights_, ratio_of_counts(X, target)))
    assert np.mean(errors) <= most


@pytest.mark.parametrize("eta", [0.1, 0.5])
def test_relative_weights_are_the_relative_ratio_of_the_counts(eta):
    X, target = ten_cells(0)
    truth = ratio_of_counts(X, target)
    truth = truth / (1 - eta + eta * truth)
    weights = RULSIF(eta, random_state=0).fit(X, target=target).weights_
    assert rmse(weights, truth / truth.mean()) <= 0.1


@pytest.mark.parametrize("k", [2, 4, 6, 8, 10])
@pytest.mark.parametrize("name", [*TEN_CELLS, "AutoRatio"])
def test_binary_columns(name, k):
    ratio = TEN_CELLS[name][0] if name in TEN_CELLS else auto()
    X, target, truth = binary_columns(1, k)
    most = 0.30 if k <= 6 else 0.65 if name == "KMM" else 0.55
    assert rmse(clone(ratio).fit(X, target=target).weights_, truth) <= most * rmse(1, truth)


def test_trees_see_rows_and_not_merged_ones():
    """With at least twenty rows per leaf, boosted trees could not split ten merged rows."""
    X, target = ten_cells(0)
    ratio = ClassifierRatio(HistGradientBoostingClassifier(random_state=0), random_state=0).fit(X, target=target)
    assert rmse(ratio.weights_, ratio_of_counts(X, target)) <= 0.25


@pytest.mark.parametrize("name", [*TEN_CELLS, "RULSIF", "AutoRatio"])
def test_weighting_a_row_is_repeating_it_selection_included(name):
    ratio = {"RULSIF": RULSIF(0.3, random_state=0)}.get(name) or (TEN_CELLS[name][0] if name in TEN_CELLS else auto())
    X, target = ten_cells(3, 300, 260)
    counts = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = clone(ratio).fit(X, target=target, sample_weight=counts)
    repeated = clone(ratio).fit(X.repeat(counts, axis=0), target=target)
    np.testing.assert_allclose(weighted.weights_.repeat(counts), repeated.weights_, atol=1e-9)
    assert np.ptp(weighted.weights_[counts > 0]) > 0.5


@pytest.mark.parametrize("name", [*TEN_CELLS, "AutoRatio"])
def test_the_scale_of_weights_that_are_not_whole_changes_nothing(name):
    ratio = TEN_CELLS[name][0] if name in TEN_CELLS else auto()
    X, target = ten_cells(4, 300, 260)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(X))
    plain = clone(ratio).fit(X, target=target, sample_weight=weights).weights_
    scaled = clone(ratio).fit(X, target=target, sample_weight=np.pi * weights).weights_
    np.testing.assert_allclose(plain, scaled, atol=1e-9)


@pytest.mark.parametrize("name", [*TEN_CELLS, "AutoRatio"])
def test_the_order_of_the_rows_does_not_matter(name):
    ratio = TEN_CELLS[name][0] if name in TEN_CELLS else auto()
    X, target = ten_cells(5, 300, 260)
    order = np.random.default_rng(0).permutation(len(X))
    weights = clone(ratio).fit(X, target=target).weights_
    np.testing.assert_allclose(clone(ratio).fit(X[order], target=target[::-1]).weights_, weights[order], atol=1e-9)


# --- methods that use the weights ---


def test_the_validation_weights_of_fit_are_those_of_the_shift():
    from steelyard.app.fitting import validation_weights

    X, target = ten_cells(0)
    weights = validation_weights(X, target, auto().fit(X, target=target).weights_)
    truth = ratio_of_counts(X, target)
    bounded = truth / (0.9 + 0.1 * truth)
    assert rmse(weights, bounded / bounded.mean()) <= 0.15


def test_iwcv_gives_the_score_on_the_target():
    found, truth, source = [], [], []
    for seed in range(8):
        X, y, target = labeled_ten_cells(seed)
        model = LogisticRegression(C=0.01)
        found.append(iwcv_score(model, X, y, target=target).mean())
        model.fit(X, y)
        truth.append(target_accuracy(model))
        source.append(model.score(X, y))
    assert abs(np.mean(found) - np.mean(truth)) < 0.015 < abs(np.mean(source) - np.mean(truth))


def test_the_interval_of_the_target_score_covers_it():
    covered = 0
    for seed in range(40):
        X, y, target = labeled_ten_cells(seed)
        model = LogisticRegression().fit(X[:1000], y[:1000])
        interval = target_performance(model, X[1000:], y[1000:], target=target).target
        covered += interval.low <= target_accuracy(model) <= interval.high
    assert covered >= 34  # of forty; with 95 % coverage fewer have a probability of 1/500


def test_one_step_is_no_worse_than_weighted_logistic_regression():
    losses = []
    for seed in range(3):
        X, y, target = labeled_ten_cells(seed)
        one_step = OneStepClassifier(random_state=0).fit(X, y, target=target)
        weighted = WeightedClassifier(LogisticRegression()).fit(X, y, target=target)
        losses.append(target_accuracy(weighted) - target_accuracy(one_step))
    assert np.mean(losses) <= 0.02


def test_diagnose_says_what_the_shift_costs():
    X, target = ten_cells(0)
    truth = ratio_of_counts(X, target)
    expected = truth.sum() ** 2 / np.square(truth).sum() / len(truth)
    shares = [steelyard.diagnose(X, target=target, random_state=seed).effective_share for seed in range(3)]
    np.testing.assert_allclose(shares, expected, rtol=0.1)


# --- bad input ---


def test_cells_that_only_the_target_has_are_named_with_their_share():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (400, 2)).astype(float)
    target = rng.integers(0, 3, (400, 2)).astype(float)
    target[:100] = [7.0, 1.0]
    with pytest.warns(steelyard.errors.UnseenCellsWarning, match=r"25% of the target rows.*column 0 = 7, column 1 = 1"):
        ULSIF(random_state=0).fit(X, target=target)


def test_cells_that_the_source_lacks_by_chance_are_not_spoken_of():
    X, target, _ = binary_columns(0, 10, 1500)
    with warnings.catch_warnings():
        warnings.simplefilter("error", steelyard.errors.UnseenCellsWarning)
        ULSIF(random_state=0).fit(X, target=target)


def test_masses_of_zero_are_rows_that_are_not_there():
    X, target = ten_cells(0, 400, 400)
    counts = np.r_[np.zeros(150), np.ones(250)]
    weighted = ULSIF(random_state=0).fit(X, target=target, sample_weight=counts)
    np.testing.assert_allclose(
        weighted.weights_[150:], ULSIF(random_state=0).fit(X[150:], target=target).weights_, atol=1e-9
    )
    assert not weighted.weights_[:150].any()


@pytest.mark.parametrize("name", ["ULSIF", "AutoRatio"])
def test_a_hundred_thousand_levels(name):
    rng = np.random.default_rng(0)
    X = rng.permutation(100_000)[:, None].astype(float)
    target = rng.integers(30_000, 130_000, (2000, 1)).astype(float)
    ratio = auto() if name == "AutoRatio" else TEN_CELLS[name][0]
    weights = clone(ratio).fit(X, target=target).weights_
    assert weights[X[:, 0] > 50_000].mean() > 1.2 > 0.5 > weights[X[:, 0] < 20_000].mean()
