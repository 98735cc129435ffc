"""AutoRatio: weights that suit the table and do not depend on the seed; balance of the columns."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from steelyard import ULSIF, AutoRatio, ClassifierRatio, WeightedRegressor, cross_fitted_balance
from steelyard.balance import balance_in_words, column_balance
from steelyard.datasets import gaussian_pair, mixed_tables
from steelyard.errors import InputTypeError, NoOverlapError, RawMeanWarning
from steelyard.ratio import KMM
from steelyard.ratio._domain_classifiers import BoundedCalibration
from steelyard.ratio.auto import ETA
from steelyard.ratio.candidates import BOOSTED, KERNEL, LINEAR, UNIFORM, RatioCandidate, assign_shares, mixture_in_words

pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")


@pytest.fixture(scope="module")
def linear_draws():
    return [mixed_tables(shift="linear", random_state=seed) for seed in range(2)]


@pytest.fixture(scope="module")
def product_draws():
    return [mixed_tables(shift="products", random_state=seed) for seed in range(2)]


def left(tables, ratio):
    """Mean difference of the columns after cross-fitted weights, as a share of that before."""
    if isinstance(ratio, AutoRatio):
        balance = ratio.fit(tables.X, target=tables.X_target).balance_
    else:
        balance = cross_fitted_balance(ratio, tables.X, target=tables.X_target)
    return balance.mean_after / balance.mean_before


def linear_ratio():
    return ClassifierRatio(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), random_state=0)


def test_the_generator_is_what_it_says(linear_draws, product_draws):
    for tables in (*linear_draws, *product_draws):
        assert tables.X.shape == tables.X_target.shape == (1500, 60)
        balance = column_balance(tables.X, tables.X_target, np.ones(1500))
        assert 0.10 <= balance.mean_before <= 0.18
        # The true ratio balances the columns up to noise.
        true = column_balance(tables.X, tables.X_target, tables.ratio)
        assert np.mean(np.abs(true.after) < 2 * true.noise) > 0.85
        assert tables.ratio.mean() == pytest.approx(1, abs=0.25)


def test_sixty_columns_of_numbers_and_categories_are_balanced(linear_draws):
    shares = [left(tables, AutoRatio(random_state=0)) for tables in linear_draws]
    assert np.mean(shares) <= 0.35
    assert max(shares) <= 0.45
    assert left(linear_draws[0], ULSIF(random_state=0)) > 0.5  # which is why there is a choice


def test_shifts_through_products_are_seen(product_draws):
    auto = np.mean([left(tables, AutoRatio(random_state=0)) for tables in product_draws])
    single = [np.mean([left(tables, ratio) for tables in product_draws]) for ratio in (ULSIF(), linear_ratio())]
    assert auto < min(single)


def test_smooth_shifts_in_few_columns_go_to_the_kernels():
    pair = gaussian_pair(1000, 1000, 2, shift=0.5, scale=0.8, random_state=0)
    ratio = AutoRatio(random_state=0).fit(pair.X, target=pair.X_target)
    assert ratio.chosen_ == KERNEL
    truth = pair.ratio(pair.X)
    assert np.mean(np.square(ratio.weights_ - truth)) < 0.2 * np.mean(np.square(1 - truth))


def test_without_a_shift_the_weights_are_uniform():
    chosen = []
    for seed in range(5):
        pair = gaussian_pair(300, 300, 3, shift=0.0, scale=1.0, random_state=seed)
        chosen.append(AutoRatio(random_state=0).fit(pair.X, target=pair.X_target).chosen_)
    assert chosen.count(UNIFORM) >= 4


def test_few_rows_have_no_boosting():
    pair = gaussian_pair(150, 300, 2, random_state=0)
    names = {c.name for c in AutoRatio(random_state=0).fit(pair.X, target=pair.X_target).candidates_}
    assert names == {UNIFORM, KERNEL, LINEAR}
    pair = gaussian_pair(200, 300, 2, random_state=0)
    assert BOOSTED in {c.name for c in AutoRatio(random_state=0).fit(pair.X, target=pair.X_target).candidates_}


def test_the_effective_sample_size_does_not_depend_on_the_seed_or_a_single_row(linear_draws):
    tables = linear_draws[1]
    seeds = [AutoRatio(random_state=s).fit(tables.X, target=tables.X_target).effective_sample_size_ for s in range(5)]
    rows = np.random.default_rng(0).integers(len(tables.X), size=5)
    without = [
        AutoRatio(random_state=0).fit(np.delete(tables.X, row, axis=0), target=tables.X_target).effective_sample_size_
        for row in rows
    ]
    for sizes in (seeds, without):
        assert np.std(sizes, ddof=1) / np.mean(sizes) <= 0.05


def test_the_score_is_the_squared_error_of_the_relative_ratio():
    """Up to a constant, and in the mean over held-out rows: by brute force with the true ratio."""
    pair = gaussian_pair(2000, 2000, 1, shift=0.5, scale=0.8, random_state=1)
    found = {c.name: c for c in AutoRatio(random_state=0).fit(pair.X, target=pair.X_target).candidates_}
    truth = pair.ratio(pair.X, ETA)
    # Squared error of uniform weights under the mixture, less that of the best: half of it is the gap of the scores.
    mixture = 1 - ETA + ETA * pair.ratio(pair.X)
    uniform = 0.5 * np.mean(mixture * np.square(1 - truth))
    assert found[UNIFORM].score == pytest.approx(-0.5)
    assert found[UNIFORM].score - found[KERNEL].score == pytest.approx(uniform, rel=0.25)


def test_prediction_is_the_function_behind_the_weights():
    pair = gaussian_pair(2000, 2000, 2, shift=0.5, scale=0.8, random_state=0)
    ratio = AutoRatio(random_state=0).fit(pair.X, target=pair.X_target)
    assert mixture_in_words(ratio.candidates_) == KERNEL
    np.testing.assert_allclose(ratio.predict(pair.X) / ratio.source_mean_, ratio.weights_)
    tables = mixed_tables(600, 600, random_state=0)
    ratio = AutoRatio(random_state=0).fit(tables.X, target=tables.X_target)
    assert ratio.chosen_ in (LINEAR, BOOSTED)
    assert np.corrcoef(ratio.predict(tables.X), ratio.weights_)[0, 1] > 0.8


def test_shares_fall_with_the_distance_to_the_best():
    def candidate(name, score, error):
        return RatioCandidate(name, score, error, 100.0, 0.1)

    kernel, linear, uniform = (
        candidate(KERNEL, -0.8, 0.0),
        candidate(LINEAR, -0.78, 0.02),
        candidate(UNIFORM, -0.5, 0.1),
    )
    assert [c.share for c in assign_shares([kernel, linear, uniform])] == pytest.approx([2 / 3, 1 / 3, 0])
    # One standard error worse than the best, uniform weights have half, and the others divide the rest.
    close = candidate(UNIFORM, -0.5, 0.3)
    assert [c.share for c in assign_shares([kernel, linear, close])] == pytest.approx([1 / 3, 1 / 6, 1 / 2])
    # Where uniform weights are the best, no other candidate has a share, however close its score.
    best = candidate(UNIFORM, -0.5, 0.0), candidate(LINEAR, -0.4999, 0.1), candidate(KERNEL, -0.5, 0.1)
    assert [c.share for c in assign_shares(best)] == [1, 0, 0]


def test_an_average_of_candidates_is_nearer_to_the_truth_than_they_are():
    """Where several have about the same score; its predictions are the average of their predictions."""
    errors = {"average": 0.0, "best": 0.0}
    for seed in range(4):
        pair = gaussian_pair(1500, 1500, 5, shift=0.3, scale=0.9, random_state=seed)
        ratio = AutoRatio(random_state=0).fit(pair.X, target=pair.X_target)
        used = [c for c in ratio.candidates_ if c.share]
        assert len(used) > 1
        assert sum(c.share for c in used) == pytest.approx(1)
        truth = pair.ratio(pair.X)
        each = [part.values(pair.X) for part in ratio.parts_]
        assert [part.name for part in ratio.parts_] == [c.name for c in used]
        by_hand = sum(c.share * values / values.mean() for c, values in zip(used, each, strict=True))
        predicted = ratio.predict(pair.X)
        np.testing.assert_allclose(predicted / predicted.mean(), by_hand, rtol=0.1)  # weights are cross-fitted ones
        errors["average"] += np.mean(np.square(by_hand - truth))
        errors["best"] += min(np.mean(np.square(values / values.mean() - truth)) for values in each)
    assert errors["average"] < 1.1 * errors["best"]


def test_the_choice_does_not_flip_where_two_candidates_are_about_as_good():
    """On this table a single candidate would have an effective sample size of 289 or 405, depending on a single row."""
    tables = mixed_tables(shift="products", random_state=1004)
    rows = np.random.default_rng(0).integers(len(tables.X), size=5)
    sizes = [
        AutoRatio(random_state=0).fit(np.delete(tables.X, row, axis=0), target=tables.X_target).effective_sample_size_
        for row in rows
    ]
    assert np.std(sizes, ddof=1) / np.mean(sizes) <= 0.05


def test_disjoint_domains_are_an_error():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    with pytest.raises(NoOverlapError):
        AutoRatio(random_state=0).fit(X, target=rng.uniform(5, 6, (300, 2)))
    with pytest.warns(RawMeanWarning):  # closer, but not overlapping
        AutoRatio(random_state=0).fit(X, target=rng.uniform(1.5, 2.5, (300, 2)))


def test_it_is_the_default_of_weighted_estimators():
    from sklearn.linear_model import Ridge

    pair = gaussian_pair(200, 200, 2, random_state=0)
    model = WeightedRegressor(Ridge()).fit(pair.X, pair.X[:, 0], target=pair.X_target)
    assert isinstance(model.ratio_, AutoRatio)


def test_the_calibration_is_bounded_where_hardly_any_source_row_is():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-0.5, 1, 400), rng.normal(0.5, 1, 400)
    mass = np.full(400, 1 / 400), np.full(400, 1 / 400)
    fitted = BoundedCalibration().fit(log_odds, mass, 400)
    largest = np.sort(log_odds[0])[-10]  # ½/√400 of 400 rows are ten
    assert fitted.largest_ == pytest.approx(largest)
    np.testing.assert_allclose(fitted.ratio(np.array([largest, 9.0])), fitted.ratio(np.array([largest, largest])))
    # Log-odds of two Gaussians whose means differ by one standard deviation: slope one, intercept zero.
    assert fitted.slope_ == pytest.approx(1, abs=0.25)
    assert fitted.intercept_ == pytest.approx(0, abs=0.2)


# --- balance ---


def test_balance_is_the_difference_of_means_in_pooled_standard_deviations():
    rng = np.random.default_rng(0)
    X, target, weights = rng.normal(size=(50, 3)), rng.normal(0.5, 2, size=(40, 3)), rng.exponential(size=50)
    found = column_balance(X, target, weights)
    unit = np.sqrt((X.var(axis=0) + target.var(axis=0)) / 2)
    np.testing.assert_allclose(found.before, (target.mean(axis=0) - X.mean(axis=0)) / unit)
    np.testing.assert_allclose(found.after, (target.mean(axis=0) - np.average(X, axis=0, weights=weights)) / unit)
    assert [c.name for c in found.by_column()] == [f"x{i}" for i in np.argsort(-np.abs(found.after))]


@pytest.mark.parametrize("ratio", [ULSIF(random_state=0), AutoRatio(random_state=0), KMM(random_state=0)])
def test_every_ratio_estimator_has_its_balance(ratio):
    pair = gaussian_pair(300, 300, 2, shift=0.5, scale=0.8, random_state=0)
    balance = ratio.fit(pair.X, target=pair.X_target).balance_
    assert balance.mean_after < 0.5 * balance.mean_before


def test_cross_fitted_balance_by_hand():
    from steelyard._splits.rows import folds_of_table

    pair = gaussian_pair(200, 200, 2, random_state=0)
    ratio = ULSIF(width=1.0, reg=0.1, random_state=0)
    found = cross_fitted_balance(ratio, pair.X, target=pair.X_target, n_folds=3, random_state=7)
    rng = np.random.default_rng(7)
    source, target = (folds_of_table(list(rows.T), 3, rng) for rows in (pair.X, pair.X_target))
    weights = np.empty(200)
    for f in range(3):
        fit = ULSIF(width=1.0, reg=0.1, random_state=0)
        fit.fit(pair.X[source != f], target=pair.X_target[target != f])
        weights[source == f] = fit.predict(pair.X[source == f]) / fit.source_mean_
    np.testing.assert_allclose(found.after, column_balance(pair.X, pair.X_target, weights).after)
    with pytest.raises(InputTypeError, match="KMM has no predict"):
        cross_fitted_balance(KMM(), pair.X, target=pair.X_target)


def test_weights_that_leave_a_column_further_off_are_said_in_words():
    rng = np.random.default_rng(0)
    X, target = rng.normal(size=(400, 2)), rng.normal(size=(400, 2))
    bad = np.exp(X[:, 1])
    sentence = balance_in_words(column_balance(X, target, bad, columns=["age", "income"]).by_column())
    assert sentence is not None
    assert "1 of 2 columns further from the target" in sentence
    assert "income" in sentence
    assert balance_in_words(column_balance(X, target, np.ones(400)).by_column()) is None


def test_huge_and_constant_columns_have_a_balance():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(1e9, 1, 100), np.ones(100)])
    target = np.column_stack([rng.normal(1e9 + 1, 1, 100), np.ones(100)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = column_balance(X, target, np.ones(100))
    assert found.before[0] == pytest.approx(1, abs=0.4)
    assert found.after[1] == 0


def test_the_noise_of_a_balance_is_what_chance_leaves():
    """With the true weights the remaining difference has standard deviation `noise`, with merged rows or without."""
    rng = np.random.default_rng(0)
    left, noise = [], []
    for _ in range(300):
        X, target = (rng.random((200, 1)) < 0.3).astype(float), (rng.random((150, 1)) < 0.6).astype(float)
        found = column_balance(X, target, np.where(X[:, 0] == 1, 2.0, 0.4 / 0.7))
        left.append(found.after[0])
        noise.append(found.noise[0])
        cells, counts = np.unique(X, axis=0, return_counts=True)
        merged = column_balance(cells, target, np.where(cells[:, 0] == 1, 2.0, 0.4 / 0.7), counts, n_rows=200)
        assert merged.noise[0] == pytest.approx(found.noise[0])
        assert merged.after[0] == pytest.approx(found.after[0])
    assert np.std(left) == pytest.approx(np.mean(noise), rel=0.15)
