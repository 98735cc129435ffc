"""Which rows are held out together: rows one by one, duplicates as one, whatever the order of the table."""

import numpy as np
import pytest

from steelyard._numerics.duplicates import is_continuous, units_of_rows
from steelyard._numerics.empirical import empirical
from steelyard._splits.merged_rows import assign_folds
from steelyard._splits.rows import folds_of_table


def continuous(n=60, repeat=3):
    return np.repeat(np.random.default_rng(0).normal(size=(n, 2)), repeat, axis=0)


def levels(n=600):
    return np.random.default_rng(0).integers(0, 3, (n, 2)).astype(float)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.random.default_rng(0).normal(size=100), True),
        (np.random.default_rng(0).uniform(0, 1e6, 100).round(2), True),  # amounts of money, to the cent
        (np.arange(100.0), False),
        (np.linspace(-1.7, 2.3, 60), False),  # a standardized score of even steps
        (np.random.default_rng(0).integers(18, 90, 70).astype(float), False),  # ages
        (np.array([0.123456789, 1.987654321, 2.5]), False),  # any three numbers could be three levels
        (np.full(50, np.nan), False),
    ],
)
def test_continuous_columns_are_told_from_levels(values, expected):
    assert is_continuous(values) is expected


def test_the_rows_of_a_cell_are_assigned_one_by_one():
    sample = empirical(levels(), None, np.random.default_rng(1))
    parts = assign_folds(sample, 5, np.random.default_rng(2))
    counts = np.rint(parts.mass * 600).astype(int)
    assert np.bincount(parts.cell, counts).tolist() == sample.counts.tolist()
    assert np.bincount(parts.fold, counts).tolist() == [120] * 5
    # At random: no two folds are the same distribution, and no fold lacks a cell of 60 rows.
    table = np.zeros((len(sample), 5))
    table[parts.cell, parts.fold] = counts
    assert table.min() > 0
    assert np.all(np.ptp(table, axis=1) > 0)


def test_duplicates_in_a_continuous_table_are_one_unit():
    sample = empirical(continuous(), None, np.random.default_rng(1))
    assert sample.n_units == 60
    assert sample.n_rows == 180
    parts = assign_folds(sample, 5, np.random.default_rng(2))
    assert len(parts.cell) == 60


def test_counts_do_not_decide_what_is_continuous():
    """Sample weights do not make a continuous table discrete."""
    rows = continuous(repeat=1)
    sample = empirical(rows, np.full(60, 1000.0), np.random.default_rng(0))
    assert sample.n_units == 60


@pytest.mark.parametrize("table", [continuous(), levels()], ids=["continuous", "levels"])
def test_folds_do_not_depend_on_the_order_of_the_rows(table):
    order = np.random.default_rng(3).permutation(len(table))
    plain = folds_of_table(list(table.T), 5, np.random.default_rng(4))
    permuted = folds_of_table(list(table[order].T), 5, np.random.default_rng(4))
    key = table @ [1.0, 10.0]
    assert sorted(zip(key, plain, strict=True)) == sorted(zip(key[order], permuted, strict=True))


def test_units_of_text_and_numbers():
    names = np.array(["a", "b", "a", "a"], dtype=object)
    assert len(set(units_of_rows([names]).tolist())) == 4
    values = np.append(np.random.default_rng(0).normal(size=30), 0.5)
    text = np.array(["x"] * 31, dtype=object)
    doubled = [np.append(values, values[:2]), np.append(text, text[:2])]
    units = units_of_rows(doubled)
    assert units[31] == units[0]
    assert len(set(units.tolist())) == 31


def test_weights_as_counts():
    rows = np.array([[0.0], [1.0], [1.0], [2.0]])
    whole = empirical(rows, np.array([2.0, 1.0, 3.0, 0.0]), np.random.default_rng(0))
    assert dict(zip(whole.rows[:, 0], whole.counts, strict=True)) == {0.0: 2, 1.0: 4}
    parts = empirical(rows, np.array([0.2, 0.2, 0.4, 0.0]), np.random.default_rng(0))
    # Three rows have positive weight; a cell of three quarters of the mass counts as 2.25, rounded.
    assert dict(zip(parts.rows[:, 0], parts.counts, strict=True)) == {0.0: 1, 1.0: 2}
