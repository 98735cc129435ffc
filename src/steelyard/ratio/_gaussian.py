"""What the ratios that are sums of Gaussians share: centers, widths, and the ratio at any rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_centers, check_count, check_grid
from steelyard.ratio._base import InductiveRatio
from steelyard.ratio._centers import covering_rows
from steelyard.ratio._overlap import require_overlap

# Nine kernel widths, each √2 times the next, around the median distance: one exponential serves all (see `kernels`).
WIDTH_FACTORS = 2.0 ** (np.arange(2, -7, -1) / 2)
REGS = 10.0 ** (np.arange(2, -7, -1) / 2)


class GaussianRatio(InductiveRatio):
    """A ratio modeled as g(x) = Σ β_l exp(−‖x − c_l‖² / 2σ²) with centers among the target rows."""

    width: Any
    n_centers: int
    centers: Any

    def _check_parameters(self) -> None:
        check_count("n_centers", self.n_centers)
        if self.width is not None:
            check_grid("width", self.width)

    def _basis(self, target: Empirical) -> tuple[FloatArray, IntArray, FloatArray]:
        """Scaled centers, the distinct target row that each of them is (-1: a given center), and decreasing widths."""
        if self.centers is None:
            cells = covering_rows(target, self.n_centers, self.median_distance_)
            self.centers_ = target.rows[cells].copy()
        else:
            given = check_centers(self.centers, self)
            self.centers_ = self._scale_rows(given.astype(target.rows.dtype, copy=False))
            cells = np.full(len(given), -1, dtype=np.intp)
        self._center_cells = cells
        widths = self.median_distance_ * WIDTH_FACTORS if self.width is None else check_grid("width", self.width)
        return self.centers_, cells, widths

    def _ratio(self, rows: FloatArray) -> FloatArray:
        return self._ratio_and_kernel_mean(rows)[0]

    def _ratio_on_source(self, source: Empirical) -> FloatArray:
        """The ratio on the source rows; an error where every kernel value between them and the centers is zero."""
        ratio, largest_mean = self._ratio_and_kernel_mean(source.rows)
        require_overlap(largest_mean)
        return ratio

    def _ratio_and_kernel_mean(self, rows: FloatArray) -> tuple[FloatArray, float]:
        """The ratio at every row, and the largest mean kernel value (over the centers) of a row."""
        values, largest_mean = np.empty(len(rows)), 0.0
        # The mean over the centers is one more column of coefficients.
        coef = np.column_stack([self.coef_, np.full(len(self.coef_), 1 / len(self.coef_))]).astype(rows.dtype)
        for block in blocks(len(rows)):
            both = gaussian(rows[block], self.centers_, self.width_) @ coef
            values[block] = both[:, 0]
            largest_mean = max(largest_mean, float(both[:, 1].max()))
        return values, largest_mean
