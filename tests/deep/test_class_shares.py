"""Class weights beside importance weights: the shares they lead to, by hand, and in a training that is stopped."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from steelyard.deep.training import TrainingConfig, TrainingRun, importance_weighting, train
from steelyard.deep.training.class_shares import MEMORY, ClassShares
from steelyard.deep.training.methods import VARIANTS
from tests.deep.test_loop import adam, made_data, net, parameters_of

WANTED = torch.tensor([0.5, 0.3, 0.2])


def shares_of(weights, y):
    sums = np.bincount(y, weights.double(), minlength=3)
    return sums / sums.sum()


def test_of_all_rows_they_are_the_wanted_shares_with_the_same_mean():
    rng = torch.Generator().manual_seed(0)
    y, weights = torch.randint(0, 3, (200,), generator=rng), torch.rand(200, generator=rng) + 0.1
    found = ClassShares(WANTED).of_all_rows(weights, y)
    np.testing.assert_allclose(shares_of(found, y), WANTED, rtol=1e-5)
    assert found.mean().item() == pytest.approx(weights.mean().item(), rel=1e-5)
    within = (found / weights)[y == 1]
    torch.testing.assert_close(within, within[:1].expand(len(within)))  # weights of a class keep their ratios


def test_of_batches_they_are_the_average_by_hand():
    y, shares = torch.tensor([0, 0, 1, 2]), ClassShares(WANTED)
    measured = WANTED.double().numpy()
    for weights in (torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([2.0, 0.0, 1.0, 1.0])):
        found = shares(weights, y).double().numpy()
        measured = MEMORY * measured + (1 - MEMORY) * shares_of(weights, y)
        expected = weights.numpy() * (WANTED.numpy() / measured)[y]
        np.testing.assert_allclose(found, expected * weights.sum().item() / expected.sum(), rtol=1e-5)


def test_a_class_without_weight_is_no_division_by_zero():
    shares = ClassShares(torch.tensor([0.5, 0.5, 0.0]))
    found = shares.of_all_rows(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0, 2, 1]))
    assert torch.isfinite(found).all()
    assert found[1] == 0  # nothing is wanted of class 2


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_trained_weights_have_these_shares(variant):
    """Those by loss; inputs are matched class by class, with shares of their own."""
    made = made_data(n=400)
    method = importance_weighting(net(), 25, variant=variant, pretrain=2, class_shares=WANTED)
    assert ("class shares" in method.networks) == (variant != "IW")
    history = train(TrainingRun(method, made), TrainingConfig(adam, batch_size=50))
    found = shares_of(history.weights.flatten(), made.y[history.rows.flatten()])
    assert (np.abs(found - WANTED.numpy()).max() < 0.05) == (variant != "IW")


def test_a_stop_does_not_forget_the_measured_shares(tmp_path):
    def run():
        return TrainingRun(importance_weighting(net(), 6, class_shares=WANTED), made_data())

    config, whole, part = TrainingConfig(adam, batch_size=40), run(), run()
    train(whole, config)
    train(run(), config, checkpoint_path=tmp_path / "run.pt", deadline=0.0)
    train(part, config, checkpoint_path=tmp_path / "run.pt")
    assert torch.equal(*(parameters_of(each.method.networks["f"]) for each in (whole, part)))
