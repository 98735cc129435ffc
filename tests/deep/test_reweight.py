"""Learning to reweight: against the virtual step itself, with any module and any optimizer."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from torch import nn
from torch.func import functional_call

from steelyard.deep.training.reweight import learned_weights
from steelyard.errors import InputError

ROWS = nn.CrossEntropyLoss(reduction="none")


def batch(n, seed, wrong=0.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    y = (x[:, 0] > 0).long()
    flipped = torch.rand(n, generator=generator) < wrong
    return x, torch.where(flipped, 1 - y, y), flipped


def test_it_is_the_derivative_of_the_virtual_step():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    (x, y, _), (v, u, _) = batch(20, 1), batch(15, 2)
    x, v = x.double(), v.double()
    parameters = dict(model.named_parameters())
    epsilon = torch.zeros(20, dtype=torch.float64, requires_grad=True)
    total = (epsilon * ROWS(model(x), y)).sum()
    step = torch.autograd.grad(total, list(parameters.values()), create_graph=True)
    moved = {name: p - g for (name, p), g in zip(parameters.items(), step, strict=True)}
    (slope,) = torch.autograd.grad(ROWS(functional_call(model, moved, (v,)), u).mean(), epsilon)
    expected = (-slope).clamp(min=0)
    expected = expected / expected.mean()
    torch.testing.assert_close(learned_weights(model, ROWS, (x, y), (v, u)), expected)


@pytest.mark.parametrize("norm", [nn.Identity(), nn.BatchNorm1d(16)], ids=["plain", "batch-norm"])
def test_it_learns_from_noisy_labels_with_adam(norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), norm, nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    (x, y, flipped), (v, u, _) = batch(256, 1, wrong=0.4), batch(64, 2)
    for _ in range(80):
        weights = learned_weights(model, ROWS, (x, y), (v, u))
        optimizer.zero_grad()
        (weights * ROWS(model(x), y)).mean().backward()
        optimizer.step()
    assert weights[~flipped].mean() > 3 * weights[flipped].mean()
    test = batch(500, 3)
    model.eval()
    assert (model(test[0]).argmax(dim=1) == test[1]).float().mean() > 0.9


def test_the_model_is_left_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    (x, y, _), (v, u, _) = batch(20, 1), batch(15, 2)
    weights = learned_weights(model, ROWS, (x, y), (v, u))
    assert weights.mean().item() == pytest.approx(1, abs=1e-5)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())


def test_rows_that_cannot_help_have_no_weight():
    model = nn.Linear(1, 2, bias=False)
    x, y = torch.ones(4, 1), torch.zeros(4, dtype=torch.long)
    weights = learned_weights(model, ROWS, (x, y), (x, 1 - y))
    assert not weights.any()
    assert torch.isfinite(weights).all()


def test_bad_input():
    model, (x, y, _) = nn.Linear(4, 2), batch(8, 0)
    with pytest.raises(InputError, match='reduction="none"'):
        learned_weights(model, nn.CrossEntropyLoss(), (x, y), (x, y))
    with pytest.raises(InputError, match="frozen"):
        learned_weights(model.requires_grad_(False), ROWS, (x, y), (x, y))
