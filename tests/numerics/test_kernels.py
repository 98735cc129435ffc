import numpy as np
import pytest

from steelyard._numerics.kernels import basis_moments, gaussian, gaussian_widths, squared_distances


def brute(rows, centers, width):
    return np.exp(-np.square(rows[:, None].astype(float) - centers).sum(axis=2) / (2 * width**2))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_distances_do_not_cancel_far_from_the_origin(offset):
    rng = np.random.default_rng(0)
    rows, centers = rng.normal(size=(50, 3)) + offset, rng.normal(size=(20, 3)) + offset
    truth = np.square(rows[:, None] - centers).sum(axis=2)
    np.testing.assert_allclose(squared_distances(rows, centers), truth, atol=1e-7)
    assert squared_distances(rows, rows).min() >= 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 5e-6)])
@pytest.mark.parametrize("widths", [2.0 ** (np.arange(4, -5, -1) / 2), np.array([3.0, 1.1, 1.0, 0.2])])
def test_a_grid_of_widths_equals_one_at_a_time(dtype, tolerance, widths):
    rng = np.random.default_rng(0)
    rows, centers = rng.normal(size=(60, 2)).astype(dtype), rng.normal(size=(15, 2)).astype(dtype)
    for width, kernel in zip(widths, gaussian_widths(rows, centers, widths), strict=True):
        assert kernel.dtype == dtype
        np.testing.assert_allclose(kernel, brute(rows, centers, width), atol=tolerance)
        np.testing.assert_allclose(gaussian(rows, centers, width), brute(rows, centers, width), atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-6)])
@pytest.mark.parametrize("n_folds", [1, 3])
def test_moments_by_fold_equal_the_sums_written_out(dtype, tolerance, n_folds):
    rng = np.random.default_rng(1)
    rows, centers = rng.normal(size=(1300, 2)).astype(dtype), rng.normal(size=(12, 2)).astype(dtype)
    mass, fold = rng.dirichlet(np.ones(1300)), rng.integers(0, n_folds, 1300)
    widths = np.array([1.0, 0.5])
    first, second = basis_moments(rows, mass, centers, widths, fold=fold, n_folds=n_folds)
    assert first.dtype == second.dtype == np.float64
    for w, width in enumerate(widths):
        kernel = brute(rows, centers, width)
        for f in range(n_folds):
            part, share = kernel[fold == f], mass[fold == f]
            np.testing.assert_allclose(first[w, f], share @ part, atol=tolerance)
            np.testing.assert_allclose(second[w, f], part.T @ (part * share[:, None]), atol=tolerance)
    only_first, nothing = basis_moments(rows, mass, centers, widths, second=False)
    np.testing.assert_allclose(only_first[:, 0], first.sum(axis=1), atol=tolerance)
    assert not nothing.any()


def test_moments_of_parts_add_up():
    """So that tables can be processed in blocks."""
    rng = np.random.default_rng(2)
    rows, centers, mass = rng.normal(size=(900, 3)), rng.normal(size=(10, 3)), np.full(900, 1 / 900)
    widths = np.array([1.0])
    whole = basis_moments(rows, mass, centers, widths)
    parts = [basis_moments(rows[i : i + 300], mass[i : i + 300], centers, widths) for i in (0, 300, 600)]
    for k in (0, 1):
        np.testing.assert_allclose(sum(part[k] for part in parts), whole[k], atol=1e-14)
