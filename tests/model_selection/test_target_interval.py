"""Intervals of the target score: closed forms, what widens them and by how much, and whether they cover."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from steelyard.model_selection import Interval
from steelyard.model_selection.target_interval import (
    STRETCH,
    Overlap,
    ScoreRange,
    largest_bound,
    promise,
    target_intervals,
)
from steelyard.weights import effective_sample_size

ACCURACY = ScoreRange.of_accuracy(2)


def intervals(scores, X, T, *, score_range=ACCURACY, seed=0, **options):
    rng = np.random.default_rng(seed)
    return target_intervals(scores, X, T, score_range=score_range, rng=rng, **options)


def shifted(n, rng, shift=0.0, n_target=None):
    X, T = rng.normal(size=(n, 3)), rng.normal(size=(n_target or n, 3))
    T[:, 0] += shift
    return X, T


def right_or_wrong(X, rng):
    return (rng.random(len(X)) < norm.cdf(1 - 0.7 * X[:, 0])).astype(float)


# --- the parts, in closed form ---------------------------------------------------------------------------------------


def test_score_ranges():
    assert ScoreRange.of_accuracy(4) == ScoreRange(0.25, 1.0)
    labels = np.linspace(0, 1, 10_001)
    assert ScoreRange.of_squared_error(labels).guess == pytest.approx(np.mean(np.square(1 - labels)), rel=1e-3)
    assert ScoreRange.of_squared_error(labels).best == 0


def test_a_promise_by_hand():
    estimate, source = Interval(0.8, 0.7, 0.85), Interval(0.9, 0.88, 0.92)
    low, high, of_source = 0.8 - 0.1 * STRETCH, 0.8 + 0.05 * STRETCH, 0.9 + 0.02 * STRETCH
    found = promise(estimate, source, 0.0, 0.0, ACCURACY)
    assert (found.mean, found.low, found.high) == pytest.approx((0.8, low, high))
    found = promise(estimate, source, 0.0, 0.3, ACCURACY)
    assert (found.low, found.high) == pytest.approx((low, 0.7 * high + 0.3 * of_source))
    found = promise(estimate, source, 0.4, 0.3, ACCURACY)
    bad = 0.6 * low + 0.4 * 0.5
    # What is feared takes the bad end to 1.95 instead of 1.35 times its half; the good end has the rest of the 5 %.
    shrink = norm.ppf(0.95 + norm.sf(norm.ppf(0.975) * (0.8 - bad) / (0.8 - low))) / norm.ppf(0.975)
    assert 0.8 < shrink < 0.9
    high, of_source = 0.8 + 0.05 * STRETCH * shrink, 0.9 + 0.02 * STRETCH * shrink
    assert (found.low, found.high) == pytest.approx((bad, 0.7 * high + 0.3 * of_source))
    errors = promise(Interval(2.0, 1.5, 3.0), Interval(1.0, 0.8, 1.3), 0.4, 0.3, ScoreRange(9.0, 0.0))
    high = 2 + STRETCH
    bad = 0.6 * high + 0.4 * 9
    shrink = norm.ppf(0.95 + norm.sf(norm.ppf(0.975) * (bad - 2) / (high - 2))) / norm.ppf(0.975)
    low, of_source = 2 - 0.5 * STRETCH * shrink, 1 - 0.2 * STRETCH * shrink
    assert (errors.low, errors.high) == pytest.approx((0.7 * low + 0.3 * of_source, bad))


def test_a_promise_ends_at_the_best_score_and_a_guess_is_not_above_the_estimate():
    assert promise(Interval(0.98, 0.9, 0.999), Interval(0.99, 0.98, 1.0), 0.0, 0.5, ACCURACY).high == 1
    below = Interval(0.4, 0.35, 0.45)
    assert promise(below, below, 0.9, 0.0, ACCURACY).low == pytest.approx(0.4 - 0.05 * STRETCH)
    assert promise(Interval(1.0, 0.1, 3.0), below, 0.0, 0.0, ScoreRange(4.0, 0.0)).low >= 0


@pytest.mark.parametrize("score_range", [ACCURACY, ScoreRange(4.0, 0.0)])
def test_the_interval_widens_with_both_shares(score_range):
    """On the bad side with the excess, where the good end draws back a little; on the good side with the uncovered."""
    estimate, source = Interval(0.8, 0.75, 0.85), Interval(0.8, 0.74, 0.86)
    shares, sign = np.linspace(0, 1, 6), 1 if score_range.best > score_range.guess else -1
    feared = [promise(estimate, source, share, 0.2, score_range) for share in shares]
    uncovered = [promise(estimate, source, 0.2, share, score_range) for share in shares]
    for both in (feared, uncovered):
        assert np.all(np.diff([found.high - found.low for found in both]) > 0)
    bad, good = ("low", "high") if sign > 0 else ("high", "low")
    assert np.all(sign * np.diff([getattr(found, bad) for found in feared]) < 0)
    assert np.all(sign * np.diff([getattr(found, good) for found in feared]) <= 0)
    assert np.ptp([getattr(found, good) for found in feared]) < 0.2 * STRETCH * 0.06
    assert np.all(sign * np.diff([getattr(found, good) for found in uncovered]) >= 0)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_both_ends_together_are_missed_as_often_as_the_level_says(level):
    """Of estimates that are normal around the score, with the standard error that the stretched interval has."""
    rng = np.random.default_rng(0)
    error = 0.02 * STRETCH
    means = rng.normal(0.8, error, 20_000)
    half = norm.ppf((1 + level) / 2) * 0.02
    for excess in (0.0, 0.02, 0.3):
        ends = []
        for mean in means[:4000]:
            estimate = Interval(mean, mean - half, mean + half)
            found = promise(estimate, estimate, excess, 0.0, ACCURACY, level)
            ends.append(found.low <= 0.8 <= found.high)
        assert np.mean(ends) == pytest.approx(level, abs=3 * np.sqrt(level * (1 - level) / 4000))


def test_the_largest_bound_leaves_an_effective_sample_size_of_thirty():
    weights = np.exp(np.random.default_rng(0).normal(0, 3, 200))
    bound = largest_bound(weights)
    assert effective_sample_size(np.minimum(weights, bound)) == pytest.approx(30, rel=1e-6)
    assert effective_sample_size(np.minimum(weights, 1.01 * bound)) < 30
    assert largest_bound(np.ones(50)) == np.inf
    few = np.exp(np.random.default_rng(1).normal(0, 3, 20))
    assert effective_sample_size(np.minimum(few, largest_bound(few))) == pytest.approx(10, rel=1e-6)


def test_overlap_of_normal_distributions():
    """The excess is the total variation distance 2Φ(δ/2) − 1, the ratio exp(δx − δ²/2)."""
    rng = np.random.default_rng(0)
    X, T = shifted(4000, rng, 0.8)
    found = Overlap.estimate(X, T, rng)
    assert found.excess == pytest.approx(2 * norm.cdf(0.4) - 1, abs=0.03)
    assert found.uncovered == 0
    np.testing.assert_allclose(np.log(found.weights), 0.8 * X[:, 0] - 0.32, atol=0.35)


def test_nothing_is_covered_far_away():
    rng = np.random.default_rng(0)
    X, T = shifted(150, rng, 8.0)
    found = Overlap.estimate(X, T, rng)
    assert found.excess > 0.95
    assert found.uncovered > 0.9
    scores = (rng.random(150) < 0.9).astype(float)
    (interval,) = intervals([scores], X, T)
    assert interval.low == pytest.approx(0.5, abs=0.03)
    assert interval.high > 0.9


# --- intervals -------------------------------------------------------------------------------------------------------


def test_without_shift_the_interval_is_that_of_cross_validation():
    """The good end is 1.35 times 1.96 standard errors away; the bad one slightly more, for a shift not excluded."""
    good, bad = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, T = shifted(1000, rng, n_target=4000)
        scores = (rng.random(1000) < 0.8).astype(float)
        (found,) = intervals([scores], X, T, seed=seed)
        assert found.mean == pytest.approx(scores.mean(), abs=0.005)
        error = STRETCH * norm.ppf(0.975) * scores.std() / np.sqrt(1000)
        good.append((found.high - found.mean) / error)
        bad.append((found.mean - found.low) / error)
    assert np.mean(good) == pytest.approx(1, rel=0.1)
    assert 0.9 < np.mean(bad) < 1.5


def test_the_estimate_follows_a_shift():
    rng = np.random.default_rng(0)
    X, T = shifted(2000, rng, 1.0)
    scores = right_or_wrong(X, rng)
    truth = norm.cdf(0.3 / np.sqrt(1 + 0.49))
    (found,) = intervals([scores], X, T)
    assert found.mean == pytest.approx(truth, abs=0.05)
    assert found.high < scores.mean()


def test_duplicates_make_the_interval_no_shorter():
    rng = np.random.default_rng(0)
    X, T = shifted(200, rng)
    scores = rng.normal(size=200) ** 2
    options = {"score_range": ScoreRange(10.0, 0.0)}
    once, twice = (intervals([np.repeat(scores, k)], np.repeat(X, k, axis=0), T, **options)[0] for k in (1, 4))
    assert twice.mean - twice.low > 0.85 * (once.mean - once.low)
    alone = intervals([np.repeat(scores, 4)], np.repeat(X, 4, axis=0), T, units=np.arange(800), **options)[0]
    assert alone.mean - alone.low < 0.7 * (once.mean - once.low)


def test_the_same_seed_gives_the_same_intervals():
    rng = np.random.default_rng(0)
    X, T = shifted(120, rng, 0.5)
    scores = [right_or_wrong(X, rng), right_or_wrong(X, rng)]
    assert intervals(scores, X, T, seed=3) == intervals(scores, X, T, seed=3)
    assert intervals(scores, X, T, seed=3)[:1] == intervals(scores[:1], X, T, seed=3)
    assert intervals(scores, X, T, seed=3) != intervals(scores, X, T, seed=4)


def test_a_lower_level_gives_a_shorter_interval():
    rng = np.random.default_rng(0)
    X, T = shifted(200, rng, 0.5)
    scores = [right_or_wrong(X, rng)]
    (wide,), (narrow,) = (intervals(scores, X, T, level=level) for level in (0.95, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_where_no_interval_can_be_had_there_is_none():
    rng = np.random.default_rng(0)
    X, T = shifted(100, rng)
    assert intervals([np.ones(100)], X, T) == [Interval(1.0, None, None)]
    assert intervals([np.ones(9)] * 2, X[:9], T) == [None, None]
    assert intervals([np.ones(100)], X, T[:9]) == [None]


@pytest.mark.parametrize("squared_error", [False, True])
def test_intervals_cover(squared_error):
    """Of 60 draws so few are missed that a coverage of 93 % is not excluded; the score is known in closed form."""
    shift, n_draws, covered = 0.7, 60, 0
    for seed in range(n_draws):
        rng = np.random.default_rng(1000 + seed)
        X, T = shifted(150, rng, shift)
        if squared_error:
            scores, truth = (1 + 0.5 * X[:, 0]) ** 2 * rng.normal(size=150) ** 2, (1 + 0.5 * shift) ** 2 + 0.25
        else:
            scores, truth = right_or_wrong(X, rng), norm.cdf((1 - 0.7 * shift) / np.sqrt(1 + 0.49))
        score_range = ScoreRange(8.0, 0.0) if squared_error else ACCURACY
        (found,) = intervals([scores], X, T, score_range=score_range, seed=seed)
        covered += found.low <= truth <= found.high
    assert covered >= binom.ppf(0.005, n_draws, 0.93)
