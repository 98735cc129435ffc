"""
Wrong labels in your own PyTorch loop
=====================================

Four labels in ten are wrong, and a hundred were looked at twice. Two more lines in the loop compute importance weights
for each mini-batch, from the losses of its rows and those of the clean rows. A plain net first learns what is right and
then the wrong labels by heart, so its accuracy peaks early and falls; with weights it falls much less, because most wrong
labels have small weights. With dropout or batch normalization both losses belong in evaluation mode.

It takes about five seconds; ``--full`` has 200 epochs. It needs PyTorch (``pip install 'steelyard[deep]'``).
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from steelyard.datasets import label_noise
from steelyard.deep import DynamicWeights

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_epochs = 200 if "--full" in sys.argv else 60
X, truth = load_digits(return_X_y=True)
X, truth = torch.tensor(X / 16, dtype=torch.float32), torch.tensor(truth)
train, clean, test = slice(0, 1200), slice(1200, 1300), slice(1300, None)
y = torch.tensor(label_noise(truth[train].numpy(), 0.4, random_state=0))


def learn(dynamic=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    accuracy, row_weights = [], torch.ones(1200)
    for epoch in range(n_epochs):
        for rows in torch.randperm(1200).split(120):
            losses = F.cross_entropy(model(X[train][rows]), y[rows], reduction="none")
            loss = losses.mean()
            if dynamic is not None and epoch:
                clean_losses = F.cross_entropy(model(X[clean]), truth[clean], reduction="none")
                row_weights[rows] = weights = dynamic(losses, clean_losses)
                loss = dynamic.reduce(weights * losses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy.append((model(X[test]).argmax(dim=1) == truth[test]).float().mean().item())
    return accuracy, row_weights.numpy()


(plain, _), (weighted, weights) = learn(), learn(DynamicWeights())
print(f"plain: best {max(plain):.1%}, in the end {plain[-1]:.1%} of the test digits right")
print(f"with dynamic weights: best {max(weighted):.1%}, in the end {weighted[-1]:.1%}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(plain, color=SOURCE, lw=2, label="plain")
left.plot(weighted, color=WEIGHTED, lw=2, label="dynamic weights")
left.set(xlabel="epoch", ylabel="accuracy on test digits")
left.legend(frameon=False)
wrong = (y != truth[train]).numpy()
for rows, color, name in ((~wrong, WEIGHTED, "right label"), (wrong, TARGET, "wrong label")):
    right.hist(weights[rows], np.linspace(0, 4, 41), histtype="step", lw=2, color=color, label=name)
right.set(xlabel="importance weight in the last epoch", ylabel="training digits")
right.legend(frameon=False)
plt.show()
