"""
Finding wrong labels
====================

Some labels are wrong, and somebody can look at a few of them again: which ones first? Three rankings of the digits: by
their weights in the last epoch of a training with dynamic weights, by the probability that this net gives to the label,
and by the same of a plain net, which has learned many wrong labels by heart. The net that was trained with weights ranks
best; its weights alone are noisy, since each comes from one mini-batch.

It takes about eight seconds; ``--full`` has 200 epochs. It needs PyTorch (``pip install 'steelyard[deep]'``).
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

from steelyard import Target
from steelyard.datasets import label_noise
from steelyard.deep import DynamicWeightedClassifier

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
X, truth = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
clean, rows = slice(0, 100), slice(100, None)  # a hundred digits with trusted labels
y = label_noise(truth[rows], 0.2, random_state=0)
wrong, each = y != truth[rows], np.arange(len(y))


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


n_epochs, loss = 200 if "--full" in sys.argv else 40, torch.nn.CrossEntropyLoss()
model = DynamicWeightedClassifier(net(), epochs=n_epochs, batch_size=64, progress=False)
model.fit(X[rows], y, target=Target(X[clean], truth[clean]))
plain = net()
optimizer, X_train, labels = torch.optim.Adam(plain.parameters()), torch.tensor(X[rows]), torch.tensor(y)
for batch in (part for _ in range(n_epochs) for part in torch.randperm(len(y)).split(64)):
    optimizer.zero_grad()
    loss(plain(X_train[batch]), labels[batch]).backward()
    optimizer.step()

by_plain = plain(X_train).softmax(dim=1).detach().numpy()[each, y]
by_model = model.predict_proba(X[rows])[each, y]
by_weight = np.nan_to_num(model.weights_, nan=np.inf)  # the last epoch leaves out rows that fill no batch
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
rankings = (
    (by_model, WEIGHTED, "-", "net trained with weights"),
    (by_weight, WEIGHTED, ":", "weights of the last epoch"),
)
for score, color, style, name in (*rankings, (by_plain, SOURCE, "-", "plain net")):
    found = np.cumsum(wrong[np.argsort(score)])
    print(f"{name:26} {found[wrong.sum() - 1] / wrong.sum():.0%} of the first {wrong.sum()} rows have wrong labels")
    axes.plot(each + 1, found / wrong.sum(), color=color, ls=style, lw=2, label=name)
axes.axline((0, 0), slope=1 / len(y), color="black", lw=1, ls="--", label="in random order")
axes.set(xlabel="labels looked at again", ylabel="share of the wrong labels found", xlim=(0, len(y)))
axes.legend(frameon=False, loc="lower right")

figure, images = plt.subplots(2, 8, figsize=(8, 2.8), layout="constrained")
for axes, row in zip(images.flat, np.argsort(by_model), strict=False):
    axes.imshow(X[rows][row].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"said: {y[row]}", fontsize=9, color=TARGET if wrong[row] else WEIGHTED)
    axes.axis("off")
plt.show()
