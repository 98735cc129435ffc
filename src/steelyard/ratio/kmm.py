"""Kernel mean matching."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.interior_point import solve_box_slab_low_rank
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._numerics.low_rank import LowRank, pivoted_cholesky
from steelyard._numerics.quadratic_programs import BoxSlab, Certificate, solve_box_slab
from steelyard._typing import FloatArray
from steelyard._validation import check_count, check_range
from steelyard.errors import ParameterError
from steelyard.ratio._base import RatioEstimator, require_reach

# Up to here the dense solver is about as fast, and needs no factor.
DENSE_ROWS = 400
# Without any ridge a factor leaves directions that cost nothing; this much keeps the interior point's systems solvable.
LEAST_RIDGE = 1e-9


class KMM(RatioEstimator):
    """Kernel mean matching: weights whose kernel mean is that of the target.

    Solves min ½wᵀKw − κᵀw over 0 ≤ w ≤ B, |mean(w) − 1| ≤ ε, with κ_i = (n/m) Σ_j k(x_i, x_j) over the m target
    rows and a Gaussian kernel k (survey, section 3.2.1). It is model-free: there is no ratio function, hence no
    ``predict``.

    The solution is certified (``certificate_``): duality gap and residuals are at most `tol`, or a
    `ConvergenceError` says by how much they are not. K is nearly singular in low dimension, and many weightings
    reach the same objective; the ridge picks an even one at almost no cost in the objective.

    Parameters
    ----------
    width : positive float, default=None
        Width of the kernel in units of the standardized columns; None takes the median distance between rows of
        both domains.
    w_max : float, default=1000
        B, the largest weight before normalizing.
    slack : float, default=None
        ε, how far the mean weight may be from one before normalizing; None takes (√n − 1)/√n.
    ridge : float, default=0.001
        Added to the diagonal of K.
    max_rank : int, default=1000
        The kernel matrix of more than a few hundred rows is replaced by a factor of at most this rank; what it cuts
        off, as a share of the trace, is ``certificate_.truncation``.
    tol : float, default=1e-6
        Largest gap and residuals of a solution.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    random_state : int, Generator or None, default=None
        For the sample behind the median distance and the pivots of the factor.

    Attributes
    ----------
    weights_ : one weight a source row, ≥ 0, mean one.
    raw_mean_ : mean weight before normalizing.
    width_ : width used.
    certificate_ : `Certificate` of the solution.
    effective_sample_size_ : what the weights are worth in equally weighted rows.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import KMM, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> ratio = KMM(random_state=0).fit(source, target=Target(target))
    >>> ratio.certificate_.solved, bool(np.average(source[:, 0], weights=ratio.weights_) > 0.5)
    (True, True)
    """

    def __init__(
        self,
        *,
        width: float | None = None,
        w_max: float = 1000.0,
        slack: float | None = None,
        ridge: float = 1e-3,
        max_rank: int = 1000,
        tol: float = 1e-6,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.w_max = w_max
        self.slack = slack
        self.ridge = ridge
        self.max_rank = max_rank
        self.tol = tol
        self.standardize = standardize
        self.random_state = random_state

    def _check_parameters(self) -> None:
        if self.width is not None:
            check_range("width", self.width, 0, open_low=True)
        check_range("w_max", self.w_max, 0, open_low=True)
        if self.slack is not None:
            check_range("slack", self.slack, 0)
        check_range("ridge", self.ridge, 0)
        check_range("tol", self.tol, 0, open_low=True)
        check_count("max_rank", self.max_rank)

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        n = source.n_rows
        self.width_ = self.median_distance_ if self.width is None else float(self.width)
        counts = n * source.mass  # rows that each distinct row stands for; all one where no row is repeated
        slack = (np.sqrt(n) - 1) / np.sqrt(n) if self.slack is None else self.slack
        if self.w_max <= 1 - slack:
            raise ParameterError(
                f"w_max={self.w_max} keeps every weight, and so the mean, at or below 1 − slack = {1 - slack:.3g}: "
                "nothing is left to choose. Raise w_max or slack."
            )
        # In x = counts · w the problem with repeated rows is the plain one with other bounds and ridge.
        bounds = BoxSlab(counts * self.w_max, n * (1 - slack), n * (1 + slack))
        ridge = self.ridge / counts
        if len(source) <= DENSE_ROWS:
            x, self.certificate_ = self._solve_dense(source, target, ridge, bounds)
        else:
            # The middle of what the mean weight may be lies inside the box and inside the slab.
            start = counts * (max(0.0, 1 - slack) + min(self.w_max, 1 + slack)) / 2
            x, self.certificate_ = self._solve_low_rank(source, target, ridge, bounds, start, rng)
        self.certificate_.require("KMM", self.tol)
        return x / counts

    def _solve_dense(
        self, source: Empirical, target: Empirical, ridge: FloatArray, bounds: BoxSlab
    ) -> tuple[FloatArray, Certificate]:
        rows = source.rows.astype(np.float64)
        kernel = gaussian(rows, rows, self.width_)
        kernel = (kernel + kernel.T) / 2
        kernel[np.diag_indices(len(rows))] = 1 + ridge
        linear = source.n_rows * kernel_means(source.rows, target, self.width_)
        return solve_box_slab(kernel, linear, bounds, self.tol)

    def _solve_low_rank(
        self,
        source: Empirical,
        target: Empirical,
        ridge: FloatArray,
        bounds: BoxSlab,
        start: FloatArray,
        rng: np.random.Generator,
    ) -> tuple[FloatArray, Certificate]:
        tol = factor_tolerance(source.n_rows)
        low_rank = pivoted_cholesky(source.rows, self.width_, rng, max_rank=self.max_rank, tol=tol)
        return solve_box_slab_low_rank(
            low_rank.factor,
            np.maximum(ridge, LEAST_RIDGE),
            source.n_rows * _projected_means(source, target, self.width_, low_rank),
            bounds,
            start,
            tol=self.tol,
            truncation=low_rank.truncation,
        )


def factor_tolerance(n_rows: int) -> float:
    """Mean residual of the kernel's diagonal at which the factor is good enough.

    With the linear term projected on the same pivots, the objective of the full problem is then within 1e-6 of its
    optimum, relatively; the error falls as the rows grow in number (tests/oracle/test_kmm.py).
    """
    return 3e-4 if n_rows < 3000 else 1e-3


def kernel_means(rows: FloatArray, target: Empirical, width: float) -> FloatArray:
    """Mean kernel value between each row and the target, in blocks; an error where all are practically zero."""
    means = np.zeros(len(rows))
    for block in blocks(len(rows)):
        for part in blocks(len(target), 4096):
            kernel = gaussian(rows[block], target.rows[part], width)
            means[block] += kernel @ target.mass[part].astype(kernel.dtype)
    require_reach(float(means.max()))
    return means


def _projected_means(source: Empirical, target: Empirical, width: float, low_rank: LowRank) -> FloatArray:
    """Kernel means, the target's mean embedding projected on the factor's pivots as K itself is.

    O(r·m) kernel values instead of O(n·m). And better: with exact means, or with what the factor cuts off put on the
    diagonal, the solution is further from the optimum of the full problem (tests/oracle/test_kmm.py).
    """
    at_pivots = kernel_means(source.rows[low_rank.pivots], target, width)
    return np.asarray(low_rank.factor @ solve_triangular(low_rank.corner, at_pivots, lower=True))
