"""Class weights: the importance weights of each class are scaled until its share of them is that of the target."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MEMORY = 0.95  # of the average over batches: about the last twenty count
LEAST_SHARE = 0.02  # of the wanted share; below, a class has too little weight to be scaled up to it


class ClassShares(nn.Module):
    """Scales importance weights class by class, so that the classes have given shares of their sum.

    Matching by loss does not see the class of a row. Where labels are wrong in one direction only, or the classes of
    the source have other shares than those of the target, the weighted rows would have too many rows of some classes.
    The shares are measured as an average over recent batches, a buffer that is part of checkpoints.

    Parameters
    ----------
    wanted : tensor of shape (n_classes,)
        The share of each class, with sum one.
    """

    wanted: Tensor
    measured: Tensor

    def __init__(self, wanted: Tensor) -> None:
        super().__init__()
        self.register_buffer("wanted", wanted.float())
        self.register_buffer("measured", wanted.float().clone())

    def forward(self, weights: Tensor, y: Tensor) -> Tensor:
        """Scaled weights of one batch with the same mean, after its shares are measured.

        Parameters
        ----------
        weights : tensor of shape (n,)
            Importance weights.
        y : tensor of shape (n,)
            Classes of the rows, counted from 0.

        Returns
        -------
        weights : tensor of shape (n,)
        """
        self.measured.mul_(MEMORY).add_((1 - MEMORY) * self._shares(weights, y))
        return self._scaled(weights, y, self.measured)

    def of_all_rows(self, weights: Tensor, y: Tensor) -> Tensor:
        """Scaled weights with the same mean, where the rows are all that there are.

        Parameters
        ----------
        weights : tensor of shape (n,)
            Importance weights.
        y : tensor of shape (n,)
            Classes of the rows, counted from 0.

        Returns
        -------
        weights : tensor of shape (n,)
        """
        return self._scaled(weights, y, self._shares(weights, y))

    def _shares(self, weights: Tensor, y: Tensor) -> Tensor:
        sums = torch.zeros_like(self.measured).index_add(0, y, weights.to(self.measured))
        return sums / sums.sum().clamp(min=1e-12)

    def _scaled(self, weights: Tensor, y: Tensor, measured: Tensor) -> Tensor:
        factor = self.wanted / torch.maximum(measured, LEAST_SHARE * self.wanted).clamp(min=1e-12)
        scaled = weights * factor.to(weights)[y]
        return scaled * (weights.sum() / scaled.sum().clamp(min=1e-12))
