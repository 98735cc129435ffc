"""Tensors in, tensors out: by way of NumPy, and the way of large tables, run here on a CPU."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.linear_model import Ridge

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from steelyard import KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio, Target, WeightedRegressor
from steelyard._numerics import torch_arrays
from steelyard._numerics.interior_point import solve_box_slab_low_rank
from steelyard._numerics.kernels import basis_moments
from steelyard._numerics.low_rank import pivoted_cholesky
from steelyard._numerics.quadratic_programs import BoxSlab
from steelyard.balance import column_balance
from steelyard.datasets import gaussian_pair
from steelyard.errors import InputError, InputTypeError, NoOverlapError, NotFiniteError
from steelyard.ratio import _tensors

ALL = [KLIEP, KMM, LSIF, RULSIF, ULSIF, ClassifierRatio, AutoRatio]
SMALL = gaussian_pair(160, 120, 3, shift=0.4, scale=0.9, random_state=11)
# Columns of different location and scale, and numbers of rows that fill neither blocks nor folds.
LARGE = gaussian_pair(5003, 4211, 3, shift=0.4, scale=0.9, random_state=1)
X, X_TARGET = (rows * [100.0, -0.01, 3.0] + [5.0, -7.0, 10.0] for rows in (LARGE.X, LARGE.X_target))
CENTERS = X_TARGET[:40] * 1.001


def tensors(*tables, dtype=torch.float64):
    return [torch.tensor(table, dtype=dtype) for table in tables]


@pytest.fixture
def stay(monkeypatch):
    """Tables of a few hundred rows take the way of large ones on a GPU."""
    monkeypatch.setattr(_tensors, "_stays_on_device", lambda estimator, *_: hasattr(estimator, "_fit_on_device"))


@pytest.mark.parametrize("estimator", ALL)
def test_weights_and_predictions_are_tensors_with_the_values_of_numpy(estimator):
    source, target = tensors(SMALL.X, SMALL.X_target)
    plain = estimator(random_state=0).fit(SMALL.X, target=SMALL.X_target)
    fit = estimator(random_state=0).fit(source, target=Target(target))
    assert isinstance(fit.weights_, torch.Tensor)
    assert (fit.weights_.dtype, fit.weights_.device) == (source.dtype, source.device)
    np.testing.assert_array_equal(fit.weights_.numpy(), plain.weights_)
    assert "importance weights" in fit._repr_html_()
    if estimator is not KMM:
        assert isinstance(fit.predict(target), torch.Tensor)
        np.testing.assert_array_equal(fit.predict(target).numpy(), plain.predict(SMALL.X_target))
        assert fit.score(source, target=target) == plain.score(SMALL.X, target=SMALL.X_target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_weights_have_the_type_of_the_source(dtype):
    source, target = tensors(SMALL.X * 10, SMALL.X_target * 10, dtype=dtype)
    fit = ULSIF(random_state=0).fit(source, target=target.float())
    assert fit.weights_.dtype == (dtype if dtype.is_floating_point else torch.float64)
    assert fit.weights_.double().mean() == pytest.approx(1, abs=1e-3)


def test_counts_and_gradients():
    source, target = tensors(SMALL.X, SMALL.X_target)
    counts = np.arange(160) % 3
    plain = ULSIF(random_state=0).fit(SMALL.X, target=SMALL.X_target, sample_weight=counts)
    fit = ULSIF(random_state=0).fit(source.requires_grad_(), target=target, sample_weight=torch.tensor(counts))
    assert not fit.weights_.requires_grad
    np.testing.assert_array_equal(fit.weights_.numpy(), plain.weights_)


def test_a_weighted_model_takes_tensors():
    source, target = tensors(SMALL.X, SMALL.X_target)
    plain = WeightedRegressor(Ridge(), ULSIF(random_state=0)).fit(SMALL.X, SMALL.X[:, 0], target=SMALL.X_target)
    fit = WeightedRegressor(Ridge(), ULSIF(random_state=0)).fit(source, SMALL.X[:, 0], target=target)
    np.testing.assert_array_equal(fit.weights_, plain.weights_)


@pytest.mark.parametrize("estimator", [ULSIF, KMM])
def test_tables_apart_are_an_error(estimator):
    source, target = tensors(SMALL.X, SMALL.X_target)
    with pytest.raises(InputTypeError, match=r"source is a Tensor and the target a ndarray\. Give both as tensors"):
        estimator().fit(source, target=SMALL.X_target)
    with pytest.raises(InputTypeError, match="source is a ndarray and the target a Tensor"):
        estimator().fit(SMALL.X, target=Target(target))
    with pytest.raises(InputError, match=r"source is on the device cpu and the target on meta.*target\.to\('cpu'\)"):
        estimator().fit(source, target=target.to("meta"))
    with pytest.raises(InputError, match="the sample_weight on meta"):
        estimator().fit(source, target=target, sample_weight=torch.ones(160, device="meta"))


def test_what_needs_no_pytorch_does_not_load_it_and_what_needs_it_needs_nothing_else():
    code = (
        "import sys\n"
        "for name in ('piqp', 'pyarrow', 'skops'): sys.modules[name] = None\n"
        "import numpy as np, steelyard\n"
        "rng = np.random.default_rng(0)\n"
        "s, t = rng.normal(size=(4000, 2)), rng.normal(0.3, 0.9, size=(4000, 2))\n"
        "fits = [steelyard.RULSIF(random_state=0).fit(s, target=t), steelyard.KMM(random_state=0).fit(s, target=t)]\n"
        "fits[0].predict(t)\n"
        "print('torch' in sys.modules)\n"
        "import torch\n"
        "from steelyard.ratio import _device\n"
        "for fit in fits:\n"
        "    print(_device.fit(fit, torch.tensor(s), torch.tensor(t)), len(fit.weights_))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "4000", "True", "4000"]


# --- Large tables ----------------------------------------------------------------------------------------------------


def scores_written_out(source, target, centers, widths, regs, eta, of_centers):
    """Held-out J' of every width and reg by refitting without each fifth of the rows."""
    scores = np.zeros((len(widths), len(regs)))
    for w, width in enumerate(widths):
        a, t = (np.exp(-(cdist(rows, centers) ** 2) / (2 * width**2)) for rows in (source, target))
        for f in range(5):
            used = of_centers != f
            out_a, out_t = np.arange(len(a)) % 5 == f, np.arange(len(t)) % 5 == f
            A, T = a[np.ix_(~out_a, used)], t[np.ix_(~out_t, used)]
            H = (1 - eta) * A.T @ A / len(A) + eta * T.T @ T / len(T)
            for r, reg in enumerate(regs):
                beta = np.maximum(np.linalg.solve(H + reg * np.eye(used.sum()), T.mean(axis=0)), 0)
                g, h = a[np.ix_(out_a, used)] @ beta, t[np.ix_(out_t, used)] @ beta
                scores[w, r] += (1 - eta) * np.mean(g**2) / 2 + eta * np.mean(h**2) / 2 - np.mean(h)
    return scores / 5


