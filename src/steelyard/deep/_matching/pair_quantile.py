"""Quantiles of the distances between losses on a CPU, compiled with numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Vector = NDArray[np.float64]

compiled: Any = njit(cache=True)


@compiled
def pair_quantile(values: Vector, q: float) -> float:
    """Quantile of the distances |v_i − v_j|, i < j, without computing all of them."""
    n = len(values)
    if n < 2:
        return 0.0
    z = np.sort(values)
    n_pairs = n * (n - 1) // 2
    place = q * (n_pairs - 1)
    k = int(place)
    # Bisection until low < d_k ≤ high with few distances between.
    low, high, n_low, n_high = -1.0, z[-1] - z[0], 0, n_pairs
    while n_high - n_low > n // 4:
        middle = 0.5 * (max(low, 0.0) + high)
        if middle <= low or middle >= high:
            break  # ties, to machine precision
        count = _pairs_within(z, middle)
        if count > k:
            high, n_high = middle, count
        else:
            low, n_low = middle, count
    between = np.empty(n_high - n_low)
    found, first, last = 0, 1, 1
    after = np.inf
    for i in range(n):
        first, last = max(first, i + 1), max(last, i + 1)
        while first < n and z[first] - z[i] <= low:
            first += 1
        while last < n and z[last] - z[i] <= high:
            last += 1
        for j in range(first, last):
            between[found] = z[j] - z[i]
            found += 1
        if last < n:
            after = min(after, z[last] - z[i])
    between.sort()
    at = between[k - n_low]
    above = between[k + 1 - n_low] if k + 1 < n_high else after
    return at + (place - k) * (above - at) if place > k else at


@compiled
def _pairs_within(z: Vector, distance: float) -> int:
    """Number of pairs of the sorted values at most this far apart."""
    count, j = 0, 0
    for i in range(len(z)):
        while z[i] - z[j] > distance:
            j += 1
        count += i - j
    return count
