"""
Wrong labels in Lightning
=========================

A callback computes dynamic weights beside a module of your own, whose method ``row_losses`` returns one loss per row.
Four labels in ten are wrong.

It takes about ten seconds; ``--full`` has 200 epochs. It needs ``pip install 'steelyard[lightning]'``.
"""

import sys

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from steelyard.datasets import label_noise
from steelyard.deep.lightning import DynamicWeightsCallback

n_epochs = 200 if "--full" in sys.argv else 40
X, truth = (torch.tensor(part) for part in load_digits(return_X_y=True))
X, noisy = X.float() / 16, torch.tensor(label_noise(truth[:1200].numpy(), 0.4, random_state=0))
train = TensorDataset(X[:1200], noisy)
clean = TensorDataset(X[1200:1300], truth[1200:1300])  # a hundred labels were looked at twice
test = TensorDataset(X[1300:], truth[1300:])


class Digits(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def row_losses(self, batch):  # all that the callback asks for: one loss per row
        X, y = batch
        return F.cross_entropy(self.layers(X), y, reduction="none")

    def training_step(self, batch):
        return self.row_losses(batch).mean()

    def test_step(self, batch):
        self.log("accuracy", (self.layers(batch[0]).argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def learn(*callbacks):
    seed_everything(0, verbose=False)
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    trainer = Trainer(max_epochs=n_epochs, accelerator="cpu", callbacks=list(callbacks), **quiet)
    module = Digits()
    trainer.fit(module, DataLoader(train, batch_size=120, shuffle=True))
    return trainer.test(module, DataLoader(test, batch_size=len(test)), verbose=False)[0]["accuracy"]


plain, weighted = learn(), learn(DynamicWeightsCallback(DataLoader(clean, batch_size=100)))
print(f"plain: {plain:.1%} of the test digits right; with dynamic weights: {weighted:.1%}")
