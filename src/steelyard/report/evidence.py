"""The numbers behind the pictures of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steelyard._typing import FloatArray, IntArray
from steelyard.balance import column_balance
from steelyard.tables import Column, Frame
from steelyard.tables.encoding import Encoding
from steelyard.weights import effective_sample_size

if TYPE_CHECKING:
    from steelyard.diagnostics.findings import Findings

N_MARGINALS = 6
N_BALANCED = 15
N_POINTS = 400
N_BINS = 24
N_LEVELS = 6


@dataclass(frozen=True)
class Histogram:
    """Shares of the rows by bin; the last bin holds everything above it."""

    edges: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Marginal:
    """One column: how its values are distributed in the source, the target, and the weighted source."""

    name: str
    kind: str
    edges: tuple[float, ...]  # of numbers and dates
    levels: tuple[str, ...]  # of categories
    source: tuple[float, ...]
    target: tuple[float, ...]
    weighted: tuple[float, ...] | None


@dataclass(frozen=True)
class Balance:
    """Absolute standardized difference of one column to the target, without and with weights."""

    name: str
    before: float
    after: float | None


@dataclass(frozen=True)
class Point:
    """A row on the map."""

    x: float
    y: float
    weight: float


@dataclass(frozen=True)
class Evidence:
    """Everything the pictures show."""

    weights: Histogram | None
    n_rows: int
    effective_sample_size: float | None
    marginals: tuple[Marginal, ...]
    balance: tuple[Balance, ...]
    source_points: tuple[Point, ...]
    target_points: tuple[Point, ...]


def gather(
    source: Frame,
    target: Frame,
    encoding: Encoding,
    findings: Findings,
    weights: FloatArray | None,
    rng: np.random.Generator,
) -> Evidence:
    """Numbers for the pictures, from two matched frames and the weights of the source rows (None: there are none)."""
    a, b = encoding.transform(source), encoding.transform(target)
    shown = [column.name for column in findings.columns[:N_MARGINALS]]
    return Evidence(
        None if weights is None else weight_histogram(weights),
        len(source),
        None if weights is None else effective_sample_size(weights),
        tuple(marginal(source[name], target[name], weights) for name in shown),
        _balance(findings, a, b, encoding.feature_names),
        *_map(a, b, weights, rng),
    )


def weight_histogram(weights: FloatArray) -> Histogram:
    """From 0 to where all but one in a hundred lie."""
    top = max(float(np.quantile(weights, 0.99)), 1.0)
    edges = np.linspace(0, top, N_BINS + 1)
    counts = np.histogram(np.minimum(weights, top), edges)[0]
    return Histogram(tuple(edges.tolist()), tuple((counts / len(weights)).tolist()))


def marginal(source: Column, target: Column, weights: FloatArray | None) -> Marginal:
    """One column's distributions; numbers in common bins, categories by their commonest levels."""
    even = np.ones(len(source.values))
    if source.kind == "boolean":
        source, target = (_in_words(column) for column in (source, target))
    if source.kind == "category" and (source.present().any() or target.present().any()):
        levels = _levels(source, target)
        shares = [_level_shares(c, levels, w) for c, w in ((source, even), (target, None), (source, weights))]
        edges: tuple[float, ...] = ()
    else:
        levels = ()
        edges = _edges(source, target)
        shares = [_bin_shares(c, edges, w) for c, w in ((source, even), (target, None), (source, weights))]
    return Marginal(
        source.name, source.kind, edges, levels, shares[0], shares[1], None if weights is None else shares[2]
    )


def _in_words(column: Column) -> Column:
    words = [None if np.isnan(value) else "true" if value else "false" for value in column.values]
    return Column(column.name, "category", np.array(words, dtype=object))


def _levels(source: Column, target: Column) -> tuple[str, ...]:
    values = [value for column in (source, target) for value in column.values if value is not None]
    names, counts = np.unique(np.array(values, dtype=str), return_counts=True)
    return tuple(str(name) for name in names[np.argsort(-counts, kind="stable")][:N_LEVELS])


