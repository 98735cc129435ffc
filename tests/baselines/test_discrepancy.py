"""Generalized discrepancy: optimality conditions, another solver, brute force over the hypotheses held possible."""

import warnings

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from sklearn.kernel_ridge import KernelRidge

from steelyard import Target
from steelyard._numerics.kernels import gaussian
from steelyard.baselines import DiscrepancyRegressor, discrepancy
from steelyard.baselines.discrepancy import EVENNESS, KernelFeatures, generalized_ridge, least_discrepancy
from steelyard.errors import DependencyError, ParameterError, SteelyardWarning

pytest.importorskip("clarabel", reason="Clarabel is not installed: pip install 'steelyard[discrepancy]'")


def features(seed, n=40, m=9, width=1.0):
    rng = np.random.default_rng(seed)
    X, X_target = rng.normal(size=(n, 2)), rng.normal(0.7, 0.6, size=(m, 2))
    made = KernelFeatures(np.vstack([X, X_target]), width)
    return X, X_target, made.of(X), made.of(X_target)


def norm(matrix):
    return np.abs(np.linalg.eigvalsh(matrix)).max()


@pytest.mark.parametrize("seed", range(4))
def test_weights_satisfy_the_optimality_conditions(seed):
    _, _, source, target = features(seed)
    found = least_discrepancy(source, target)
    q, n = found.weights, len(source)
    gap = (source.T * q) @ source - target.T @ target / len(target)
    # A subgradient of the spectral norm: nuclear norm one, and the norm itself along the gap.
    assert np.abs(np.linalg.eigvalsh(found.dual)).sum() == pytest.approx(1, abs=1e-5)
    assert np.sum(found.dual * gap) == pytest.approx(found.discrepancy, rel=1e-4)
    reg = EVENNESS * norm(target.T @ target / len(target)) * n
    slope = np.einsum("ip,pq,iq->i", source, found.dual, source) + 2 * reg * (q - 1 / n)
    level = q @ slope
    assert q.sum() == pytest.approx(1)
    assert (q >= 0).all()
    np.testing.assert_array_less(level - 1e-5, slope)  # no row would lower it
    np.testing.assert_allclose(slope[q > 1e-4], level, atol=1e-4)
    assert found.discrepancy < 0.7 * found.plain


def cutting_planes(source, target, rounds=200):
    """Bounds of the least norm, and its weights, by linear programs: the norm is the largest vᵀMv over ±, ‖v‖ = 1."""
    n, moments = len(source), target.T @ target / len(target)
    rows, right, best, weights = [], [], np.inf, np.full(n, 1 / n)
    q = weights
    for _ in range(rounds):
        values, vectors = np.linalg.eigh((source.T * q) @ source - moments)
        if np.abs(values).max() < best:
            best, weights = np.abs(values).max(), q
        for sign in (1, -1):
            rows += list(np.hstack([sign * (source @ vectors).T ** 2, -np.ones((len(values), 1))]))
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
    _, _, source, target = features(5)
    lower, upper, q = cutting_planes(source, target)
    assert upper - lower < 2e-3 * upper
    found, n = least_discrepancy(source, target), len(source)
    assert lower - 1e-7 < found.discrepancy
    uneven = [np.sum((w - 1 / n) ** 2) for w in (q, found.weights)]
    reg = EVENNESS * norm(target.T @ target / len(target)) * n
    assert found.discrepancy <= upper + reg * (uneven[0] - uneven[1]) + 1e-6


def test_the_same_rows_have_uniform_weights():
    X, _, source, _ = features(0)
    np.testing.assert_allclose(least_discrepancy(source, source).weights * len(source), 1, atol=1e-4)
    # And almost the same rows almost even ones, though many weights are almost as good.
    made = KernelFeatures(np.vstack([X, X + 0.002]), 1.0)
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


