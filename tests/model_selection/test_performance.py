"""Target performance: skewed intervals, every source of error, and no row that is evaluated by a fit on itself."""

import numpy as np
import pytest
from scipy.stats import norm, skew
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor
from sklearn.neighbors import KNeighborsClassifier

from steelyard import ClassifierRatio, Target, target_performance


class EvenRatio(BaseEstimator):
    """The density ratio of two domains that are the same."""

    def fit(self, X, y=None, *, target=None):
        return self

    def predict(self, X):
        return np.ones(len(X))


def score_is_label(model, X, y):
    """So that a test can say which score each row has."""
    return np.asarray(y)


def estimate(X, scores, T, *, ratio=None, seed=0):
    model = DummyRegressor().fit(X, scores)
    ratio = EvenRatio() if ratio is None else ratio
    return target_performance(
        model, X, scores, target=Target(T), scoring=score_is_label, ratio=ratio, random_state=seed
    )


def half_width(interval):
    return (interval.high - interval.low) / 2


def test_the_interval_leans_to_the_side_of_the_long_tail():
    """Its middle lies beyond the mean by skewness · (2z² + 1) / (6√n) standard errors.

    That is the first term of the Edgeworth expansion of a studentized mean (Hall, 1992). A percentile interval leans by
    a third of it, a basic one by a third to the other side, a reflected studentized one by all of it to the other side.
    """
    n, z = 100, norm.ppf(0.975)
    scores = -np.log1p(-(np.arange(n) + 0.5) / n)  # quantiles of the exponential distribution
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(n, 1)), rng.normal(size=(5000, 1))
    expected = skew(scores) * (2 * z**2 + 1) / (6 * np.sqrt(n))
    found = [estimate(X, scores, T, seed=seed) for seed in range(30)]
    for intervals in ([f.source for f in found], [f.target for f in found]):
        lean = [((i.low + i.high) / 2 - i.mean) / (scores.std() / np.sqrt(n)) for i in intervals]
        assert np.mean(lean) == pytest.approx(expected, abs=0.45 * expected)


def strips(n, rng):
    """A column of ten strips, the source in all of them, the target in every other one only."""
    X, T = rng.random(n), rng.random(10 * n)
    T = (np.floor(5 * T) + rng.random(10 * n) / 2) / 5
    return X[:, None], T[:, None], np.floor(10 * X) % 2 == 0


def test_a_ratio_that_knows_its_own_rows_by_heart_is_not_asked_about_them():
    """One nearest neighbor calls every row that it was fitted on a source row, so all have the same weight.

    On held-out rows it is right: rows between the strips of the target have next to no weight, and the others, which
    all have the score one, have nearly all.
    """
    for seed in range(3):
        X, T, on_strip = strips(300, np.random.default_rng(seed))
        ratio = ClassifierRatio(KNeighborsClassifier(1), random_state=0)
        found = estimate(X, on_strip.astype(float), T, ratio=ratio)
        assert found.source.mean == pytest.approx(0.5, abs=0.1)
        assert found.target.mean == pytest.approx(1.0, abs=0.15)


def test_the_interval_is_no_shorter_than_with_everything_known_but_the_noise_of_the_scores():
    """Twenty columns, their squares and products are 230: on 80 rows a regression takes the noise for signal.

    Its residuals on the rows that it was fitted on are a small part of the noise. But the mean of the noise over the
    source rows is in every estimate, also in that of one who knows the expected score of each row.
    """
    n = 80
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, T = rng.normal(size=(n, 20)), rng.normal(size=(4000, 20))
        noise = rng.normal(size=n)
        found = estimate(X, 3 * X.mean(axis=1) * np.sqrt(20) + noise, T)
        assert half_width(found.target) >= 0.8 * norm.ppf(0.975) * noise.std() / np.sqrt(n)


@pytest.mark.parametrize("n_target", [40, 160])
def test_with_scores_known_exactly_the_interval_is_that_of_the_mean_over_the_target_rows(n_target):
    widths, expected = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, T = rng.normal(size=(400, 2)), rng.normal(size=(n_target, 2))
        found = estimate(X, X[:, 0] - 2 * X[:, 1], T)
        target_scores = T[:, 0] - 2 * T[:, 1]
        assert found.target.mean == pytest.approx(target_scores.mean(), abs=0.01)
        widths.append(half_width(found.target))
        expected.append(norm.ppf(0.975) * target_scores.std(ddof=1) / np.sqrt(n_target))
    assert np.mean(widths) == pytest.approx(np.mean(expected), rel=0.15)
