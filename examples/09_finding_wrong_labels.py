"""
Finding wrong labels
====================

Some labels are wrong, and somebody can look at a few of them again: which ones first? ``label_issues`` ranks the rows
of a training with dynamic weights by the probability that the trained net gives to the label. Rankings by the weights,
and by a plain net, are good here, too; but the longer a plain net trains, the more wrong labels it learns by heart.

It takes about eight seconds; ``--full`` has 200 epochs. It needs PyTorch (``pip install 'steelyard[deep]'``).
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

from steelyard import Target
from steelyard.datasets import label_noise
from steelyard.deep import DynamicWeightedClassifier

torch.set_num_threads(1)  # so small a net is slower with more
SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_epochs = 200 if "--full" in sys.argv else 40
X, truth = shuffle(*load_digits(return_X_y=True), random_state=0)  # clean rows must be like the others
clean, truth = Target(np.float32(X[:100] / 16), truth[:100]), truth[100:]  # a hundred digits with trusted labels
X, y = np.float32(X[100:] / 16), label_noise(truth, 0.2, random_state=0)
wrong = y != truth


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


model = DynamicWeightedClassifier(net(), epochs=n_epochs, batch_size=64, progress=False).fit(X, y, target=clean)
plain, X_train, labels = net(), torch.tensor(X), torch.tensor(y)
optimizer = torch.optim.Adam(plain.parameters())
for batch in (part for _ in range(n_epochs) for part in torch.randperm(len(y)).split(64)):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(plain(X_train[batch]), labels[batch]).backward()
    optimizer.step()

by_plain, rows = plain(X_train).softmax(dim=1)[range(len(y)), y].detach().numpy(), model.label_issues()[0]
_, images = plt.subplots(2, 8, figsize=(8, 2.8), layout="constrained")
for axes, row in zip(images.flat, rows, strict=False):
    axes.imshow(X[row].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"label {y[row]}", fontsize=9, color=TARGET if wrong[row] else WEIGHTED)
    axes.axis("off")
_, axes = plt.subplots(figsize=(6, 4), layout="constrained")
rankings = {"label_issues": rows, "weights": np.argsort(model.weights_), "plain net": np.argsort(by_plain)}
for (name, ranking), color, style in zip(rankings.items(), (WEIGHTED, WEIGHTED, SOURCE), "-:-", strict=True):
    found = np.cumsum(wrong[ranking])
    print(f"{name:12} {found[wrong.sum() - 1] / wrong.sum():.0%} of the first {wrong.sum()} rows have wrong labels")
    axes.plot(found / wrong.sum(), color=color, ls=style, label=name)
axes.set(xlabel="labels looked at again", ylabel="share of the wrong labels found", xlim=(0, 2 * wrong.sum()))
axes.legend(frameon=False, loc="lower right")
plt.show()
