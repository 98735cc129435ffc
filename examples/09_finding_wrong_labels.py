"""
Finding wrong labels
====================

Some labels are wrong, and somebody can look at a few of them again: which ones first? Three rankings of the digits:
by their weights in the last epoch of a training with dynamic weights, by the probability that this net gives to the
label, and by the same of a plain net. All three are good here. Weights are noisy, because each comes from one
mini-batch; the longer a plain net trains, the more wrong labels it learns by heart, and the more of them it hides.

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

by_plain, by_model = plain(X_train).softmax(dim=1).detach().numpy()[each, y], model.predict_proba(X)[each, y]
by_weight = np.nan_to_num(model.weights_, nan=np.inf)  # the last epoch leaves out rows that fill no batch
_, images = plt.subplots(2, 8, figsize=(8, 2.8), layout="constrained")
for axes, row in zip(images.flat, np.argsort(by_model), strict=False):
    axes.imshow(X[row].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"label {y[row]}", fontsize=9, color=TARGET if wrong[row] else WEIGHTED)
    axes.axis("off")
_, axes = plt.subplots(figsize=(6, 4), layout="constrained")
scores = {"net trained with weights": by_model, "weights of the last epoch": by_weight, "plain net": by_plain}
for (name, score), color, style in zip(scores.items(), (WEIGHTED, WEIGHTED, SOURCE), "-:-", strict=True):
    found = np.cumsum(wrong[np.argsort(score)])
    print(f"{name:26} {found[wrong.sum() - 1] / wrong.sum():.0%} of the first {wrong.sum()} rows have wrong labels")
    axes.plot(found / wrong.sum(), color=color, ls=style, lw=2, label=name)
axes.set(xlabel="labels looked at again", ylabel="share of the wrong labels found", xlim=(0, 2 * wrong.sum()))
axes.legend(frameon=False, loc="lower right")
plt.show()
