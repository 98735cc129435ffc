"""The data and grids of the benchmarks; nothing here imports the package, so that an older checkout can use it too."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

WIDTH_FACTORS = 2.0 ** (np.arange(2, -7, -1) / 2)
REGS = 10.0 ** (np.arange(2, -7, -1) / 2)


def gaussians(n: int, d: int, dtype: Any = np.float64, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Source and target rows."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(dtype), rng.normal(0.5, 0.8, size=(n, d)).astype(dtype)


def median_width(n: int, d: int) -> float:
    """Median distance between rows of both."""
    source, target = gaussians(min(n, 500), d)
    return float(np.median(pdist(np.concatenate([source, target]))))
