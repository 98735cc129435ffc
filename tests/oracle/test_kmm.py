"""KMM against another solver, a closed form and its own optimality conditions."""

import numpy as np
import piqp
import pytest

from steelyard import KMM
from steelyard._numerics import low_rank_matching
from steelyard._numerics.empirical import empirical
from steelyard._numerics.interior_point import solve_box_slab_low_rank
from steelyard._numerics.kernels import gaussian
from steelyard._numerics.low_rank import pivoted_cholesky
from steelyard._numerics.quadratic_programs import BoxSlab, Multipliers, certify, solve_box_slab
from steelyard.errors import ConvergenceError, TruncationWarning
from steelyard.ratio import kmm as module


def problem(seed):
    """Random problems, some with the box active, some with the slab active, some with both."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(30, 200)), int(rng.integers(1, 31))
    source = rng.normal(size=(n, d))
    target = rng.normal(rng.uniform(0, 1.5) / np.sqrt(d), rng.uniform(0.5, 1.2), size=(int(rng.integers(20, 200)), d))
    width = np.sqrt(2 * d) * rng.uniform(0.3, 1.5)
    w_max = [1000.0, 2.0, 1.2][seed % 3]
    slack = [(np.sqrt(n) - 1) / np.sqrt(n), 0.1, 0.001][(seed // 3) % 3]
    reg = [1e-3, 1e-5][seed % 2]
    K = gaussian(source, source, width) + reg * np.eye(n)
    linear = n * gaussian(source, target, width).mean(axis=1)
    return source, target, width, reg, K, linear, BoxSlab(np.full(n, w_max), n * (1 - slack), n * (1 + slack))


def reference(K, linear, bounds):
    """piqp at tolerance 1e-10; its point is put into the box, so that its objective is that of a feasible point."""
    n = len(linear)
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-10
    solver.setup(
        np.asfortranarray(K / n),
        -linear / n,
        G=np.ones((1, n), order="F"),
        h_l=np.array([bounds.low]),
        h_u=np.array([bounds.high]),
        x_l=np.zeros(n),
        x_u=bounds.upper,
    )
    assert solver.solve() == piqp.PIQP_SOLVED
    x = np.clip(solver.result.x, 0, bounds.upper)
    return x, x @ K @ x / 2 - linear @ x


@pytest.mark.parametrize("seed", range(100))
def test_objective_is_no_worse_than_piqp(seed):
    source, _, width, reg, K, linear, bounds = problem(seed)
    _, best = reference(K, linear, bounds)
    low_rank = pivoted_cholesky(source, width, np.random.default_rng(0), max_rank=10**6, tol=1e-12)
    thin, certificate_thin = solve_box_slab_low_rank(
        low_rank.factor, low_rank.residual + reg, linear, bounds, np.ones(len(linear)), tol=1e-7
    )
    dense, certificate = solve_box_slab(K, linear, bounds, 1e-6)
    for x, proof in ((dense, certificate), (thin, certificate_thin)):
        assert proof.solved
        assert x.min() >= 0
        assert np.all(x <= bounds.upper)
        assert bounds.low - 1e-5 * len(x) <= x.sum() <= bounds.high + 1e-5 * len(x)
        assert x @ K @ x / 2 - linear @ x <= best + 1e-8 * max(1, abs(best))


def test_the_random_problems_have_active_boxes_and_slabs():
    box = slab = 0
    for seed in range(100):
        *_, K, linear, bounds = problem(seed)
        x, _ = reference(K, linear, bounds)
        box += bool((x > 0.999 * bounds.upper).any())
        slab += bool(min(x.sum() - bounds.low, bounds.high - x.sum()) < 1e-4 * len(x))
    assert box >= 20
    assert slab >= 10


@pytest.mark.parametrize("d", [1, 2, 5, 10])
@pytest.mark.parametrize("reg", [1e-3, 0.0])
@pytest.mark.parametrize("dense_rows", [0, 10**6], ids=["low rank", "dense"])
def test_the_estimator_reaches_the_reference(dense_rows, reg, d, monkeypatch):
    monkeypatch.setattr(module, "DENSE_ROWS", dense_rows)
    rng = np.random.default_rng(d)
    source, target = rng.normal(size=(500, d)), rng.normal(0.5 / np.sqrt(d), 0.8, size=(400, d))
    width = np.sqrt(2.0 * d)
    fit = KMM(width=width, reg=reg, standardize=False, random_state=0).fit(source, target=target)
    K = gaussian(source, source, width) + reg * np.eye(500)
    linear = 500 * gaussian(source, target, width).mean(axis=1)
    slack = (np.sqrt(500) - 1) / np.sqrt(500)
    _, best = reference(K, linear, BoxSlab(np.full(500, 1000.0), 500 * (1 - slack), 500 * (1 + slack)))
    weights = fit.weights_ * fit.raw_mean_
    assert weights @ K @ weights / 2 - linear @ weights <= best + 1e-6 * abs(best)
    # The certificate is that of the problem solved, which is the full one but for what the factor cuts off.
    assert fit.certificate_.objective == pytest.approx(best, rel=max(1e-6, fit.certificate_.truncation))


def test_equal_tables_give_equal_weights():
    X = np.random.default_rng(2).normal(size=(100, 3))
    fit = KMM(reg=0.0, width=0.5, random_state=0).fit(X, target=X)
    np.testing.assert_allclose(fit.weights_, 1, atol=1e-5)


def test_unconstrained_optimum_is_the_linear_system():
    """Where no bound is active the solution is K⁻¹κ."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 5))
    target = X[rng.permutation(60)] + 0.01 * rng.normal(size=(60, 5))
    fit = KMM(width=1.0, standardize=False, random_state=0).fit(X, target=target)
    K = gaussian(X, X, 1.0) + 1e-3 * np.eye(60)
    closed = np.linalg.solve(K, 60 * gaussian(X, target, 1.0).mean(axis=1))
    assert closed.min() > 0  # so that the bounds really are inactive
    np.testing.assert_allclose(fit.weights_ * fit.raw_mean_, closed, atol=1e-4)


