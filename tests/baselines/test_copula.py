"""Vines: against integrals, pyvinecopulib's own vine and a Gaussian; what changed is found and refitted."""

import pickle
import sys

import numpy as np
import pytest

from steelyard import Target
from steelyard.baselines import CopulaRegressor
from steelyard.baselines._vine import fit_vine, kernel_marginal, probabilities
from steelyard.errors import DependencyError, InputError, ParameterError

pytest.importorskip("pyvinecopulib", reason="pyvinecopulib is not installed: pip install 'steelyard[vine]'")


def normal_rows(n, d, seed=0, correlation=0.7):
    covariance = correlation ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.random.default_rng(seed).multivariate_normal(np.zeros(d), covariance, n), covariance


def never(in_source, in_target):
    return False


@pytest.mark.parametrize(("d", "points"), [(2, 121), (3, 49)])
def test_density_integrates_to_one(d, points):
    Z, _ = normal_rows(300, d)
    grid = np.linspace(-6, 6, points)
    every = np.stack(np.meshgrid(*[grid] * d, indexing="ij"), axis=-1).reshape(-1, d)
    total = np.exp(fit_vine(Z).log_density(every)).sum() * (grid[1] - grid[0]) ** d
    assert total == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("d", [4, 5])
@pytest.mark.parametrize("shape", ["path", "star"])
def test_density_is_that_of_pyvinecopulib(shape, d):
    import pyvinecopulib as pv
    from pyvinecopulib.families import tll

    Z, _ = normal_rows(400, d)
    if shape == "star":  # around the third column
        Z = Z[:, [2]] + np.random.default_rng(1).exponential(size=Z.shape) * (np.arange(d) != 2)
    vine = fit_vine(Z)
    U = probabilities(vine.marginals, Z)
    controls = pv.FitControlsVinecop(family_set=[tll], num_threads=1)
    expected = np.log(pv.Vinecop.from_data(np.column_stack(U), controls=controls).pdf(np.column_stack(U)))
    np.testing.assert_allclose(vine.log_copula(U), expected, rtol=1e-9, atol=1e-9)
    neighbors = [{2, i} for i in range(d) if i != 2] if shape == "star" else [{i, i + 1} for i in range(d - 1)]
    assert sorted(map(sorted, neighbors)) == sorted(sorted(pair.variables) for pair in vine.trees[0])
    assert [len(tree) for tree in vine.trees] == list(range(d - 1, 0, -1))


def test_density_is_near_the_true_one():
    from scipy.stats import multivariate_normal

    Z, covariance = normal_rows(3000, 3)
    new, _ = normal_rows(300, 3, seed=1)
    true = multivariate_normal(np.zeros(3), covariance).logpdf(new)
    assert np.mean(np.abs(fit_vine(Z).log_density(new) - true)) < 0.2


def with_one_marginal_shifted(seed):
    (source, _), (target, _) = normal_rows(300, 3, seed), normal_rows(150, 3, seed + 100)
    target[:, 1] = 2 + 0.5 * target[:, 1]
    model = CopulaRegressor(standardize=False, random_state=0)
    return source, model.fit(source[:, :2], source[:, 2], target=Target(target[:, :2], target[:, 2]))


def test_a_shifted_marginal_is_always_found_and_others_as_seldom_as_the_level_says():
    models = [with_one_marginal_shifted(seed)[1] for seed in range(12)]
    assert all(1 in model.changed_marginals_ for model in models)
    falsely = sum(len(model.changed_marginals_) - 1 + len(model.changed_pairs_) for model in models)
    assert falsely <= 8  # of 60 at a level of 0.05


def test_a_shifted_marginal_is_refitted_and_the_rest_left_alone():
    source, model = with_one_marginal_shifted(0)
    assert model.changed_marginals_ == [1]
    assert model.changed_pairs_ == []
    before = fit_vine(source)
    for i in (0, 2):
        np.testing.assert_array_equal(model.vine_.marginals[i].values, before.marginals[i].values)
    assert model.vine_.marginals[1].values.mean() == pytest.approx(2, abs=0.2)
    for tree, same in zip(model.vine_.trees, before.trees, strict=True):
        for found, expected in zip(tree, same, strict=True):
            np.testing.assert_allclose(found.copula.parameters, expected.copula.parameters)


