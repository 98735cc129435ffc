"""One thread of PyTorch a process: tests run side by side, and threads that wait for each other spin."""

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
