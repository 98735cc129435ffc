"""How much of the target the source covers, and how heavy the tail of the importance weights is."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler

from steelyard._typing import FloatArray


def uncovered_share(source: FloatArray, target: FloatArray, rng: np.random.Generator, at_most: int = 2000) -> float:
    """Share of target rows outside the source's support.

    That is, whose nearest source row is further away than the nearest neighbors of 99 % of the source rows are.
    """
    from sklearn.neighbors import NearestNeighbors

    some_source = source[rng.permutation(len(source))[:at_most]]
    some_target = target[rng.permutation(len(target))[:at_most]]
    scaler = StandardScaler().fit(np.concatenate([some_source, some_target]))
    index = NearestNeighbors(n_neighbors=2).fit(scaler.transform(some_source))
    within = index.kneighbors(scaler.transform(some_source))[0][:, 1]
    across = index.kneighbors(scaler.transform(some_target), n_neighbors=1)[0][:, 0]
    return float(np.mean(across > np.quantile(within, 0.99)))


def pareto_k(weights: FloatArray) -> float:
    """Tail index of the largest weights, by a generalized Pareto fit: 0.5 no variance, 1 no mean."""
    from scipy.stats import genpareto

    n_tail = int(min(len(weights) / 5, 3 * np.sqrt(len(weights))))
    ordered = np.sort(weights)
    excess = ordered[-n_tail:] - ordered[-n_tail - 1]
    if n_tail < 5 or not excess.max() > 0:
        return 0.0
    return float(genpareto.fit(excess[excess > 0], floc=0)[0])
