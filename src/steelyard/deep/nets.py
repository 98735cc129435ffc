"""The survey's networks. Each has ``features``, the output of the last hidden layer, and ``head``, the layer on top."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard._validation import check_range


class _Headed(nn.Module):
    """forward = head ∘ features."""

    head: nn.Linear

    def features(self, x: Tensor) -> Tensor:
        """Output of the last hidden layer, one row an image."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.head(self.features(x))


class _TwoConvolutions(_Headed):
    """Two convolutions with pooling, then two full hidden layers, the second of which are the features."""

    conv1: nn.Conv2d
    conv2: nn.Conv2d
    hidden1: nn.Linear
    hidden2: nn.Linear
    dropout = 0.0

    def features(self, x: Tensor) -> Tensor:
        """What the head sees of an image."""
        # ReLU keeps the order of numbers, so it may come after pooling: the same result on a quarter of the numbers.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2)).flatten(1)
        for layer in (self.hidden1, self.hidden2):
            x = F.relu(layer(self._dropped(x)))
        return self._dropped(x)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class LeNet5(_TwoConvolutions):
    """LeNet-5 with ReLU and max-pooling, for 28 × 28 images of one channel; 84 features.

    Examples
    --------
    >>> import torch
    >>> LeNet5()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, n_classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.hidden1, self.hidden2 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84)
        self.head = nn.Linear(84, n_classes)


class FiveLayerCNN(_TwoConvolutions):
    """Two convolutions with pooling and three full layers (survey, section 5.3.3).

    `hidden` are the units of the first two of these; the second's are the features. ``freeze_convolutions`` keeps the
    two convolutions as they are, as one-step does with g after its pretraining.
    `dropout` is that of the inputs of the full layers. Channels are last in memory, for speed, and `bfloat16` has all
    but the head in that precision, as in `ResNet32`.

    Examples
    --------
    >>> import torch
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
        few, many = filters
        self.conv1, self.conv2 = nn.Conv2d(channels, few, 3, padding=1), nn.Conv2d(few, many, 3, padding=1)
        wide, features = hidden
        self.hidden1, self.hidden2 = nn.Linear(many * 7 * 7, wide), nn.Linear(wide, features)
        self.head = nn.Linear(features, n_outputs)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, x: Tensor) -> Tensor:
        """What the head sees of an image."""
        x = x.contiguous(memory_format=torch.channels_last)
        if x.shape[1] == 1:  # first and last at once: only the strides tell a convolution which to go on with
            side, other = x.shape[2:]
            x = x.as_strided(x.shape, (side * other, 1, other, 1))
        return _in_bfloat16(super().features, x) if self.in_bfloat16 else super().features(x)

    def freeze_convolutions(self) -> None:
        """Learn the full layers alone from now on."""
        for layer in (self.conv1, self.conv2):
            layer.requires_grad_(False)


def _in_bfloat16(features: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    # No cache of converted parameters: it would outlive a step that is captured.
    with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
        return features(x).float()


class _Block(nn.Module):
    """Two 3 × 3 convolutions around a shortcut; where the size changes the shortcut is every other pixel, padded."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.stride, self.more = stride, channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        found = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        half = self.more // 2
        return F.relu(found + F.pad(shortcut, (0, 0, 0, 0, half, self.more - half)))


class ResNet32(_Headed):
    """ResNet-32 for 32 × 32 images: three stages of five blocks with 16, 32 and 64 channels; 64 features.

    `bfloat16`: convolutions in that precision with channels last, several times faster on a GPU; parameters, features
    and scores stay float32.

    Examples
    --------
    >>> import torch
    >>> ResNet32().features(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, n_classes: int = 10, *, bfloat16: bool = False) -> None:
        super().__init__()
        self.in_bfloat16 = bfloat16
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        stages = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        blocks = [
            _Block(before if i == 0 else channels, channels, stride if i == 0 else 1)
            for before, channels, stride in stages
            for i in range(5)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(64, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if bfloat16:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, x: Tensor) -> Tensor:
        """64 numbers an image."""
        if not self.in_bfloat16:
            return self._features(x)
        return _in_bfloat16(self._features, x.contiguous(memory_format=torch.channels_last))

    def _features(self, x: Tensor) -> Tensor:
        return self.blocks(F.relu(self.norm(self.conv(x)))).mean(dim=(2, 3))
