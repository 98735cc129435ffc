"""
Wrong labels in your own PyTorch loop
=====================================

Four labels in ten are wrong, and a hundred were looked at twice. Two more lines in the loop weight each mini-batch by
the losses of its rows and of the clean rows. The accuracy of a plain net falls as it learns the wrong labels by heart;
with weights the fall comes later. With dropout or batch normalization both losses belong in evaluation mode.

It takes about five seconds; ``--full`` has 200 epochs. It needs PyTorch (``pip install 'steelyard[deep]'``).
"""

import sys

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from steelyard.datasets import label_noise
from steelyard.deep import DynamicWeights

torch.set_num_threads(1)  # so small a net is slower with more
SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_epochs = 200 if "--full" in sys.argv else 60
criterion = torch.nn.CrossEntropyLoss(reduction="none")  # one loss for each row
X, truth = (torch.tensor(part) for part in load_digits(return_X_y=True))
X, (train, clean, test) = X.float() / 16, (slice(0, 1200), slice(1200, 1300), slice(1300, None))
y = torch.tensor(label_noise(truth[train].numpy(), 0.4, random_state=0))


def learn(dynamic=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    accuracy, row_weights = [], torch.ones(1200)
    for epoch in range(n_epochs):
        for rows in torch.randperm(1200).split(120):
            losses = criterion(model(X[train][rows]), y[rows])
            loss = losses.mean()
            if dynamic is not None and epoch:
                row_weights[rows] = weights = dynamic(losses, criterion(model(X[clean]), truth[clean]))
                loss = dynamic.reduce(weights * losses)
            model.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy.append((model(X[test]).argmax(dim=1) == truth[test]).float().mean().item())
    return accuracy, row_weights


(plain, _), (weighted, weights) = learn(), learn(DynamicWeights())
_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for curve, color, name in ((plain, SOURCE, "plain"), (weighted, WEIGHTED, "dynamic weights")):
    print(f"{name:15} best {max(curve):.1%}, in the end {curve[-1]:.1%} of the test digits right")
    left.plot(curve, color=color, lw=2, label=name)
left.set(xlabel="epoch", ylabel="accuracy on test digits", ylim=(0.7, 1))
for rows, color, name in ((y == truth[train], WEIGHTED, "right label"), (y != truth[train], TARGET, "wrong label")):
    right.hist(weights[rows], bins=40, range=(0, 4), histtype="step", lw=2, color=color, label=name)
right.set(xlabel="importance weight in the last epoch", ylabel="training digits")
left.legend(frameon=False)
right.legend(frameon=False)
plt.show()
