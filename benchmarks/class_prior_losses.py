"""What losses tell of rare classes while a network learns: weights of rare rows, epoch by epoch.

python -m benchmarks.class_prior_losses --out results/benchmarks/class_prior_losses.md
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.pages import print_page
from experiments.engine.deep_runner import classes, pixels
from steelyard.datasets import class_prior_shift, load_images
from steelyard.deep import DynamicWeights, dynamic
from steelyard.deep.nets import LeNet5

EPOCHS = (1, 5, 10, 20, 30, 45, 60)
KERNELS = {  # preset, and the least width as a share of the range
    "authors": ("authors", dynamic.NARROWEST),
    "normalised": ("normalised", dynamic.NARROWEST),
    "normalized, plain median": ("normalised", 0.0),
}
SEED, RATIO, N_BATCHES, BATCH = 1000, 100, 60, 256


def page() -> str:
    """A plain LeNet-5 on one draw; after some epochs, weights of batches as DIW would have them."""
    images = load_images("fashion_mnist", "train")
    every = images.y.astype(np.int64)
    rows, truth = class_prior_shift(every, ratio=RATIO, largest=4000, random_state=np.random.default_rng(SEED))
    X, y = pixels(images.X[rows], "cpu"), classes(every[rows], "cpu")
    clean = np.concatenate([np.flatnonzero(every[rows] == c)[:10] for c in range(10)])
    torch.manual_seed(SEED)
    model = LeNet5()
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-4, weight_decay=1e-4)
    lines = [
        "# What losses tell of rare classes",
        "",
        f"LeNet-5 without weights on a draw (seed {SEED}) of Fashion-MNIST with ρ = {RATIO}, ten clean rows of each "
        "class among those learned from; the learning rate falls to a tenth after epoch 40. Weights of "
        f"{N_BATCHES} batches of {BATCH} against the clean rows; the true weight of a rare row is {truth.max():.1f}.",
        "",
        "| epochs | mean loss | of rare rows | of clean rows | kernel | mean weight of rare rows | RMSE | MAE |",
        "|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    for epoch in range(1, EPOCHS[-1] + 1):
        order = np.random.default_rng(epoch).permutation(len(rows))
        if epoch == 41:
            optimizer.param_groups[0]["lr"] *= 0.1
        for batch in np.array_split(order[: len(order) // BATCH * BATCH], len(order) // BATCH):
            optimizer.zero_grad()
            cross_entropy(model(X[batch]), y[batch], reduction="sum").backward()
            optimizer.step()
        if epoch in EPOCHS:
            with torch.no_grad():
                parts = [(X[i : i + 2000], y[i : i + 2000]) for i in range(0, len(rows), 2000)]
                losses = torch.cat([cross_entropy(model(inputs), labels, reduction="none") for inputs, labels in parts])
            lines += _lines(epoch, losses, truth, clean, order[: N_BATCHES * BATCH].reshape(N_BATCHES, BATCH))
    return "\n".join(lines) + "\n"


def _lines(epoch: int, losses: torch.Tensor, truth: np.ndarray, clean: np.ndarray, batches: np.ndarray) -> list[str]:
    means = [losses.mean(), losses[truth > 2].mean(), losses[clean].mean()]
    found = []
    for name, (preset, narrowest) in KERNELS.items():
        with patch.object(dynamic, "NARROWEST", narrowest):
            weigher = DynamicWeights(preset=preset)
            made = [weigher(losses[batch], losses[clean]) for batch in batches]
        weights = np.concatenate([(w / w.mean()).numpy() for w in made])
        wanted = truth[batches.ravel()]
        errors = np.sqrt(np.mean((weights - wanted) ** 2)), np.mean(np.abs(weights - wanted))
        numbers = [f"{value:.2f}" for value in means]
        shown = [f"{weights[wanted > 2].mean():.1f}", *(f"{value:.2f}" for value in errors)]
        found.append("| " + " | ".join([str(epoch), *numbers, name, *shown]) + " |")
    return found


if __name__ == "__main__":
    print_page(page, __doc__)