@pytest.mark.parametrize("reg", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("slack", [0.05, 1.0])
def test_the_hypothesis_is_best_among_those_tried(reg, slack):
    rng = np.random.default_rng(1)
    source, target, q = rng.normal(size=(20, 3)), rng.normal(size=(2, 3)), rng.dirichlet(np.ones(20))
    y = source @ [1, -0.5, 0.3] + 0.3 * rng.normal(size=20)
    gram = (source.T * q) @ source + reg * np.eye(3)
    best = np.linalg.solve(gram, source.T @ (q * y))
    least = q @ (source @ best - y) ** 2 + reg * best @ best
    shape = slack * least * target @ np.linalg.solve(gram, target.T)

    def objective(w):
        return reg * w @ w + sum(extremes(w, target, target @ best, shape)) / 2 / 2

    found = generalized_ridge(source, y, q, target, reg, slack)
    starts = [found, best, np.zeros(3), *rng.normal(size=(1, 3))]
    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 1000}
    reached = min(minimize(objective, start, method="Nelder-Mead", options=options).fun for start in starts)
    assert objective(found) <= reached + 1e-4 * abs(reached)


def test_without_slack_it_is_ridge_regression_on_what_the_weighted_source_says():
    X, _, source, target = features(2)
    y, reg, m = np.sin(X[:, 0]), 0.1, 9
    q = least_discrepancy(source, target).weights
    gram = (source.T * q) @ source + reg * np.eye(source.shape[1])
    labels = target @ np.linalg.solve(gram, source.T @ (q * y))
    normal = generalized_ridge(source, y, q, target, reg, 1e-14)
    expected = (
        KernelRidge(alpha=m * reg, kernel="precomputed").fit(target @ target.T, labels).predict(source @ target.T)
    )
    np.testing.assert_allclose(source @ normal, expected, atol=1e-4)


def test_features_are_the_kernel():
    X, X_target, source, target = features(3)
    np.testing.assert_allclose(source @ target.T, gaussian(X, X_target, 1.0), atol=5e-3)


def test_the_labels_of_the_target_choose_lambda_alone():
    X, X_target, *_ = features(4)
    y, labels = np.sin(X[:, 0]), np.sin(X_target[:, 0])
    first = DiscrepancyRegressor(reg=[0.01]).fit(X, y, target=Target(X_target, labels))
    second = DiscrepancyRegressor(reg=[0.01]).fit(X, y, target=Target(X_target, labels + 5))
    np.testing.assert_allclose(first.predict(X), second.predict(X))
    found = DiscrepancyRegressor().fit(X, y, target=Target(X_target, labels))
    assert found.errors_.min() == found.errors_[sorted(found.reg, reverse=True).index(found.reg_)]
    np.testing.assert_allclose(found.errors_.min(), np.mean((found.predict(X_target) - labels) ** 2) / y.var())
    assert found.weights_.mean() == pytest.approx(1)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_labels_in_other_units_are_predicted_in_other_units(factor):
    X, X_target, *_ = features(4)
    y, labels = np.sin(X[:, 0]) + 0.2 * X[:, 1], np.sin(X_target[:, 0])
    first = DiscrepancyRegressor(standardize=False).fit(X, y, target=Target(X_target, labels))
    second = DiscrepancyRegressor(standardize=False).fit(X, factor * y, target=Target(X_target, factor * labels))
    np.testing.assert_allclose(second.predict(X), factor * first.predict(X), rtol=1e-6, atol=1e-6 * factor)


@pytest.mark.parametrize("away", [50, 1e4, 1e6])
def test_a_target_far_away_leaves_weights_even(away):
    X, X_target, *_ = features(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # where the solver says that it cannot do better
        model = DiscrepancyRegressor().fit(X, X[:, 0], target=Target(X_target + away, X_target[:, 0]))
    np.testing.assert_allclose(model.weights_, 1, atol=1e-3)
    assert np.isfinite(model.predict(X)).all()


def test_many_columns_stay_affordable():
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(80, 12)), rng.normal(0.3, 1, size=(10, 12))
    model = DiscrepancyRegressor(reg=[0.1]).fit(X, X[:, 0], target=Target(X_target, X_target[:, 0]))
    assert model.discrepancy_ < model.plain_discrepancy_
    assert model.model_.features.directions.shape[1] > 60  # of which 30 are measured


def test_bad_settings(monkeypatch):
    X, X_target, *_ = features(4)
    target = Target(X_target, X_target[:, 0])
    for slack in (0, np.inf, "1", None):
        with pytest.raises(ParameterError, match="slack"):
            DiscrepancyRegressor(slack=slack).fit(X, X[:, 0], target=target)
    monkeypatch.setitem(__import__("sys").modules, "clarabel", None)
    with pytest.raises(DependencyError, match=r"pip install 'steelyard\[discrepancy\]'"):
        discrepancy.DiscrepancyRegressor().fit(X, X[:, 0], target=target)
