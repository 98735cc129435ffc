"""Features by a hook on the last linear layer, and the statistics by which batch-norm makes weights."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

import torch.nn.functional as F
from torch import nn

from steelyard.deep import DynamicWeights, scores_and_features
from steelyard.deep.nets import LeNet5
from steelyard.deep.training import TrainingConfig, TrainingRun, methods, steps, train
from steelyard.deep.training.data import Batch
from steelyard.deep.training.modes import BATCH, EVALUATION, REFRESHED
from steelyard.errors import InputError, ParameterError
from tests.deep.test_loop import made_data, sgd


class Shared(nn.Module):
    """One linear layer that is called twice, in the middle and at the end, and its output is turned once more."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x):
        return F.log_softmax(self.last(torch.tanh(self.last(self.first(x)))), dim=1)


def test_features_are_the_input_of_the_last_linear_layer():
    torch.manual_seed(0)
    lenet, images = LeNet5(), torch.rand(3, 1, 28, 28)
    scores, features = scores_and_features(lenet, images)
    assert torch.equal(features, lenet.features(images))
    assert torch.equal(scores, lenet(images))
    shared, x = Shared(), torch.rand(5, 4)
    scores, features = scores_and_features(shared, x)
    torch.testing.assert_close(features, torch.tanh(shared.last(shared.first(x))))
    assert torch.equal(scores, shared(x))
    features.sum().backward()  # no gradient is cut
    assert shared.first.weight.grad is not None


def test_the_hooks_are_gone_afterwards():
    net = nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1)), nn.Conv1d(3, 2, 2))
    with pytest.raises(RuntimeError):
        scores_and_features(net, torch.rand(5, 4))  # the network itself fails
    assert not net[0]._forward_pre_hooks


def test_networks_without_features():
    with pytest.raises(InputError, match=r"last linear layer \(torch\.nn\.Linear\), and Conv1d calls none"):
        scores_and_features(nn.Conv1d(1, 3, 4), torch.rand(5, 1, 4))
    pairs = nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Flatten(0, 1), nn.Linear(2, 3), nn.Unflatten(0, (-1, 2)))
    with pytest.raises(InputError, match=r"sees a tensor of shape \(10, 2\) for 5 rows"):
        scores_and_features(pairs, torch.rand(5, 4))
    without = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten())
    run = TrainingRun(methods.importance_weighting(without, 1, transform="features"), made_data())
    with pytest.raises(InputError, match="Sequential calls none"):
        train(run, TrainingConfig(sgd))


@pytest.mark.parametrize("variant", ["SIW", "DIW1", "DIW2", "DIW3"])
def test_features_of_a_plain_sequence(variant):
    """Any module will do: features and head are not asked for."""
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    method = methods.importance_weighting(net, 2, variant=variant, transform="features", pretrain=1)
    history = train(TrainingRun(method, made_data()), TrainingConfig(sgd, batch_size=60))
    assert history.epochs[-1]["weight_sd"] > 0.01


# -- statistics of batch-norm -----------------------------------------------------------------------------------------


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)).train()


def by_hand(net, X, mean, variance):
    """Scores without dropout, normalized by these statistics."""
    z = (net[0](X) - mean) / (variance + net[1].eps).sqrt()
    return net[4](F.relu(z * net[1].weight + net[1].bias))


@pytest.mark.parametrize("mode", [EVALUATION, BATCH, REFRESHED])
def test_weights_are_made_with_the_statistics_of_their_mode(mode):
    made, net = made_data(), normed()
    net[1].running_mean += 3.0  # far from those of any batch, as after steps at a high rate
    batch = Batch(torch.arange(60), made.X[:60], made.y[:60], made.X_target, made.y_target)
    before = copy.deepcopy(net.state_dict())
    with torch.no_grad():
        hidden, of_target = net[0](batch.X), net[0](batch.X_target)
        own = (hidden.mean(dim=0), hidden.var(dim=0, correction=0))
        statistics = {
            EVALUATION: [(net[1].running_mean, net[1].running_var)] * 2,
            BATCH: [own, (of_target.mean(dim=0), of_target.var(dim=0, correction=0))],
            REFRESHED: [own, (hidden.mean(dim=0), hidden.var(dim=0))],  # running variances are unbiased
        }[mode]
        expected = [
            F.cross_entropy(by_hand(net, X, *of), y, reduction="none")
            for X, y, of in zip((batch.X, batch.X_target), (batch.y, batch.y_target), statistics, strict=True)
        ]
    weigher = DynamicWeights()
    _, weights = steps.dynamic({"f": net}, made, weigher, weight_mode=mode)(batch)
    torch.testing.assert_close(weights, weigher(*expected), rtol=1e-4, atol=1e-4)
    assert all(module.training for module in net.modules())
    assert net[1].track_running_stats
    assert net[1].momentum == 0.1
    # The running means moved once, in the pass with gradients.
    torch.testing.assert_close(net[1].running_mean, 0.9 * before["1.running_mean"] + 0.1 * hidden.mean(dim=0))
    assert net[1].num_batches_tracked == before["1.num_batches_tracked"] + 1


def test_the_mode_changes_weights_but_not_where_there_is_no_batch_norm():
    made = made_data()
    batch = Batch(torch.arange(60), made.X[:60], made.y[:60], made.X_target, made.y_target)

    def weights(net, mode):
        return steps.dynamic({"f": net}, made, DynamicWeights(), weight_mode=mode)(batch)[1]

    found = [weights(normed(), mode) for mode in (EVALUATION, BATCH, REFRESHED)]
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(found, [*found[1:], found[0]], strict=True))
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    same = [weights(plain, mode) for mode in (EVALUATION, BATCH, REFRESHED)]
    assert torch.equal(same[0], same[1])
    assert torch.equal(same[0], same[2])


def test_an_unknown_mode():
    with pytest.raises(ParameterError, match="weight_mode must be one of"):
        methods.importance_weighting(normed(), 1, weight_mode="training")
