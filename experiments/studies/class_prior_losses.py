"""What losses tell of rare classes while a network learns: weights of rare rows, epoch by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from experiments.engine.cells import Settings
from experiments.engine.deep_runner import classes, pixels
from experiments.engine.study import Study
from steelyard._typing import FloatArray, IntArray
from steelyard.datasets import class_prior_shift, load_images

if TYPE_CHECKING:
    import torch

EPOCHS = (1, 5, 10, 20, 30, 45, 60)
# Preset, and whether the width has the preset's lower bound, a share of the range of the losses.
KERNELS = {
    "authors": ("authors", True),
    "normalized": ("normalized", True),
    "normalized, plain median": ("normalized", False),
}
SEED, RATIO, N_BATCHES, BATCH = 1000, 100, 60, 256


def page(settings: Settings, folder: Path) -> str:
    """A plain LeNet-5 on one draw; after some epochs, weights of batches as DIW would have them."""
    import torch
    from torch.nn.functional import cross_entropy

    from steelyard.deep.nets import LeNet5

    images = load_images("fashion_mnist", "train")
    every = images.y.astype(np.int64)
    rows, truth = class_prior_shift(every, ratio=RATIO, largest=4000, random_state=np.random.default_rng(SEED))
    X, y = pixels(images.X[rows], "cpu"), classes(every[rows], "cpu")
    clean = np.concatenate([np.flatnonzero(every[rows] == c)[:10] for c in range(10)])
    torch.manual_seed(SEED)
    model = LeNet5()
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-4, weight_decay=1e-4)
    lines = [
        f"The true weight of a rare row is {truth.max():.1f}.",
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
            loss: Any = cross_entropy(model(X[batch]), y[batch], reduction="sum")
            loss.backward()
            optimizer.step()
        if epoch in EPOCHS:
            with torch.no_grad():
                parts = [(X[i : i + 2000], y[i : i + 2000]) for i in range(0, len(rows), 2000)]
                losses = torch.cat([cross_entropy(model(inputs), labels, reduction="none") for inputs, labels in parts])
            lines += _lines(epoch, losses, truth, clean, order[: N_BATCHES * BATCH].reshape(N_BATCHES, BATCH))
    return "\n".join(lines)


def _lines(epoch: int, losses: torch.Tensor, truth: FloatArray, clean: IntArray, batches: IntArray) -> list[str]:
    from steelyard.deep import DynamicWeights, dynamic

    means = [losses.mean(), losses[truth > 2].mean(), losses[clean].mean()]
    found = []
    for name, (preset, bounded) in KERNELS.items():
        with patch.object(dynamic, "NARROWEST", dynamic.NARROWEST if bounded else 0.0):
            weighting: Any = DynamicWeights(preset=preset)
            made = [weighting(losses[batch], losses[clean]) for batch in batches]
        weights = np.concatenate([(w / w.mean()).numpy() for w in made])
        wanted = truth[batches.ravel()]
        errors = np.sqrt(np.mean((weights - wanted) ** 2)), np.mean(np.abs(weights - wanted))
        numbers = [f"{value:.2f}" for value in means]
        shown = [f"{weights[wanted > 2].mean():.1f}", *(f"{value:.2f}" for value in errors)]
        found.append("| " + " | ".join([str(epoch), *numbers, name, *shown]) + " |")
    return found


STUDY = Study(
    name="class-prior-losses",
    title="What losses tell of rare classes",
    explains=(
        f"LeNet-5 without weights on a draw (seed {SEED}) of Fashion-MNIST with ρ = {RATIO}, ten clean rows of each "
        "class among the training rows; the learning rate falls to a tenth after epoch 40. Weights of "
        f"{N_BATCHES} batches of {BATCH} against the clean rows."
    ),
    page=page,
)
