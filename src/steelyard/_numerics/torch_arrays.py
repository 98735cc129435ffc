"""Kernels, moments and linear systems on the device of PyTorch tensors; imported only where the input is a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, isclose, sqrt
from typing import Any

import numpy as np
import torch

from steelyard._numerics.kernels import blocks
from steelyard._numerics.low_rank import LowRank, greedy_pivots
from steelyard._typing import FloatArray

# Numbers in a block's largest array: enough to keep a GPU busy, and small for its memory (or a CPU's cache).
BLOCK_NUMBERS = {"cuda": 2**25, "cpu": 2**18}
# Rows whose products are added in the precision of the rows; longer sums are in double precision.
PART_ROWS = 1024


@contextmanager
def exact_products() -> Iterator[None]:
    """Context without gradients, in which products of single-precision matrices are not rounded to TF32."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def block_rows(device: torch.device, n_columns: int) -> int:
    """Rows per block of an array with so many columns: a power of two."""
    numbers = BLOCK_NUMBERS["cuda" if device.type == "cuda" else "cpu"]
    return int(max(256, 2 ** int(np.log2(max(1, numbers // n_columns)))))


def squared_distances(rows: torch.Tensor, centers: torch.Tensor) -> torch.Tensor:
    """Squared Euclidean distances, rows by centers, expanded around the mean of the centers against cancellation."""
    origin = centers.mean(dim=0)
    rows, centers = rows - origin, centers - origin
    left = torch.cat([rows, (rows * rows).sum(dim=1, keepdim=True), torch.ones_like(rows[:, :1])], dim=1)
    right = torch.cat([-2 * centers, torch.ones_like(centers[:, :1]), (centers * centers).sum(1, keepdim=True)], dim=1)
    return (left @ right.T).clamp_(min=0)


def gaussian(rows: torch.Tensor, centers: torch.Tensor, width: float) -> torch.Tensor:
    """The Gaussian kernel exp(−‖x − c‖² / 2σ²), rows by centers."""
    return squared_distances(rows, centers).mul_(-0.5 / width**2).exp_()


def gaussian_widths(distances: torch.Tensor, widths: FloatArray) -> Iterator[torch.Tensor]:
    """The Gaussian kernel at each of the decreasing `widths` in turn; each tensor is valid until the next is yielded.

    Like its namesake in `kernels`: on a grid of ratio √2 each kernel is the square of the one before.
    """
    kernel = torch.empty_like(distances)
    squarings, most = 0, 1 if distances.dtype == torch.float32 else len(widths)
    previous = inf
    for width in widths:
        if squarings < most and isclose(previous, width * sqrt(2), rel_tol=1e-12):
            kernel.mul_(kernel)
            squarings += 1
        else:
            torch.mul(distances, float(-0.5 / width**2), out=kernel).exp_()
            squarings = 0
        previous = width
        yield kernel


def fold_moments(
    rows: torch.Tensor,
    center: torch.Tensor,
    scale: torch.Tensor,
    centers: torch.Tensor,
    widths: FloatArray,
    n_folds: int,
    *,
    second: bool,
) -> tuple[FloatArray, FloatArray]:
    """Σψ and Σψψᵀ per width and fold over the rows (x − center) / scale, row i in fold i modulo `n_folds`.

    One pass over the rows in blocks: distances once, the kernel of every width from them, and the products of all
    folds as one batch of small matrices. The products of a part of a fold are in the precision of the rows, their sums
    over the parts in double precision. Only the sums are copied to the host.
    """
    n_centers = len(centers)
    firsts = torch.zeros(len(widths), n_folds, n_centers, dtype=torch.float64, device=rows.device)
    seconds = torch.zeros(len(widths), n_folds, n_centers, n_centers, dtype=torch.float64, device=rows.device)
    part = min(PART_ROWS, max(1, block_rows(rows.device, n_centers) // n_folds))
    n_parts = max(1, block_rows(rows.device, n_centers) // (n_folds * part))
    for block in blocks(len(rows), n_folds * n_parts * part):
        members, missing = _by_fold((rows[block] - center) / scale, n_folds, part)
        distances = squared_distances(members.reshape(-1, rows.shape[1]), centers)
        if missing is not None:
            distances[missing] = inf  # the kernel is 0 there
        for w, kernel in enumerate(gaussian_widths(distances, widths)):
            parts = kernel.view(-1, part, n_centers)
            firsts[w] += parts.sum(dim=1).double().view(n_folds, -1, n_centers).sum(dim=1)
            if second:
                products = torch.bmm(parts.transpose(1, 2), parts).double()
                seconds[w] += products.view(n_folds, -1, n_centers, n_centers).sum(dim=1)
    return firsts.cpu().numpy(), seconds.cpu().numpy()


def _by_fold(rows: torch.Tensor, n_folds: int, part: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rows of a block as (folds, parts · part, columns), filled up, and where the filling is, if there is any."""
    n, size = len(rows), n_folds * part
    filling = -n % size
    if filling:
        rows = torch.cat([rows, rows.new_zeros(filling, rows.shape[1])])
    members = rows.view(-1, n_folds, rows.shape[1]).transpose(0, 1)
    if not filling:
        return members, None
    number = torch.arange(n + filling, device=rows.device).view(-1, n_folds).T
    return members, (number >= n).reshape(-1)


class Woodbury:
    """Solves systems with T + GGᵀ/scale, T diagonal, on the device of G; like its namesake in `interior_point`."""

    def __init__(self, factor: torch.Tensor, scale: float) -> None:
        self.factor, self.scale = factor, scale
        self.block = block_rows(factor.device, factor.shape[1])

    def set_diagonal(self, diagonal: torch.Tensor) -> None:
        """Factor the system with T = diag(`diagonal`)."""
        self.diagonal = diagonal
        root = (diagonal * self.scale) ** -0.5
        small = torch.eye(self.factor.shape[1], dtype=diagonal.dtype, device=diagonal.device)
        for block in blocks(len(diagonal), self.block):
            small += gram(self.factor[block].T * root[block])
        self.cholesky, failed = torch.linalg.cholesky_ex(small)
        if int(failed):
            raise np.linalg.LinAlgError("the matrix is not positive definite")

    def solve(self, right: torch.Tensor) -> torch.Tensor:
        """Solve for one or several right-hand sides (columns)."""
        per_row = self.diagonal if right.ndim == 1 else self.diagonal[:, None]
        scaled = right / per_row
        product = self.factor.T @ scaled
        back = torch.cholesky_solve(product.reshape(len(product), -1), self.cholesky).reshape(product.shape)
        return scaled - self.factor @ back / self.scale / per_row

    def solve_with_ones(self, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The solutions for `right` and for ones."""
        both = self.solve(torch.stack([right, torch.ones_like(right)], dim=1))
        return both[:, 0], both[:, 1]


def gram(wide: torch.Tensor) -> torch.Tensor:
    """AAᵀ of a wide matrix, in a batch of pieces: a GPU would compute a single product of that shape on few cores."""
    pieces, piece = wide.shape[1] // PART_ROWS, PART_ROWS
    whole = wide[:, : pieces * piece].reshape(len(wide), pieces, piece).transpose(0, 1)
    rest = wide[:, pieces * piece :]
    return torch.bmm(whole, whole.transpose(1, 2)).sum(dim=0) + rest @ rest.T


class TorchArrays:
    """What differs between arrays and tensors, for tensors; like `NumpyArrays` in `low_rank_matching`."""

    block_rows = 2**17
    systems: Any = Woodbury

    @staticmethod
    def gaussian(rows: torch.Tensor, centers: torch.Tensor, width: float) -> torch.Tensor:
        """The Gaussian kernel in double precision."""
        return gaussian(rows.double(), centers.double(), width)

    @staticmethod
    def solve_lower(lower: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Solve a small lower-triangular system for many columns, by its inverse and one step of refinement.

        For systems of less than 64 rows PyTorch calls a batched solver of CUDA, which gives one matrix, however many
        columns there are, to one of the GPU's cores: a million columns took ten seconds.
        """
        ones = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
        inverse = torch.linalg.solve_triangular(lower, ones, upper=False)
        solution = inverse @ right
        return solution + inverse @ (right - lower @ solution)

    @staticmethod
    def ones(rows: torch.Tensor) -> torch.Tensor:
        """One for each row, in double precision."""
        return torch.ones(len(rows), dtype=torch.float64, device=rows.device)

    @staticmethod
    def to_numpy(values: torch.Tensor) -> FloatArray:
        """The values as an array on the host."""
        return values.cpu().numpy()

    @staticmethod
    def like(values: Any, beside: torch.Tensor) -> torch.Tensor:
        """An array of the host as a tensor on the device of `beside`."""
        return torch.as_tensor(values, device=beside.device)

    @staticmethod
    def stack(parts: list[torch.Tensor]) -> torch.Tensor:
        """Tensors one after the other."""
        return torch.cat(parts)

    @staticmethod
    def pivoted_cholesky(
        rows: torch.Tensor, width: float, rng: np.random.Generator, *, max_rank: int, tol: float, block: int = 32
    ) -> LowRank:
        """Low-rank factor of the kernel matrix: the method of `low_rank.pivoted_cholesky`, with the factor on its side.

        Its memory grows with the rank, because a device reserves what is asked for, used or not.
        """
        n, device = len(rows), rows.device
        max_rank = min(max_rank, n)
        random = torch.Generator(device).manual_seed(int(rng.integers(2**62)))
        factor = rows.new_empty((min(max_rank, 4 * block), n), dtype=torch.float64)
        residual = torch.ones(n, dtype=torch.float64, device=device)
        pivots: list[int] = []
        while (rank := len(pivots)) < max_rank and float(residual.mean()) > tol:
            size = min(block, max_rank - rank, int((residual > 0).sum()))
            drawn = _draw(residual, size, random)
            known = factor[:rank, drawn]
            schur = TorchArrays.gaussian(rows[drawn], rows[drawn], width) - known.T @ known
            lower, kept = greedy_pivots(schur.cpu().numpy(), 0.1 * float(schur.diagonal().max()), size)
            picked = TorchArrays.like(kept, drawn)
            chosen, known, new_rank = drawn[picked], known[:, picked], rank + len(kept)
            if new_rank > len(factor):
                more = min(max_rank, 2 * len(factor)) - len(factor)
                factor = torch.cat([factor, factor.new_empty(more, n)])
            corner = TorchArrays.like(lower, factor)
            for part in blocks(n, 2**20):
                columns = TorchArrays.gaussian(rows[chosen], rows[part], width) - known.T @ factor[:rank, part]
                new = TorchArrays.solve_lower(corner, columns)
                factor[rank:new_rank, part] = new
                residual[part] -= (new * new).sum(dim=0)
            pivots.extend(chosen.tolist())
            residual.clamp_(min=0)
            residual[pivots] = 0
        factor = factor[: len(pivots)].T
        corner = factor[pivots].tril()
        return LowRank(factor, residual, np.array(pivots, dtype=np.intp), corner)  # type: ignore[arg-type]


def _draw(share: torch.Tensor, size: int, random: torch.Generator) -> torch.Tensor:
    """Positions drawn without replacement, with probability proportional to the share: the first of n random waits."""
    waits = torch.empty_like(share).exponential_(generator=random) / share  # infinite where the share is 0
    return torch.topk(waits, size, largest=False).indices
