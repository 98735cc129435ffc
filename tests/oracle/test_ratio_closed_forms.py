"""KMM and KLIEP on tables so symmetric that their answer can be written down."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from steelyard import KLIEP, KMM

# --- KMM: the slack --------------------------------------------------------------------------------------------------


def fitted_kmm(n_distinct, repeats, kernel_value):
    """Source rows at the corners of a simplex, target rows in its middle.

    The kernel has one value q between a corner and the middle and q² between two corners, and all corners are alike,
    so that every weight is the same number: the one that minimizes a parabola between the ends of the slab.
    """
    source = np.repeat(np.eye(n_distinct), repeats, axis=0)
    width = np.sqrt(-0.5 / np.log(kernel_value))
    kmm = KMM(width=width, reg=0.0, standardize=False, random_state=0)
    return kmm.fit(source, target=np.zeros((2, n_distinct)))


def free_mean_weight(n_distinct, kernel_value):
    """Where the parabola is least: Σκ / ΣK."""
    return n_distinct * kernel_value / (1 + (n_distinct - 1) * kernel_value**2)


TABLES = [(36, 1), (64, 1), (25, 4), (441, 1)]  # distinct source rows, and how often each comes
# KMM may say that the mean weight is far from one, and that no source row lies in the middle: it is so by design.
odd_on_purpose = pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")


@odd_on_purpose
@pytest.mark.parametrize(("n_distinct", "repeats"), TABLES)
def test_by_default_the_mean_weight_of_kmm_is_at_least_one_over_the_root_of_the_rows(n_distinct, repeats):
    n = n_distinct * repeats
    assert free_mean_weight(n_distinct, 1e-5) < 0.2 / np.sqrt(n)  # the slab holds it up
    fit = fitted_kmm(n_distinct, repeats, 1e-5)
    assert fit.raw_mean_ == pytest.approx(1 - (np.sqrt(n) - 1) / np.sqrt(n), rel=1e-4)
    assert_allclose(fit.weights_, 1, atol=1e-4)


@odd_on_purpose
@pytest.mark.parametrize(("n_distinct", "repeats"), TABLES)
def test_by_default_the_mean_weight_of_kmm_is_at_most_two_less_one_over_the_root_of_the_rows(n_distinct, repeats):
    n, kernel_value = n_distinct * repeats, 1 / np.sqrt(n_distinct - 1)
    assert free_mean_weight(n_distinct, kernel_value) > 2.4  # the slab holds it down
    fit = fitted_kmm(n_distinct, repeats, kernel_value)
    assert fit.raw_mean_ == pytest.approx(1 + (np.sqrt(n) - 1) / np.sqrt(n), rel=1e-4)
    assert_allclose(fit.weights_, 1, atol=1e-4)


@odd_on_purpose
@pytest.mark.parametrize(("n_distinct", "repeats"), TABLES)
def test_inside_the_default_slab_the_mean_weight_of_kmm_is_free(n_distinct, repeats):
    for kernel_value in (0.7 / n_distinct, 0.6):
        free = free_mean_weight(n_distinct, kernel_value)
        assert 0.6 < free < 0.7 or 1.5 < free < 1.7  # neither at an end of the slab nor at one
        assert fitted_kmm(n_distinct, repeats, kernel_value).raw_mean_ == pytest.approx(free, rel=1e-4)


# --- KLIEP: held-out rows and centers --------------------------------------------------------------------------------

OFF = 0.1  # how far the source is off the line of the target


def target_on_a_line(along):
    """Target rows on the first axis, and as many source rows, all at the same distance from any one target row.

    With five of each, five folds leave out one row of either domain, and it does not matter which ones go together.
    """
    n = len(along)
    return np.column_stack([np.zeros(n), OFF * np.eye(n)]), np.column_stack([along, np.zeros((n, n))])


def left_out_likelihood(along, width):
    """KLIEP's held-out score on that table, in closed form.

    A Gaussian at c, scaled to one on the source, is exp((OFF² − x² + 2xc) / 2σ²) at x: for every row on the positive
    side, the greater c the greater. So the most likely mixture is the Gaussian at the outermost center alone, and
    when the outermost row is held out, that is the row next to it.
    """
    rows = np.sort(along)
    center = np.where(rows == rows[-1], rows[-2], rows[-1])
    return np.mean((OFF**2 - rows**2 + 2 * rows * center) / (2 * width**2))


@pytest.mark.parametrize("outermost", [0.8, 1.5])
def test_the_held_out_likelihood_of_kliep_has_no_center_at_the_held_out_row(outermost):
    along = np.array([0.3, outermost, 0.1, 0.4, 0.2])
    source, target = target_on_a_line(along)
    fit = KLIEP(width=[2.0, 1.0, 0.6], standardize=False, random_state=0).fit(source, target=target)
    expected = [left_out_likelihood(along, width) for width in fit.widths_]
    assert_allclose(fit.scores_, expected, atol=2e-3)  # selection need not solve to more digits
    # A center at the held-out row would add this much.
    assert np.all(outermost * (outermost - 0.4) / (5 * np.square(fit.widths_)) > 0.015)


@pytest.mark.parametrize("seed", range(3))
def test_kliep_does_not_choose_a_narrow_width_that_fits_a_row_by_a_center_of_its_own_alone(seed):
    along = np.random.default_rng(seed).uniform(0.01, 0.03, 5)
    along[2] = 1.5  # alone: a narrow ratio without a center there says that such a row cannot be
    source, target = target_on_a_line(along)
    fit = KLIEP(width=[3.0, 0.6], standardize=False, random_state=seed).fit(source, target=target)
    assert fit.width_ == 3.0
