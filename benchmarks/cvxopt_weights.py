"""Writes tests/deep/cvxopt_weights.npz: losses, and the weights that cvxopt finds for them as the authors call it.

cvxopt is in the peers' environment only (make bench), so tests have its weights and not itself.
"""

from __future__ import annotations

from pathlib import Path

import cvxopt
import numpy as np

from benchmarks.dynamic import authors_weights

BATCHES = 12
PATH = Path(__file__).parent.parent / "tests" / "deep" / "cvxopt_weights.npz"


def losses(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Learnt and mislabelled rows, later ones after longer training; every third goal is far from them."""
    n, m = (256, 64, 31)[k % 3], (256, 100)[k % 2]
    scale = (0.5, 0.2, 0.05, 0.02)[k % 4]
    train = np.where(rng.random(n) < 0.7, rng.exponential(scale, n), np.abs(rng.normal(4, 1.5, n)))
    return train, rng.exponential(scale, m) + (5 if k % 3 == 2 else 0)


if __name__ == "__main__":
    rng = np.random.default_rng(1000)
    found = {"version": np.array(cvxopt.__version__)}
    for k in range(BATCHES):
        train, validation = losses(rng, k)
        found |= {f"train{k}": train, f"validation{k}": validation, f"weights{k}": authors_weights(train, validation)}
    np.savez_compressed(PATH, **found)
    print(f"Wrote {PATH}: {BATCHES} batches by cvxopt {cvxopt.__version__}")