def _level_shares(column: Column, levels: tuple[str, ...], weights: FloatArray | None) -> tuple[float, ...]:
    weights = np.ones(len(column.values)) if weights is None else weights
    return tuple(float(weights[column.values == level].sum() / weights.sum()) for level in levels)


def _edges(source: Column, target: Column) -> tuple[float, ...]:
    if source.kind == "category" or not (source.present().any() or target.present().any()):
        return (0.0, 1.0)  # no value anywhere
    values = np.concatenate([c.values[np.isfinite(c.values)] for c in (source, target)])
    distinct = np.unique(values)
    if len(distinct) <= N_BINS:  # a bin a value
        steps = np.diff(distinct) if len(distinct) > 1 else np.ones(1)
        first, last = distinct[0] - steps[0] / 2, distinct[-1] + steps[-1] / 2
        return (float(first), *((distinct[1:] + distinct[:-1]) / 2).tolist(), float(last))
    low, high = np.quantile(values, [0.005, 0.995])
    if not high > low:
        low, high = distinct[0], distinct[-1]
    return tuple(np.linspace(low, high, N_BINS + 1).tolist())


def _bin_shares(column: Column, edges: tuple[float, ...], weights: FloatArray | None) -> tuple[float, ...]:
    weights = np.ones(len(column.values)) if weights is None else weights
    if column.kind == "category":
        return tuple(0.0 for _ in edges[1:])
    present = np.isfinite(column.values)
    inside = np.clip(column.values[present], edges[0], edges[-1])
    found = np.histogram(inside, edges, weights=weights[present])[0]
    return tuple((found / max(weights.sum(), 1e-300)).tolist())


def _balance(findings: Findings, a: FloatArray, b: FloatArray, names: list[str]) -> tuple[Balance, ...]:
    """The columns of which most is left first; where there are no weights, those that differ most."""
    if findings.balance:
        return tuple(Balance(c.name, abs(c.before), abs(c.after)) for c in findings.balance[:N_BALANCED])
    found = column_balance(a, b, np.ones(len(a)), columns=names).by_column()
    return tuple(Balance(c.name, abs(c.before), None) for c in found[:N_BALANCED])


def _map(
    a: FloatArray, b: FloatArray, weights: FloatArray | None, rng: np.random.Generator
) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Across: the direction that tells the domains apart best. Up: the widest direction of what is left."""
    near, far = _some(len(a), rng), _some(len(b), rng)
    rows = np.concatenate([a[near], b[far]])
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    across = _discriminant(rows[: len(near)], rows[len(near) :])
    rest = rows - np.outer(rows @ across, across)
    up = np.linalg.svd(rest, full_matrices=False)[2][0] if rows.shape[1] > 1 else np.zeros(1)
    xs, ys = rows @ across, rest @ up
    sizes = np.concatenate([np.ones(len(near)) if weights is None else weights[near], np.ones(len(far))])
    points = [Point(float(x), float(y), float(w)) for x, y, w in zip(xs, ys, sizes, strict=True)]
    return tuple(points[: len(near)]), tuple(points[len(near) :])


def _some(n_rows: int, rng: np.random.Generator) -> IntArray:
    return np.sort(rng.permutation(n_rows)[:N_POINTS])


def _discriminant(one: FloatArray, other: FloatArray) -> FloatArray:
    """Fisher's direction, of length one; the first axis where there is no difference."""
    within = (np.cov(one.T, ddof=0) + np.cov(other.T, ddof=0)) / 2
    within = np.atleast_2d(within)
    direction = np.linalg.solve(within + 0.1 * np.eye(len(within)), other.mean(axis=0) - one.mean(axis=0))
    length = float(np.linalg.norm(direction))
    return direction / length if length > 1e-9 else np.eye(len(within))[0]
