"""What the low-rank factor of KMM costs: the bound of the certificate against the exact kernel matrix and piqp."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from steelyard import KMM
from steelyard._numerics import low_rank_matching
from steelyard._numerics.quadratic_programs import BoxSlab, Certificate
from steelyard.errors import TruncationWarning
from steelyard.ratio import kmm
from tests.oracle.test_kmm import reference

N, M, REG = 260, 150, 1e-3


@pytest.fixture(autouse=True)
def low_rank(monkeypatch):
    monkeypatch.setattr(kmm, "DENSE_ROWS", 0)


def kernel(rows, centers, width):
    return np.exp(-(cdist(rows, centers) ** 2) / (2 * width**2))


def fitted(d, max_rank, seed, reg=REG, dtype=np.float64):
    """A fit, how far its objective with the exact kernel is above the optimum, and the bound that it promises."""
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(N, d)), rng.normal(0.6 / np.sqrt(d), 0.8, size=(M, d))
    source, target = source.astype(dtype), target.astype(dtype)
    width = float(np.sqrt(d))
    fit = KMM(width=width, reg=reg, max_rank=max_rank, standardize=False, random_state=seed)
    fit.fit(source, target=target)
    K, linear = kernel(source, source, width) + reg * np.eye(N), N * kernel(source, target, width).mean(axis=1)
    slack = (np.sqrt(N) - 1) / np.sqrt(N)
    _, best = reference(K, linear, BoxSlab(np.full(N, 1000.0), N * (1 - slack), N * (1 + slack)))
    w = fit.weights_ * fit.raw_mean_
    certificate = fit.certificate_
    bound = certificate.truncation_cost * max(1.0, abs(certificate.objective))
    return fit, w @ K @ w / 2 - linear @ w - best, bound, (source, target, width, w)


def residual_square(rows, source, target, width, w):
    """½‖r‖² of the difference of both kernel means, outside of the span of the pivots, by brute force."""
    P = kernel(rows, rows, width)
    both, mass = np.concatenate([source, target]), np.concatenate([w, np.full(M, -N / M)])
    at = kernel(both, rows, width)
    E = kernel(both, both, width) - at @ np.linalg.solve(P, at.T)
    return mass @ E @ mass / 2


@pytest.mark.filterwarnings("ignore::steelyard.errors.TruncationWarning")
@pytest.mark.parametrize("further", [True, False])
@pytest.mark.parametrize(("d", "max_rank"), [(1, 4), (1, 8), (2, 5), (2, 20), (2, 60), (5, 30), (5, 120), (10, 100)])
def test_the_exact_objective_is_within_the_bound(d, max_rank, further, monkeypatch):
    monkeypatch.setattr(low_rank_matching, "MANY_ROWS", 0 if further else 10**6)
    for seed in range(5):
        fit, excess, bound, _ = fitted(d, max_rank, seed)
        certificate = fit.certificate_
        assert certificate.rank <= max_rank
        assert -1e-7 * N**2 <= excess <= bound + (certificate.gap + 1e-8) * abs(certificate.objective)
        assert bound > 0


@pytest.mark.filterwarnings("ignore::steelyard.errors.TruncationWarning")
@pytest.mark.parametrize(("d", "max_rank"), [(1, 4), (2, 5), (2, 20), (5, 120)])
def test_with_every_row_a_further_pivot_the_bound_is_the_exact_residual(d, max_rank, monkeypatch):
    monkeypatch.setattr(low_rank_matching, "MANY_ROWS", 0)
    monkeypatch.setattr(low_rank_matching, "FACTOR_TOLERANCES", (1e-3, 1e-3))
    monkeypatch.setattr(low_rank_matching, "CANDIDATES", 10**6)
    greedy, further, pivots = low_rank_matching.greedy_pivots, low_rank_matching.further_pivots, []

    def keeping(low_rank, domains, *others):
        pivots.append(domains[0].rows[low_rank.pivots])
        return further(low_rank, domains, *others)

    monkeypatch.setattr(low_rank_matching, "further_pivots", keeping)
    _, _, with_few, _ = fitted(d, max_rank, 3)
    monkeypatch.setattr(low_rank_matching, "greedy_pivots", lambda matrix, tol, _: greedy(matrix, tol, len(matrix)))
    fit, excess, with_all, problem = fitted(d, max_rank, 3)
    truth = residual_square(pivots[-1] + fit.center_, *problem)
    assert excess <= truth + 1e-6 * N**2
    assert with_all == pytest.approx(truth, rel=0.01)
    assert with_few >= truth


@pytest.mark.parametrize("many_rows", [0, 10**6])
def test_what_the_pivots_leave_out_of_the_target_counts(many_rows, monkeypatch):
    """Two places of source rows, which the factor has in full, and a target between them."""
    monkeypatch.setattr(low_rank_matching, "MANY_ROWS", many_rows)
    source, target = np.repeat([[0.0], [1.0]], 3, axis=0), np.linspace(0.2, 0.7, 40)[:, None]
    fit = KMM(width=0.4, standardize=False, random_state=0).fit(source, target=target)
    pivots = np.array([[0.0], [1.0]])
    at = kernel(target, pivots, 0.4)
    E = kernel(target, target, 0.4) - at @ np.linalg.solve(kernel(pivots, pivots, 0.4), at.T)
    bound = fit.certificate_.truncation_cost * max(1, abs(fit.certificate_.objective))
    largest = 6**2 * np.sqrt(E.diagonal()).mean() ** 2 / 2
    assert 0.1 < 6**2 * E.mean() / 2 <= bound <= largest * (1 + 1e-3)
    assert bound == pytest.approx(largest if many_rows else 6**2 * E.mean() / 2, rel=0.01)


def test_further_pivots_tighten_the_bound_in_few_columns(monkeypatch):
    bounds = []
    for many_rows in (0, 10**6):
        monkeypatch.setattr(low_rank_matching, "MANY_ROWS", many_rows)
        monkeypatch.setattr(low_rank_matching, "FACTOR_TOLERANCES", (1e-3, 1e-3))
        bounds.append(fitted(2, 1000, 0)[0].certificate_.truncation_cost)
    assert 20 * bounds[0] < bounds[1] < 0.02


@pytest.mark.parametrize("many_rows", [0, 10**6])
def test_single_precision_has_a_bound_too(many_rows, monkeypatch):
    monkeypatch.setattr(low_rank_matching, "MANY_ROWS", many_rows)
    monkeypatch.setattr(low_rank_matching, "FACTOR_TOLERANCES", (1e-7, 1e-7))
    for seed in range(5):
        fit, excess, bound, _ = fitted(1, 1000, seed, dtype=np.float32)
        assert excess <= bound + (fit.certificate_.gap + 1e-8) * abs(fit.certificate_.objective)
        assert fit.certificate_.truncation_cost < 1e-4


def test_the_least_regularization_is_in_the_bound():
    fit, excess, bound, _ = fitted(2, 1000, 0, reg=0.0)
    assert excess <= bound + 1e-6 * abs(fit.certificate_.objective)
    high = N * (2 - 1 / np.sqrt(N))
    assert bound >= low_rank_matching.LEAST_REG * 1000 * high / 2


def test_ten_columns_reach_the_rank_limit_and_say_so():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(1500, 10)), rng.normal(0.2, 0.9, size=(500, 10))
    with pytest.warns(
        TruncationWarning, match=r"limit, max_rank=300.*Raise max_rank .* or use ULSIF or ClassifierRatio"
    ):
        fit = KMM(max_rank=300, random_state=0).fit(source, target=target)
    certificate = fit.certificate_
    assert (certificate.rank, certificate.rank_limited, certificate.solved) == (300, True, True)
    assert certificate.truncation > 0.005
    assert fit.balance_.mean_after < fit.balance_.mean_before / 3  # worse than without a limit, not useless


def test_by_default_the_rank_is_limited_by_memory(monkeypatch):
    monkeypatch.setattr(kmm, "FACTOR_NUMBERS", 120 * 1500)
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(1500, 10)), rng.normal(0.2, 0.9, size=(500, 10))
    with pytest.warns(TruncationWarning, match="limit, max_rank=120"):
        fit = KMM(random_state=0).fit(source, target=target)
    assert fit.certificate_.rank == 120


def test_enough_rank_gives_no_advice():
    fit = fitted(2, 1000, 0)[0]
    assert (fit.certificate_.advice, fit.certificate_.rank_limited) == ("", False)
    assert 20 < fit.certificate_.rank < 100
    dense = Certificate(0.0, 0.0, 0.0, 0.0, 1, True)
    assert (dense.rank, dense.truncation_cost, dense.advice) == (None, 0.0, "")


@pytest.mark.filterwarnings("ignore::steelyard.errors.RawMeanWarning")
def test_a_rank_equal_to_the_number_of_rows_is_no_limit():
    rng = np.random.default_rng(0)
    fit = KMM(max_rank=50, width=0.1, random_state=0).fit(rng.normal(size=(50, 5)), target=rng.normal(size=(50, 5)))
    assert (fit.certificate_.rank, fit.certificate_.rank_limited) == (50, False)
