"""The networks of the survey's experiments.

Each has ``features``, the output of the last hidden layer, and ``head``, the last layer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard._validation import check_range

__all__ = ["FiveLayerCNN", "LeNet5", "ResNet32"]


class _Headed(nn.Module):
    """forward = head ∘ features."""

    head: nn.Linear

    def features(self, x: Tensor) -> Tensor:
        """Output of the last hidden layer, one row per image."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes.

        Parameters
        ----------
        x : tensor of shape (n, channels, side, side)
            Images.

        Returns
        -------
        scores : tensor of shape (n, n_classes)
        """
        return self.head(self.features(x))


class _TwoConvolutions(_Headed):
    """Two convolutions with pooling, then two fully connected layers; the output of the second is the features."""

    conv1: nn.Conv2d
    conv2: nn.Conv2d
    hidden1: nn.Linear
    hidden2: nn.Linear
    dropout = 0.0

    def features(self, x: Tensor) -> Tensor:
        """Output of the last hidden layer.

        Parameters
        ----------
        x : tensor of shape (n, channels, side, side)
            Images.

        Returns
        -------
        features : tensor of shape (n, n_features)
        """
        # ReLU is monotonic, so it may come after pooling: the same result from a quarter of the numbers.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2)).flatten(1)
        for layer in (self.hidden1, self.hidden2):
            x = F.relu(layer(self._with_dropout(x)))
        return self._with_dropout(x)

    def _with_dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class LeNet5(_TwoConvolutions):
    """LeNet-5 with ReLU and max-pooling, for 28 × 28 images of one channel; 84 features.

    Parameters
    ----------
    n_classes : int, default=10
        Number of outputs.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.nets import LeNet5
    >>> LeNet5()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, n_classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.hidden1, self.hidden2 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84)
        self.head = nn.Linear(84, n_classes)


class FiveLayerCNN(_TwoConvolutions):
    """Two convolutions with pooling and three fully connected layers, for 28 × 28 images (survey, section 5.3.3).

    Channels are last in memory, for speed.

    Parameters
    ----------
    n_outputs : int, default=10
        Number of outputs.
    channels : int, default=1
        Channels of the images.
    filters : tuple of two int, default=(32, 64)
        Filters of the two convolutions.
    hidden : tuple of two int, default=(128, 84)
        Units of the first two fully connected layers; those of the second are the features.
    dropout : float, default=0.0
        Dropout rate of the inputs of the fully connected layers.
    bfloat16 : bool, default=False
        Compute all layers except the head in bfloat16; parameters, features and scores stay float32.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.nets import FiveLayerCNN
    >>> FiveLayerCNN(n_outputs=1)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 1])
    """

    def __init__(
        self,
        n_outputs: int = 10,
        channels: int = 1,
        filters: tuple[int, int] = (32, 64),
        hidden: tuple[int, int] = (128, 84),
        dropout: float = 0.0,
        *,
        bfloat16: bool = False,
    ) -> None:
        super().__init__()
        self.in_bfloat16 = bfloat16
        self.dropout = check_range("dropout", dropout, 0, 1)
        first, second = filters
        self.conv1, self.conv2 = nn.Conv2d(channels, first, 3, padding=1), nn.Conv2d(first, second, 3, padding=1)
        units, features = hidden
        self.hidden1, self.hidden2 = nn.Linear(second * 7 * 7, units), nn.Linear(units, features)
        self.head = nn.Linear(features, n_outputs)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, x: Tensor) -> Tensor:
        """Output of the last hidden layer.

        Parameters
        ----------
        x : tensor of shape (n, channels, side, side)
            Images.

        Returns
        -------
        features : tensor of shape (n, n_features)
        """
        x = x.contiguous(memory_format=torch.channels_last)
        if x.shape[1] == 1:  # one channel is first and last: only the strides tell a convolution which layout to use
            height, width = x.shape[2:]
            x = x.as_strided(x.shape, (height * width, 1, width, 1))
        return _in_bfloat16(super().features, x) if self.in_bfloat16 else super().features(x)

    def freeze_convolutions(self) -> None:
        """Keep the two convolutions fixed from now on, as one-step does with g after its pretraining."""
        for layer in (self.conv1, self.conv2):
            layer.requires_grad_(False)


def _in_bfloat16(features: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    # No cache of converted parameters: it would outlive a step that is captured in a CUDA graph.
    with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
        return features(x).float()


BLOCKS = 5  # of each stage of a ResNet-32


class _Block(nn.Module):
    """Two 3 × 3 convolutions and a shortcut; where the size changes, the shortcut takes every other pixel and pads."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.stride, self.added = stride, channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        """Output of the block, with `channels` channels."""
        found = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        half = self.added // 2
        return F.relu(found + F.pad(shortcut, (0, 0, 0, 0, half, self.added - half)))


class ResNet32(_Headed):
    """ResNet-32 for 32 × 32 images: three stages of five blocks with 16, 32 and 64 channels; 64 features.

    Parameters
    ----------
    n_classes : int, default=10
        Number of outputs.
    dropout : float, default=0.0
        Dropout rate after each of the three stages.
    bfloat16 : bool, default=False
        Compute the convolutions in bfloat16 with channels last in memory, several times faster on a GPU; parameters,
        features and scores stay float32.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.nets import ResNet32
    >>> ResNet32().features(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, n_classes: int = 10, dropout: float = 0.0, *, bfloat16: bool = False) -> None:
        super().__init__()
        self.in_bfloat16 = bfloat16
        self.dropout = check_range("dropout", dropout, 0, 1)
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        stages = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        blocks = [
            _Block(before if i == 0 else channels, channels, stride if i == 0 else 1)
            for before, channels, stride in stages
            for i in range(BLOCKS)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(64, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if bfloat16:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, x: Tensor) -> Tensor:
        """Output of the last hidden layer.

        Parameters
        ----------
        x : tensor of shape (n, channels, side, side)
            Images.

        Returns
        -------
        features : tensor of shape (n, n_features)
        """
        if not self.in_bfloat16:
            return self._features(x)
        return _in_bfloat16(self._features, x.contiguous(memory_format=torch.channels_last))

    def _features(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        for number, block in enumerate(self.blocks, 1):
            x = block(x)
            if self.dropout and number % BLOCKS == 0:
                x = F.dropout(x, self.dropout, self.training)
        return x.mean(dim=(2, 3))
