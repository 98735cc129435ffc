"""Vines: against integrals, pyvinecopulib's own vine and a Gaussian; what changed is found and refitted."""

import sys

import numpy as np
import pytest

from steelyard import Target
from steelyard.baselines import CopulaRegressor
from steelyard.errors import DependencyError, ParameterError
from steelyard.vine import adapt, fit_vine, kernel_marginal

pytest.importorskip("pyvinecopulib", reason="pyvinecopulib is not installed: pip install 'steelyard[vine]'")


def normal_rows(n, d, seed=0, correlation=0.7):
    covariance = correlation ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.random.default_rng(seed).multivariate_normal(np.zeros(d), covariance, n), covariance


def never(here, there):
    return False


@pytest.mark.parametrize(("d", "points"), [(2, 121), (3, 49)])
def test_density_integrates_to_one(d, points):
    Z, _ = normal_rows(300, d)
    grid = np.linspace(-6, 6, points)
    every = np.stack(np.meshgrid(*[grid] * d, indexing="ij"), axis=-1).reshape(-1, d)
    total = np.exp(fit_vine(Z).log_density(every)).sum() * (grid[1] - grid[0]) ** d
    assert total == pytest.approx(1, abs=0.02)


def test_density_is_that_of_pyvinecopulib():
    import pyvinecopulib as pv
    from pyvinecopulib.families import tll

    Z, _ = normal_rows(400, 4)
    vine = fit_vine(Z)
    U = np.column_stack([m.probability(z) for m, z in zip(vine.marginals, Z.T, strict=True)])
    controls = pv.FitControlsVinecop(family_set=[tll], num_threads=1)
    theirs = np.log(pv.Vinecop.from_data(U, controls=controls).pdf(U))
    ours = vine.log_copula(list(U.T))
    # The same trees: the first ones of a chain are its neighbours.
    assert {frozenset(pair.variables) for pair in vine.trees[0]} == {frozenset(p) for p in ((0, 1), (1, 2), (2, 3))}
    assert [len(tree) for tree in vine.trees] == [3, 2, 1]
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    np.testing.assert_allclose(ours.mean(), theirs.mean(), atol=0.02)


def test_density_is_near_the_true_one():
    from scipy.stats import multivariate_normal

    Z, covariance = normal_rows(3000, 3)
    new, _ = normal_rows(300, 3, seed=1)
    true = multivariate_normal(np.zeros(3), covariance).logpdf(new)
    assert np.mean(np.abs(fit_vine(Z).log_density(new) - true)) < 0.2


def with_one_marginal_shifted(seed):
    (here, _), (there, _) = normal_rows(300, 3, seed), normal_rows(150, 3, seed + 100)
    there[:, 1] = 2 + 0.5 * there[:, 1]
    model = CopulaRegressor(standardize=False, random_state=0)
    return here, model.fit(here[:, :2], here[:, 2], target=Target(there[:, :2], there[:, 2]))


def test_a_shifted_marginal_is_always_found_and_others_as_seldom_as_the_level_says():
    models = [with_one_marginal_shifted(seed)[1] for seed in range(12)]
    assert all(1 in model.changed_marginals_ for model in models)
    others = sum(len(model.changed_marginals_) - 1 + len(model.changed_pairs_) for model in models)
    assert others <= 8  # of 60 at a level of 0.05


def test_a_shifted_marginal_is_refitted_and_the_rest_left_alone():
    here, model = with_one_marginal_shifted(0)
    assert model.changed_marginals_ == [1]
    assert model.changed_pairs_ == []
    before = fit_vine(here)
    for i in (0, 2):
        np.testing.assert_array_equal(model.vine_.marginals[i].values, before.marginals[i].values)
    assert model.vine_.marginals[1].values.mean() == pytest.approx(2, abs=0.2)
    for tree, same in zip(model.vine_.trees, before.trees, strict=True):
        for ours, theirs in zip(tree, same, strict=True):
            np.testing.assert_allclose(ours.copula.parameters, theirs.copula.parameters)


def test_a_changed_pair_is_found():
    (here, _), (there, _) = normal_rows(300, 2), normal_rows(200, 2, 1, correlation=-0.7)
    model = CopulaRegressor(random_state=0).fit(here[:, :1], here[:, 1], target=Target(there[:, :1], there[:, 1]))
    assert model.changed_pairs_ == [((0, 1), frozenset())]
    assert model.predict([[2.0]])[0] < -0.5


def test_prediction_is_the_conditional_mean():
    Z, _ = normal_rows(2000, 2)
    few, _ = normal_rows(50, 2, 1)
    model = CopulaRegressor(level=0.0, random_state=0).fit(Z[:, :1], Z[:, 1], target=Target(few[:, :1], few[:, 1]))
    at = np.linspace(-1.5, 1.5, 7)
    np.testing.assert_allclose(model.predict(at[:, None]), 0.7 * at, atol=0.12)
    assert np.isfinite(model.predict([[50.0], [-1e6]])).all()  # far from every row


def test_a_vine_that_did_not_change_is_the_same():
    Z, _ = normal_rows(100, 3)
    vine = fit_vine(Z)
    same = adapt(vine, Z, Z[:20], never)
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
    with pytest.raises(ParameterError, match="level must be between 0 and 1"):
        CopulaRegressor(level=2).fit(Z[:, :2], Z[:, 2], target=target)
    constant = Z.copy()
    constant[:, 0] = 1.0
    model = CopulaRegressor(random_state=0).fit(constant[:, :2], Z[:, 2], target=Target(constant[:5, :2], Z[:5, 2]))
    assert np.isfinite(model.predict(constant[:, :2])).all()
    monkeypatch.setitem(sys.modules, "pyvinecopulib", None)
    with pytest.raises(DependencyError, match=r"pip install 'steelyard\[vine\]'"):
        CopulaRegressor().fit(Z[:, :2], Z[:, 2], target=target)
