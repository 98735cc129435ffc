"""One thread: the networks are too small for two to help."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.causal needs it")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
