"""Tables of numeric and categorical columns with a known density ratio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from steelyard._numerics.display import ShortRepr
from steelyard._typing import FloatArray
from steelyard._validation import check_range, generator
from steelyard.errors import ParameterError

N_NUMBERS = 7
N_LEVELS = (3, 3, 4, 5, 6, 8, 12, 12)
N_PRODUCTS = 12
POOL = 20_000  # rows by which means and standard deviations of the population are computed
LARGEST_LOG_RATIO = 3.0
MOST_DRAWS = 100  # of shifts, until one is as large as asked
STRONGEST = 4.0  # largest standard deviation of the log-ratio before it is bounded


@dataclass(frozen=True, eq=False, repr=False)
class MixedTables(ShortRepr):
    """A source and a target table with categories, their encoding, and the true w(x) = p_target(x) / p_source(x).

    Parameters
    ----------
    source, target : dict of str to array
        The columns of each domain: numbers, and categories as text.
    X, X_target : array of shape (n_rows, n_features)
        The same tables with one-hot encoded categories.
    feature_names : list of str
        Names of the columns of `X`.
    ratio : array of shape (n_source,)
        The true density ratio at the source rows.

    Examples
    --------
    >>> from steelyard.datasets import mixed_tables
    >>> tables = mixed_tables(100, 50, random_state=0)
    >>> len(tables.source), tables.X_target.shape, tables.feature_names[7]
    (15, (50, 60), 'category 1 = a')
    """

    source: dict[str, NDArray[Any]]
    target: dict[str, NDArray[Any]]
    X: FloatArray
    X_target: FloatArray
    feature_names: list[str]
    ratio: FloatArray


def mixed_tables(
    n_source: int = 1500,
    n_target: int = 1500,
    *,
    shift: str = "linear",
    size: float = 0.15,
    random_state: Any = None,
) -> MixedTables:
    """Covariate shift p_target(x) ∝ exp(s(x)) p_source(x) in a table of correlated numbers and categories.

    The density ratio is known by construction. There are 7 numeric columns and 8 categories of 3 to 12 levels, sixty
    columns after one-hot encoding.

    Parameters
    ----------
    n_source, n_target : int, default=1500
        Numbers of source and target rows.
    shift : {"linear", "products"}, default="linear"
        Whether s is a linear function of the encoded columns, or a sum of products of two columns.
    size : float, default=0.15
        Mean standardized difference between the columns of source and target, in the population.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    MixedTables
        Both tables, their encoding and the density ratio.

    Examples
    --------
    >>> from steelyard.datasets import mixed_tables
    >>> tables = mixed_tables(100, 100, random_state=0)
    >>> tables.X.shape
    (100, 60)
    """
    if shift not in ("linear", "products"):
        raise ParameterError(f'shift must be "linear" or "products"; got {shift!r}.')
    size = check_range("size", size, 0)
    rng = generator(random_state)
    population = _Population(rng)
    pool = population.encode(population.draw(POOL, rng))
    unit = pool.mean(axis=0), pool.std(axis=0)
    largest = 0.0
    for _ in range(MOST_DRAWS):  # some sums of products hardly change the means, whatever their strength
        tilt = _draw_tilt(shift, pool.shape[1], rng)
        score = tilt((pool - unit[0]) / unit[1])
        strength, high = 0.0, STRONGEST / float(np.std(score))
        largest = max(largest, _mean_difference(pool, high * score))
        if largest >= size:
            break
    else:
        raise ParameterError(
            f"size={size} is more than such tables can differ by: of {MOST_DRAWS} shifts that were drawn the strongest "
            f"changes the means of the columns by {largest:.2f} on average. Take a smaller size."
        )
    for _ in range(40):  # bisection for the strength at which the mean standardized difference is `size`
        middle = (strength + high) / 2
        strength, high = (middle, high) if _mean_difference(pool, middle * score) < size else (strength, middle)

    def log_ratio(rows: FloatArray) -> FloatArray:
        return _bounded(strength * tilt((rows - unit[0]) / unit[1]))

    level = float(np.log(np.mean(np.exp(log_ratio(pool)))))
    source = population.draw(n_source, rng)
    kept: list[dict[str, NDArray[Any]]] = []
    while sum(len(part["number 1"]) for part in kept) < n_target:  # exact rejection sampling
        drawn = population.draw(POOL, rng)
        accepted = rng.random(POOL) < np.exp(log_ratio(population.encode(drawn)) - LARGEST_LOG_RATIO)
        kept.append({name: values[accepted] for name, values in drawn.items()})
    target = {name: np.concatenate([part[name] for part in kept])[:n_target] for name in source}
    X, X_target = population.encode(source), population.encode(target)
    return MixedTables(source, target, X, X_target, population.feature_names, np.exp(log_ratio(X) - level))


class _Population:
    """A Gaussian copula: three numbers are normal, two log-normal, two rounded; categories are intervals of normals."""

    def __init__(self, rng: np.random.Generator) -> None:
        n_columns = N_NUMBERS + len(N_LEVELS)
        loadings = rng.normal(size=(n_columns, 3)) * 0.5
        correlation = loadings @ loadings.T + np.eye(n_columns)
        unit = np.sqrt(np.diag(correlation))
        self.root = np.linalg.cholesky(correlation / np.outer(unit, unit))
        self.cuts, self.order = [], []
        for n_levels in N_LEVELS:
            shares = rng.dirichlet(np.full(n_levels, 5.0))
            self.cuts.append(ndtri(np.cumsum(shares)[:-1]))
            self.order.append(rng.permutation(n_levels))
        self.feature_names = [f"number {i + 1}" for i in range(N_NUMBERS)] + [
            f"category {i + 1} = {chr(97 + level)}" for i, n in enumerate(N_LEVELS) for level in range(n)
        ]

    def draw(self, n_rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Random rows, as columns by name."""
        latent = rng.normal(size=(n_rows, len(self.root))) @ self.root.T
        numbers = latent[:, :N_NUMBERS].copy()
        numbers[:, 3:5] = np.exp(0.6 * numbers[:, 3:5])
        numbers[:, 5:7] = np.round(40 + 12 * numbers[:, 5:7])
        columns: dict[str, NDArray[Any]] = {f"number {i + 1}": numbers[:, i] for i in range(N_NUMBERS)}
        for i, (cuts, order) in enumerate(zip(self.cuts, self.order, strict=True)):
            level = order[np.searchsorted(cuts, latent[:, N_NUMBERS + i])]
            columns[f"category {i + 1}"] = np.array([chr(97 + k) for k in range(len(order))])[level]
        return columns

    def encode(self, columns: dict[str, NDArray[Any]]) -> FloatArray:
        """Numeric columns unchanged, categories one-hot encoded."""
        parts = [columns[f"number {i + 1}"][:, None] for i in range(N_NUMBERS)]
        for i, n_levels in enumerate(N_LEVELS):
            levels = np.array([chr(97 + k) for k in range(n_levels)])
            parts.append((columns[f"category {i + 1}"][:, None] == levels).astype(np.float64))
        return np.column_stack(parts)


def _draw_tilt(shift: str, n_columns: int, rng: np.random.Generator) -> Callable[[FloatArray], FloatArray]:
    """A random function s of standardized rows: linear, or a sum of products of two columns (each shifted by one)."""
    if shift == "linear":
        coef = rng.normal(size=n_columns)
        return lambda scaled: scaled @ coef
    pairs = np.array([rng.choice(n_columns, size=2, replace=False) for _ in range(N_PRODUCTS)])
    signs = rng.choice([-1.0, 1.0], size=N_PRODUCTS)
    return lambda scaled: ((scaled[:, pairs[:, 0]] + 1) * (scaled[:, pairs[:, 1]] + 1)) @ signs


def _bounded(log_ratio: FloatArray) -> FloatArray:
    return np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def _mean_difference(pool: FloatArray, log_ratio: FloatArray) -> float:
    """Mean standardized difference between the columns of the pool and of the pool weighted by exp(log_ratio)."""
    weights = np.exp(_bounded(log_ratio))
    mean = weights @ pool / weights.sum()
    variance = weights @ np.square(pool - mean) / weights.sum()
    return float(np.mean(np.abs(mean - pool.mean(axis=0)) / np.sqrt((variance + pool.var(axis=0)) / 2)))
