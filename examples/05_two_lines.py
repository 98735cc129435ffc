"""Dynamic weights, two lines more in a loop that is there already: digits of which four labels in ten are wrong."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from steelyard.datasets import label_noise
from steelyard.deep import DynamicWeights

X, truth = load_digits(return_X_y=True)
X, truth = torch.tensor(X / 16, dtype=torch.float32), torch.tensor(truth)
train, clean, test = slice(0, 1200), slice(1200, 1300), slice(1300, None)  # a hundred labels were looked at twice
y = torch.tensor(label_noise(truth[train].numpy(), 0.4, random_state=0))


def learn(dynamic=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(60):
        for rows in torch.randperm(1200).split(120):
            losses = F.cross_entropy(model(X[train][rows]), y[rows], reduction="none")
            loss = losses.mean()
            if dynamic is not None and epoch:
                with torch.no_grad():  # and in evaluation mode, if the model had dropout or batch-norm
                    clean_losses = F.cross_entropy(model(X[clean]), truth[clean], reduction="none")
                loss = dynamic.reduce(dynamic(losses, clean_losses) * losses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return (model(X[test]).argmax(dim=1) == truth[test]).float().mean().item()


print(f"plain: {learn():.1%} of the test digits right; with dynamic weights: {learn(DynamicWeights()):.1%}")
