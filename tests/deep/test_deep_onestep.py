"""Deep one-step: its objective against autograd by hand, its weights, and rotated images."""

from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from torch import nn

from steelyard import Target
from steelyard.datasets import load_images, rotate
from steelyard.deep.nets import FiveLayerCNN, LeNet5
from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, methods, train, weight_network
from steelyard.deep.training.data import Batch
from steelyard.errors import DataNotFoundError, ParameterError


class Linear(nn.Module):
    """g(x) = b·x"""

    def __init__(self, b):
        super().__init__()
        self.b = nn.Parameter(torch.tensor(b, dtype=torch.float64))

    def forward(self, x):
        return (x @ self.b)[:, None]


def test_the_gradient_of_the_bound_is_the_formula():
    """2(l·Xb/n)(Xᵀl/n) + m²(2XᵀXb/n − 2 mean of target rows) + 2λb, for g(x) = b·x and losses up to m."""
    rng = np.random.default_rng(0)
    X, target, b, losses = rng.normal(size=(20, 3)), rng.normal(size=(15, 3)), rng.normal(size=3), rng.gamma(1, 1, 20)
    m = 1.7
    assert (losses > m).sum() > 1
    capped = np.minimum(losses, m)
    expected = 2 * (capped @ X @ b / 20) * (X.T @ capped / 20) + m**2 * (2 * X.T @ X @ b / 20 - 2 * target.mean(axis=0))
    expected += 2 * 0.3 * b
    g = Linear(b)
    step = weight_network.minimize_bound(
        {"f": nn.Identity(), "g": g},
        TrainingData(
            torch.tensor(X),
            torch.zeros(20, dtype=torch.long),
            Target(torch.tensor(target)),
            row_losses=lambda scores, labels: torch.tensor(losses),
        ),
        loss_bound=m,
        reg=0.3,
    )
    batch = Batch(torch.arange(20), torch.tensor(X), torch.zeros(20, dtype=torch.long), torch.tensor(target), None)
    objective, weights = step(batch)
    assert weights is None
    objective.backward()
    np.testing.assert_allclose(g.b.grad, expected)


@pytest.mark.parametrize("bound", [2.0, 10.0, 1000.0])
def test_the_slope_for_g_does_not_grow_with_its_bound(bound):
    """With w = 1 and no losses Ĵ = g² − 2g, whose slope in the score is 2(g − 1)g(1 − g/G): 8/27 G² at most."""
    X, y = torch.ones(6, 1, dtype=torch.float64), torch.zeros(6, dtype=torch.long)
    data = TrainingData(X, y, Target(X), row_losses=lambda scores, labels: torch.zeros(6, dtype=torch.float64))
    g = Linear([np.log(2 * (bound - 1))])  # the score at which g is two thirds of G
    value = 2 / 3 * bound
    step = weight_network.minimize_bound({"f": nn.Identity(), "g": g}, data, g_bound=bound)
    step(Batch(torch.arange(6), X, y, X, None))[0].backward()
    assert g.b.grad.item() == pytest.approx(2 * (value - 1) * value * (1 - value / bound) / bound**2)
    assert g.b.grad.item() < 8 / 27


def test_f_learns_with_the_positive_part_of_g():
    X = torch.tensor([[1.0], [-2.0], [3.0], [0.5]], dtype=torch.float64)
    data = TrainingData(X, torch.zeros(4, dtype=torch.long), Target(X), row_losses=lambda scores, labels: scores[:, 0])
    f, g = Linear([2.0]), Linear([1.0])
    batch, last = Batch(torch.arange(4), X, data.y, X, None), methods.one_step(f, g).phases[-1]
    losses, weights = last.begin({"f": f, "g": g}, data)(batch)
    np.testing.assert_allclose(weights, np.array([1, 0, 3, 0.5]) * 4 / 4.5)
    assert losses.requires_grad
    nowhere = last.begin({"f": f, "g": Linear([0.0])}, data)(batch)[1]
    assert not nowhere.any()