def test_a_changed_pair_is_found():
    (source, _), (target, _) = normal_rows(300, 2), normal_rows(200, 2, 1, correlation=-0.7)
    model = CopulaRegressor(random_state=0).fit(source[:, :1], source[:, 1], target=Target(target[:, :1], target[:, 1]))
    assert model.changed_pairs_ == [((0, 1), frozenset())]
    assert model.predict([[2.0]])[0] < -0.5


def test_prediction_is_the_conditional_mean():
    Z, _ = normal_rows(2000, 2)
    few, _ = normal_rows(50, 2, 1)
    model = CopulaRegressor(level=0.0, random_state=0).fit(Z[:, :1], Z[:, 1], target=Target(few[:, :1], few[:, 1]))
    at = np.linspace(-1.5, 1.5, 7)
    np.testing.assert_allclose(model.predict(at[:, None]), 0.7 * at, atol=0.12)
    assert np.isfinite(model.predict([[50.0], [-1e6]])).all()  # far from every row


@pytest.mark.parametrize(("level", "spread"), [(3.0, 0.001), (1.0, 0.0), (1000.0, 0.5)])
def test_narrow_and_far_labels_of_the_target(level, spread):
    Z, _ = normal_rows(200, 2)
    few, _ = normal_rows(6, 2, 1)
    labels = level + spread * few[:, 1]
    model = CopulaRegressor(random_state=0).fit(Z[:, :1], Z[:, 1], target=Target(few[:, :1], labels))
    found = model.predict(np.linspace(-1, 1, 5)[:, None])
    assert (np.abs(found - level) < 3 * spread + 1e-4).all()


def test_quantiles_undo_probabilities():
    marginal = kernel_marginal(np.random.default_rng(0).exponential(size=100))
    u = np.array([1e-3, 0.2, 0.5, 0.99])
    np.testing.assert_allclose(marginal.probability(marginal.quantile(u)), u, atol=1e-9)


def test_the_same_seed_gives_the_same_model_and_it_can_be_stored():
    Z, _ = normal_rows(100, 3)
    target = Target(Z[:8, :2] + 0.5, Z[:8, 2])
    first, second = (CopulaRegressor(random_state=3).fit(Z[:, :2], Z[:, 2], target=target) for _ in range(2))
    np.testing.assert_array_equal(first.predict(Z[:, :2]), second.predict(Z[:, :2]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).predict(Z[:, :2]), first.predict(Z[:, :2]))


def test_a_vine_that_did_not_change_is_the_same():
    Z, _ = normal_rows(100, 3)
    vine = fit_vine(Z)
    same = vine.adapt(Z, Z[:20], never)
    np.testing.assert_array_equal(same.vine.log_density(Z), vine.log_density(Z))


def test_marginals():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    marginal = kernel_marginal(x)
    at = np.linspace(-5, 5, 2001)
    np.testing.assert_allclose(np.cumsum(marginal.density(at)) * 0.005, marginal.probability(at), atol=2e-3)
    constant = kernel_marginal(np.full(5, 3.0))
    assert constant.probability(np.array([2.9, 3.1])).tolist() == [0.0, 1.0]


def test_bad_input(monkeypatch):
    Z, _ = normal_rows(60, 3)
    target = Target(Z[:5, :2], Z[:5, 2])
    for level in (2, "1", None):
        with pytest.raises(ParameterError, match="level"):
            CopulaRegressor(level=level).fit(Z[:, :2], Z[:, 2], target=target)
    with pytest.raises(InputError, match="at least 10 source rows; got 9"):
        CopulaRegressor().fit(Z[:9, :2], Z[:9, 2], target=target)
    constant = Z.copy()
    constant[:, 0] = 1.0
    model = CopulaRegressor(random_state=0).fit(constant[:, :2], Z[:, 2], target=Target(constant[:5, :2], Z[:5, 2]))
    assert np.isfinite(model.predict(constant[:, :2])).all()
    monkeypatch.setitem(sys.modules, "pyvinecopulib", None)
    with pytest.raises(DependencyError, match=r"pip install 'steelyard\[vine\]'"):
        CopulaRegressor().fit(Z[:, :2], Z[:, 2], target=target)
