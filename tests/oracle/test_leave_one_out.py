"""The closed form of the leave-one-out score against leaving out row by row."""

import numpy as np
import pytest

from steelyard import RULSIF, ULSIF
from steelyard._numerics.empirical import Empirical, empirical
from steelyard._numerics.kernels import basis_moments
from steelyard.ratio._leave_one_out import Moments, leave_one_out, pair_rows


def kernel(rows, centers, width):
    return np.exp(-np.square(rows[:, None] - centers).sum(axis=2) / (2 * width**2))


def brute_force(source, target, centers, width, reg, eta, pairs, weights):
    """Refit without each pair (source row, target row); a center is left out with the last row of its value."""
    scores = []
    for i, j in pairs:
        rest_source, rest_target = np.delete(source, i, axis=0), np.delete(target, j, axis=0)
        stays = [np.any(np.all(rest_target == c, axis=1)) or not np.array_equal(c, target[j]) for c in centers]
        used = centers[np.array(stays)]
        rest_a, rest_t = kernel(rest_source, used, width), kernel(rest_target, used, width)
        a, t = kernel(source[[i]], used, width)[0], kernel(target[[j]], used, width)[0]
        H = eta * rest_t.T @ rest_t / len(rest_t) + (1 - eta) * rest_a.T @ rest_a / len(rest_a)
        beta = np.linalg.solve(H + reg * np.eye(len(used)), rest_t.mean(axis=0))
        beta = np.maximum(beta, 0)
        scores.append(0.5 * (1 - eta) * (a @ beta) ** 2 + 0.5 * eta * (t @ beta) ** 2 - t @ beta)
    return np.average(scores, weights=weights)


def distinct(rows):
    """Rows as they are, each a unit of its own."""
    ones = np.ones(len(rows), dtype=int)
    return Empirical(rows, ones / len(rows), np.arange(len(rows)), ones, ones)


def moments_of(source, target, centers, widths, eta):
    """h and the two parts of H for each width, as `RULSIF` computes them."""
    first, second_target = basis_moments(target.rows, target.mass, centers, widths, second=eta > 0)
    _, second_source = basis_moments(source.rows, source.mass, centers, widths)
    return Moments(first[:, 0], second_source[:, 0], second_target[:, 0])


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.5, 0.95])
@pytest.mark.parametrize(("n_source", "n_target", "d"), [(40, 40, 1), (60, 35, 2), (25, 50, 4), (700, 600, 2)])
@pytest.mark.parametrize("given", [False, True], ids=["centers drawn", "centers given"])
def test_equals_brute_force(eta, n_source, n_target, d, given):
    rng = np.random.default_rng(n_source)
    source, target = rng.normal(size=(n_source, d)), rng.normal(0.5, 0.7, size=(n_target, d))
    cells = rng.permutation(n_target)[:20]
    # Centers that are not target rows always stay.
    centers = target[cells] + (0.01 if given else 0.0)
    widths, regs = np.array([2.0, 2.0 / np.sqrt(2), 1.0, 0.4]), np.array([1.0, 0.03, 0.001])
    if n_source > 100:  # several blocks of rows; one grid point is enough
        widths, regs = widths[2:3], regs[1:2]
    s, t = distinct(source), distinct(target)
    moments = moments_of(s, t, centers, widths, eta)
    which = np.full(20, -1) if given else cells
    scores = leave_one_out(s, t, centers, which, widths, regs, eta, moments, rng)
    pairs = [(i, i) for i in range(min(n_source, n_target))]
    truth = [[brute_force(source, target, centers, w, r, eta, pairs, None) for r in regs] for w in widths]
    np.testing.assert_allclose(scores, truth, rtol=0, atol=1e-10)


@pytest.mark.parametrize("eta", [0.0, 0.4])
@pytest.mark.parametrize(("n_source", "n_target", "levels"), [(60, 50, 3), (45, 40, 5), (30, 25, 12)])
def test_rows_of_a_discrete_table_are_left_out_one_by_one(eta, n_source, n_target, levels):
    """Few cells (every combination of cells counts) and many (pairs are drawn); some cells have one row only."""
    rng = np.random.default_rng(levels)
    source = rng.integers(0, levels, size=(n_source, 1)).astype(float)
    target = np.minimum(rng.integers(0, levels + 2, size=(n_target, 1)), levels - 1).astype(float)
    s, t = empirical(source, None, rng), empirical(target, None, rng)
    assert s.n_units == n_source
    assert 1 in t.units or levels < 12
    widths, regs = np.array([1.5, 0.5]), np.array([0.3, 0.01])
    moments = moments_of(s, t, t.rows, widths, eta)
    scores = leave_one_out(s, t, t.rows, np.arange(len(t)), widths, regs, eta, moments, np.random.default_rng(7))
    drawn = pair_rows(s, t, np.random.default_rng(7))
    np.testing.assert_allclose(drawn.source_share, drawn.target_share)
    pairs = [
        (np.flatnonzero(s.position == i)[0], np.flatnonzero(t.position == j)[0])
        for i, j in zip(drawn.source, drawn.target, strict=True)
    ]
    truth = [[brute_force(source, target, t.rows, w, r, eta, pairs, drawn.source_share) for r in regs] for w in widths]
    np.testing.assert_allclose(scores, truth, rtol=0, atol=1e-10)


def test_every_combination_of_cells_counts_as_often_as_it_is_drawn_on_average():
    rng = np.random.default_rng(0)
    source, target = (rng.integers(0, 3, size=(200, 1)).astype(float) for _ in range(2))
    s, t = empirical(source, None, rng), empirical(target, None, rng)
    pairs = pair_rows(s, t, rng)
    shares = np.zeros((3, 3))
    shares[pairs.source, pairs.target] = pairs.source_share
    np.testing.assert_allclose(shares, np.outer(s.mass, t.mass), atol=1e-12)


def test_pairs_use_every_row_of_the_smaller_table_once():
    rng = np.random.default_rng(1)
    source, target = (rng.integers(0, 15, size=(n, 1)).astype(float) for n in (60, 50))
    s, t = empirical(source, None, rng), empirical(target, None, rng)
    pairs = pair_rows(s, t, rng)
    used = np.bincount(pairs.target, pairs.target_share * 50, minlength=len(t))
    np.testing.assert_allclose(used, t.counts)


def test_counts_in_the_millions_are_not_listed():
    rng = np.random.default_rng(2)
    rows = np.arange(700.0)[:, None]
    s = empirical(rows, rng.integers(10**7, 10**9, 700).astype(float), rng)
    t = empirical(rows, rng.integers(10**7, 10**9, 700).astype(float), rng)
    assert len(pair_rows(s, t, rng)) <= 100_000


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