def pooled(source, target):
    """Center and scale of the equal mixture of both tables."""
    center = (source.mean(axis=0) + target.mean(axis=0)) / 2
    squares = (np.square(source - center).mean(axis=0) + np.square(target - center).mean(axis=0)) / 2
    return center, np.sqrt(squares)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("eta", [0.0, 0.3])
@pytest.mark.parametrize("given", [True, False], ids=["given centers", "chosen centers"])
def test_the_grid_of_large_tables_is_the_one_written_out(eta, given, dtype, tolerance, stay):
    widths = [2.0, 1.5, 1.5 / np.sqrt(2), 0.6]
    settings = {"width": widths, "reg": [1.0, 0.01], "random_state": 0}
    settings |= {"centers": CENTERS} if given else {"n_centers": 30}
    source, target = tensors(X, X_TARGET, dtype=dtype)
    fit = RULSIF(eta, **settings).fit(source, target=target)
    center, scale = pooled(X, X_TARGET)
    np.testing.assert_allclose(fit.center_, center, rtol=1e-6)
    np.testing.assert_allclose(fit.scale_, scale, rtol=1e-6)
    A, T = (X - center) / scale, (X_TARGET - center) / scale
    distance = cdist(fit.centers_, T)
    of_centers = np.full(len(fit.centers_), -1) if given else distance.argmin(axis=1) % 5
    if not given:
        assert distance.min(axis=1).max() < 1e-4  # they are rows
    truth = scores_written_out(A, T, fit.centers_, fit.widths_, fit.regs_, eta, of_centers)
    np.testing.assert_allclose(fit.scores_, truth, rtol=tolerance)
    assert (fit.width_, fit.reg_) == tuple(
        grid[k] for grid, k in zip((fit.widths_, fit.regs_), np.unravel_index(truth.argmin(), truth.shape), strict=True)
    )


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_large_tables_give_the_fit_of_numpy_where_everything_is_given(eta, stay):
    fixed = {"width": 0.8, "reg": 0.01, "centers": CENTERS, "random_state": 0}
    plain = RULSIF(eta, **fixed).fit(X, target=X_TARGET)
    source, target = tensors(X, X_TARGET)
    fit = RULSIF(eta, **fixed).fit(source, target=target)
    assert fit.weights_.dtype == torch.float64
    np.testing.assert_allclose(fit.coef_, plain.coef_, atol=1e-8)
    np.testing.assert_allclose(fit.weights_.numpy(), plain.weights_, atol=1e-8)
    np.testing.assert_allclose(fit.predict(target).numpy(), plain.predict(X_TARGET), atol=1e-8)
    for name in ("raw_mean_", "source_mean_", "effective_sample_size_", "n_clipped_"):
        assert getattr(fit, name) == pytest.approx(getattr(plain, name), rel=1e-8), name
    for name in ("before", "after", "noise"):
        np.testing.assert_allclose(getattr(fit.balance_, name), getattr(plain.balance_, name), atol=1e-8)
    single = RULSIF(eta, **fixed).fit(source.float(), target=target.float())
    assert single.weights_.dtype == torch.float32
    np.testing.assert_allclose(single.weights_.numpy(), plain.weights_, atol=1e-3)


