"""Properties that every ratio estimator has."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import MultinomialNB
from threadpoolctl import threadpool_info

from steelyard import KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio, Target, WeightedRegressor
from steelyard.datasets import gaussian_pair
from steelyard.errors import ColumnMismatchError, NoTargetWarning

ALL = {
    "KLIEP": KLIEP(random_state=0),
    "KMM": KMM(random_state=0),
    "LSIF": LSIF(random_state=0),
    "RULSIF": RULSIF(0.3, random_state=0),
    "ULSIF": ULSIF(random_state=0),
    "ClassifierRatio": ClassifierRatio(random_state=0),
    "AutoRatio": AutoRatio(random_state=0),
}
CENTERS = np.random.default_rng(9).normal(0.4, 0.8, size=(25, 3))
FIXED = {
    "KLIEP": KLIEP(width=1.0, centers=CENTERS, random_state=0, tol=1e-10),
    "KMM": KMM(width=1.0, random_state=0),
    "LSIF": LSIF(width=1.0, reg=0.01, centers=CENTERS, random_state=0),
    "RULSIF": RULSIF(0.3, width=1.0, reg=0.01, centers=CENTERS, random_state=0),
    "ULSIF": ULSIF(width=1.0, reg=0.1, centers=CENTERS, random_state=0),
}


@pytest.fixture(scope="module")
def pair():
    return gaussian_pair(160, 120, 3, shift=0.4, scale=0.9, random_state=11)


def with_mapped_centers(estimator, map_rows):
    return clone(estimator).set_params(centers=map_rows(CENTERS)) if hasattr(estimator, "centers") else estimator


@pytest.mark.parametrize("name", ALL)
def test_weights_are_non_negative_with_mean_one(name, pair):
    weights = clone(ALL[name]).fit(pair.X, target=pair.X_target).weights_
    assert weights.shape == (160,)
    assert weights.min() >= 0
    assert weights.mean() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_same_seed_same_weights_and_no_input_changed(name, pair):
    X, target = pair.X.copy(), pair.X_target.copy()
    first = clone(ALL[name]).fit(X, target=Target(target)).weights_
    second = clone(ALL[name]).fit(X, target=target).weights_
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(X, pair.X)
    np.testing.assert_array_equal(target, pair.X_target)


@pytest.mark.parametrize("name", ALL)
def test_global_seed_is_neither_used_nor_moved(name, pair):
    np.random.seed(1)  # noqa: NPY002 (the global seed is what is tested)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = clone(ALL[name]).fit(pair.X, target=pair.X_target).weights_
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    np.testing.assert_array_equal(first, clone(ALL[name]).fit(pair.X, target=pair.X_target).weights_)


@pytest.mark.parametrize("name", ALL)
def test_order_of_rows_does_not_matter_even_to_selection(name, pair):
    order = np.random.default_rng(0).permutation(len(pair.X))
    weights = clone(ALL[name]).fit(pair.X, target=pair.X_target).weights_
    permuted = clone(ALL[name]).fit(pair.X[order], target=pair.X_target[::-1]).weights_
    np.testing.assert_allclose(permuted, weights[order], atol=1e-9)


@pytest.mark.parametrize("name", FIXED)
def test_permuted_rows_permute_the_weights(name, pair):
    order = np.random.default_rng(1).permutation(len(pair.X))
    plain, permuted = clone(FIXED[name]), clone(FIXED[name])
    plain.fit(pair.X, target=pair.X_target)
    permuted.fit(pair.X[order], target=pair.X_target[::-1])
    if name == "KMM":
        assert permuted.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=1e-8)
    np.testing.assert_allclose(permuted.weights_, plain.weights_[order], atol=1e-9)


@pytest.mark.parametrize("name", FIXED)
def test_affine_maps_of_columns_change_nothing(name, pair):
    def affine(rows):
        return rows * [100.0, -0.01, 3.0] + [5.0, -7.0, 1000.0]

    plain = clone(FIXED[name]).fit(pair.X, target=pair.X_target)
    mapped = with_mapped_centers(FIXED[name], affine).fit(affine(pair.X), target=affine(pair.X_target))
    if name == "KMM":  # its weights are not identified to the last digits, its objective is
        assert mapped.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=1e-8)
    else:
        np.testing.assert_allclose(mapped.weights_, plain.weights_, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_weighting_a_row_is_repeating_it(name, pair):
    counts = np.random.default_rng(2).integers(0, 4, size=len(pair.X))
    weighted = clone(ALL[name]).fit(pair.X, target=pair.X_target, sample_weight=counts)
    repeated = clone(ALL[name]).fit(pair.X.repeat(counts, axis=0), target=pair.X_target)
    np.testing.assert_allclose(weighted.weights_.repeat(counts), repeated.weights_, atol=1e-8)
    assert np.average(weighted.weights_, weights=counts) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["RULSIF", "ULSIF", "LSIF", "KLIEP", "KMM"])
def test_single_precision_gives_the_same_answer(name, pair):
    double = clone(FIXED[name]).fit(pair.X, target=pair.X_target)
    single = clone(FIXED[name]).fit(pair.X.astype(np.float32), target=pair.X_target.astype(np.float32))
    if name == "KMM":  # its weights are not identified to the last digits, its objective is
        assert single.certificate_.objective == pytest.approx(double.certificate_.objective, rel=1e-5)
    else:
        np.testing.assert_allclose(single.weights_, double.weights_, atol=1e-4)


@pytest.mark.parametrize("name", ["RULSIF", "ULSIF", "LSIF", "KLIEP"])
def test_predict_at_the_source_is_the_weights_before_normalizing(name, pair):
    fit = clone(ALL[name]).fit(pair.X, target=pair.X_target)
    ratio = fit.predict(pair.X)
    np.testing.assert_allclose(ratio / ratio.mean(), fit.weights_, atol=1e-12)


def test_kmm_has_no_predict():
    assert not hasattr(KMM(), "predict")
    assert not hasattr(KMM(), "score")


@pytest.mark.parametrize("eta", [1.0, 1])
def test_eta_one_is_exactly_one(eta, pair):
    fit = RULSIF(eta, random_state=0).fit(pair.X, target=pair.X_target)
    assert np.all(fit.weights_ == 1)
    assert np.all(fit.predict(pair.X_target) == 1)


def test_centers_are_drawn_without_replacement(pair):
    fit = ULSIF(n_centers=100, random_state=0).fit(pair.X, target=pair.X_target)
    assert len(np.unique(fit.centers_, axis=0)) == 100
    drawn = fit.centers_ * fit.scale_ + fit.center_
    assert all(np.abs(pair.X_target - row).sum(axis=1).min() < 1e-9 for row in drawn)
    assert len(ULSIF(n_centers=500, random_state=0).fit(pair.X, target=pair.X_target).centers_) == 120


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n_source=st.integers(5, 60),
    n_target=st.integers(5, 60),
    d=st.integers(1, 6),
    shift=st.floats(-1, 1),
    scale=st.floats(0.5, 1.5),
    unit=st.floats(1e-6, 1e6),
    seed=st.integers(0, 10**6),
)
@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
@pytest.mark.parametrize("name", ALL)
def test_any_overlapping_tables_give_lawful_weights(name, n_source, n_target, d, shift, scale, unit, seed):
    pair = gaussian_pair(n_source, n_target, d, shift=shift / d, scale=scale, random_state=seed)
    from steelyard.errors import NoOverlapError

    try:
        fit = clone(ALL[name]).fit(pair.X * unit, target=pair.X_target * unit)
    except NoOverlapError:
        return  # few rows in six columns may not overlap; then this error is right
    assert np.isfinite(fit.weights_).all()
    assert fit.weights_.min() >= 0
    assert fit.weights_.mean() == pytest.approx(1, abs=1e-12)


def test_a_fit_leaves_nothing_of_the_one_before(pair):
    fit = ULSIF(random_state=0).fit(pair.X, target=pair.X_target)
    assert hasattr(fit, "scores_")
    fit.set_params(width=1.0, reg=0.1).fit(pair.X, target=pair.X_target)
    assert not hasattr(fit, "scores_")
    with pytest.warns(NoTargetWarning):
        fit.fit(pair.X)
    assert not hasattr(fit, "coef_")
    model = WeightedRegressor(Ridge(), fit).fit(pair.X, pair.X[:, 0], target=pair.X_target)
    assert hasattr(model, "ratio_")
    model.set_params(flattening=0).fit(pair.X, pair.X[:, 0], target=pair.X_target)
    assert not hasattr(model, "ratio_")


def test_rows_that_do_not_count_have_weight_zero(pair):
    counts = np.r_[np.zeros(90), np.ones(70)]
    with pytest.warns(NoTargetWarning):
        fit = ULSIF().fit(pair.X, sample_weight=counts)
    assert fit.effective_sample_size_ == pytest.approx(70)
    assert not fit.weights_[:90].any()


def test_a_classifier_no_better_than_chance_gives_equal_weights():
    slopes = []
    for seed in range(20):
        same = gaussian_pair(40, 40, 2, shift=0.0, scale=1.0, random_state=seed)
        fit = ClassifierRatio(random_state=0).fit(same.X, target=same.X_target)
        slopes.append(fit.slope_)
        if fit.slope_ == 0:
            np.testing.assert_allclose(fit.weights_, 1)
    assert min(slopes) == 0
    assert max(slopes) > 0


def test_classifier_sees_the_columns_as_they_are():
    rng = np.random.default_rng(0)
    X, target = rng.poisson([3, 5], size=(80, 2)), rng.poisson([5, 3], size=(60, 2))
    fit = ClassifierRatio(MultinomialNB(), random_state=0).fit(X, target=target)
    assert np.average(X[:, 0], weights=fit.weights_) > X[:, 0].mean()


def test_several_threads_leave_blas_as_it_was(pair):
    before = [info["num_threads"] for info in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        fits = list(pool.map(lambda _: clone(ALL["ULSIF"]).fit(pair.X, target=pair.X_target).weights_, range(8)))
    assert [info["num_threads"] for info in threadpool_info()] == before
    for weights in fits:
        np.testing.assert_array_equal(weights, fits[0])


@pytest.mark.parametrize("name", ["RULSIF", "ULSIF"])
def test_single_precision_chooses_alike(name, pair):
    double = clone(ALL[name]).fit(pair.X, target=pair.X_target)
    single = clone(ALL[name]).fit(pair.X.astype(np.float32), target=pair.X_target.astype(np.float32))
    assert single.centers_.dtype == np.float32
    np.testing.assert_allclose(single.scores_, double.scores_, rtol=2e-3)


def test_centers_may_come_as_a_frame():
    pd = pytest.importorskip("pandas", reason="pandas (extra 'tables') is not installed")
    pair = gaussian_pair(60, 50, 2, random_state=0)
    source, target = (pd.DataFrame(rows, columns=["a", "b"]) for rows in (pair.X, pair.X_target))
    plain = ULSIF(width=1.0, reg=1.0, centers=pair.X_target[:9]).fit(pair.X, target=pair.X_target)
    named = ULSIF(width=1.0, reg=1.0, centers=target[["b", "a"]][:9]).fit(source, target=target)
    np.testing.assert_allclose(named.weights_, plain.weights_)
    with pytest.raises(ColumnMismatchError, match="centers have 1 columns"):
        ULSIF(centers=pair.X_target[:9, :1]).fit(pair.X, target=pair.X_target)
