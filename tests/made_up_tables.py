"""Tables with known ratios that several tests share."""

import itertools

import numpy as np

ITEM, FLAG = ((0.1, 0.2, 0.4, 0.2, 0.1), (0.05, 0.1, 0.2, 0.3, 0.35)), (0.5, 0.7)
CELLS = np.array(list(itertools.product(range(5), range(2))), dtype=float)
TARGET_SHARES = np.array([ITEM[1][int(item)] * (FLAG[1] if flag else 1 - FLAG[1]) for item, flag in CELLS])


def ten_cells(seed, n_source=2000, n_target=2000):
    """A five-level item and a yes or no, both shifted: ten cells."""
    rng = np.random.default_rng(seed)
    return tuple(
        np.column_stack([rng.choice(5, n, p=ITEM[side]), rng.random(n) < FLAG[side]]).astype(float)
        for side, n in enumerate((n_source, n_target))
    )


def ratio_of_counts(X, target):
    """Share of each source row's cell in the target over its share in the source."""
    cells, place = np.unique(np.concatenate([X, target]), axis=0, return_inverse=True)
    counts = [np.bincount(part, minlength=len(cells)) for part in np.split(place, [len(X)])]
    return (counts[1] / len(target))[place[: len(X)]] / (counts[0] / len(X))[place[: len(X)]]


def chance_of_one(X):
    """P(y = 1 | x) on the ten cells."""
    return 1 / (1 + np.exp(-(2.5 * (X[:, 0] > 2) - 1.5 * X[:, 1] - 0.4)))


def labelled_ten_cells(seed, n=2000):
    X, target = ten_cells(seed, n, n)
    return X, (np.random.default_rng(seed + 10**6).random(n) < chance_of_one(X)).astype(int), target


def target_accuracy(model):
    """Of a fitted classifier, over the cells."""
    chance = chance_of_one(CELLS)
    return float(TARGET_SHARES @ np.where(model.predict(CELLS) == 1, chance, 1 - chance))


def binary_columns(seed, k, n=3000):
    """Columns of zeros and ones, of which the first two move from .5 to .8; and the ratio in the population."""
    rng = np.random.default_rng(seed)
    chance = np.full(k, 0.5)
    X = (rng.random((n, k)) < chance).astype(float)
    chance[:2] = 0.8
    target = (rng.random((n, k)) < chance).astype(float)
    return X, target, np.prod(np.where(X[:, :2] == 1, 1.6, 0.4), axis=1)
