"""The diagnosis: tests that keep their level, verdicts that are right, numbers that can be written down."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from steelyard import Target, diagnose, target_performance
from steelyard._numerics.kernels import gaussian
from steelyard.diagnostics import conditional
from steelyard.diagnostics.columns import column_shifts
from steelyard.diagnostics.conditional import (
    _cross_fitted,
    _hat_functions,
    _smoothed,
    class_conditional_test,
    concept_test,
)
from steelyard.diagnostics.overlap import pareto_k, uncovered_share
from steelyard.diagnostics.two_sample import _mmd, classifier_test, column_test, mmd_test
from steelyard.errors import InputError
from steelyard.tables import Column, as_frame, encode_pair

# --- tests of two samples --------------------------------------------------------------------------------------------


def draws(n_draws, statistic, shift=0.0, n=100, d=3):
    found = []
    for seed in range(2000, 2000 + n_draws):
        rng = np.random.default_rng(seed)
        X, T = rng.normal(size=(n, d)), rng.normal(size=(n, d))
        T[:, 0] += shift
        found.append(statistic(X, T, rng))
    return np.array(found)


@pytest.mark.parametrize("name", ["classifier", "mmd", "columns"])
def test_level_and_power(name):
    tests = {
        "classifier": lambda X, T, rng: classifier_test(X, T, rng).p_value,
        "mmd": lambda X, T, rng: mmd_test(X, T, rng).p_value,
        "columns": lambda X, T, rng: column_shifts(encode_pair(as_frame(X), as_frame(T)))[0].p_value,
    }
    n_draws = 20 if name == "classifier" else 60
    # Beyond these limits chance alone leads in fewer than one of a thousand runs.
    assert np.mean(draws(n_draws, tests[name]) < 0.05) <= (0.3 if name == "classifier" else 0.17)
    assert np.mean(draws(10, tests[name], shift=1.0) < 0.05) >= 0.8


def test_the_auc_is_that_of_scikit_learn():
    from scipy.stats import rankdata

    from steelyard.diagnostics.two_sample import _auc

    rng = np.random.default_rng(0)
    score, domain = rng.random(200), rng.integers(0, 2, 200)
    assert _auc(rankdata(score), domain[None])[0] == pytest.approx(roc_auc_score(domain, score))


def test_mmd_equals_the_double_sum():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 2))
    kernel = gaussian(rows, rows, 1.0)
    np.fill_diagonal(kernel, 0)
    sign = np.repeat([0, 1], [5, 7])
    one, other = kernel[:5, :5], kernel[5:, 5:]
    expected = one.sum() / 20 + other.sum() / 42 - 2 * kernel[:5, 5:].mean()
    assert _mmd(kernel, sign[None])[0] == pytest.approx(expected)


def test_column_tests_know_missing_values_and_categories():
    here = Column("c", "category", np.array(["a"] * 80 + ["b"] * 20, dtype=object))
    there = Column("c", "category", np.array(["a"] * 20 + ["b"] * 80, dtype=object))
    found = column_test(here, there)
    assert found.statistic == pytest.approx(0.6)
    assert found.p_value < 1e-10
    assert column_test(here, here).p_value == pytest.approx(1)
    full = Column("x", "number", np.arange(100.0))
    holes = Column("x", "number", np.where(np.arange(100) < 50, np.nan, np.arange(100.0)))
    assert column_test(full, holes).p_value < 1e-6


def test_pareto_k_of_known_tails():
    rng = np.random.default_rng(0)
    assert pareto_k(rng.pareto(1.0, 5000)) == pytest.approx(1.0, abs=0.25)  # index 1 / shape
    assert pareto_k(rng.exponential(size=5000)) == pytest.approx(0.0, abs=0.2)
    assert pareto_k(np.ones(100)) == 0


def test_uncovered_share():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    assert uncovered_share(X, rng.normal(size=(500, 3)), rng) < 0.05
    assert uncovered_share(X, rng.normal(20, 1, size=(500, 3)), rng) == 1


# --- tests with labels -----------------------------------------------------------------------------------------------


def labeled(seed, *, shift=0.0, slope=0.0, n=300):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(2 * n, 3))
    domain = np.repeat([0.0, 1.0], n)
    rows[domain == 1, 0] += shift
    y = rows[:, 0] + np.sin(rows[:, 1]) + 0.5 * rng.normal(size=2 * n) + slope * domain * rows[:, 2]
    return rows, y[:, None], domain, rng


def test_concept_shift_is_seen_and_covariate_shift_is_not_taken_for_it():
    assert all(concept_test(*labeled(seed, slope=0.6)).p_value < 0.05 for seed in range(3))
    kept = [concept_test(*labeled(seed, shift=0.7)).p_value >= 0.05 for seed in range(10)]
    assert sum(kept) >= 7


def test_class_conditional_shift_is_seen_and_label_shift_is_not_taken_for_it():
    def label_shift(seed, extra):
        rng = np.random.default_rng(seed)
        domain = np.repeat([0.0, 1.0], 300)
        y = (rng.random(600) < np.where(domain == 1, 0.8, 0.3)).astype(float)
        rows = rng.normal(size=(600, 3)) + y[:, None] * np.array([1.0, 0.5, 0.0])
        rows[:, 2] += extra * domain
        return rows, y[:, None], domain, rng

    kept = [class_conditional_test(*label_shift(seed, 0.0)).p_value >= 0.05 for seed in range(10)]
    assert sum(kept) >= 7
    assert all(class_conditional_test(*label_shift(seed, 0.6)).p_value < 0.05 for seed in range(3))


def test_the_means_given_a_number_follow_a_curve():
    rng = np.random.default_rng(0)
    y = rng.exponential(size=2000)
    truth = np.column_stack([np.log(y + 0.1), np.sqrt(y)])
    means = _cross_fitted(_hat_functions(y), truth + 0.3 * rng.normal(size=(2000, 2)), rng, _smoothed)
    assert np.sqrt(np.mean((means - truth) ** 2)) < 0.1
    assert _hat_functions(np.repeat([0.0, 1.0, 2.0], 50)).tolist() == np.repeat(np.eye(3), 50, axis=0).tolist()


@pytest.mark.parametrize("test", [concept_test, class_conditional_test])
def test_the_number_of_fits_grows_neither_with_columns_nor_with_classes(test, monkeypatch):
    """With 600 columns, ten fits for each of them would take minutes."""
    fits = []
    monkeypatch.setattr(
        conditional, "_cross_fitted", lambda given, *rest: fits.append(1) or _cross_fitted(given, *rest)
    )
    rng = np.random.default_rng(0)
    classes = np.eye(8)[rng.integers(0, 8, 100)][:, 1:]
    test(rng.normal(size=(100, 40)), classes, np.repeat([0.0, 1.0], 50), rng)
    assert len(fits) == 2


# --- verdicts --------------------------------------------------------------------------------------------------------


def tables(name, seed):
    rng = np.random.default_rng(seed)
    X, T = rng.normal(size=(400, 4)), rng.normal(size=(400, 4))
    if name == "mild":
        T[:, 0] += 0.5
    if name == "strong":
        T[:, 0] += 1.5
        T[:, 1] *= 0.7
    if name == "disjoint":
        T[:, 0] += 8
    if name == "heavy tails":
        T[:, 0] *= 2.5
    return X, T


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("none", {"no weighting"}),
        ("mild", {"flattened", "relative"}),
        ("strong", {"relative"}),
        ("disjoint", {"collect data"}),
        ("heavy tails", {"relative"}),
    ],
)
def test_recommendations(name, allowed):
    right = []
    for seed in range(2000, 2005):
        X, T = tables(name, seed)
        right.append(diagnose(X, target=Target(T), random_state=seed).recommendation in allowed)
    assert sum(right) >= 4


def test_copies_of_rows_change_nothing():
    X, T = tables("mild", 2000)
    once = diagnose(X, target=T)
    copied = diagnose(np.repeat(X, 3, axis=0), target=np.repeat(T, 3, axis=0))
    assert copied.n_duplicates == 1600
    assert (copied.kind, copied.recommendation) == (once.kind, once.recommendation)
    assert copied.shift_p == pytest.approx(once.shift_p, abs=0.02)


def test_rows_that_repeat_by_nature_are_kept():
    rng = np.random.default_rng(0)
    coins = rng.integers(0, 2, (200, 2))
    assert diagnose(coins, target=rng.integers(0, 2, (200, 2))).n_duplicates == 0


def test_the_shifted_column_is_named():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(400, 50)), rng.normal(size=(400, 50))
    T[:, 17] += 0.6
    found = diagnose(X, target=T)
    assert found.columns[0].name == "x17"
    assert "x17" in found.reason
    assert found.columns[0].standardized_difference == pytest.approx(0.6, abs=0.2)


def test_labels_name_the_kind():
    rng = np.random.default_rng(1)
    X, T = rng.normal(size=(400, 3)), rng.normal(size=(400, 3))
    y, y_target = X[:, 0] + 0.3 * rng.normal(size=400), T[:, 0] + T[:, 1] + 0.3 * rng.normal(size=400)
    found = diagnose(X, y, target=Target(T, y_target))
    assert (found.kind, found.recommendation) == ("concept", "not by x")
    assert "Weighting by x does not help" in found.advice
    assert diagnose(X, y, target=Target(T)).labels is None


def test_findings_are_plain_and_written_down():
    X, T = tables("mild", 2000)
    found = diagnose(X, target=T)
    again = json.loads(found.to_json())
    assert again["recommendation"] == found.recommendation
    assert again["columns"][0]["name"] == found.columns[0].name
    with pytest.raises(AttributeError):
        found.kind = "none"
    assert diagnose(X, target=T) == found  # the same seed, the same findings


def test_findings_print_in_a_few_lines():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(300, 5)), rng.normal(size=(250, 5))
    T[:, 3] += 1
    found = diagnose(X, target=T)
    assert str(found) == repr(found)
    lines = str(found).splitlines()
    assert 5 <= len(lines) <= 10
    assert max(map(len, lines)) <= 120
    assert lines[0].startswith("The columns have shifted: use ")
    for words in (found.reason, found.advice, "covariate shift and label shift cannot be told apart"):
        assert words in " ".join(lines)
    auc = float(re.search(r"AUC (\d\.\d\d) ", str(found)).group(1))
    assert auc == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.06)  # of two normal distributions one apart
    second = re.search(r"most shifted first: x3 \(p < 0.001\), x\d \(p = ([^)]+)\), ", str(found)).group(1)
    assert found.columns[0].p_value < 0.001
    assert float(second) == pytest.approx(found.columns[1].p_value, rel=0.1)
    assert lines[-2].endswith(", …")
    assert "of n = 300 source rows" in lines[-1]
    assert "of 250 target rows" in lines[-1]


def test_a_mixed_table():
    rng = np.random.default_rng(0)
    n = 300

    def table(city, n_missing):
        age = rng.normal(40, 10, n)
        age[:n_missing] = np.nan
        day = np.datetime64("2020-01-01") + rng.integers(0, 900, n).astype("timedelta64[D]")
        return pa.table({"age": age, "city": rng.choice(["a", "b"], n, p=city), "day": day, "ok": rng.random(n) < 0.5})

    found = diagnose(table([0.8, 0.2], 10), target=table([0.3, 0.7], 10))
    assert found.columns[0].name == "city"
    assert found.kind == "covariate"


@pytest.mark.parametrize(
    ("X", "y", "target", "message"),
    [
        (np.ones((5, 2)), None, np.ones((50, 2)), "source has 5 rows"),
        (np.ones((50, 2)), None, np.ones((5, 2)), "target has 5 rows"),
        (np.ones((50, 2)), np.ones(3), np.ones((50, 2)), "3 labels for 50 rows"),
        (np.ones((50, 2)), None, np.ones((50, 3)), "different columns"),
    ],
)
def test_bad_input(X, y, target, message):
    with pytest.raises(InputError, match=message):
        diagnose(X, y, target=target)


# --- performance on the target ---------------------------------------------------------------------------------------


def performance(seed, n=400):
    rng = np.random.default_rng(seed)

    def truth(rows):
        return rows[:, 0] + np.sin(2 * rows[:, 1])

    X, T = rng.normal(size=(2 * n, 3)), rng.normal(size=(n, 3))
    T[:, :2] += 0.5
    y = truth(X) + 0.5 * rng.normal(size=2 * n)
    model = Ridge().fit(X[:n], y[:n])
    many = rng.normal(size=(100_000, 3))
    many[:, :2] += 0.5
    real = -np.mean((model.predict(many) - truth(many)) ** 2) - 0.25
    return target_performance(model, X[n:], y[n:], target=Target(T)), real


def test_the_interval_covers_the_truth():
    found = [performance(seed) for seed in range(2000, 2020)]
    covered = [p.target.low <= real <= p.target.high for p, real in found]
    assert sum(covered) >= 15  # 16 or fewer of 20 would be one run in sixty at 95 %
    closer = [abs(p.target.mean - real) < abs(p.source.mean - real) for p, real in found]
    assert sum(closer) >= 10


def test_without_shift_target_and_source_agree():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(600, 2)), rng.normal(size=(600, 2))
    y = X[:, 0] + rng.normal(size=600)
    found = target_performance(Ridge().fit(X[:300], y[:300]), X[300:], y[300:], target=T)
    assert found.target.mean == pytest.approx(found.source.mean, abs=0.1)
    assert found.target.low < found.target.mean < found.target.high


def test_performance_needs_rows_for_its_folds():
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(InputError, match="too few"):
        target_performance(Ridge().fit(X, X[:, 0]), X[:6], X[:6, 0], target=X)