def test_factor_reproduces_the_kernel_matrix():
    rows = np.random.default_rng(4).normal(size=(300, 2))
    low_rank = pivoted_cholesky(rows, 1.0, np.random.default_rng(0), max_rank=300, tol=1e-9)
    K = gaussian(rows, rows, 1.0)
    rest = K - low_rank.factor @ low_rank.factor.T
    np.testing.assert_allclose(rest.diagonal(), low_rank.residual, atol=1e-12)
    assert low_rank.residual.mean() <= 1e-9
    assert np.abs(rest).max() <= 1e-6
    assert low_rank.factor.shape[1] < 150
    np.testing.assert_allclose(
        low_rank.corner @ low_rank.corner.T, K[np.ix_(low_rank.pivots, low_rank.pivots)], atol=1e-10
    )


def test_a_cut_off_factor_is_reported():
    rng = np.random.default_rng(5)
    source, target = rng.normal(size=(600, 20)), rng.normal(0.2, 1, size=(200, 20))
    with pytest.warns(
        TruncationWarning, match=r"limit, max_rank=50, and leaves out \d+.\d% of the trace.*Raise max_rank"
    ):
        fit = KMM(max_rank=50, random_state=0).fit(source, target=target)
    assert fit.certificate_.truncation > 0.01
    assert fit.certificate_.solved
    assert (fit.certificate_.rank, fit.certificate_.rank_limited) == (50, True)
    assert f"leaves out {fit.certificate_.truncation:.1%} of the trace" in fit.certificate_.advice


def test_not_converging_is_an_error_that_says_what_to_do(monkeypatch):
    rng = np.random.default_rng(6)
    source, target = rng.normal(size=(100, 1)), rng.normal(0.5, 0.8, size=(100, 1))
    with pytest.raises(ConvergenceError, match=r"gap .* should be at most 1.0e-30.*Raise tol"):
        KMM(tol=1e-30, random_state=0).fit(source, target=target)


