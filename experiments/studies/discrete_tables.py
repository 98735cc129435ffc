"""Tables of few distinct rows whose density ratio is known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from steelyard._typing import FloatArray, IntArray

ITEM, FLAG = ((0.1, 0.2, 0.4, 0.2, 0.1), (0.05, 0.1, 0.2, 0.3, 0.35)), (0.5, 0.7)
CELLS = np.array(list(itertools.product(range(5), range(2))), dtype=float)
TARGET_SHARES = np.array([ITEM[1][int(item)] * (FLAG[1] if flag else 1 - FLAG[1]) for item, flag in CELLS])


def ten_cells(seed: int, n_source: int = 2000, n_target: int = 2000) -> tuple[FloatArray, FloatArray]:
    """Source and target with a five-level item and a yes or no, both shifted: ten cells."""
    rng = np.random.default_rng(seed)
    source, target = (
        np.column_stack([rng.choice(5, n, p=ITEM[side]), rng.random(n) < FLAG[side]]).astype(float)
        for side, n in enumerate((n_source, n_target))
    )
    return source, target


def ratio_of_counts(X: FloatArray, target: FloatArray) -> FloatArray:
    """Share of each source row's cell in the target over its share in the source."""
    cells, place = np.unique(np.concatenate([X, target]), axis=0, return_inverse=True)
    place = place.ravel()  # numpy 2.0 gives it a second axis
    counts = [np.bincount(part, minlength=len(cells)) for part in np.split(place, [len(X)])]
    return np.asarray((counts[1] / len(target))[place[: len(X)]] / (counts[0] / len(X))[place[: len(X)]])


def chance_of_one(X: FloatArray) -> FloatArray:
    """P(y = 1 | x) on the ten cells."""
    return np.asarray(1 / (1 + np.exp(-(2.5 * (X[:, 0] > 2) - 1.5 * X[:, 1] - 0.4))))


def labeled_ten_cells(seed: int, n: int = 2000) -> tuple[FloatArray, IntArray, FloatArray]:
    """Source rows of the ten cells, their labels, and target rows."""
    X, target = ten_cells(seed, n, n)
    return X, (np.random.default_rng(seed + 10**6).random(n) < chance_of_one(X)).astype(int), target


def target_accuracy(model: Any) -> float:
    """Accuracy of a fitted classifier on the target, over the cells."""
    chance = chance_of_one(CELLS)
    return float(TARGET_SHARES @ np.where(model.predict(CELLS) == 1, chance, 1 - chance))


def binary_columns(seed: int, k: int, n: int = 3000) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Source, target and population ratio of columns of zeros and ones, the first two of which move from .5 to .8."""
    rng = np.random.default_rng(seed)
    chance = np.full(k, 0.5)
    X = (rng.random((n, k)) < chance).astype(float)
    chance[:2] = 0.8
    target = (rng.random((n, k)) < chance).astype(float)
    return X, target, np.prod(np.where(X[:, :2] == 1, 1.6, 0.4), axis=1)
