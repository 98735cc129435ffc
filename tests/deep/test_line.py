"""Compiled matching of losses: against piqp and cvxopt on many batches, quantiles against all pairs, its limits."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")
pytest.importorskip("numba", reason="numba is not installed; losses are then matched by PyTorch")

from steelyard._numerics.quadratic_programs import BoxSlab, solve_box_slab
from steelyard.deep._matching.line import match
from steelyard.deep._matching.pair_quantile import pair_quantile


def batch(rng, k):
    """Learned and mislabeled rows; validation losses in their range, at its end, and beyond, where the sum is least."""
    n, m = (64, 256, 100, 31)[k % 4], (64, 200)[k % 2]
    train = np.where(rng.random(n) < 0.6, rng.gamma(1, 0.5, n), np.abs(rng.normal(4, 1.3, n)))
    return train, np.abs(rng.normal((0, 3, 6, 10, 20)[k % 5], 1, m))


def test_the_objective_is_that_of_piqp():
    rng = np.random.default_rng(0)
    worst, compared = 0.0, 0
    for k in range(200):
        z, v = batch(rng, k)
        n = len(z)
        reg, gamma, w_max = [
            (1e-3, 0.5 / pair_quantile(z, 0.5) ** 2, 50.0),
            (1e-5, pair_quantile(z, 0.01), 50.0),
            (1e-5, 4.5 / pair_quantile(z, 0.5) ** 2, 1.5),
        ][k % 3]
        ours, solved = match(z, v, gamma, w_max, reg, False)
        if not solved:
            continue
        kernel = np.exp(-gamma * (z[:, None] - z) ** 2) + reg * np.eye(n)
        linear = n / len(v) * np.exp(-gamma * (z[:, None] - v) ** 2).sum(axis=1)
        room = BoxSlab(np.full(n, w_max), np.sqrt(n), 2 * n - np.sqrt(n))
        theirs, _ = solve_box_slab(kernel, linear, room, 1e-10)
        values = [0.5 * w @ kernel @ w - linear @ w for w in (ours, theirs)]
        worst, compared = max(worst, (values[0] - values[1]) / max(1, abs(values[1]))), compared + 1
        assert ours.min() >= 0
        assert ours.max() <= w_max
        assert np.sqrt(n) * (1 - 1e-7) <= ours.sum() <= (2 * n - np.sqrt(n)) * (1 + 1e-7)
    assert worst < 1e-6
    assert compared > 140  # the rest have kernels too narrow for a factor


@pytest.mark.parametrize("k", range(12))
def test_the_weights_are_those_at_which_cvxopt_stops(k):
    """Stored ones, by ``python -m benchmarks.cvxopt_weights``; the optimum has others."""
    stored = np.load(Path(__file__).parent / "cvxopt_weights.npz")
    z, v, theirs = (stored[f"{name}{k}"] for name in ("train", "validation", "weights"))
    gamma = pair_quantile(z, 0.01)
    ours, solved = match(z, v, gamma, 50.0, 1e-5, True)
    assert solved
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    optimum, _ = match(z, v, gamma, 50.0, 1e-5, False)
    assert np.abs(optimum - theirs).max() > 0.02


def test_a_narrow_kernel_is_left_to_the_dense_solver():
    z = np.linspace(0, 10, 50)
    assert not match(z, z, 0.5 / 0.1**2, 50.0, 1e-3, False)[1]


@pytest.mark.parametrize("as_cvxopt", [False, True])
def test_one_row_and_equal_rows(as_cvxopt):
    assert match(np.array([0.3]), np.array([1.0, 2.0]), 1.0, 50.0, 1e-3, as_cvxopt)[0] == [1.0]
    for gamma in (0.0, 1.0):
        weights, _ = match(np.full(9, 0.3), np.full(4, 0.3), gamma, 50.0, 1e-3, as_cvxopt)
        np.testing.assert_allclose(weights, 1, atol=1e-3)


@pytest.mark.parametrize("n", [2, 3, 5, 20, 255, 256])
@pytest.mark.parametrize("kind", ["spread", "tied", "equal"])
def test_the_quantile_of_pairs_is_that_of_all_pairs(n, kind):
    rng = np.random.default_rng(n)
    values = {"spread": rng.gamma(1, 1, n), "tied": rng.integers(0, 5, n) / 3, "equal": np.full(n, 0.7)}[kind]
    distances = np.abs(values[:, None] - values)[np.triu_indices(n, 1)]
    for q in (0.0, 0.01, 0.3, 0.5, 0.99, 1.0):
        assert pair_quantile(values, q) == pytest.approx(np.quantile(distances, q), abs=1e-12)


def test_a_single_value_has_no_pairs():
    assert pair_quantile(np.array([3.0]), 0.5) == 0
