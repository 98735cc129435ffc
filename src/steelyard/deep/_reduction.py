"""How the weighted losses of a batch become the one loss that is differentiated, for every caller."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"mean": torch.mean, "sum": torch.sum}
