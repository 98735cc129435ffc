"""Shares of a combination: the optimum of their problem, held-out shares, and what is known in closed form."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import ortho_group

from steelyard.stacking.shares import SHRINKAGES, Shares, fit_shares, least_squares_shares


def by_another_solver(moments):
    n = len(moments)
    found = minimize(
        lambda b: b @ moments @ b,
        np.full(n, 1 / n),
        jac=lambda b: 2 * moments @ b,
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda b: b.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x


@pytest.mark.parametrize("seed", range(20))
def test_the_shares_are_the_optimum_on_the_simplex(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    errors = rng.normal(size=(30, n)) * rng.uniform(0.3, 3, n) + rng.normal(size=(30, 1))
    moments = errors.T @ errors / 30
    found, other = least_squares_shares(moments), by_another_solver(moments)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    assert found @ moments @ found <= other @ moments @ other * (1 + 1e-7)


def test_two_independent_learners_share_inversely_to_their_variance():
    np.testing.assert_allclose(least_squares_shares(np.diag([1.0, 3.0])), [0.75, 0.25], atol=1e-6)


def test_a_learner_whose_errors_contain_those_of_a_better_one_gets_nothing():
    # cov(e1, e2) > var(e1): the unconstrained optimum is outside the simplex.
    np.testing.assert_allclose(least_squares_shares(np.array([[1.0, 2.0], [2.0, 5.0]])), [1.0, 0.0], atol=1e-7)


def test_without_any_error_shares_are_equal():
    np.testing.assert_allclose(least_squares_shares(np.zeros((4, 4))), np.full(4, 0.25))


def test_the_scale_of_the_labels_does_not_matter():
    moments = ortho_group.rvs(4, random_state=0) @ np.diag([1.0, 2, 3, 4])
    moments = moments @ moments.T
    np.testing.assert_allclose(least_squares_shares(moments), least_squares_shares(1e-200 * moments), rtol=1e-6)


def table(n, sds, seed=0, n_draws=1, n_folds=5):
    rng = np.random.default_rng(seed)
    errors = rng.normal(size=(1, len(sds), n, 1)) * np.array(sds)[:, None, None]
    folds = [rng.permutation(n) % n_folds for _ in range(n_draws)]
    return np.repeat(errors, n_draws, axis=0), folds


def test_many_rows_give_the_best_shares():
    errors, folds = table(20_000, [1.0, 1.0, 3.0])
    shares = fit_shares(errors, np.ones(20_000), folds)
    assert shares.shrinkage <= 0.1
    np.testing.assert_allclose(shares.values, np.array([1, 1, 1 / 9]) / (2 + 1 / 9), atol=0.03)


def test_few_rows_of_learners_that_are_alike_give_nearly_equal_shares():
    """Equal shares are the best ones; those of least squares are 3 to 5 times as far from them."""
    strengths, distances = [], []
    for seed in range(60):
        errors, folds = table(30, [1.0] * 4, seed)
        found = fit_shares(errors, np.ones(30), folds)
        strengths.append(found.shrinkage)
        unshrunk = least_squares_shares(errors[0, :, :, 0] @ errors[0, :, :, 0].T)
        distances.append([np.sum((shares - 0.25) ** 2) for shares in (found.values, unshrunk)])
    assert np.mean(np.isinf(strengths)) > 0.4
    shrunk, unshrunk = np.mean(distances, axis=0)
    assert shrunk < 0.4 * unshrunk


def test_a_share_that_changes_nothing_is_zero():
    errors, folds = table(2000, [0.05, 1.0])  # inversely to the variances the shares would be 0.9975 and 0.0025
    np.testing.assert_array_equal(fit_shares(errors, np.ones(2000), folds).values, [1.0, 0.0])


def test_the_rows_that_count_decide():
    """The first learner is good on the first half, the second one on the other; weights say which half counts."""
    rng = np.random.default_rng(0)
    n = 2000
    errors = rng.normal(size=(1, 2, n, 1))
    errors[0, 0, n // 2 :] *= 5
    errors[0, 1, : n // 2] *= 5
    folds = [rng.permutation(n) % 5]
    first = np.where(np.arange(n) < n // 2, 1.0, 0.01)
    assert fit_shares(errors, first, folds).values[0] > 0.9
    assert fit_shares(errors, first[::-1], folds).values[1] > 0.9


def test_shares_of_a_fold_do_not_see_its_rows(monkeypatch):
    monkeypatch.setattr("steelyard.stacking.shares.SHRINKAGES", (0.0,))
    errors, folds = table(200, [1.0, 1.2, 2.0])
    spoiled = errors.copy()
    spoiled[0][:, folds[0] == 2] *= np.array([100.0, 1e-3, 1.0])[:, None, None]
    before, after = (fit_shares(each, np.ones(200), folds).by_fold[0] for each in (errors, spoiled))
    np.testing.assert_allclose(before[2], after[2], atol=1e-8)
    assert all(after[f][0] < 0.01 < before[f][0] for f in (0, 1, 3, 4))


def test_the_strength_has_the_least_held_out_loss():
    """By brute force: every strength, every fold, every row."""
    errors, folds = table(120, [1.0, 1.3, 2.5], seed=3)
    weights = np.random.default_rng(4).exponential(size=120)
    scale = np.mean([weights @ np.square(errors[0, k, :, 0]) / weights.sum() for k in range(3)])
    losses = []
    for strength in SHRINKAGES:
        loss = np.empty(120)
        for f in range(5):
            train, test = folds[0] != f, folds[0] == f
            e = errors[0][:, train, 0]
            moments = (e * weights[train]) @ e.T / weights.sum()
            shrunk = moments + min(strength, 1e9) * scale * np.eye(3)
            b = by_another_solver(shrunk / np.trace(shrunk))
            loss[test] = np.square(b @ errors[0][:, test, 0])
        losses.append(loss)
    losses = np.array(losses)
    found = fit_shares(errors, weights, folds)
    assert found.shrinkage == SHRINKAGES[int(np.argmin(losses @ weights))]


def test_held_out_combinations_use_the_shares_of_their_fold():
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(2, 3, 10, 2))
    folds = [rng.integers(0, 2, 10) for _ in range(2)]
    by_fold = rng.dirichlet(np.ones(3), size=(2, 2))
    found = Shares(np.ones(3) / 3, 1.0, by_fold).combine(predictions, folds)
    for draw in range(2):
        for row in range(10):
            expected = by_fold[draw, folds[draw][row]] @ predictions[draw, :, row]
            np.testing.assert_allclose(found[draw, row], expected)