def test_the_default_grid_of_large_tables_finds_the_true_ratio(stay):
    source, target = tensors(X, X_TARGET)
    fit = ULSIF(random_state=0).fit(source, target=target)
    assert fit.scores_.shape == (9, 9)
    assert np.corrcoef(fit.weights_.numpy(), LARGE.ratio(LARGE.X))[0, 1] > 0.9


@pytest.mark.filterwarnings("ignore::steelyard.errors.RawMeanWarning")
def test_the_bound_of_the_relative_ratio_is_in_force(stay):
    fit = RULSIF(0.5, width=0.1, reg=1e-6, random_state=0).fit(*tensors(X), target=tensors(X_TARGET)[0])
    assert fit.n_clipped_ > 0
    assert fit.predict(*tensors(X)).max() == 2
    mixture = 0.5 * fit.predict(*tensors(X_TARGET)).mean() + 0.5 * fit.predict(*tensors(X)).mean()
    assert fit.raw_mean_ == pytest.approx(float(mixture), rel=1e-12)


@pytest.mark.parametrize("width", [None, 1.0])
def test_kmm_of_large_tables_is_the_problem_of_numpy(width, stay):
    source, target = tensors(X, X_TARGET)
    fit = KMM(width=width, reg=1e-2, random_state=0).fit(source, target=target)
    center, scale = pooled(X, X_TARGET)
    A, T = (X - center) / scale, (X_TARGET - center) / scale
    plain = KMM(width=fit.width_, reg=1e-2, random_state=0).fit(X, target=X_TARGET)
    K = np.exp(-(cdist(A, A) ** 2) / (2 * fit.width_**2)) + 1e-2 * np.eye(len(A))
    linear = len(A) * np.exp(-(cdist(A, T) ** 2) / (2 * fit.width_**2)).mean(axis=1)

    def objective(k):
        weights = np.asarray(k.weights_) * k.raw_mean_
        return weights @ K @ weights / 2 - linear @ weights

    assert fit.certificate_.solved
    assert fit.certificate_.rank == pytest.approx(plain.certificate_.rank, abs=15)
    assert objective(fit) == pytest.approx(objective(plain), rel=1e-6)
    truth = column_balance(X, X_TARGET, fit.weights_.numpy())
    for name in ("before", "after", "noise"):
        np.testing.assert_allclose(getattr(fit.balance_, name), getattr(truth, name), atol=1e-9)


def test_constant_and_bad_large_tables_are_told_as_by_numpy(stay):
    source, target = tensors(X, X_TARGET)
    assert np.all(RULSIF(1.0).fit(source, target=target).weights_.numpy() == 1)
    with pytest.raises(InputError, match="X has 2 features"):
        ULSIF().fit(source, target=target[:, :2])
    bad = target.clone()
    bad[7, 1] = torch.nan
    with pytest.raises(
        NotFiniteError, match=r"target contains NaN in 1 of 4211 rows \(column 1, first at rows \[7\]\)"
    ):
        ULSIF().fit(source, target=bad)
    fit = ULSIF(width=1.0, reg=0.1, random_state=0).fit(source, target=target)
    with pytest.raises(NotFiniteError, match="column 1, first at rows"):
        fit.predict(bad)
    with pytest.raises(NoOverlapError):
        ULSIF(standardize=False).fit(source, target=target + torch.tensor([1e5, 0, 0]))


def test_lsif_of_large_tables_is_that_of_blocks(stay):
    fixed = {"width": [0.8, 1.6], "reg": [0.1, 0.01], "centers": CENTERS, "standardize": False, "random_state": 0}
    source, target = tensors(LARGE.X, LARGE.X_target)
    fit = LSIF(**fixed | {"centers": LARGE.X_target[:40]}).fit(source, target=target)
    blocks = LSIF(**fixed | {"centers": LARGE.X_target[:40]}).fit([LARGE.X], target=[LARGE.X_target])
    np.testing.assert_allclose(fit.scores_, blocks.scores_, rtol=1e-6)
    np.testing.assert_allclose(fit.weights_.numpy(), next(iter(blocks.weights_)), atol=1e-4)


