"""Image data sets of the survey, read from local files: Fashion-MNIST, KMNIST (idx files) and CIFAR-10 (npz files)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.display import ShortRepr
from steelyard.datasets.loaders import find_file
from steelyard.errors import DataChangedError, ParameterError

IMAGES = ("fashion_mnist", "kmnist", "cifar10")


@dataclass(frozen=True, eq=False, repr=False)
class Images(ShortRepr):
    """Images x and their classes y, as bytes, of the survey's experiments with deep networks (sections 5.3.3 and 6).

    Parameters
    ----------
    X : array of shape (n, channels, height, width)
        Pixels, 0 to 255.
    y : array of shape (n,)
        Class of each image.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import Images
    >>> Images(np.zeros((2, 1, 28, 28), np.uint8), np.array([3, 7], np.uint8)).X.shape
    (2, 1, 28, 28)
    """

    X: NDArray[np.uint8]
    y: NDArray[np.uint8]


def load_images(name: str, part: str) -> Images:
    """Load an image data set from the data folder.

    Parameters
    ----------
    name : {"fashion_mnist", "kmnist", "cifar10"}
        The data set.
    part : {"train", "test"}
        The published training or test images.

    Returns
    -------
    Images
        Pixels and classes. A missing file is a `DataNotFoundError` that names its provider.

    Examples
    --------
    >>> from steelyard.datasets import load_images
    >>> from steelyard.errors import DataNotFoundError
    >>> try:
    ...     shape = load_images("kmnist", "test").X.shape
    ... except DataNotFoundError:  # the files are not in the data folder
    ...     shape = (10000, 1, 28, 28)
    >>> shape
    (10000, 1, 28, 28)
    """
    if name not in IMAGES or part not in ("train", "test"):
        raise ParameterError(f'name must be one of {IMAGES} and part "train" or "test"; got {name!r} and {part!r}.')
    if name == "cifar10":
        path = find_file(f"cifar10_{part}.npz", "A. Krizhevsky, CIFAR-10, as delta-coded npz")
        try:
            with np.load(path) as content:
                delta, y = content["delta"], content["labels"]
        except (OSError, ValueError, KeyError) as error:
            raise DataChangedError(f"{path}: the file is damaged ({error}); download it again.") from error
        # Stored as channels (R−G, G, B−G) and differences along width and height, all modulo 256.
        X = np.cumsum(np.cumsum(delta, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
        X[:, 0] += X[:, 1]
        X[:, 2] += X[:, 1]
        return Images(X, y)
    stem = "train" if part == "train" else "t10k"
    provider = {"fashion_mnist": "Zalando Research, Fashion-MNIST", "kmnist": "ROIS-DS CODH, KMNIST"}[name]
    X = read_idx(find_file(f"{name}/{stem}-images-idx3-ubyte.gz", provider))
    y = read_idx(find_file(f"{name}/{stem}-labels-idx1-ubyte.gz", provider))
    if X.ndim != 3 or len(X) != len(y):
        raise DataChangedError(
            f"{name}, {part}: {X.shape} images and {y.shape} labels do not belong together; download both again."
        )
    return Images(X[:, None], y)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes in the idx format, compressed by gzip or not."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError) as error:
        raise DataChangedError(f"{path}: the file is damaged ({error}); download it again.") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataChangedError(f"{path}: this is not an idx file of bytes; download it again.")
    n_axes = content[3]
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", n_axes, 4))
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * n_axes)
    if len(values) != np.prod(shape):
        raise DataChangedError(f"{path}: {len(values)} values where the header says {shape}; download it again.")
    return values.reshape(shape)