def test_the_domain_classifier_finds_the_density_ratio():
    """Source N(0, 1), target N(1, 1): the log-odds are x − ½, and the weights follow."""
    rng = np.random.default_rng(0)
    X, target = (torch.tensor(rng.normal(size=(4000, 1)) + at, dtype=torch.float32) for at in (0, 1))
    g, f = nn.Linear(1, 1), nn.Linear(1, 2)
    data = TrainingData(X, torch.zeros(4000, dtype=torch.long).index_fill(0, torch.arange(9), 1), Target(target))
    method = methods.relative_weighting(f, g, 1, eta=0.5, pretrain=30)
    train(TrainingRun(method, data), TrainingConfig(lambda p: torch.optim.Adam(p, lr=1e-2)))
    assert g.weight.item() == pytest.approx(1, abs=0.1)
    assert g.bias.item() == pytest.approx(-0.5, abs=0.1)
    ratio = torch.exp(X[:, 0] - 0.5)
    everything = Batch(torch.arange(4000), X, data.y, target, None)
    for eta, flattening in ((0.0, 1.0), (0.5, 1.0), (0.0, 0.5)):
        formula = partial(weight_network.relative_ratio, eta=eta, flattening=flattening)
        ours = weight_network.weight_by(method.networks, data, formula)(everything)[1]
        theirs = (ratio / (eta * ratio + 1 - eta)) ** flattening
        assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.99
        assert ours.mean().item() == pytest.approx(1)
    flat = methods.flattened_weighting(f, g, 1, flattening=0.0, pretrain=0)
    assert torch.equal(flat.phases[-1].begin(flat.networks, data)(everything)[1], torch.ones(4000))


def test_a_regularized_domain_classifier_is_ridge_logistic_regression():
    """Its weights against scikit-learn's: C = 1/(2λn) for a mean of losses and λ‖w‖²; the bias is free."""
    rng = np.random.default_rng(1)
    X, target = rng.normal(size=(300, 2)), rng.normal((1.0, -0.5), size=(300, 2))
    g, f = nn.Linear(2, 1), nn.Linear(2, 2)
    source, target = (torch.tensor(rows, dtype=torch.float32) for rows in (X, target))
    method = methods.flattened_weighting(f, g, 1, pretrain=600, g_reg=0.05)
    config = TrainingConfig(lambda p: torch.optim.SGD(p, lr=0.5), batch_size=300)
    train(TrainingRun(method, TrainingData(source, torch.arange(300) % 2, Target(target))), config)
    theirs = LogisticRegression(C=1 / (2 * 0.05 * 600), tol=1e-9)
    theirs.fit(np.vstack([X, target]), np.repeat([0, 1], 300))
    np.testing.assert_allclose(g.weight.detach().numpy(), theirs.coef_, atol=1e-3)
    np.testing.assert_allclose(g.bias.detach().numpy(), theirs.intercept_, atol=1e-3)


def test_only_trained_parameters_are_regularized():
    g = FiveLayerCNN(1)
    g.freeze_convolutions()
    full = sum(layer.weight.square().sum() for layer in g.modules() if isinstance(layer, nn.Linear))
    assert weight_network.regularizer(g, 0.5)().item() == pytest.approx(0.5 * full.item())
    assert weight_network.regularizer(g, 0.0)() == 0
    with pytest.raises(ParameterError, match="g_reg"):
        methods.one_step(nn.Linear(4, 2), nn.Linear(4, 1), g_reg=-1)


def test_ratios_have_mean_one_in_every_batch():
    """A row with odds of e¹² takes its batch, and leaves the others as they are."""
    X = torch.cat([torch.zeros(7, 1), torch.ones(1, 1)])
    g = nn.Linear(1, 1)
    with torch.no_grad():
        g.weight.fill_(12.0)
        g.bias.zero_()
    data = TrainingData(X, torch.arange(8) % 2, Target(X))
    for method in (
        methods.flattened_weighting(nn.Linear(1, 2), g, 1, flattening=1.0, pretrain=0),
        methods.relative_weighting(nn.Linear(1, 2), g, 1, eta=0.0, pretrain=0),
    ):
        step = method.phases[-1].begin(method.networks, data)
        for rows, expected in ((range(4), [1.0] * 4), (range(4, 8), [0, 0, 0, 4])):
            chosen = torch.tensor(list(rows))
            weights = step(Batch(chosen, X[chosen], data.y[chosen], X, None))[1]
            assert weights.tolist() == pytest.approx(expected, abs=1e-3)


def test_no_row_with_a_ratio_above_one_is_given_up():
    """Two kinds of rows, w = ½ and 1½, and an f that knows neither: g = w − E[g] with m = 1, which is 0 and 1."""
    X, target = (torch.eye(2).repeat_interleave(torch.tensor(counts), dim=0) for counts in ([50, 50], [25, 75]))
    f, g = nn.Linear(2, 2), nn.Linear(2, 1)
    data = TrainingData(X, torch.arange(100) % 2, Target(target), row_losses=lambda scores, y: 1e4 + 0 * scores[:, 0])
    method = methods.one_step(f, g, rounds=1, g_epochs=1500, f_epochs=1, pretrain=0, g_bound=3.0)
    train(TrainingRun(method, data), TrainingConfig(lambda p: torch.optim.Adam(p, lr=0.02), batch_size=100))
    found = weight_network.bounded_ratio(g(torch.eye(2))[:, 0], 3.0).tolist()
    assert found == pytest.approx([0, 1], abs=0.05)