def test_which_tables_stay_on_their_device():
    class Table:
        def __init__(self, kind, n, floating=True):
            self.device, self.n, self.floating = torch.device(kind), n, floating

        def __len__(self):
            return self.n

        def is_floating_point(self):
            return self.floating

    few, many = _tensors.ROWS_ON_DEVICE, _tensors.ROWS_ON_DEVICE + 1
    assert _tensors._stays_on_device(ULSIF(), Table("cuda", few), Table("cuda", many))
    assert not _tensors._stays_on_device(ULSIF(), Table("cuda", few), Table("cuda", few))
    assert not _tensors._stays_on_device(ULSIF(), Table("cpu", many), Table("cpu", many))
    assert not _tensors._stays_on_device(ULSIF(), Table("cuda", many), Table("cuda", many, floating=False))
    assert not _tensors._stays_on_device(KLIEP(), Table("cuda", many), Table("cuda", many))


# --- What it is made of ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 2044, 2045, 6137])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_moments_of_folds_are_those_of_numpy(n, dtype, monkeypatch):
    rng = np.random.default_rng(n)
    rows, centers, widths = rng.normal(size=(n, 2)), rng.normal(size=(7, 2)), np.array([2.0, np.sqrt(2), 1.0, 0.3])
    monkeypatch.setitem(torch_arrays.BLOCK_NUMBERS, "cpu", 2**13)
    monkeypatch.setattr(torch_arrays, "PART_ROWS", 64)
    (given,) = tensors(rows * 3 + 5, dtype=dtype)
    constants = tensors(np.full(2, 5.0), np.full(2, 3.0), centers, dtype=dtype)
    first, second = torch_arrays.fold_moments(given, *constants, widths, 5, second=True)
    truth = basis_moments(rows, np.ones(n), centers, widths, fold=np.arange(n) % 5, n_folds=5)
    tolerance = 1e-11 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(first, truth[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(second, truth[1], rtol=tolerance, atol=tolerance)
    assert first.dtype == second.dtype == np.float64


def test_the_factor_reproduces_the_kernel_matrix():
    rows = np.random.default_rng(4).normal(size=(700, 2))
    K = np.exp(-(cdist(rows, rows) ** 2) / 2)
    low_rank = torch_arrays.TorchArrays.pivoted_cholesky(
        torch.tensor(rows), 1.0, np.random.default_rng(0), max_rank=700, tol=1e-9, block=4
    )
    factor = low_rank.factor.numpy()
    np.testing.assert_allclose((K - factor @ factor.T).diagonal(), low_rank.residual.numpy(), atol=1e-12)
    assert low_rank.truncation <= 1e-9
    assert np.abs(K - factor @ factor.T).max() <= 1e-6
    assert factor.shape[1] < 150
    corner, pivots = low_rank.corner.numpy(), low_rank.pivots
    np.testing.assert_allclose(corner @ corner.T, K[np.ix_(pivots, pivots)], atol=1e-10)
    cut = torch_arrays.TorchArrays.pivoted_cholesky(
        torch.tensor(rows), 1.0, np.random.default_rng(0), max_rank=10, tol=1e-9
    )
    assert cut.factor.shape == (700, 10)


@pytest.mark.parametrize("n", [900, 1024, 2500])
def test_the_interior_point_of_tensors_takes_the_steps_of_arrays(n):
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, 2))
    factor = pivoted_cholesky(rows, 1.0, rng, max_rank=60, tol=1e-4).factor
    linear = factor @ rng.normal(size=factor.shape[1]) + n * 0.4
    upper, diagonal, start = np.full(n, 3.0), np.full(n, 1e-3), np.ones(n)
    x, proof = solve_box_slab_low_rank(factor, diagonal, linear, BoxSlab(upper, 0.9 * n, 1.1 * n), start, tol=1e-7)
    given = [torch.tensor(values) for values in (factor, diagonal, linear, upper, start)]
    bounds = BoxSlab(given[3], 0.9 * n, 1.1 * n)
    systems = torch_arrays.Woodbury
    x_torch, proof_torch = solve_box_slab_low_rank(*given[:3], bounds, given[4], tol=1e-7, systems=systems)
    assert proof.solved
    assert proof_torch.n_iter == proof.n_iter
    assert proof_torch.objective == pytest.approx(proof.objective, rel=1e-9)
    np.testing.assert_allclose(x_torch.numpy(), x, atol=1e-6)


def test_a_system_that_is_not_positive_definite_is_an_error():
    systems = torch_arrays.Woodbury(torch.ones(5, 2, dtype=torch.float64), 1.0)
    with pytest.raises(np.linalg.LinAlgError), warnings.catch_warnings():
        systems.set_diagonal(torch.full((5,), torch.nan, dtype=torch.float64))


def test_single_precision_is_not_rounded_to_tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch_arrays.exact_products():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.is_grad_enabled()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
