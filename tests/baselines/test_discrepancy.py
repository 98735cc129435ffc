"""Generalized discrepancy: optimality conditions, another solver, brute force over the hypotheses held possible."""

import warnings

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from sklearn.kernel_ridge import KernelRidge

from steelyard import Target
from steelyard._numerics.kernels import gaussian
from steelyard.baselines import DiscrepancyRegressor, discrepancy
from steelyard.baselines.discrepancy import EVENNESS, generalized_ridge, kernel_features, least_discrepancy
from steelyard.errors import DependencyError, ParameterError, SteelyardWarning

pytest.importorskip("clarabel", reason="Clarabel is not installed: pip install 'steelyard[discrepancy]'")


def features(seed, n=40, m=9, width=1.0):
    rng = np.random.default_rng(seed)
    X, there = rng.normal(size=(n, 2)), rng.normal(0.7, 0.6, size=(m, 2))
    made = kernel_features(np.vstack([X, there]), width)
    return X, there, made.of(X), made.of(there)


def norm(matrix):
    return np.abs(np.linalg.eigvalsh(matrix)).max()


@pytest.mark.parametrize("seed", range(4))
def test_weights_satisfy_the_optimality_conditions(seed):
    _, _, here, there = features(seed)
    found = least_discrepancy(here, there)
    q, n = found.weights, len(here)
    gap = (here.T * q) @ here - there.T @ there / len(there)
    # A subgradient of the spectral norm: nuclear norm one, and the norm itself along the gap.
    assert np.abs(np.linalg.eigvalsh(found.dual)).sum() == pytest.approx(1, abs=1e-5)
    assert np.sum(found.dual * gap) == pytest.approx(found.discrepancy, rel=1e-4)
    ridge = EVENNESS * norm(there.T @ there / len(there)) * n
    slope = np.einsum("ip,pq,iq->i", here, found.dual, here) + 2 * ridge * (q - 1 / n)
    level = q @ slope
    assert q.sum() == pytest.approx(1)
    assert (q >= 0).all()
    np.testing.assert_array_less(level - 1e-5, slope)  # no row would lower it
    np.testing.assert_allclose(slope[q > 1e-4], level, atol=1e-4)
    assert found.discrepancy < 0.7 * found.plain


def cutting_planes(here, there, rounds=200):
    """Bounds of the least norm, and its weights, by linear programs: the norm is the largest vᵀMv over ±, ‖v‖ = 1."""
    n, moments = len(here), there.T @ there / len(there)
    rows, right, best, weights = [], [], np.inf, np.full(n, 1 / n)
    q = weights
    for _ in range(rounds):
        values, vectors = np.linalg.eigh((here.T * q) @ here - moments)
        if np.abs(values).max() < best:
            best, weights = np.abs(values).max(), q
        for sign in (1, -1):
            rows += list(np.hstack([sign * (here @ vectors).T ** 2, -np.ones((len(values), 1))]))
            right += list(sign * np.einsum("pv,pq,qv->v", vectors, moments, vectors))
        solved = linprog(
            np.append(np.zeros(n), 1),
            A_ub=np.array(rows),
            b_ub=np.array(right),
            A_eq=np.append(np.ones(n), 0)[None],
            b_eq=[1],
            bounds=[(0, None)] * (n + 1),
        )
        q = solved.x[:n]
        if best - solved.fun < 1e-4 * best:
            break
    return solved.fun, best, weights


def test_weights_reach_what_linear_programs_reach():
    _, _, here, there = features(5)
    lower, upper, q = cutting_planes(here, there)
    assert upper - lower < 2e-3 * upper
    found, n = least_discrepancy(here, there), len(here)
    assert lower - 1e-7 < found.discrepancy
    uneven = [np.sum((w - 1 / n) ** 2) for w in (q, found.weights)]
    ridge = EVENNESS * norm(there.T @ there / len(there)) * n
    assert found.discrepancy <= upper + ridge * (uneven[0] - uneven[1]) + 1e-6


def test_the_same_rows_have_even_weights():
    X, _, here, _ = features(0)
    np.testing.assert_allclose(least_discrepancy(here, here).weights * len(here), 1, atol=1e-4)
    # And almost the same rows almost even ones, though many weights are almost as good.
    made = kernel_features(np.vstack([X, X + 0.002]), 1.0)
    found = least_discrepancy(made.of(X), made.of(X + 0.002))
    assert 0 < found.discrepancy <= found.plain
    assert np.ptp(found.weights) * len(X) < 0.5


def extremes(w, to_target, center, shape):
    """Largest and least squared distance to an ellipse around a center, by its points."""
    angle = np.linspace(0, 2 * np.pi, 1001)
    edge = center + np.column_stack([np.cos(angle), np.sin(angle)]) @ np.linalg.cholesky(shape).T
    apart = np.sum((to_target @ w - edge) ** 2, axis=1)
    away = to_target @ w - center
    inside = away @ np.linalg.solve(shape, away) <= 1
    return apart.max(), 0.0 if inside else apart.min()


