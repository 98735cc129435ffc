"""Matching of mini-batches: against piqp, cvxopt, the numpy KMM, the authors' formula, and by what it is for."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")


from steelyard._numerics.quadratic_programs import BoxSlab, solve_box_slab
from steelyard.deep import DynamicWeights
from steelyard.deep._matching import choice
from steelyard.deep._matching.dense import _cvxopt_start, pose, solve, solve_as_cvxopt
from steelyard.deep.dynamic import PRESETS
from steelyard.errors import InputError, NotFiniteError, ParameterError


def losses(rng, n, m, kind):
    """Losses of learned and mislabeled rows, and clean ones; in every other batch all validation losses are large."""
    learned = rng.random(n) < rng.uniform(0.2, 0.9)
    train = np.where(learned, rng.gamma(1, 0.5, n), np.abs(rng.normal(4, 1.3, n)))
    return train, np.abs(rng.normal(6, 1, m)) if kind % 2 else rng.gamma(1, 0.5, m)


def problem(rng, k, n=96, m=80):
    """Wide and narrow kernels, loose and binding bounds, small and smaller ridges."""
    train, validation = losses(rng, n, m, k)
    width = np.median(np.abs(train[:, None] - train)) / (1, 3, 20)[k % 3]
    return train, validation, 0.5 / width**2, (50.0, 1.5, 0.9)[k % 4 % 3], (1e-3, 1e-5)[k % 2]


def dense(train, validation, gamma, reg):
    kernel = np.exp(-gamma * (train[:, None] - train) ** 2) + reg * np.eye(len(train))
    linear = len(train) / len(validation) * np.exp(-gamma * (train[:, None] - validation) ** 2).sum(axis=1)
    return kernel, linear


def test_the_objective_is_that_of_piqp():
    rng = np.random.default_rng(0)
    worst = 0.0
    for k in range(200):
        train, validation, gamma, w_max, reg = problem(rng, k)
        kernel, linear = dense(train, validation, gamma, reg)
        n, slack = len(train), (np.sqrt(len(train)) - 1) / np.sqrt(len(train))
        theirs, _ = solve_box_slab(kernel, linear, BoxSlab(np.full(n, w_max), n * (1 - slack), n * (1 + slack)), 1e-10)
        posed = pose(
            *(torch.tensor(z)[None, :, None] for z in (train, validation)), torch.tensor([gamma]), w_max=w_max, reg=reg
        )
        ours = solve(posed)[0].numpy()
        assert ours.min() >= 0
        assert ours.max() <= w_max
        assert n * (1 - slack) * (1 - 1e-8) <= ours.sum() <= n * (1 + slack) * (1 + 1e-8)
        values = [0.5 * w @ kernel @ w - linear @ w for w in (ours, theirs)]
        worst = max(worst, (values[0] - values[1]) / abs(values[1]))
    assert worst < 1e-6


def test_many_problems_at_once_are_those_one_by_one():
    rng = np.random.default_rng(1)
    made = [problem(rng, 0) for _ in range(5)]
    stacked = [torch.tensor(np.array([m[i] for m in made]))[:, :, None] for i in (0, 1)]
    gammas = torch.tensor([m[2] for m in made])
    together = solve(pose(*stacked, gammas, w_max=50.0, reg=1e-3))
    for k in range(5):
        alone = solve(pose(*(z[k : k + 1] for z in stacked), gammas[k : k + 1], w_max=50.0, reg=1e-3))
        np.testing.assert_allclose(together[k], alone[0], atol=1e-6)


def test_padding_affects_no_other_row():
    rng = np.random.default_rng(2)
    train, validation, gamma, *_ = problem(rng, 0)
    one = [torch.tensor(z)[None, :, None] for z in (train, validation)]
    bare = solve(pose(*one, torch.tensor([gamma]), w_max=50.0, reg=1e-3), tol=1e-12)
    padded = [np.concatenate([z, rng.normal(size=20)]) for z in (train, validation)]
    real = [torch.arange(len(z))[None] < len(z) - 20 for z in padded]
    filled = solve(
        pose(
            *(torch.tensor(z)[None, :, None] for z in padded),
            torch.tensor([gamma]),
            w_max=50.0,
            reg=1e-3,
            real=real[0],
            validation_real=real[1],
        ),
        tol=1e-12,
    )
    np.testing.assert_allclose(filled[0, :-20], bare[0], atol=1e-3)
    assert not filled[0, -20:].any()


def test_the_numpy_kmm_reaches_the_same_objective():
    from steelyard import KMM

    rng = np.random.default_rng(3)
    train, validation = losses(rng, 128, 128, 0)
    width = float(np.median(np.abs(train[:, None] - train)[np.triu_indices(128, 1)]))
    model = KMM(width=width, w_max=50.0, reg=1e-3, tol=1e-10, standardize=False).fit(
        train[:, None], target=validation[:, None]
    )
    kernel, linear = dense(train, validation, 0.5 / width**2, 1e-3)
    theirs = model.weights_ * model.raw_mean_
    posed = pose(
        *(torch.tensor(z)[None, :, None] for z in (train, validation)),
        torch.tensor([0.5 / width**2]),
        w_max=50.0,
        reg=1e-3,
    )
    ours = solve(posed, tol=1e-10)[0].numpy()
    values = [0.5 * w @ kernel @ w - linear @ w for w in (ours, theirs)]
    assert values[0] == pytest.approx(values[1], rel=1e-8)


def test_the_authors_preset_is_the_authors_formula():
    """γ is the 1 % quantile of the distances between training rows, B = 50, reg 1e-5, no normalization."""
    rng = np.random.default_rng(4)
    train, validation = losses(rng, 64, 64, 0)
    distances = np.abs(train[:, None] - train)[np.triu_indices(64, 1)]
    kernel, linear = dense(train, validation, np.quantile(distances, 0.01), 1e-5)
    slack = (np.sqrt(64) - 1) / np.sqrt(64)
    theirs, _ = solve_box_slab(kernel, linear, BoxSlab(np.full(64, 50.0), 64 * (1 - slack), 64 * (1 + slack)), 1e-10)
    dynamic = DynamicWeights(preset="authors")
    ours = dynamic(torch.tensor(train), torch.tensor(validation)).numpy()
    values = [0.5 * w @ kernel @ w - linear @ w for w in (ours, theirs)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert dynamic.reduce(torch.ones(3)) == 3


def test_the_median_preset_is_the_formula_of_their_later_code():
    """γ is the median distance between training rows, B = 50, reg 1e-5; weights have mean one, losses are averaged."""
    rng = np.random.default_rng(4)
    train, validation = losses(rng, 64, 64, 0)
    distances = np.abs(train[:, None] - train)[np.triu_indices(64, 1)]
    kernel, linear = dense(train, validation, np.median(distances), 1e-5)
    slack = (np.sqrt(64) - 1) / np.sqrt(64)
    theirs, _ = solve_box_slab(kernel, linear, BoxSlab(np.full(64, 50.0), 64 * (1 - slack), 64 * (1 + slack)), 1e-10)
    dynamic = DynamicWeights(preset="median")
    ours = dynamic(torch.tensor(train), torch.tensor(validation)).numpy()
    assert ours.mean() == pytest.approx(1)
    values = [0.5 * w @ kernel @ w - linear @ w for w in (ours * theirs.mean(), theirs)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    assert dynamic.reduce(torch.ones(3)) == 1


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("numba", [False, True])
def test_losses_that_are_all_equal_have_equal_weights(preset, numba, monkeypatch):
    if numba:
        pytest.importorskip("numba", reason="numba is not installed; losses are matched by PyTorch alone")
    monkeypatch.setattr(choice, "HAS_NUMBA", numba)
    found = DynamicWeights(preset=preset)(torch.full((20,), 0.7), torch.full((9,), 0.7))
    np.testing.assert_allclose(found, 1, atol=1e-3)


@pytest.mark.parametrize("k", range(12))
def test_without_numba_the_authors_weights_are_those_of_cvxopt_too(k, monkeypatch):
    """Stored ones, by ``python -m benchmarks.cvxopt_weights``: starts inside and outside of the constraints."""
    monkeypatch.setattr(choice, "HAS_NUMBA", False)
    stored = np.load(Path(__file__).parent / "cvxopt_weights.npz")
    train, validation, theirs = (torch.tensor(stored[f"{name}{k}"]) for name in ("train", "validation", "weights"))
    dynamic = DynamicWeights(preset="authors")
    np.testing.assert_allclose(dynamic(train, validation), theirs, atol=2e-4)
    gamma = dynamic.gamma(train[None, :, None])
    start = _cvxopt_start(pose(train[None, :, None], validation[None, :, None], gamma, w_max=50.0, reg=1e-5))
    assert (start.relaxed.item() > 0) == (len(train) == 16)


@pytest.mark.parametrize("numba", [False, True])
def test_the_authors_weights_where_the_kernel_is_narrow_or_the_bound_is_near(numba, monkeypatch):
    """Diverging losses are left to the dense solver with or without numba; both end at the same weights."""
    if numba:
        pytest.importorskip("numba", reason="numba is not installed; losses are matched by PyTorch alone")
    monkeypatch.setattr(choice, "HAS_NUMBA", numba)
    rng = np.random.default_rng(8)
    for scale, w_max in ((300.0, 50.0), (1.0, 1.01)):
        train, validation = (torch.tensor(scale * z) for z in losses(rng, 40, 30, 0))
        dynamic = DynamicWeights(preset="authors", w_max=w_max)
        posed = pose(
            train[None, :, None], validation[None, :, None], dynamic.gamma(train[None, :, None]), w_max=w_max, reg=1e-5
        )
        np.testing.assert_allclose(dynamic(train, validation), solve_as_cvxopt(posed)[0], atol=1e-4)
        ours, least = (
            (0.5 * w @ posed.kernel[0] @ w - posed.linear[0] @ w).item()
            for w in (dynamic(train, validation), solve(posed, tol=1e-10)[0])
        )
        assert ours == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_width_of_learned_losses_is_an_eighth_of_their_range(seed):
    """Where the median distance is next to nothing; large losses of validation rows are then still matched."""
    pytest.importorskip("numba", reason="numba is not installed; losses are matched by PyTorch alone")
    from steelyard.deep._matching.line import weigh
    from steelyard.deep._matching.pair_quantile import pair_quantile

    rng = np.random.default_rng(seed)
    train = np.where(rng.random(256) < 0.9, rng.gamma(1, 1e-4, 256), rng.gamma(2, 1, 256))
    validation = np.where(rng.random(100) < 0.7, rng.gamma(1, 1e-4, 100), rng.gamma(2, 1, 100))
    dynamic = DynamicWeights()
    width = (train.max() - train.min()) / 8
    assert dynamic.gamma(torch.tensor(train)[None, :, None]).item() == pytest.approx(0.5 / width**2)
    weights = dynamic(torch.tensor(train), torch.tensor(validation)).numpy()
    assert (weights * train).mean() == pytest.approx(validation.mean(), rel=0.2)
    kernel, linear = dense(train, validation, 0.5 / width**2, 1e-3)
    posed = pose(
        *(torch.tensor(z)[None, :, None] for z in (train, validation)),
        torch.tensor([0.5 / width**2]),
        w_max=50.0,
        reg=1e-3,
    )
    by_factor, solved = weigh(train, validation, pair_quantile(train, 0.5), False, 1 / 8, 50.0, 1e-3, False, False)
    assert solved
    ours, theirs = (0.5 * w @ kernel @ w - linear @ w for w in (by_factor, solve(posed)[0].numpy()))
    assert ours == pytest.approx(theirs, rel=1e-6)
    np.testing.assert_allclose(by_factor / by_factor.mean(), weights)


def test_weights_separate_learned_rows_from_mislabeled_ones():
    rng = np.random.default_rng(5)
    learned = rng.random(256) < 0.6
    train = np.where(learned, rng.gamma(1, 0.3, 256), np.abs(rng.normal(4, 1, 256)))
    weights = DynamicWeights()(torch.tensor(train, dtype=torch.float32), torch.tensor(rng.gamma(1, 0.3, 256)))
    assert weights.dtype == torch.float32
    assert weights.mean().item() == pytest.approx(1, abs=1e-5)
    assert not weights.requires_grad
    matched = (weights.numpy() * train).mean()
    assert matched == pytest.approx(0.3, abs=0.1)
    assert weights.numpy()[learned].mean() > 10 * weights.numpy()[~learned].mean()


def test_features_are_matched_class_by_class_and_priors_corrected():
    rng = np.random.default_rng(6)
    y = torch.tensor(np.repeat([0, 1], [150, 50]))
    y_validation = torch.tensor(np.repeat([0, 1], [40, 40]))
    X, validation = (torch.tensor(rng.normal(size=(len(v), 3)), dtype=torch.float32) for v in (y, y_validation))
    weights = DynamicWeights("features")(X, validation, y, y_validation)
    shares = [weights[y == c].sum().item() / len(y) for c in (0, 1)]
    assert shares == pytest.approx([0.5, 0.5], abs=0.05)
    for c in (0, 1):
        alone = DynamicWeights("features")(
            X[y == c], validation[y_validation == c], y[y == c] * 0, y_validation[y_validation == c] * 0
        )
        ours = weights[y == c] / weights[y == c].mean()
        np.testing.assert_allclose(ours, alone, atol=0.03)  # weights are determined less precisely than the objective


def test_a_class_that_a_batch_lacks():
    X, y = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0] * 10 + [1] * 10)
    validation, y_validation = (
        torch.randn(8, 2, generator=torch.Generator().manual_seed(1)),
        torch.zeros(8, dtype=torch.long),
    )
    weights = DynamicWeights("features")(X, validation, y, y_validation)
    assert not weights[y == 1].any()
    known = DynamicWeights("features", class_ratio=torch.tensor([0.5, 1.5, 1.0]))(X, validation, y, y_validation)
    assert len(set(known[y == 1].tolist())) == 1
    assert (known[y == 1] > 0).all()
    with pytest.raises(InputError, match="Every weight is zero in call 1"):
        DynamicWeights("features")(X[:10], validation, y[:10], torch.full((8,), 3))
    with pytest.raises(InputError, match="Labels go up to 3 in call 1, but class_ratio has 2 classes"):
        DynamicWeights("features", class_ratio=torch.ones(2))(X[:10], validation, y[:10], torch.full((8,), 3))


def test_a_class_of_one_row_has_the_weight_of_its_class():
    X, y = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0] * 8 + [1])
    weights = DynamicWeights("features", class_ratio=torch.tensor([1.0, 1.0]))(X, X, y, y)
    assert weights[8].item() == pytest.approx(1, abs=0.01)
    assert torch.isfinite(weights).all()


def test_half_precision_and_one_loss_far_from_all():
    losses = torch.tensor([0.1, 0.2, 0.3, 3.0])
    full = DynamicWeights()(losses, losses[:3])
    for dtype in (torch.float16, torch.bfloat16):
        half = DynamicWeights()(losses.to(dtype), losses[:3].to(dtype))
        assert half.dtype == torch.float32
        np.testing.assert_allclose(half, full, atol=0.1)
    far = DynamicWeights()(torch.cat([losses, torch.tensor([1e20])]).double(), losses[:3].double())
    assert torch.isfinite(far).all()
    assert far[-1] < 0.1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.tensor(1.0), torch.ones(3)), InputError, 'reduction="none"'),
        ((torch.ones(3), torch.ones(3, 2)), InputError, "validation losses must be one number per row"),
        ((torch.ones(3, 1), torch.ones(3, 1)), InputError, "training losses must be one number per row"),
        (
            (torch.tensor([1.0, torch.nan]), torch.ones(3)),
            NotFiniteError,
            "losses hold NaN or infinity in call 1",
        ),
        ((torch.ones(3), torch.tensor([torch.inf])), NotFiniteError, "validation losses hold NaN or infinity"),
        ((torch.ones(3), torch.ones(0)), InputError, "validation batch is empty in call 1"),
    ],
)
def test_bad_batches(arguments, error, message):
    with pytest.raises(error, match=message):
        DynamicWeights()(*arguments)


def test_bad_parameters():
    with pytest.raises(ParameterError, match="transform must be one of"):
        DynamicWeights("logits")
    with pytest.raises(ParameterError, match="preset must be one of"):
        DynamicWeights(preset="theirs")
    with pytest.raises(InputError, match="needs the labels"):
        DynamicWeights("features")(torch.ones(3, 2), torch.ones(3, 2))
    with pytest.raises(InputError, match="have 2 features, validation rows 3"):
        DynamicWeights("features")(torch.ones(3, 2), torch.ones(3, 3), torch.zeros(3), torch.zeros(3))
    with pytest.raises(InputError, match="Labels count from 0; got -100"):
        DynamicWeights("features")(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([0, 1, -100]), torch.zeros(3))
    with pytest.raises(InputError, match="one row for each of 3 labels"):
        DynamicWeights("features")(torch.ones(2, 2), torch.ones(3, 2), torch.zeros(3), torch.zeros(3))


def test_equal_losses_have_equal_weights():
    weights = DynamicWeights()(torch.full((10,), 0.7), torch.full((5,), 0.7))
    np.testing.assert_allclose(weights, np.ones(10), atol=1e-4)