def test_repeated_rows_are_one_row_of_greater_count():
    rng = np.random.default_rng(7)
    source, target = rng.normal(size=(40, 2)), rng.normal(0.5, 0.8, size=(50, 2))
    counts = rng.integers(1, 4, size=40)
    weighted = KMM(random_state=0).fit(source, target=target, sample_weight=counts)
    repeated = KMM(random_state=0).fit(source.repeat(counts, axis=0), target=target)
    np.testing.assert_allclose(weighted.weights_.repeat(counts), repeated.weights_, atol=1e-7)
    sample = empirical(source.repeat(counts, axis=0), None, np.random.default_rng(0))
    assert len(sample) == 40


@pytest.mark.parametrize(
    ("w_max", "slack"), [(1.0, 0.05), (1.5, 0.01), (0.95, 0.1), (1.01, 0.0), (1.2, 0.1), (3.0, 2.0)]
)
@pytest.mark.parametrize("seed", range(5))
def test_tight_boxes_and_slabs_agree_with_the_dense_solver(w_max, slack, seed, monkeypatch):
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(60, 2)), rng.normal(0.7, 0.8, size=(50, 2))
    objectives = []
    for dense_rows in (0, 10**6):
        monkeypatch.setattr(module, "DENSE_ROWS", dense_rows)
        monkeypatch.setattr(low_rank_matching, "FACTOR_TOLERANCES", (1e-12, 1e-12))
        fit = KMM(width=1.5, w_max=w_max, slack=slack, standardize=False, random_state=0).fit(source, target=target)
        objectives.append(fit.certificate_.objective)
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)


@pytest.mark.parametrize("tol", [1e-7, 1e-9])
@pytest.mark.parametrize(("w_max", "slack"), [(1000.0, 0.1), (1000.0, 0.0), (1.2, 0.1), (1.0, 0.05)])
def test_an_active_lower_limit_of_the_sum_is_reached_to_small_tolerances(w_max, slack, tol):
    """The distance to the limit falls below the rounding error of the sum, and is divided by: against piqp."""
    rng = np.random.default_rng(0)
    n, source, target = 200, rng.normal(size=(200, 2)), rng.normal(size=(80, 2))
    low_rank = pivoted_cholesky(source, 1.0, rng, max_rank=n, tol=1e-12)
    K = low_rank.factor @ low_rank.factor.T + 1e-3 * np.eye(n)
    # Three tenths of the linear term of KMM: without the limit the weights would have a mean of about 0.3.
    linear = 0.3 * n * gaussian(source, target, 1.0).mean(axis=1)
    bounds = BoxSlab(np.full(n, w_max), n * (1 - slack), n * (1 + slack))
    solution, best = reference(K, linear, bounds)
    assert solution.sum() == pytest.approx(bounds.low, rel=1e-6)
    start = np.full(n, (1 - slack + min(w_max, 1 + slack)) / 2)
    with np.errstate(divide="raise", invalid="raise"):
        x, certificate = solve_box_slab_low_rank(low_rank.factor, np.full(n, 1e-3), linear, bounds, start, tol=tol)
    assert certificate.solved
    assert certificate.objective == pytest.approx(best, rel=10 * tol)
    # The objective grows at least as ½ reg |x - solution|² around its minimum, and the gap bounds its excess.
    assert np.sum((x - solution) ** 2) <= 2 * tol * abs(best) / 1e-3
    assert np.all(x <= bounds.upper)


def test_negative_multipliers_prove_nothing():
    x, bounds = np.array([0.5, 0.5]), BoxSlab(np.ones(2), 1.0, 2.0)
    # Stationary only with a negative multiplier at the lower end of the slab: not an optimum.
    wrong = Multipliers(np.zeros(2), np.zeros(2), -1.0, 0.0)
    assert not certify(x, x, x + 1.0, bounds, wrong, 0, 1e-6).solved
    right = Multipliers(np.zeros(2), np.zeros(2), 1.0, 0.0)
    assert certify(x, x, x - 1.0, bounds, right, 0, 1e-6).solved


