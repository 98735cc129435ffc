"""The closed leave-one-out score against leaving out one by one."""

import numpy as np
import pytest

from steelyard import RULSIF, ULSIF
from steelyard.empirical import Empirical
from steelyard.ratio.leave_one_out import leave_one_out, ratio_moments


def kernel(rows, centers, width):
    return np.exp(-np.square(rows[:, None] - centers).sum(axis=2) / (2 * width**2))


def brute_force(source, target, centers, width, reg, eta):
    a, t = kernel(source, centers, width), kernel(target, centers, width)
    scores = []
    for i in range(min(len(a), len(t))):
        rest_a, rest_t = np.delete(a, i, axis=0), np.delete(t, i, axis=0)
        H = eta * rest_t.T @ rest_t / len(rest_t) + (1 - eta) * rest_a.T @ rest_a / len(rest_a)
        beta = np.linalg.solve(H + reg * np.eye(len(centers)), rest_t.mean(axis=0))
        beta = np.maximum(beta, 0)
        scores.append(0.5 * (1 - eta) * (a[i] @ beta) ** 2 + 0.5 * eta * (t[i] @ beta) ** 2 - t[i] @ beta)
    return np.mean(scores)


def uniform(rows):
    return Empirical(rows, np.full(len(rows), 1 / len(rows)), np.arange(len(rows)))


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.5, 0.95])
@pytest.mark.parametrize(("n_source", "n_target", "d"), [(40, 40, 1), (60, 35, 2), (25, 50, 4), (700, 600, 2)])
def test_equals_brute_force(eta, n_source, n_target, d):
    rng = np.random.default_rng(n_source)
    source, target = rng.normal(size=(n_source, d)), rng.normal(0.5, 0.7, size=(n_target, d))
    centers = target[:20]
    widths, regs = np.array([2.0, 2.0 / np.sqrt(2), 1.0, 0.4]), np.array([1.0, 0.03, 0.001])
    if n_source > 100:  # several blocks of rows; one grid point is enough
        widths, regs = widths[2:3], regs[1:2]
    s, t = uniform(source), uniform(target)
    ours = leave_one_out(s, t, centers, widths, regs, eta, ratio_moments(s, t, centers, widths, eta))
    truth = [[brute_force(source, target, centers, w, r, eta) for r in regs] for w in widths]
    np.testing.assert_allclose(ours, truth, rtol=0, atol=1e-10)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_the_estimator_takes_the_minimum_of_the_grid(eta):
    rng = np.random.default_rng(5)
    ratio = RULSIF(eta, random_state=0).fit(rng.normal(size=(80, 2)), target=rng.normal(0.5, 0.7, size=(60, 2)))
    w, r = np.unravel_index(np.argmin(ratio.scores_), ratio.scores_.shape)
    assert ratio.scores_.shape == (9, 9)
    assert (ratio.width_, ratio.reg_) == (ratio.widths_[w], ratio.regs_[r])


def test_ulsif_is_rulsif_at_zero():
    rng = np.random.default_rng(6)
    X, target = rng.normal(size=(80, 2)), rng.normal(0.5, 0.7, size=(60, 2))
    ulsif = ULSIF(random_state=3).fit(X, target=target)
    rulsif = RULSIF(0.0, random_state=3).fit(X, target=target)
    np.testing.assert_array_equal(ulsif.weights_, rulsif.weights_)
