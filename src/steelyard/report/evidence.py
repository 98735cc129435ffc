"""The numbers behind the pictures of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steelyard._typing import FloatArray
from steelyard.balance import ColumnBalance, column_balance
from steelyard.tables import Column, TablePair
from steelyard.tables.encoding import as_kind
from steelyard.weights import effective_sample_size

if TYPE_CHECKING:
    from steelyard.diagnostics.findings import Findings

N_MARGINALS = 6
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
    n_hidden: int = 0  # levels that are not shown


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
    balance: tuple[ColumnBalance, ...]  # every encoded column, the largest difference that is left first
    source_points: tuple[Point, ...]
    target_points: tuple[Point, ...]


def gather(
    pair: TablePair,
    findings: Findings,
    weights: FloatArray | None,
    rng: np.random.Generator,
    *,
    balance: Sequence[ColumnBalance] = (),
) -> Evidence:
    """Compute the numbers behind the pictures of the report.

    Parameters
    ----------
    pair : TablePair
        Source and target rows to show.
    findings : Findings
        The diagnosis of these tables.
    weights : array or None
        Importance weights of the source rows; None where there are none.
    rng : Generator
        For the choice of rows on the map.
    balance : sequence of ColumnBalance, default=()
        The columns before and after weighting, if that is known from held-out rows; otherwise it is computed from the
        weights.

    Returns
    -------
    Evidence

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.diagnostics import diagnose_pair
    >>> from steelyard.report import gather
    >>> from steelyard.tables import as_frame, encode_pair
    >>> rng = np.random.default_rng(0)
    >>> pair = encode_pair(as_frame(rng.normal(size=(100, 2))), as_frame(rng.normal(1, 1, size=(100, 2))))
    >>> evidence = gather(pair, diagnose_pair(pair).findings, np.ones(100), rng)
    >>> evidence.n_rows, evidence.effective_sample_size
    (100, 100.0)
    """
    shown = [column.name for column in findings.columns[:N_MARGINALS]]
    used = np.ones(len(pair.X)) if weights is None else weights
    names = pair.encoding.feature_names
    return Evidence(
        None if weights is None else weight_histogram(weights),
        len(pair.source),
        None if weights is None else effective_sample_size(weights),
        tuple(marginal(*_compared(pair, name), weights) for name in shown),
        tuple(balance) or column_balance(pair.X, pair.X_target, used, columns=names).by_column(),
        *_map(pair.X, pair.X_target, weights, rng),
    )


def weight_histogram(weights: FloatArray) -> Histogram:
    """From 0 to where all but one in a hundred lie."""
    top = max(float(np.quantile(weights, 0.99)), 1.0)
    edges = np.linspace(0, top, N_BINS + 1)
    counts = np.histogram(np.minimum(weights, top), edges)[0]
    return Histogram(tuple(edges.tolist()), tuple((counts / len(weights)).tolist()))


def _compared(pair: TablePair, name: str) -> tuple[Column, Column]:
    """A column of both tables; of text, whose values hardly repeat, the most shifted of the numbers it becomes."""
    if name not in pair.encoding.text_columns:
        return pair.source[name], pair.target[name]
    features = np.array(pair.encoding.feature_columns) == name
    parts = pair.X[:, features], pair.X_target[:, features]
    names = [feature for feature, own in zip(pair.encoding.feature_names, features, strict=True) if own]
    (most, *_) = column_balance(*parts, np.ones(len(pair.X)), columns=names).by_column()
    i = names.index(most.name)
    source, target = (Column(most.name, "number", rows[:, i]) for rows in parts)
    return source, target


def marginal(source: Column, target: Column, weights: FloatArray | None) -> Marginal:
    """One column's distributions; numbers in common bins, categories by their commonest levels."""
    even = np.ones(len(source.values))
    if source.kind == "boolean":
        source, target = (as_kind(column, "category") for column in (source, target))
    if source.kind == "category" and (source.present().any() or target.present().any()):
        levels, n_hidden = _levels(source, target)
        shares = [_level_shares(c, levels, w) for c, w in ((source, even), (target, None), (source, weights))]
        edges: tuple[float, ...] = ()
    else:
        levels, n_hidden = (), 0
        edges = _edges(source, target)
        shares = [_bin_shares(c, edges, w) for c, w in ((source, even), (target, None), (source, weights))]
    return Marginal(
        source.name, source.kind, edges, levels, shares[0], shares[1], None if weights is None else shares[2], n_hidden
    )


def _levels(source: Column, target: Column) -> tuple[tuple[str, ...], int]:
    """The commonest levels of both tables, and the number of the others."""
    values = [value for column in (source, target) for value in column.values if value is not None]
    names, counts = np.unique(np.array(values, dtype=str), return_counts=True)
    shown = names[np.argsort(-counts, kind="stable")][:N_LEVELS]
    return tuple(str(name) for name in shown), len(names) - len(shown)


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


def _map(
    X: FloatArray, X_target: FloatArray, weights: FloatArray | None, rng: np.random.Generator
) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Horizontally the direction that separates the domains best, vertically the widest direction of the rest."""
    source, target = (np.sort(rng.permutation(len(rows))[:N_POINTS]) for rows in (X, X_target))
    rows = np.concatenate([X[source], X_target[target]])
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    across = _discriminant(rows[: len(source)], rows[len(source) :])
    rest = rows - np.outer(rows @ across, across)
    up = np.linalg.svd(rest, full_matrices=False)[2][0] if rows.shape[1] > 1 else np.zeros(1)
    sizes = np.concatenate([np.ones(len(source)) if weights is None else weights[source], np.ones(len(target))])
    points = [Point(float(x), float(y), float(w)) for x, y, w in zip(rows @ across, rest @ up, sizes, strict=True)]
    return tuple(points[: len(source)]), tuple(points[len(source) :])


def _discriminant(source: FloatArray, target: FloatArray) -> FloatArray:
    """Fisher's direction, of length one; the first axis where there is no difference."""
    within = np.atleast_2d((np.cov(source.T, ddof=0) + np.cov(target.T, ddof=0)) / 2)
    direction = np.linalg.solve(within + 0.1 * np.eye(len(within)), target.mean(axis=0) - source.mean(axis=0))
    length = float(np.linalg.norm(direction))
    return direction / length if length > 1e-9 else np.eye(len(within))[0]
