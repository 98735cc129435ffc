import numpy as np
import pytest

from steelyard._numerics.empirical import empirical


def test_merges_equal_rows_and_drops_rows_without_weight():
    table = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, 6.0], [-0.0, 0.0], [0.0, -0.0]])
    weights = np.array([1.0, 2.0, 3.0, 0.0, 1.0, 1.0])
    sample = empirical(table, weights, np.random.default_rng(0))
    found = {tuple(row): mass for row, mass in zip(sample.rows + 0.0, sample.mass, strict=True)}
    assert found == pytest.approx({(1.0, 2.0): 0.5, (3.0, 4.0): 0.25, (0.0, 0.0): 0.25})
    assert sample.position[3] == -1
    np.testing.assert_array_equal(sample.spread(np.arange(3.0))[3], 0)
    for i in (0, 1, 2, 4):
        np.testing.assert_array_equal(sample.rows[sample.position[i]], table[i])


def test_order_of_the_table_does_not_matter():
    rng = np.random.default_rng(1)
    table = rng.integers(0, 4, size=(200, 3)).astype(float)
    order = rng.permutation(200)
    plain = empirical(table, None, np.random.default_rng(5))
    permuted = empirical(table[order], None, np.random.default_rng(5))
    np.testing.assert_array_equal(plain.rows, permuted.rows)
    np.testing.assert_array_equal(plain.mass, permuted.mass)
    assert len(plain) == len(np.unique(table, axis=0))
    np.testing.assert_array_equal(plain.rows[plain.position], table)


def test_distinct_rows_are_uniform_and_shuffled():
    table = np.sort(np.random.default_rng(2).normal(size=(1000, 1)), axis=0)
    sample = empirical(table, None, np.random.default_rng(0))
    assert sample.uniform
    assert abs(np.corrcoef(sample.rows[:, 0], np.arange(1000))[0, 1]) < 0.1
    assert not empirical(table, np.arange(1.0, 1001.0), np.random.default_rng(0)).uniform


def test_a_column_of_time_stamps_does_not_hide_the_others():
    rng = np.random.default_rng(3)
    days = 1.7e18 + 8.64e13 * rng.integers(0, 5, 300)
    table = np.column_stack([days, rng.integers(0, 50, 300) / 50])
    order = rng.permutation(300)
    plain = empirical(table, None, np.random.default_rng(0))
    permuted = empirical(table[order], None, np.random.default_rng(0))
    assert len(plain) == len(np.unique(table, axis=0))
    np.testing.assert_array_equal(plain.rows, permuted.rows)


def test_huge_counts_stay_in_range():
    sample = empirical(np.arange(4.0)[:, None], np.full(4, 1e308), np.random.default_rng(0))
    np.testing.assert_array_equal(sample.mass, 0.25)