@pytest.mark.parametrize("lam", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("slack", [0.05, 1.0])
def test_the_hypothesis_is_best_among_those_tried(lam, slack):
    rng = np.random.default_rng(1)
    here, there, q = rng.normal(size=(20, 3)), rng.normal(size=(2, 3)), rng.dirichlet(np.ones(20))
    y = here @ [1, -0.5, 0.3] + 0.3 * rng.normal(size=20)
    gram = (here.T * q) @ here + lam * np.eye(3)
    best = np.linalg.solve(gram, here.T @ (q * y))
    least = q @ (here @ best - y) ** 2 + lam * best @ best
    shape = slack * least * there @ np.linalg.solve(gram, there.T)

    def objective(w):
        return lam * w @ w + sum(extremes(w, there, there @ best, shape)) / 2 / 2

    found = generalized_ridge(here, y, q, there, lam, slack)
    starts = [found, best, np.zeros(3), *rng.normal(size=(1, 3))]
    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 1000}
    reached = min(minimize(objective, start, method="Nelder-Mead", options=options).fun for start in starts)
    assert objective(found) <= reached + 1e-4 * abs(reached)


def test_without_slack_it_is_ridge_regression_on_what_the_weighted_source_says():
    X, _, here, target = features(2)
    y, lam, m = np.sin(X[:, 0]), 0.1, 9
    q = least_discrepancy(here, target).weights
    gram = (here.T * q) @ here + lam * np.eye(here.shape[1])
    labels = target @ np.linalg.solve(gram, here.T @ (q * y))
    normal = generalized_ridge(here, y, q, target, lam, 1e-14)
    expected = KernelRidge(alpha=m * lam, kernel="precomputed").fit(target @ target.T, labels).predict(here @ target.T)
    np.testing.assert_allclose(here @ normal, expected, atol=1e-4)


def test_features_are_the_kernel():
    X, there, here, target = features(3)
    np.testing.assert_allclose(here @ target.T, gaussian(X, there, 1.0), atol=5e-3)


def test_the_labels_of_the_target_choose_lambda_alone():
    X, there, *_ = features(4)
    y, labels = np.sin(X[:, 0]), np.sin(there[:, 0])
    one = DiscrepancyRegressor(lambdas=[0.01]).fit(X, y, target=Target(there, labels))
    other = DiscrepancyRegressor(lambdas=[0.01]).fit(X, y, target=Target(there, labels + 5))
    np.testing.assert_allclose(one.predict(X), other.predict(X))
    found = DiscrepancyRegressor().fit(X, y, target=Target(there, labels))
    assert found.errors_.min() == found.errors_[sorted(found.lambdas, reverse=True).index(found.lambda_)]
    np.testing.assert_allclose(found.errors_.min(), np.mean((found.predict(there) - labels) ** 2) / y.var())
    assert found.weights_.mean() == pytest.approx(1)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_labels_in_other_units_are_predicted_in_other_units(factor):
    X, there, *_ = features(4)
    y, labels = np.sin(X[:, 0]) + 0.2 * X[:, 1], np.sin(there[:, 0])
    one = DiscrepancyRegressor(standardize=False).fit(X, y, target=Target(there, labels))
    other = DiscrepancyRegressor(standardize=False).fit(X, factor * y, target=Target(there, factor * labels))
    np.testing.assert_allclose(other.predict(X), factor * one.predict(X), rtol=1e-6, atol=1e-6 * factor)


@pytest.mark.parametrize("away", [50, 1e4, 1e6])
def test_a_target_far_away_leaves_weights_even(away):
    X, there, *_ = features(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # where the solver says that it cannot do better
        model = DiscrepancyRegressor().fit(X, X[:, 0], target=Target(there + away, there[:, 0]))
    np.testing.assert_allclose(model.weights_, 1, atol=1e-3)
    assert np.isfinite(model.predict(X)).all()


def test_many_columns_stay_affordable():
    rng = np.random.default_rng(0)
    X, there = rng.normal(size=(80, 12)), rng.normal(0.3, 1, size=(10, 12))
    model = DiscrepancyRegressor(lambdas=[0.1]).fit(X, X[:, 0], target=Target(there, there[:, 0]))
    assert model.discrepancy_ < model.plain_discrepancy_
    assert model.model_.features.directions.shape[1] > 60  # of which 30 are measured


def test_bad_settings(monkeypatch):
    X, there, *_ = features(4)
    target = Target(there, there[:, 0])
    for slack in (0, np.inf, "1", None):
        with pytest.raises(ParameterError, match="slack"):
            DiscrepancyRegressor(slack=slack).fit(X, X[:, 0], target=target)
    monkeypatch.setitem(__import__("sys").modules, "clarabel", None)
    with pytest.raises(DependencyError, match=r"pip install 'steelyard\[discrepancy\]'"):
        discrepancy.DiscrepancyRegressor().fit(X, X[:, 0], target=target)
