import numpy as np
import pytest

from steelyard import RULSIF, ULSIF
from steelyard._numerics.kernels import gaussian
from steelyard.datasets import gaussian_pair
from steelyard.errors import InputError, InputTypeError, NotFiniteError

PAIR = gaussian_pair(3000, 2000, 2, random_state=0)


class Blocks:
    """Blocks of different sizes, which can be iterated several times."""

    def __init__(self, rows, *cuts):
        self.rows, self.cuts = rows, cuts

    def __iter__(self):
        return iter(np.split(self.rows, self.cuts))


SOURCE, TARGET = Blocks(PAIR.X, 700, 1500, 1501), Blocks(PAIR.X_target, 600)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_equals_the_fit_in_memory_for_fixed_width_reg_and_centers(eta):
    fixed = {"width": 1.0, "reg": 0.1, "centers": PAIR.X_target[:40], "random_state": 0}
    whole = RULSIF(eta, **fixed).fit(PAIR.X, target=PAIR.X_target)
    blocks = RULSIF(eta, **fixed).fit_blocks(SOURCE, TARGET)
    np.testing.assert_allclose(blocks.coef_, whole.coef_, atol=1e-10)
    np.testing.assert_allclose(blocks.predict(PAIR.X), whole.predict(PAIR.X), atol=1e-9)
    assert blocks.source_mean_ == pytest.approx(whole.source_mean_, rel=1e-9)
    assert blocks.raw_mean_ == pytest.approx(whole.raw_mean_, rel=1e-9)
    np.testing.assert_allclose(whole.predict(PAIR.X) / whole.source_mean_, whole.weights_)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_scores_equal_refitting_without_each_fold(eta):
    centers, widths, regs = PAIR.X_target[:15], [1.5, 0.7], [1.0, 0.01]
    fit = RULSIF(eta, width=widths, reg=regs, centers=centers, standardize=False, random_state=0)
    fit.fit_blocks([PAIR.X], [PAIR.X_target])
    for w, width in enumerate(fit.widths_):
        a, t = gaussian(PAIR.X, centers, width), gaussian(PAIR.X_target, centers, width)
        for r, reg in enumerate(fit.regs_):
            scores = []
            for f in range(5):
                out_a, out_t = np.arange(len(a)) % 5 == f, np.arange(len(t)) % 5 == f
                A, T = a[~out_a], t[~out_t]
                H = (1 - eta) * A.T @ A / len(A) + eta * T.T @ T / len(T)
                beta = np.maximum(np.linalg.solve(H + reg * np.eye(15), T.mean(axis=0)), 0)
                g, h = a[out_a] @ beta, t[out_t] @ beta
                scores.append((1 - eta) * np.mean(g**2) / 2 + eta * np.mean(h**2) / 2 - np.mean(h))
            assert fit.scores_[w, r] == pytest.approx(np.mean(scores), abs=1e-10)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_a_fold_is_scored_without_the_centers_sampled_from_it(eta):
    widths, regs = [1.5, 0.7], [1.0, 0.01]
    fit = RULSIF(eta, width=widths, reg=regs, n_centers=20, standardize=False, random_state=0)
    fit.fit_blocks([PAIR.X], [PAIR.X_target])
    centers = fit.centers_ + fit.center_  # not scaled, only centered
    nearest = np.argmin(np.square(PAIR.X_target[:, None] - centers).sum(axis=2), axis=0)
    np.testing.assert_allclose(PAIR.X_target[nearest], centers, atol=1e-12)
    for w, width in enumerate(fit.widths_):
        a, t = gaussian(PAIR.X, centers, width), gaussian(PAIR.X_target, centers, width)
        for r, reg in enumerate(fit.regs_):
            scores = []
            for f in range(5):
                used = nearest % 5 != f
                out_a, out_t = np.arange(len(a)) % 5 == f, np.arange(len(t)) % 5 == f
                A, T = a[np.ix_(~out_a, used)], t[np.ix_(~out_t, used)]
                H = (1 - eta) * A.T @ A / len(A) + eta * T.T @ T / len(T)
                beta = np.maximum(np.linalg.solve(H + reg * np.eye(used.sum()), T.mean(axis=0)), 0)
                g, h = a[np.ix_(out_a, used)] @ beta, t[np.ix_(out_t, used)] @ beta
                scores.append((1 - eta) * np.mean(g**2) / 2 + eta * np.mean(h**2) / 2 - np.mean(h))
            assert fit.scores_[w, r] == pytest.approx(np.mean(scores), abs=1e-10)


