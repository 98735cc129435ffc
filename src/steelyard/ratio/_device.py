"""Fits to large tables on the device of their tensors; only what is as small as the basis comes to the host.

Equal rows are not merged: as in a fit to blocks, row i is in fold i modulo 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from steelyard._numerics.empirical import Empirical, empirical
from steelyard._numerics.kernels import blocks
from steelyard._numerics.tensors import like_tensor, to_numpy
from steelyard._numerics.torch_arrays import block_rows, exact_products, fold_moments, gaussian
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_new_rows, check_source, check_target, forget_fit, generator
from steelyard.balance import Balance
from steelyard.errors import NoOverlapError
from steelyard.ratio._centers import fold_of_centers
from steelyard.ratio._overlap import NO_OVERLAP, median_distance, require_overlap
from steelyard.ratio._scaling import mixture_scale
from steelyard.ratio._sums import N_FOLDS, Basis, FoldMoments

# Rows of each table from which the median distance and the centers come.
SAMPLED = 3000


@dataclass(frozen=True, eq=False)
class TensorTable:
    """A table on a device: its rows, their mean and variance, and a sample of them with their running numbers."""

    rows: torch.Tensor
    mean: FloatArray
    variance: FloatArray
    sample: FloatArray
    numbers: IntArray

    @classmethod
    def of(cls, rows: torch.Tensor, rng: np.random.Generator) -> TensorTable:
        """The table with its sums; two passes."""
        size = block_rows(rows.device, rows.shape[1])
        parts = [rows[block] for block in blocks(len(rows), size)]
        mean = sum(part.sum(dim=0, dtype=torch.float64) for part in parts) / len(rows)
        variance = sum((part.double() - mean).square().sum(dim=0) for part in parts) / len(rows)
        numbers = rng.choice(len(rows), min(SAMPLED, len(rows)), replace=False)
        sample = to_numpy(rows[torch.as_tensor(numbers, device=rows.device)])
        return cls(rows, to_numpy(mean), to_numpy(variance), sample, numbers)

    def fold_of_cells(self, distinct: Empirical) -> IntArray:
        """The fold of each distinct row of the sample; -1 where equal rows are in several folds."""
        low, high = np.full(len(distinct), N_FOLDS), np.full(len(distinct), -1)
        np.minimum.at(low, distinct.position, self.numbers % N_FOLDS)
        np.maximum.at(high, distinct.position, self.numbers % N_FOLDS)
        return np.where(low == high, low, -1)


class TensorMoments(FoldMoments):
    """Sums of ψ and ψψᵀ over a table on a device, per width and fold."""

    def __init__(self, table: TensorTable, estimator: Any, widths: FloatArray, *, second: bool) -> None:
        self.basis = Basis(estimator.center_, estimator.scale_, estimator.centers_, widths)
        self.counts = (len(table.rows) + np.arange(N_FOLDS)[::-1]) // N_FOLDS * 1.0
        center, scale, centers = _constants(estimator, table.rows)
        self.first, self.second = fold_moments(table.rows, center, scale, centers, widths, N_FOLDS, second=second)


def fit(estimator: Any, X: torch.Tensor, target: torch.Tensor) -> bool:
    """Fit an estimator that has ``_fit_on_device`` on the device of the tables.

    False where the ratio is one everywhere, or where a value is not finite: then the way by NumPy says so.
    """
    forget_fit(estimator)
    check_source(estimator, to_numpy(X[:2]))
    check_target(estimator, to_numpy(target[:2]), to_numpy(X[:2]))
    estimator._check_parameters()
    with exact_products():
        dtype = torch.promote_types(torch.promote_types(X.dtype, target.dtype), torch.float32)
        rng = generator(estimator.random_state)
        tables = [TensorTable.of(rows.detach().to(dtype), rng) for rows in (X, target)]
        if estimator._is_one() or not all(np.isfinite(table.mean).all() for table in tables):
            return False
        estimator.center_, estimator.scale_, varies = mixture_scale(
            [table.mean for table in tables], [table.variance for table in tables], estimator.standardize
        )
        if not varies:
            return False
        samples = [estimator._scaled(empirical(table.sample, None, rng)) for table in tables]
        estimator.median_distance_ = median_distance(*samples)
        estimator.constant_ = False
        raw, on_target = estimator._fit_on_device(tables, samples, rng)
        if not bool(torch.isfinite(raw).all()) or not bool((raw > 0).any()):
            raise NoOverlapError(NO_OVERLAP.format("every estimated weight is 0 or not finite"))
        mean = estimator.source_mean_ = float(raw.mean())
        estimator.raw_mean_ = mean if on_target is None else estimator.eta_ * on_target + (1 - estimator.eta_) * mean
        weights = raw / mean
        estimator.effective_sample_size_ = float(weights.sum() ** 2 / weights.square().sum())
        estimator.weights_ = like_tensor(weights, X)
        estimator.balance_ = _balance(tables[0], tables[1], weights, estimator.effective_sample_size_)
        estimator._warn(len(weights))
    return True


def predict(estimator: Any, X: torch.Tensor) -> torch.Tensor:
    """The ratio of Gaussian basis functions at new rows."""
    check_new_rows(estimator, to_numpy(X[:1]))
    if not bool(torch.isfinite(X).all()):
        check_new_rows(estimator, to_numpy(X))  # says where
    with exact_products():
        return ratio(estimator, X.detach().to(torch.promote_types(X.dtype, torch.float32)))[0]


def fit_from_moments(
    estimator: Any, tables: list[TensorTable], samples: list[Empirical]
) -> tuple[torch.Tensor, float | None]:
    """Fit a least-squares ratio from sums over both tables: the ratio at the source rows.

    Also its mean on the target, which is None where η is 0.
    """
    _, cells, widths = estimator._basis(samples[1])
    on_source = TensorMoments(tables[0], estimator, widths, second=True)
    on_target = TensorMoments(tables[1], estimator, widths, second=estimator.eta_ > 0)
    of_centers = fold_of_centers(cells, tables[1].fold_of_cells(samples[1]))
    estimator._solve(on_source, on_target, of_centers)
    raw, largest_mean, n_clipped = ratio(estimator, tables[0].rows)
    require_overlap(largest_mean)
    if hasattr(estimator, "eta"):
        estimator.n_clipped_ = n_clipped
    return raw, float(ratio(estimator, tables[1].rows)[0].mean()) if estimator.eta_ else None


def ratio(estimator: Any, rows: torch.Tensor) -> tuple[torch.Tensor, float, int]:
    """The ratio at every row, the largest mean kernel value of a row, and at how many rows 1/η cut it off."""
    center, scale, centers = _constants(estimator, rows)
    # The mean over the centers is one more column of coefficients.
    both = np.column_stack([estimator.coef_, np.full(len(estimator.coef_), 1 / len(estimator.coef_))])
    coef = like_tensor(both, rows)
    values = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    largest_mean = torch.zeros((), dtype=rows.dtype, device=rows.device)
    for block in blocks(len(rows), block_rows(rows.device, len(centers))):
        found = gaussian((rows[block] - center) / scale, centers, estimator.width_) @ coef
        values[block] = found[:, 0]
        largest_mean = torch.maximum(largest_mean, found[:, 1].max())
    if not estimator.eta_:
        return values, float(largest_mean), 0
    n_clipped = int((values > 1 / estimator.eta_).sum())
    return values.clamp_(max=1 / estimator.eta_), float(largest_mean), n_clipped


def scaled(estimator: Any, rows: torch.Tensor) -> torch.Tensor:
    """Rows in the units of the kernel width."""
    center, scale = (like_tensor(k, rows) for k in (estimator.center_, estimator.scale_))
    return (rows - center) / scale


def _constants(estimator: Any, rows: torch.Tensor) -> list[torch.Tensor]:
    """Center and scale of the columns and the scaled centers, beside the rows."""
    return [like_tensor(k, rows) for k in (estimator.center_, estimator.scale_, estimator.centers_)]


def _balance(source: TensorTable, target: TensorTable, weights: torch.Tensor, size: float) -> Balance:
    """The balance of the columns, as `column_balance` defines it."""
    origin = torch.as_tensor(target.mean, device=weights.device)
    sums, squares = torch.zeros_like(origin), torch.zeros_like(origin)
    for block in blocks(len(weights), block_rows(weights.device, len(origin))):
        centered = source.rows[block].double() - origin
        sums += weights[block] @ centered
        squares += weights[block] @ centered.square()
    mean, square = (to_numpy(total) / len(weights) for total in (sums, squares))
    unit = np.sqrt((source.variance + target.variance) / 2)
    unit = np.where(unit > 0, unit, np.inf)
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    names = tuple(f"x{i}" for i in range(len(unit)))
    noise = spread / unit * np.sqrt(1 / size + 1 / len(target.rows))
    return Balance(names, (target.mean - source.mean) / unit, 0.0 - mean / unit, noise)
