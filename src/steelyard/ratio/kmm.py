"""Kernel mean matching (KMM)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.interior_point import solve_box_slab_low_rank
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._numerics.low_rank import pivoted_cholesky
from steelyard._numerics.quadratic_programs import BoxSlab, Certificate, solve_box_slab
from steelyard._progress import LOG
from steelyard._typing import FloatArray
from steelyard._validation import check_count, check_range
from steelyard.errors import ParameterError
from steelyard.ratio._base import RatioEstimator
from steelyard.ratio._overlap import require_overlap

# Up to this many distinct rows the dense solver is about as fast, and needs no low-rank factor.
DENSE_ROWS = 400
# Least regularization beside a low-rank factor, whose null space would make the interior point's systems singular.
LEAST_REG = 1e-9
# Mean residual of the kernel matrix' diagonal at which the low-rank factor is accurate enough, with few rows and with
# MANY_ROWS or more. With the linear term projected on the same pivots, the objective of the full problem is then within
# a relative error of 1e-6 of its optimum; the error decreases with the number of rows (tests/oracle/test_kmm.py).
FACTOR_TOLERANCES, MANY_ROWS = (3e-4, 1e-3), 3000


class KMM(RatioEstimator):
    """Importance weights w by min ½wᵀKw − κᵀw over 0 ≤ w ≤ B, |mean(w) − 1| ≤ ε: kernel mean matching.

    K is the Gaussian kernel matrix of the n source rows and κ_i = (n/m) Σ_j k(x_i, x_j) over the m target rows, so
    that the weighted kernel mean of the source matches that of the target (survey, section 3.2.1). There is no ratio
    function, hence no ``predict``.

    The solution is certified (``certificate_``): duality gap and residuals are at most `tol`, or a
    `ConvergenceError` reports them. K is nearly singular in few columns, and many weightings have almost the same
    objective; `reg` selects one with more uniform weights at almost no cost in the objective.

    Parameters
    ----------
    width : positive float, default=None
        Kernel width (bandwidth) in units of the standardized columns; None takes the median distance between rows of
        both domains.
    w_max : float, default=1000
        B, the largest weight before normalization.
    slack : float, default=None
        ε, how far the mean weight may be from one before normalization; None takes (√n − 1)/√n.
    reg : float, default=0.001
        Regularization strength, added to the diagonal of K.
    max_rank : int, default=1000
        With more than a few hundred rows, the kernel matrix is approximated by a factor of at most this rank; the
        share of the trace that is left out is ``certificate_.truncation``.
    tol : float, default=1e-6
        Largest gap and residuals of a solution.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    random_state : int, Generator or None, default=None
        For the sample behind the median distance and the pivots of the low-rank factor.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One weight per source row, non-negative with mean one.
    width_ : float
        The kernel width that was used.
    certificate_ : Certificate
        Duality gap and residuals of the solution.
    balance_ : Balance
        Standardized differences of the columns to the target, before and after weighting.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    raw_mean_, source_mean_ : float
        Mean weight before normalization.
    center_, scale_ : array of shape (n_columns,)
        Center and scale of the columns.
    median_distance_ : float
        Median distance between scaled rows of both domains.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

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
        reg: float = 1e-3,
        max_rank: int = 1000,
        tol: float = 1e-6,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.w_max = w_max
        self.slack = slack
        self.reg = reg
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
        check_range("reg", self.reg, 0)
        check_range("tol", self.tol, 0, open_low=True)
        check_count("max_rank", self.max_rank)

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        n = source.n_rows
        self.width_ = self.median_distance_ if self.width is None else float(self.width)
        counts = n * source.mass  # the number of rows merged into each distinct row
        slack = (np.sqrt(n) - 1) / np.sqrt(n) if self.slack is None else self.slack
        if self.w_max <= 1 - slack:
            raise ParameterError(
                f"w_max={self.w_max} is not above the smallest mean weight, 1 − slack = {1 - slack:.3g}, so there are "
                "no weights to choose from. Raise w_max or slack."
            )
        LOG.info("KMM: a quadratic program of %s source rows and %s target rows", f"{n:,}", f"{target.n_rows:,}")
        # In x = counts · w the problem with merged rows has the form of the plain one, with other bounds and reg.
        bounds = BoxSlab(counts * self.w_max, n * (1 - slack), n * (1 + slack))
        reg = self.reg / counts
        if len(source) <= DENSE_ROWS:
            x, self.certificate_ = self._solve_dense(source, target, reg, bounds)
        else:
            # The middle of the interval of allowed mean weights lies inside the box and inside the slab.
            start = counts * (max(0.0, 1 - slack) + min(self.w_max, 1 + slack)) / 2
            x, self.certificate_ = self._solve_low_rank(source, target, reg, bounds, start, rng)
        self.certificate_.require("KMM", self.tol)
        return x / counts

    def _solve_dense(
        self, source: Empirical, target: Empirical, reg: FloatArray, bounds: BoxSlab
    ) -> tuple[FloatArray, Certificate]:
        rows = source.rows.astype(np.float64)
        kernel = gaussian(rows, rows, self.width_)
        kernel = (kernel + kernel.T) / 2
        kernel[np.diag_indices(len(rows))] = 1 + reg
        linear = source.n_rows * kernel_means(source.rows, target, self.width_)
        return solve_box_slab(kernel, linear, bounds, self.tol)

    def _solve_low_rank(
        self,
        source: Empirical,
        target: Empirical,
        reg: FloatArray,
        bounds: BoxSlab,
        start: FloatArray,
        rng: np.random.Generator,
    ) -> tuple[FloatArray, Certificate]:
        tol = FACTOR_TOLERANCES[source.n_rows >= MANY_ROWS]
        low_rank = pivoted_cholesky(source.rows, self.width_, rng, max_rank=self.max_rank, tol=tol)
        # The mean embedding of the target is projected on the pivots as K itself is: O(r·m) kernel values instead of
        # O(n·m). With exact means, or with the residual of the factor added to the diagonal, the solution would be
        # further from the optimum of the full problem (tests/oracle/test_kmm.py).
        at_pivots = kernel_means(source.rows[low_rank.pivots], target, self.width_)
        means = np.asarray(low_rank.factor @ solve_triangular(low_rank.corner, at_pivots, lower=True))
        return solve_box_slab_low_rank(
            low_rank.factor,
            np.maximum(reg, LEAST_REG),
            source.n_rows * means,
            bounds,
            start,
            tol=self.tol,
            truncation=low_rank.truncation,
        )


def kernel_means(rows: FloatArray, target: Empirical, width: float) -> FloatArray:
    """Mean kernel value between each row and the target rows; an error where all are practically zero."""
    means = np.zeros(len(rows))
    for block in blocks(len(rows)):
        for part in blocks(len(target), 4096):
            kernel = gaussian(rows[block], target.rows[part], width)
            means[block] += kernel @ target.mass[part].astype(kernel.dtype)
    require_overlap(float(means.max()))
    return means
