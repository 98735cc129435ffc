"""Least-squares importance fitting (LSIF), with the non-negativity constraint."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments
from steelyard._numerics.quadratic_programs import Certificate, solve_non_negative
from steelyard._splits.merged_rows import assign_folds, number_of_folds
from steelyard._typing import BoolArray, FloatArray, IntArray
from steelyard._validation import check_grid, check_range
from steelyard.errors import NoOverlapError
from steelyard.ratio._centers import fold_of_centers
from steelyard.ratio._from_sums import RatioFromSums
from steelyard.ratio._gaussian import REGS
from steelyard.ratio._overlap import NEGLIGIBLE_KERNEL, NO_OVERLAP
from steelyard.ratio._sums import FoldMoments

# A density ratio has mean one over the source; fits whose mean is this many times larger or smaller are rejected.
MEAN_LIMIT = 2.0


class LSIF(RatioFromSums):
    """Density ratio g(x) = Σ β_l ψ_l(x) by min ½βᵀHβ − hᵀβ + λ1ᵀβ over β ≥ 0.

    Least-squares importance fitting (survey, section 3.2.2), with H = mean_source ψψᵀ, h = mean_target ψ and Gaussian
    ψ_l centered at target rows; the coefficients are sparse. Width and λ are chosen by cross-validation (5 folds of
    both domains; held-out rows are not used as centers), whose scores come from sums that one pass over the rows
    collects.

    Parameters
    ----------
    width : positive number or list of them, default=None
        Kernel width (bandwidth) σ, in units of the standardized columns, or a grid to choose from. None chooses from
        nine widths between 1/8 and twice the median distance.
    reg : positive number or list of them, default=None
        Regularization strength λ, or a grid to choose from. None chooses from seven values between 0.001 and 1 (above
        1 every coefficient is zero).
    n_centers : int, default=100
        Number of centers, chosen among the target rows so that they cover the target.
    centers : table of shape (n_centers, n_columns), default=None
        Centers to use instead of target rows.
    tol : float, default=1e-6
        Largest gap and residual of the fit.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    random_state : int, Generator or None, default=None
        For the choice of the centers and the folds.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One weight per source row, non-negative with mean one.
    width_, reg_ : float
        The kernel width and the regularization strength that were chosen or given.
    coef_ : array of shape (n_centers,)
        Coefficients β of the basis functions.
    centers_ : array of shape (n_centers, n_columns)
        The centers, scaled as the columns were.
    scores_ : array of shape (n_widths, n_regs)
        Held-out J' of the grid ``widths_`` × ``regs_``, smaller is better; absent where both were given.
    widths_, regs_ : array
        The grid, in decreasing order; absent where both were given.
    certificate_ : Certificate
        Gap and residual of the fit.
    balance_ : Balance
        Standardized differences of the columns to the target, before and after weighting.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    raw_mean_, source_mean_ : float
        Mean of the ratio over the source before normalization; one in theory.
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
    >>> from steelyard import LSIF, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> LSIF(random_state=0).fit(source, target=Target(target)).certificate_.solved
    True
    """

    def __init__(
        self,
        *,
        width: Any = None,
        reg: Any = None,
        n_centers: int = 100,
        centers: Any = None,
        tol: float = 1e-6,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.reg = reg
        self.n_centers = n_centers
        self.centers = centers
        self.tol = tol
        self.standardize = standardize
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_range("tol", self.tol, 0, open_low=True)
        if self.reg is not None:
            check_grid("reg", self.reg)

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        centers, center_cells, widths = self._basis(target)
        search = len(widths) * len(self._grid_of_regs()) > 1
        n_folds = number_of_folds(source, target, chosen="width and reg") if search else 1
        parts = [assign_folds(sample, n_folds, rng) for sample in (source, target)]
        (means, second), (first, _) = (
            basis_moments(
                sample.rows[part.cell],
                part.mass,
                centers,
                widths,
                second=sample is source,
                fold=part.fold,
                n_folds=n_folds,
            )
            for sample, part in zip((source, target), parts, strict=True)
        )
        mass = tuple(np.bincount(part.fold, part.mass).astype(np.float64) for part in parts)
        of_centers = fold_of_centers(center_cells, parts[1].fold_of_cells(len(target)))
        self._choose_and_fit(second, first, means, mass, widths, of_centers)
        return self._ratio_on_source(source)

    def _solve(self, on_source: FoldMoments, on_target: FoldMoments, of_centers: IntArray) -> int:
        n_source, n_target = on_source.counts.sum(), on_target.counts.sum()
        mass = on_source.counts / n_source, on_target.counts / n_target
        second, means, first = on_source.second / n_source, on_source.first / n_source, on_target.first / n_target
        return self._choose_and_fit(second, first, means, mass, on_source.basis.widths, of_centers)

    def _grid_of_regs(self) -> FloatArray:
        # h is at most one, so with a larger reg every coefficient is zero.
        return REGS[REGS <= 1] if self.reg is None else check_grid("reg", self.reg)

    def _choose_and_fit(
        self,
        second: FloatArray,
        first: FloatArray,
        means: FloatArray,
        mass: tuple[FloatArray, ...],
        widths: FloatArray,
        of_centers: IntArray,
    ) -> int:
        """Choose width and reg by the sums of the folds (see `held_out`), and fit to all of them."""
        regs = self._grid_of_regs()
        w, r = 0, 0
        if len(widths) * len(regs) > 1:
            self.widths_, self.regs_ = widths, regs
            found = [
                [held_out(second[i], first[i], means[i], mass, of_centers, reg, self.tol) for reg in regs]
                for i in range(len(widths))
            ]
            self.scores_ = np.array([[score for score, _ in row] for row in found])
            if not np.isfinite(self.scores_).any():
                raise NoOverlapError(NO_OVERLAP.format("no width and reg give a ratio whose mean is close to one"))
            low = np.array([[mean < 1 / MEAN_LIMIT for _, mean in row] for row in found])
            # Where the mean of every fit is too small, the best of them is used nevertheless, with a warning.
            allowed = np.where(low & np.isfinite(self.scores_[~low]).any(), np.inf, self.scores_)
            w, r = (int(k) for k in np.unravel_index(np.argmin(allowed), allowed.shape))
        self.width_, self.reg_ = float(widths[w]), float(regs[r])
        self.coef_, self.certificate_ = sparse_coefficients(
            second[w].sum(axis=0), first[w].sum(axis=0), self.reg_, self.tol
        )
        self.certificate_.require("LSIF", self.tol)
        return w


def sparse_coefficients(
    second: FloatArray, first: FloatArray, reg: float, tol: float, allowed: BoolArray | None = None
) -> tuple[FloatArray, Certificate]:
    """min ½βᵀHβ − hᵀβ + λ1ᵀβ over β ≥ 0; β is zero at centers that are not allowed or out of reach of the source."""
    used = second.diagonal() > NEGLIGIBLE_KERNEL**2
    if allowed is not None:
        used &= allowed
    coef = np.zeros(len(first))
    if not used.any():
        return coef, Certificate(0.0, 0.0, 0.0, 0.0, 0, True)
    coef[used], certificate = solve_non_negative(second[np.ix_(used, used)], first[used] - reg, tol)
    return coef, certificate


def held_out(
    second: FloatArray,
    first: FloatArray,
    means: FloatArray,
    mass: tuple[FloatArray, ...],
    of_centers: IntArray,
    reg: float,
    tol: float,
) -> tuple[float, float]:
    """Mean held-out J' over the folds, from the sums of the folds, and the smallest mean of a fit over its source rows.

    Per fold, `second` is Σ mass·ψψᵀ over the source, `first` Σ mass·ψ over the target, `means` Σ mass·ψ over the
    source, and `mass` the share of each domain in the fold. Centers that are rows of a fold are not used while it is
    held out (`of_centers` has their folds).

    The score is infinite where the mean of a fit over its own source rows exceeds `MEAN_LIMIT`. Such a fit has an
    unbounded coefficient where there are target rows but hardly any source rows, and held-out target rows in that
    region would favor it. A mean far below one has the same cause: the fit is large only outside the source's support.
    """
    total_second, total_first = second.sum(axis=0), first.sum(axis=0)
    mass_source, mass_target = mass
    score, least = 0.0, np.inf
    for f in range(len(second)):
        rest_second = (total_second - second[f]) / (1 - mass_source[f])
        rest_first = (total_first - first[f]) / (1 - mass_target[f])
        coef, certificate = sparse_coefficients(rest_second, rest_first, reg, tol, of_centers != f)
        mean = (means.sum(axis=0) - means[f]) @ coef / (1 - mass_source[f])
        if not certificate.solved or mean > MEAN_LIMIT:
            return np.inf, float(mean)
        least = min(least, float(mean))
        score += coef @ second[f] @ coef / 2 / mass_source[f] - first[f] @ coef / mass_target[f]
    return float(score / len(second)), least
