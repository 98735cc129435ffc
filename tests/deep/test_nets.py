"""The survey's networks: sizes, features, and what is frozen."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

import torch.nn.functional as F

from steelyard.deep.nets import FiveLayerCNN, LeNet5, ResNet32


@pytest.mark.parametrize(
    ("net", "shape", "n_features", "n_parameters"),
    [
        (LeNet5(), (1, 28, 28), 84, 61_706),
        (ResNet32(), (3, 32, 32), 64, 464_154),
        (FiveLayerCNN(), (1, 28, 28), 84, 432_038),
        (FiveLayerCNN(filters=(6, 16), hidden=(512, 128)), (1, 28, 28), 128, 469_814),
    ],
    ids=["LeNet5", "ResNet32", "FiveLayerCNN", "FiveLayerCNN with wide layers"],
)
def test_sizes(net, shape, n_features, n_parameters):
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    net.eval()
    assert net.features(x).shape == (4, n_features)
    assert net(x).shape == (4, 10)
    torch.testing.assert_close(net(x), net.head(net.features(x)))
    assert sum(p.numel() for p in net.parameters()) == n_parameters


def test_dropout_is_of_the_full_layers_while_learning():
    torch.manual_seed(0)
    net, x = FiveLayerCNN(dropout=0.5), torch.rand(4, 1, 28, 28)
    assert not torch.equal(net(x), net(x))
    net.eval()
    plain = FiveLayerCNN()
    plain.load_state_dict(net.state_dict())
    assert torch.equal(net(x), plain(x))
    with torch.no_grad():
        for layer in (net.hidden1, net.hidden2, net.head):
            layer.bias.zero_()
        net.train()
        dropped = (net.features(x) == 0).float().mean()
    assert dropped > 0.5


def test_dropout_of_a_resnet_follows_each_stage():
    """Its masks follow blocks 5, 10 and 15; evaluation mode and parameters are as without."""
    torch.manual_seed(0)
    net, x = ResNet32(dropout=0.5), torch.rand(2, 3, 32, 32)
    plain = ResNet32()
    plain.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(x), plain.eval()(x))
    net.train(), plain.train()
    torch.manual_seed(1)
    found = net(x)
    torch.manual_seed(1)
    z = F.relu(plain.norm(plain.conv(x)))
    for stage in (plain.blocks[:5], plain.blocks[5:10], plain.blocks[10:]):
        z = F.dropout(stage(z), 0.5)
    torch.testing.assert_close(found, plain.head(z.mean(dim=(2, 3))))
    assert not torch.equal(found, net(x))


def test_a_hundred_classes():
    """CIFAR-100, whose images are nowhere at hand: the network and a step on it."""
    from steelyard import Target
    from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, methods, train

    X, y = torch.rand(120, 3, 32, 32), torch.arange(120) % 100
    run = TrainingRun(methods.importance_weighting(ResNet32(100), 1), TrainingData(X, y, Target(X[:50], y[:50])))
    history = train(run, TrainingConfig(lambda parameters: torch.optim.Adam(parameters, lr=5e-4), batch_size=60))
    assert history.weights.shape == (2, 60)


def test_frozen_convolutions_stay_and_the_rest_learns():
    net = FiveLayerCNN(n_outputs=1)
    net.freeze_convolutions()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    net(torch.randn(4, 1, 28, 28)).sum().backward()
    with torch.no_grad():
        for p in net.parameters():
            if p.grad is not None:
                p -= 0.1 * p.grad
    moved = {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}
    assert not {name for name in moved if name.startswith("conv")}
    assert "head.weight" in moved


@pytest.mark.parametrize("channels", [1, 3])
def test_the_layout_in_memory_changes_no_number(channels):
    """Against the layers one by one, on numbers that lie row by row."""
    torch.manual_seed(0)
    net, x = FiveLayerCNN(channels=channels).double(), torch.rand(3, channels, 28, 28, dtype=torch.float64)
    z = x
    for layer in (net.conv1, net.conv2):
        z = F.conv2d(z, layer.weight.contiguous(), layer.bias, padding=1).relu()
        z = z.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).amax((3, 5))
    z = z.flatten(1)
    for layer in (net.hidden1, net.hidden2):
        z = (z @ layer.weight.T + layer.bias).relu()
    torch.testing.assert_close(net(x), z @ net.head.weight.T + net.head.bias)
    torch.testing.assert_close(net(x.mT), net(x.mT.contiguous()))  # strides of another order


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize(("network", "shape"), [(ResNet32, (3, 32, 32)), (FiveLayerCNN, (1, 28, 28))])
def test_bfloat16_is_nearly_float32_and_learns(network, shape):
    torch.manual_seed(0)
    half = network(bfloat16=True)
    whole = network()
    whole.load_state_dict(half.state_dict())
    images = torch.rand(4, *shape)
    # oneDNN stops the process on virtual machines that promise instructions of bfloat16 and lack them.
    with torch.backends.mkldnn.flags(enabled=False):
        found = half(images)
        found.square().sum().backward()
    assert found.dtype == torch.float32
    assert not torch.equal(found, whole(images))
    torch.testing.assert_close(found, whole(images), rtol=0.1, atol=0.1)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in half.parameters())
