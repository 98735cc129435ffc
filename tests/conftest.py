"""Shared fixtures, and one thread of PyTorch a process: tests run side by side, and threads that wait would spin."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from steelyard.datasets import data_folder

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def published_data():
    """Skip where the published tables are not on this machine."""
    if not (data_folder() / "auto_mpg.csv").is_file():
        pytest.skip(f"the published data sets are not in {data_folder()} (set STEELYARD_DATA)")
    return data_folder()


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    monkeypatch.setitem(os.environ, "STEELYARD_DATA", str(tmp_path))
    return Path(tmp_path)
