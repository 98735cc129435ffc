"""Fashion-MNIST with wrong labels, on a subset: dynamic weights against plain training, and what the weights know."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from steelyard import Target
from steelyard.datasets import label_noise, load_images
from steelyard.deep.nets import LeNet5
from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, methods, train
from steelyard.errors import DataNotFoundError


def test_dynamic_weights_beat_plain_training_and_find_the_wrong_labels():
    """12,000 rows, symmetric noise 0.4, 500 clean ones; the authors' preset, and a rate for so few steps."""
    try:
        images, held_out = load_images("fashion_mnist", "train"), load_images("fashion_mnist", "test")
    except DataNotFoundError as error:
        pytest.skip(f"Fashion-MNIST is not on this machine ({error})")
    rng = np.random.default_rng(1000)
    rows = rng.permutation(len(images.y))[:12000]
    truth, clean = images.y[rows], np.arange(500)
    noisy = label_noise(truth, 0.4, n_classes=10, random_state=1000)
    noisy[clean] = truth[clean]
    X, y = torch.tensor(images.X[rows]).float() / 255, torch.tensor(noisy).long()
    test = torch.tensor(held_out.X[:4000]).float() / 255, torch.tensor(held_out.y[:4000]).long()
    data = TrainingData(X, y, Target(X[clean], y[clean]))
    config = TrainingConfig(lambda p: torch.optim.SGD(p, lr=1e-3, weight_decay=1e-4), batch_size=128, reduction="sum")
    last = {}
    for name in ("dynamic", "uniform"):
        torch.manual_seed(1000)
        model = LeNet5()
        method = (
            methods.importance_weighting(model, 8, preset="authors", warm_up=1)
            if name == "dynamic"
            else methods.baseline("uniform", model, 8)
        )
        run = TrainingRun(method, data, seed=1000, eval_sets={"test": test})
        history = train(run, config)
        last[name] = history.epochs[-1]["accuracy"]["test"]
        if name == "dynamic":
            weights = np.full(len(y), np.nan)
            weights[history.rows.flatten().numpy()] = history.weights.flatten().numpy()
    kept = np.isfinite(weights)
    kept[clean] = False
    separated = roc_auc_score((noisy == truth)[kept], weights[kept])
    assert last["dynamic"] > 0.72
    assert last["dynamic"] > last["uniform"]
    assert separated > 0.9
