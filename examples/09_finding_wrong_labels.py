"""
Finding wrong labels
====================

Some labels are wrong, and somebody can look at a few of them again: which ones first? ``label_issues`` ranks the rows
of a training with dynamic weights by the probability that the trained net gives to the label. Two other rankings stand
beside it: by the weights, and by the same probability of a plain net. All three are good here, and the weights are the
least so. The longer a plain net trains, the more wrong labels it learns by heart, and the more of them it hides.

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

torch.set_num_threads(1)  # so small a net is slower with more
SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
X, truth = load_digits(return_X_y=True)
clean, truth = Target(np.float32(X[:100] / 16), truth[:100]), truth[100:]  # a hundred digits with trusted labels
X, y = np.float32(X[100:] / 16), label_noise(truth, 0.2, random_state=0)
wrong, each = y != truth, np.arange(len(y))


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


n_epochs = 200 if "--full" in sys.argv else 40
model = DynamicWeightedClassifier(net(), epochs=n_epochs, batch_size=64, progress=False).fit(X, y, target=clean)
plain, X_train, labels = net(), torch.tensor(X), torch.tensor(y)
optimizer = torch.optim.Adam(plain.parameters())
for batch in (part for _ in range(n_epochs) for part in torch.randperm(len(y)).split(64)):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(plain(X_train[batch]), labels[batch]).backward()
    optimizer.step()

by_plain = plain(X_train).softmax(dim=1).detach().numpy()[each, y]
rows, doubts = model.label_issues()
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
    axes.plot(found / wrong.sum(), color=color, ls=style, lw=2, label=name)
axes.set(xlabel="labels looked at again", ylabel="share of the wrong labels found", xlim=(0, 2 * wrong.sum()))
axes.legend(frameon=False, loc="lower right")
plt.show()