def test_default_grid_finds_the_true_ratio():
    fit = ULSIF(random_state=0).fit_blocks(SOURCE, TARGET)
    assert np.corrcoef(fit.predict(PAIR.X), PAIR.ratio(PAIR.X))[0, 1] > 0.95
    assert fit.raw_mean_ == pytest.approx(1, abs=0.2)
    assert fit.scores_.shape == (9, 9)


def test_scale_is_that_of_the_whole_table():
    whole = ULSIF(random_state=0).fit(PAIR.X * [10, 0.1] + 5, target=PAIR.X_target * [10, 0.1] + 5)
    rows = Blocks(PAIR.X * [10, 0.1] + 5, 100, 2000), Blocks(PAIR.X_target * [10, 0.1] + 5, 1000)
    blocks = ULSIF(random_state=0).fit_blocks(*rows)
    np.testing.assert_allclose(blocks.scale_, whole.scale_, rtol=1e-12)
    np.testing.assert_allclose(blocks.center_, whole.center_, rtol=1e-12)


def test_single_precision_blocks():
    double = ULSIF(width=1.0, reg=0.1, centers=PAIR.X_target[:40], random_state=0).fit_blocks(SOURCE, TARGET)
    single = ULSIF(width=1.0, reg=0.1, centers=PAIR.X_target[:40], random_state=0).fit_blocks(
        Blocks(PAIR.X.astype(np.float32), 700), Blocks(PAIR.X_target.astype(np.float32), 700)
    )
    np.testing.assert_allclose(single.predict(PAIR.X), double.predict(PAIR.X), atol=1e-4)


def test_bad_blocks():
    with pytest.raises(InputTypeError, match=r"source blocks can be iterated only once.*__iter__"):
        ULSIF().fit_blocks((rows for rows in [PAIR.X]), [PAIR.X_target])
    with pytest.raises(NotFiniteError, match="target contains NaN"):
        ULSIF().fit_blocks([PAIR.X], [PAIR.X_target, np.full((3, 2), np.nan)])
    with pytest.raises(InputError, match="target: X has 1 features"):
        ULSIF().fit_blocks([PAIR.X], [PAIR.X_target[:, :1]])
    with pytest.raises(InputError, match=r"source: the blocks hold 3 rows, at least 10 are needed"):
        ULSIF().fit_blocks([PAIR.X[:3]], [PAIR.X_target])
    with pytest.raises(InputError, match=r"source: the blocks hold 0 rows"):
        ULSIF().fit_blocks([], [PAIR.X_target])


@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_size_of_the_blocks_does_not_matter(size):
    X, target = PAIR.X[:60], PAIR.X_target[:60]
    fixed = {"width": [1.0, 0.5], "reg": [1.0, 0.1], "centers": PAIR.X_target[60:80], "random_state": 0}
    whole = ULSIF(**fixed).fit_blocks([X], [target])
    parts = ULSIF(**fixed).fit_blocks(Blocks(X, *range(size, 60, size)), Blocks(target, *range(size, 60, size)))
    np.testing.assert_allclose(parts.scores_, whole.scores_, rtol=1e-9)
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-9)


@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_weights_of_blocks_have_mean_one_with_the_bound_in_force(eta):
    fit = RULSIF(eta, width=0.1, reg=0.00001, random_state=0).fit_blocks(SOURCE, TARGET)
    ratio = fit.predict(PAIR.X)
    assert (ratio / fit.source_mean_).mean() == pytest.approx(1, abs=1e-9)
    mixture = eta * fit.predict(PAIR.X_target).mean() + (1 - eta) * ratio.mean()
    assert fit.raw_mean_ == pytest.approx(mixture, abs=1e-9)
    assert (ratio == 1 / eta).any()


def test_constant_blocks_and_an_earlier_fit():
    fit = ULSIF(random_state=0).fit(PAIR.X, target=PAIR.X_target)
    fit.fit_blocks([np.ones((20, 2))], [np.ones((20, 2))])
    assert not hasattr(fit, "weights_")
    np.testing.assert_array_equal(fit.predict(PAIR.X[:3]), 1)


def test_a_table_is_no_iterable_of_blocks():
    with pytest.raises(InputTypeError, match="Use fit for a table in memory"):
        ULSIF().fit_blocks(PAIR.X, [PAIR.X_target])
