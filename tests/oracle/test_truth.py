"""Every estimator against the true ratio of two Gaussians."""

import numpy as np
import pytest

from steelyard import KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio
from steelyard.datasets import gaussian_pair

METHODS = {
    "KLIEP": KLIEP(random_state=0),
    "KMM": KMM(random_state=0),
    "LSIF": LSIF(random_state=0),
    "RULSIF .1": RULSIF(0.1, random_state=0),
    "RULSIF .5": RULSIF(0.5, random_state=0),
    "ULSIF": ULSIF(random_state=0),
    "ClassifierRatio": ClassifierRatio(random_state=0),
    "AutoRatio": AutoRatio(random_state=0),
}
PAIRS = [(0.8, 0.7), (0.5, 0.8)]


def eta_of(method):
    return getattr(method, "eta", 0.0)


@pytest.mark.parametrize(("shift", "scale"), PAIRS)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", METHODS)
def test_correlates_with_the_quantity_estimated(name, d, shift, scale):
    method, correlations, means = METHODS[name], [], []
    for seed in range(5):
        pair = gaussian_pair(n_columns=d, shift=shift, scale=scale, random_state=seed)
        method.fit(pair.X, target=pair.X_target)
        truth = pair.ratio(pair.X, eta_of(method))
        correlations.append(np.corrcoef(method.weights_, truth)[0, 1])
        means.append(np.average(pair.X, axis=0, weights=method.weights_))
    assert np.mean(correlations) >= 0.9
    assert np.mean(means) > 0.4 * shift  # the direction: toward the target, not away from it


@pytest.mark.parametrize(("shift", "scale"), PAIRS)
@pytest.mark.parametrize("name", ["KLIEP", "KMM", "LSIF", "RULSIF .1", "ULSIF", "ClassifierRatio", "AutoRatio"])
# Five dimensions are hard for LSIF with 2,000 rows, and it warns.
@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_covers_the_way_in_five_dimensions(name, shift, scale):
    method, covered = METHODS[name], []
    for seed in range(5):
        pair = gaussian_pair(n_columns=5, shift=shift, scale=scale, random_state=seed)
        method.fit(pair.X, target=pair.X_target)
        covered.append(np.average(pair.X, axis=0, weights=method.weights_).mean() / shift)
    assert 0.5 <= np.mean(covered) <= 1.3


@pytest.mark.parametrize("name", METHODS)
def test_error_falls_as_n_grows(name):
    method = METHODS[name]

    def error(n):
        errors = []
        for seed in range(5):
            pair = gaussian_pair(n, n, shift=0.5, scale=0.8, random_state=seed)
            truth = pair.ratio(pair.X, eta_of(method))
            errors.append(np.mean(np.square(method.fit(pair.X, target=pair.X_target).weights_ - truth / truth.mean())))
        return np.mean(errors)

    assert error(2000) < 0.7 * error(100)


@pytest.mark.parametrize("name", ["KLIEP", "LSIF", "RULSIF .1", "RULSIF .5", "ULSIF", "ClassifierRatio"])
def test_predict_is_the_ratio_and_score_prefers_the_truth(name):
    method = METHODS[name]
    pair = gaussian_pair(random_state=7)
    method.fit(pair.X, target=pair.X_target)
    grid = np.linspace(-1, 1.5, 50)[:, None]
    np.testing.assert_allclose(method.predict(grid), pair.ratio(grid, eta_of(method)), atol=0.35)
    fresh = gaussian_pair(random_state=8)
    eta = eta_of(method)
    g, h = method.predict(fresh.X), method.predict(fresh.X_target)
    by_hand = np.mean(h) - (1 - eta) * np.mean(g**2) / 2 - eta * np.mean(h**2) / 2
    assert method.score(fresh.X, target=fresh.X_target) == pytest.approx(by_hand)
    # The score is the squared error up to a constant, so the fit must beat both no weighting and the wrong direction.
    for worse in (np.ones(len(fresh.X)), method.predict(-fresh.X)):
        at_target = np.ones(len(fresh.X)) if worse[0] == worse[-1] else method.predict(-fresh.X_target)
        score_of_worse = np.mean(at_target) - (1 - eta) * np.mean(worse**2) / 2 - eta * np.mean(at_target**2) / 2
        assert by_hand > score_of_worse


def test_raw_mean_of_rulsif_is_over_the_mixture():
    pair = gaussian_pair(random_state=1, shift=0.8, scale=0.7)
    for eta in (0.1, 0.5):
        fit = RULSIF(eta, random_state=0).fit(pair.X, target=pair.X_target)
        over_source, over_target = fit.predict(pair.X).mean(), fit.predict(pair.X_target).mean()
        assert fit.raw_mean_ == pytest.approx(eta * over_target + (1 - eta) * over_source)
        assert fit.raw_mean_ == pytest.approx(1, abs=0.1)
        assert over_source < 0.95  # so raw_mean_ is not the mean over the source
    assert fit.n_clipped_ == np.sum(fit.predict(pair.X) == 2)
    assert fit.predict(pair.X_target).max() <= 2
