"""Image files: what they hold, and what is refused."""

import gzip
import hashlib

import numpy as np
import pytest

from steelyard.datasets import load_images
from steelyard.datasets.images import read_idx
from steelyard.errors import DataChangedError, DataNotFoundError, ParameterError


def idx(values):
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    return header + values.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path))
    return tmp_path


def test_idx_round_trip(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (5, 4, 3))
    (tmp_path / "a").write_bytes(idx(values))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(values)))
    for name in ("a", "a.gz"):
        np.testing.assert_array_equal(read_idx(tmp_path / name), values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"PAR1....", "not an idx file"),
        (idx(np.zeros((4, 3)))[:-2], "10 values where the header says"),
    ],
)
def test_damaged_idx(tmp_path, content, message):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataChangedError, match=message):
        read_idx(tmp_path / "a")
    (tmp_path / "a.gz").write_bytes(gzip.compress(content)[:-4])
    with pytest.raises(DataChangedError):
        read_idx(tmp_path / "a.gz")


def test_delta_coded_images_come_back(folder):
    images = np.random.default_rng(1).integers(0, 256, (6, 3, 32, 32)).astype(np.uint8)
    coded = images.copy()
    coded[:, 0] -= images[:, 1]
    coded[:, 2] -= images[:, 1]
    for axis in (3, 2):
        coded = np.diff(coded, axis=axis, prepend=np.zeros_like(coded.take([0], axis=axis)))
    np.savez(folder / "cifar10_test.npz", delta=coded, labels=np.arange(6, dtype=np.uint8))
    found = load_images("cifar10", "test")
    np.testing.assert_array_equal(found.X, images)
    np.testing.assert_array_equal(found.y, np.arange(6))


def test_absent_and_unknown(folder):
    with pytest.raises(DataNotFoundError, match=r"kmnist/train-images-idx3-ubyte.gz is not in .*CODH"):
        load_images("kmnist", "train")
    with pytest.raises(ParameterError, match="fashion_mnist"):
        load_images("mnist", "train")


def test_labels_that_do_not_belong(folder):
    (folder / "kmnist").mkdir()
    for name, values in (("images-idx3", np.zeros((3, 4, 4))), ("labels-idx1", np.zeros(2))):
        (folder / "kmnist" / f"t10k-{name}-ubyte.gz").write_bytes(gzip.compress(idx(values)))
    with pytest.raises(DataChangedError, match="do not belong together"):
        load_images("kmnist", "test")


def test_published_images(published_data):
    images = load_images("fashion_mnist", "test")
    assert images.X.shape == (10_000, 1, 28, 28)
    np.testing.assert_array_equal(np.bincount(images.y), np.full(10, 1000))
    pictures = load_images("cifar10", "test")
    pixels = np.ascontiguousarray(pictures.X.transpose(0, 2, 3, 1)).tobytes()
    assert hashlib.sha256(pixels).hexdigest() == "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"