def test_a_bounded_g_goes_on_from_the_discriminator():
    """Log-odds s become the relative ratio with η = 1/G: r/(ηr + 1 − η) with r = exp(s)."""
    scores = torch.linspace(-6, 6, 7, dtype=torch.float64)
    ratio = scores.exp()
    for bound in (1.5, 4.0):
        expected = ratio / (ratio / bound + 1 - 1 / bound)
        assert torch.allclose(weight_network.bounded_ratio(scores, bound), expected)
        assert expected.max() < bound
    assert torch.equal(weight_network.bounded_ratio(scores, None), scores)
    with pytest.raises(ParameterError, match="g_bound"):
        methods.one_step(nn.Linear(4, 2), nn.Linear(4, 1), g_bound=1)


def test_a_bounded_g_lowers_the_bound_to_the_clipped_ratio():
    """Four kinds of rows, a score for each: with losses of zero g is w where that is below G, and near G elsewhere."""
    source, target = torch.tensor([40, 30, 20, 10]), torch.tensor([10, 20, 20, 50])  # w is ¼, ⅔, 1 and 5
    X, target = (torch.eye(4).repeat_interleave(counts, dim=0) for counts in (source, target))
    f, g = nn.Linear(4, 2), nn.Linear(4, 1)
    data = TrainingData(X, torch.arange(100) % 2, Target(target), row_losses=lambda scores, y: 0 * scores[:, 0])
    method = methods.one_step(f, g, rounds=1, g_epochs=1500, f_epochs=1, pretrain=0, g_bound=3.0)
    train(TrainingRun(method, data), TrainingConfig(lambda p: torch.optim.Adam(p, lr=0.02), batch_size=100))
    found = weight_network.bounded_ratio(g(torch.eye(4))[:, 0], 3.0).tolist()
    assert found[:3] == pytest.approx([1 / 4, 2 / 3, 1], abs=0.02)
    assert 2.9 < found[3] < 3


def test_only_the_full_layers_of_g_learn_after_pretraining():
    f, g = LeNet5(), FiveLayerCNN(1)
    X = torch.rand(60, 1, 28, 28)
    data = TrainingData(X, torch.arange(60) % 10, Target(X.flip(2)))
    seen = {}

    def keep(name):
        seen[name] = g.conv1.weight.detach().clone()

    start = g.conv1.weight.detach().clone()
    config = TrainingConfig(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), batch_size=30)
    method = methods.one_step(f, g, rounds=2, g_epochs=1, f_epochs=1, pretrain=1)
    run = TrainingRun(method, data)
    inner = method.phases[2].begin
    object.__setattr__(method.phases[2], "begin", lambda *a: (keep("pretrained"), inner(*a))[1])
    train(run, config)
    assert not torch.equal(start, seen["pretrained"])
    assert torch.equal(g.conv1.weight, seen["pretrained"])


def test_rotated_fashion_is_not_worse_than_plain_learning():
    """Three seeds, source rotated by 180°·Beta(2, 5), target by 180°·Beta(5, 2), as many epochs in all."""
    try:
        images, held_out = load_images("fashion_mnist", "train"), load_images("fashion_mnist", "test")
    except DataNotFoundError as error:
        pytest.skip(f"Fashion-MNIST is not on this machine ({error})")
    plain, ours = [], []
    for seed in (1000, 1001, 1002):
        rng = np.random.default_rng(seed)
        n = 3000

        def turned(chosen, a, b, rng=rng):
            images = rotate(chosen[:, 0] / 255, 180 * rng.beta(a, b, len(chosen)))
            return torch.tensor(images[:, None], dtype=torch.float32)

        rows = rng.choice(len(images.y), n, replace=False)
        y = torch.tensor(images.y[rows]).long()
        data = TrainingData(turned(images.X[rows], 2, 5), y, Target(turned(images.X[rows], 5, 2)))
        some = rng.choice(len(held_out.y), 1000, replace=False)
        test = (turned(held_out.X[some], 5, 2), torch.tensor(held_out.y[some]).long())
        config = TrainingConfig(lambda p: torch.optim.Adam(p, lr=1e-3), batch_size=100)
        for found, make in (
            (plain, lambda f: methods.baseline("uniform", f, 12)),
            (
                ours,
                lambda f, seed=seed: methods.one_step(f, small_g(seed), rounds=2, g_epochs=1, f_epochs=4, pretrain=2),
            ),
        ):
            torch.manual_seed(seed)
            run = TrainingRun(make(LeNet5()), data, seed=seed, eval_sets={"test": test})
            history = train(run, config)
            found.append(history.epochs[-1]["accuracy"]["test"])
    assert np.mean(ours) > np.mean(plain)


def small_g(seed):
    torch.manual_seed(seed)
    return LeNet5(n_classes=1)
