"""Kernel mean matching (KMM)."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._numerics.low_rank_matching import Domain, NumpyArrays, match_low_rank
from steelyard._numerics.quadratic_programs import BoxSlab, Certificate, solve_box_slab
from steelyard._progress import LOG
from steelyard._typing import FloatArray
from steelyard._validation import check_count, check_range
from steelyard.errors import ParameterError, TruncationWarning, warn_user
from steelyard.ratio._base import RatioEstimator
from steelyard.ratio._overlap import require_overlap

# Up to this many distinct rows the dense solver is about as fast, and needs no low-rank factor.
DENSE_ROWS = 400
# The default limit of the rank: 1 GiB for the factor. In one or two columns a tenth of MOST_RANK is enough.
MOST_RANK, LEAST_RANK, FACTOR_NUMBERS = 1000, 100, 2**27


class KMM(RatioEstimator):
    """Importance weights w by min ½wᵀKw − κᵀw over 0 ≤ w ≤ B, 1 − ε ≤ mean(w) ≤ 1 + ε: kernel mean matching.

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
    max_rank : int, default=None
        With more than a few hundred rows, the kernel matrix is approximated by a factor of at most this rank. The
        share of the trace that is left out is ``certificate_.truncation``, and ``certificate_.truncation_cost`` bounds
        what that costs. In about ten columns or more the limit is reached, with a `TruncationWarning`. None takes
        1000, and with more than 134,000 rows what fits into 1 GiB, but at least 100.
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
        max_rank: int | None = None,
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
        if self.max_rank is not None:
            check_count("max_rank", self.max_rank)

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        counts = source.n_rows * source.mass  # the number of rows merged into each distinct row
        bounds = self._bounds(source.n_rows, counts)
        n_rows = [f"{sample.n_rows:,}" for sample in (source, target)]
        LOG.info("KMM: a quadratic program of %s source rows and %s target rows", *n_rows)
        if len(source) <= DENSE_ROWS:
            x, self.certificate_ = self._solve_dense(source, target, self.reg / counts, bounds)
            self._check_certificate()
            return x / counts
        return self._fit_domains(
            Domain(source.rows, counts), Domain(target.rows, target.mass), bounds, rng, NumpyArrays
        )

    def _bounds(self, n: int, counts: Any) -> BoxSlab:
        """The constraints in x = counts · w, in which the problem with merged rows has the form of the plain one."""
        self.width_ = self.median_distance_ if self.width is None else float(self.width)
        slack = (np.sqrt(n) - 1) / np.sqrt(n) if self.slack is None else self.slack
        if self.w_max <= 1 - slack:
            raise ParameterError(
                f"w_max={self.w_max} is not above the smallest mean weight, 1 − slack = {1 - slack:.3g}, so there are "
                "no weights to choose from. Raise w_max or slack."
            )
        return BoxSlab(counts * self.w_max, n * (1 - slack), n * (1 + slack))

    def _fit_domains(
        self, source: Domain, target: Domain, bounds: BoxSlab, rng: np.random.Generator, arrays: Any
    ) -> Any:
        """The weights of source rows that count as often as `source.mass` says, with a low-rank factor."""
        counts, n = source.mass, float(source.mass.sum())
        # The middle of the interval of allowed mean weights lies inside the box and inside the slab.
        start = counts * (max(0.0, bounds.low / n) + min(self.w_max, bounds.high / n)) / 2
        x, self.certificate_, largest_mean = match_low_rank(
            source,
            target,
            self.width_,
            self.reg / counts,
            bounds,
            start,
            rng,
            n_rows=round(n),
            max_rank=default_rank(len(source.rows)) if self.max_rank is None else self.max_rank,
            tol=self.tol,
            arrays=arrays,
        )
        require_overlap(largest_mean)
        self._check_certificate()
        return x / counts

    def _fit_on_device(self, tables: list[Any], samples: Any, rng: np.random.Generator) -> tuple[Any, None]:
        """Fit to large tables of tensors: the weights before normalization."""
        from steelyard._numerics.torch_arrays import TorchArrays  # needs PyTorch
        from steelyard.ratio._device import scaled

        source, target = (Domain(scaled(self, table.rows), TorchArrays.ones(table.rows)) for table in tables)
        bounds = self._bounds(len(source.rows), source.mass)
        shares = Domain(target.rows, target.mass / len(target.rows))
        return self._fit_domains(source, shares, bounds, rng, TorchArrays), None

    def _check_certificate(self) -> None:
        self.certificate_.require("KMM", self.tol)
        if self.certificate_.rank_limited:
            warn_user(f"KMM: {self.certificate_.advice}", TruncationWarning)

    def _solve_dense(
        self, source: Empirical, target: Empirical, reg: FloatArray, bounds: BoxSlab
    ) -> tuple[FloatArray, Certificate]:
        rows = source.rows.astype(np.float64)
        kernel = gaussian(rows, rows, self.width_)
        kernel = (kernel + kernel.T) / 2
        kernel[np.diag_indices(len(rows))] = 1 + reg
        linear = source.n_rows * kernel_means(source.rows, target, self.width_)
        return solve_box_slab(kernel, linear, bounds, self.tol)


def default_rank(n_rows: int) -> int:
    """The rank to which a factor of so many rows may grow where the user names none.

    Examples
    --------
    >>> default_rank(10_000), default_rank(1_000_000), default_rank(10_000_000)
    (1000, 134, 100)
    """
    return min(MOST_RANK, max(LEAST_RANK, FACTOR_NUMBERS // n_rows))


def kernel_means(rows: FloatArray, target: Empirical, width: float) -> FloatArray:
    """Mean kernel value between each row and the target rows; an error where all are practically zero."""
    means = np.zeros(len(rows))
    for block in blocks(len(rows)):
        for part in blocks(len(target), 4096):
            kernel = gaussian(rows[block], target.rows[part], width)
            means[block] += kernel @ target.mass[part].astype(kernel.dtype)
    require_overlap(float(means.max()))
    return means
