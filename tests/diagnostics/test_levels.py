"""Tests of a shift that look at much at once: on noise they stay at their level, and no row judges itself."""

import numpy as np
import pytest
from scipy.stats import binom, ks_2samp

from steelyard import diagnose
from steelyard.diagnostics.columns import column_shifts
from steelyard.diagnostics.conditional import class_conditional_test, concept_test
from steelyard.tables import as_frame, encode_pair


def most_rejections(n_draws, level=0.05):
    """More than so many of the draws are rejected in fewer than one of a thousand runs."""
    return int(binom.ppf(0.999, n_draws, level))


def test_of_many_noise_columns_none_is_called_shifted():
    """The least of twenty p-values is below five percent in two of three draws, unless it is multiplied by twenty."""
    rejected = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, T = rng.normal(size=(100, 20)), rng.normal(size=(100, 20))
        rejected += column_shifts(encode_pair(as_frame(X), as_frame(T)))[0].p_value < 0.05
    assert rejected <= most_rejections(40)


def test_the_p_value_of_a_column_is_that_of_kolmogorov_and_smirnov_times_the_number_of_columns():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(150, 5)), rng.normal(size=(150, 5)) + np.array([0.5, 0.35, 0.2, 0.1, 0.0])
    found = {column.name: column.p_value for column in column_shifts(encode_pair(as_frame(X), as_frame(T)))}
    alone = np.array([ks_2samp(a, b).pvalue for a, b in zip(X.T, T.T, strict=True)])
    assert [found[f"x{i}"] for i in range(5)] == pytest.approx(np.minimum(1, 5 * alone).tolist(), rel=0.5)
    assert np.sum(5 * alone < 1) >= 2


def test_the_p_value_of_the_shift_is_the_least_of_its_three_tests_times_three():
    rng = np.random.default_rng(0)
    found = diagnose(rng.normal(size=(200, 2)), target=rng.normal(size=(200, 2)) + np.array([0.5, 0.0]))
    least = min(found.classifier_p, found.mmd_p, *(column.p_value for column in found.columns))
    assert 0 < least < 1 / 3
    assert found.shift_p == pytest.approx(3 * least)


def test_labels_of_pure_noise_in_many_columns_are_not_called_a_concept_shift():
    """Forty slopes and a level are tried: the largest of 41 normal numbers is beyond two in nine of ten draws."""
    rejected = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        domain = np.repeat([0.0, 1.0], 50)
        rejected += concept_test(rng.normal(size=(100, 40)), rng.normal(size=(100, 1)), domain, rng).p_value < 0.05
    assert rejected <= most_rejections(8)


# --- held-out rows ---
#
# Rows with a level of their own: a regression that has seen such a row has its value by heart and leaves no residual;
# one that has not takes it for a row of the common level. Here these rows, and no others, differ between the domains.


def own_levels(seed, n_common=100, n_own=60):
    """Domain of each row, which rows have a level of their own, their columns of zeros and ones, what is to be seen."""
    rng = np.random.default_rng(seed)
    n = n_common + n_own
    domain = (np.arange(n) % 2).astype(float)
    own = np.arange(n) >= n_common
    return domain, own, np.eye(n)[:, own], np.where(own, 2 * domain - 1, 0.5 * rng.normal(size=n)), rng


@pytest.mark.parametrize("seed", range(3))
def test_a_concept_shift_in_rows_with_a_level_of_their_own_is_seen(seed):
    domain, _, levels, shift, rng = own_levels(seed)
    x = rng.normal(size=len(domain))
    found = concept_test(np.column_stack([x, levels]), (3 * x + shift)[:, None], domain, rng)
    assert found.p_value < 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_a_class_conditional_shift_in_rows_with_a_class_of_their_own_is_seen(seed):
    domain, own, classes, shift, rng = own_levels(seed)
    second = ~own & (rng.random(len(domain)) < 0.5)
    found = class_conditional_test((3 * second + shift)[:, None], np.column_stack([second, classes]), domain, rng)
    assert found.p_value < 1e-3
