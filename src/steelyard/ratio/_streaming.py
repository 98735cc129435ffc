"""Fits to tables of any length: passes over both tables, in memory that does not grow with the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from steelyard._numerics.empirical import empirical
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray
from steelyard._validation import generator
from steelyard.balance import Balance
from steelyard.errors import InputError, NoOverlapError, NoShiftWarning, warn_user
from steelyard.ratio._overlap import NO_OVERLAP
from steelyard.ratio._scaling import mixture_scale, rounded
from steelyard.ratio._sums import N_FOLDS, RatioSums, Summary
from steelyard.tables.row_stream import RowStream
from steelyard.weights import effective_sample_size_of_sums

# Tables in memory with more rows than this in a domain are fitted as streams are: five folds by the running number of
# the row instead of leave-one-out, and the same result as block by block.
FOLDS_ABOVE = 100_000


class BlockWeights:
    """Values of a ratio at the rows of a stream, block by block, in the order and the cut of its blocks.

    Parameters
    ----------
    ratio : callable
        The ratio of rows whose first one has a given running number.
    rows : RowStream
        The rows.
    divisor : float, default=1.0
        What the ratio is divided by: its mean over the source where weights are wanted.
    """

    def __init__(self, ratio: Callable[[int, FloatArray], FloatArray], rows: RowStream, divisor: float = 1.0) -> None:
        self._ratio, self._rows, self._divisor = ratio, rows, divisor

    def __iter__(self) -> Iterator[FloatArray]:
        start = 0
        for block in self._rows.blocks():
            yield self._of(start, block)
            start += len(block)

    def __repr__(self) -> str:
        return f"BlockWeights({self._rows.name}): iterate them for one array of weights for each block"

    def in_one_array(self) -> FloatArray:
        """All values; chunk by chunk, since one block may be the whole table."""
        return np.concatenate([self._of(start, rows) for start, rows in self._rows.chunks()])

    def _of(self, start: int, rows: FloatArray) -> FloatArray:
        with one_blas_thread():
            return self._ratio(start, rows) / self._divisor


def values_of_rows(ratio: Callable[[int, FloatArray], FloatArray], rows: RowStream, divisor: float = 1.0) -> Any:
    """Values of a ratio at the rows of a stream: block by block, or a lazy array of Dask, aligned with its rows."""
    if hasattr(rows, "mapped"):
        return rows.mapped(ratio, divisor)
    return BlockWeights(ratio, rows, divisor)


def fit_streams(ratio: Any, source: RowStream, target: RowStream) -> RatioSums | None:
    """Fit a ratio in passes over both tables; the sums of the ratio over the source, None where it is one everywhere.

    The first pass makes the scale and an even sample of the rows, the following ones are the estimator's own, and the
    last one sums the ratio: its mean, its effective sample size and the balance of the columns.
    """
    rng = generator(ratio.random_state)
    seeds = [int(seed) for seed in rng.integers(2**62, size=2)]
    tables = source, target
    summaries = [
        table.reduce(partial(Summary, ratio._n_sample(), seed), "reading")
        for table, seed in zip(tables, seeds, strict=True)
    ]
    for table, summary in zip(tables, summaries, strict=True):
        if summary.count < 2 * N_FOLDS:
            raise InputError(f"{table.name}: the blocks hold {summary.count} rows, at least {2 * N_FOLDS} are needed.")
    center, scale, varies = mixture_scale(
        [s.mean for s in summaries], [s.variance for s in summaries], ratio.standardize
    )
    # Rounded, so that the choice of the centers does not depend on the order in which parts of a sum were added.
    ratio.center_, ratio.scale_ = rounded(center), rounded(scale)
    ratio.constant_ = ratio._is_one() or not varies
    sums = None
    if ratio.constant_:
        if not varies:
            warn_user(
                "All source and target rows are equal, so no shift can be estimated: every weight is 1.",
                NoShiftWarning,
            )
        ratio.raw_mean_ = ratio.source_mean_ = 1.0
        ratio.effective_sample_size_ = float(summaries[0].count)
    else:
        dtype = np.result_type(source.dtype, target.dtype)
        samples = [empirical(summary.sample.astype(dtype, copy=False), None, rng) for summary in summaries]
        with one_blas_thread():
            ratio._fit_tables(tables, summaries, samples, rng)
            sums = _final_sums(ratio, tables)
        ratio._warn(summaries[0].count)
        ratio._warn_of_unseen_cells(*samples)
    ratio.balance_ = _balance(ratio, summaries, sums)
    return sums


def _final_sums(ratio: Any, tables: tuple[RowStream, RowStream]) -> RatioSums:
    """Means of the ratio as `predict` gives it, and its effective sample size."""
    over_source, *others = (
        table.reduce(partial(RatioSums, ratio._numbered_ratio, ratio.center_), "weighing")
        for table in tables[: 2 if ratio.eta_ else 1]
    )
    if not over_source.finite or not over_source.mean > 0:
        raise NoOverlapError(NO_OVERLAP.format("the fitted ratio is 0 at every source row"))
    ratio.source_mean_ = ratio.raw_mean_ = over_source.mean
    for over_target in others:
        ratio.raw_mean_ = (1 - ratio.eta_) * over_source.mean + ratio.eta_ * over_target.mean
    ratio.effective_sample_size_ = effective_sample_size_of_sums(over_source.total, over_source.squares)
    return over_source


def _balance(ratio: Any, summaries: list[Summary], sums: RatioSums | None) -> Balance:
    """Standardized differences of the columns, as `column_balance` defines them, from sums."""
    source, target = summaries
    unit = np.sqrt((source.variance + target.variance) / 2)
    unit = np.where(unit > 0, unit, np.inf)
    names = getattr(ratio, "feature_names_in_", [f"x{i}" for i in range(len(unit))])
    before = (target.mean - source.mean) / unit
    if sums is None:
        after, spread = before, np.sqrt(source.variance)
    else:
        mean = sums.columns / sums.total
        after = (target.mean - sums.origin - mean) / unit
        spread = np.sqrt(np.maximum(sums.column_squares / sums.total - mean**2, 0))
    noise = spread / unit * np.sqrt(1 / ratio.effective_sample_size_ + 1 / target.count)
    return Balance(tuple(map(str, names)), before, after, noise)