@pytest.mark.parametrize("n", [3000, 4000])
def test_the_coarser_factor_of_many_rows_costs_less_than_a_millionth(n):
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(n, 4)), rng.normal(0.5, 0.8, size=(500, 4))

    def objective(fit):
        weights = fit.weights_ * fit.raw_mean_
        linear = n * gaussian(source, target, 2.0).mean(axis=1)
        square = sum(
            weights[i : i + 500] @ (gaussian(source[i : i + 500], source, 2.0) @ weights) for i in range(0, n, 500)
        )
        return (square + 1e-3 * weights @ weights) / 2 - linear @ weights

    coarse = objective(KMM(width=2.0, standardize=False, random_state=0).fit(source, target=target))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank_matching, "FACTOR_TOLERANCES", (1e-5, 1e-5))
        fine = objective(KMM(width=2.0, standardize=False, random_state=0).fit(source, target=target))
    assert coarse <= fine + 1e-6 * abs(fine)


def test_projecting_the_means_beats_exact_means_and_a_padded_diagonal():
    """Why the low-rank path neither computes exact kernel means nor keeps what the factor cuts off."""
    rng = np.random.default_rng(0)
    n, width, reg = 600, 2.9, 1e-3
    source, target = rng.normal(size=(n, 5)), rng.normal(0.5, 0.8, size=(500, 5))
    K = gaussian(source, source, width) + reg * np.eye(n)
    exact = n * gaussian(source, target, width).mean(axis=1)
    slack = (np.sqrt(n) - 1) / np.sqrt(n)
    bounds = BoxSlab(np.full(n, 1000.0), n * (1 - slack), n * (1 + slack))
    _, best = reference(K, exact, bounds)
    low_rank = pivoted_cholesky(
        source, width, np.random.default_rng(0), max_rank=n, tol=low_rank_matching.FACTOR_TOLERANCES[0]
    )
    projected = low_rank.factor @ np.linalg.solve(low_rank.corner, exact[low_rank.pivots])

    def excess(linear, diagonal):
        x, _ = solve_box_slab_low_rank(low_rank.factor, diagonal, linear, bounds, np.ones(n), tol=1e-7)
        return x @ K @ x / 2 - exact @ x - best

    plain = np.full(n, reg)
    least = excess(projected, plain)
    assert least <= 1e-6 * abs(best)
    assert 4 * least < excess(exact, plain)
    assert 4 * least < excess(exact, plain + low_rank.residual)
    assert least < excess(projected, plain + low_rank.residual)


@pytest.mark.parametrize("slack", [None, 0.05])
@pytest.mark.parametrize("levels", [3, 40])
def test_repeated_rows_are_the_problem_of_all_rows(levels, slack):
    """reg and slack refer to all N rows, not to the distinct ones: against the QP with every row."""
    rng = np.random.default_rng(levels)
    source = rng.integers(0, levels, (150, 1)).astype(float)
    target = np.minimum(rng.integers(0, 2 * levels, (90, 1)), levels - 1).astype(float)
    width, reg, n = 0.5 * levels, 0.01, len(source)
    fit = KMM(width=width, reg=reg, slack=slack, standardize=False, random_state=0).fit(source, target=target)
    K = gaussian(source, source, width) + reg * np.eye(n)
    linear = n * gaussian(source, target, width).mean(axis=1)
    epsilon = (np.sqrt(n) - 1) / np.sqrt(n) if slack is None else slack
    bounds = BoxSlab(np.full(n, 1000.0), n * (1 - epsilon), n * (1 + epsilon))
    solution, _ = reference(K, linear, bounds)
    weights = fit.weights_ * fit.raw_mean_
    objective = 0.5 * weights @ K @ weights - linear @ weights
    assert objective == pytest.approx(0.5 * solution @ K @ solution - linear @ solution, rel=1e-6)
    np.testing.assert_allclose(weights, solution, atol=5e-3)


def test_a_fit_says_what_it_solves_to_the_log_alone(caplog, capsys):
    rng = np.random.default_rng(0)
    with caplog.at_level("INFO", "steelyard"):
        KMM(random_state=0).fit(rng.normal(size=(1200, 1)), target=rng.normal(size=(50, 1)))
    assert "KMM: a quadratic program of 1,200 source rows and 50 target rows" in caplog.text
    assert capsys.readouterr() == ("", "")
