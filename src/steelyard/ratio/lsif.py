"""Least-squares importance fitting with the non-negativity constraint."""

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
from steelyard.ratio._base import FAR_CENTER, NO_OVERLAP, REGS, GaussianRatio, fold_of_centers

# A ratio has mean one over the source; a fit this many times above or below is none.
MEAN_LIMIT = 2.0


class LSIF(GaussianRatio):
    """Least-squares importance fitting: a sparse, non-negative ratio.

    Minimizes ½βᵀHβ − hᵀβ + λ1ᵀβ over β ≥ 0 for g(x) = Σ β_l ψ_l(x) with Gaussian ψ_l, H = mean_source ψψᵀ and
    h = mean_target ψ (survey, section 3.2.2). Width and λ are chosen by 5 folds of both tables; every fold's score
    comes from sums that one pass over the rows collects.

    Parameters
    ----------
    width, reg : positive number or list of them, default=None
        σ (in units of the standardized columns) and λ. None chooses from nine widths between 1/8 and twice the
        median distance, and seven regs between 0.001 and 1 (beyond which every coefficient is zero).
    n_centers, centers, standardize, random_state
        As in `RULSIF`.
    tol : float, default=1e-6
        Largest gap and residual of the fit.

    Attributes
    ----------
    weights_, raw_mean_, width_, reg_, coef_, centers_, effective_sample_size_ : as in `RULSIF`.
    scores_ : held-out J' of the grid ``widths_`` × ``regs_`` (absent where both were given).
    certificate_ : `Certificate` of the fit.

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
        # h is at most one, so a larger reg than that leaves no coefficient.
        regs = REGS[REGS <= 1] if self.reg is None else check_grid("reg", self.reg)
        search = len(widths) * len(regs) > 1
        n_folds = number_of_folds(source, target) if search else 1
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
        w, r = 0, 0
        if search:
            self.widths_, self.regs_ = widths, regs
            mass = tuple(np.bincount(part.fold, part.mass).astype(np.float64) for part in parts)
            of_centers = fold_of_centers(center_cells, parts[1].fold_of_cells(len(target)))
            found = [
                [held_out(second[i], first[i], means[i], mass, of_centers, reg, self.tol) for reg in regs]
                for i in range(len(widths))
            ]
            self.scores_ = np.array([[score for score, _ in row] for row in found])
            if not np.isfinite(self.scores_).any():
                raise NoOverlapError(NO_OVERLAP.format("no width and reg give a ratio whose mean is near one"))
            low = np.array([[mean < 1 / MEAN_LIMIT for _, mean in row] for row in found])
            # Where every fit has too small a mean, the best of them is still an answer, with a warning.
            lawful = np.where(low & np.isfinite(self.scores_[~low]).any(), np.inf, self.scores_)
            w, r = (int(k) for k in np.unravel_index(np.argmin(lawful), lawful.shape))
        self.width_, self.reg_ = float(widths[w]), float(regs[r])
        self.coef_, self.certificate_ = sparse_coefficients(
            second[w].sum(axis=0), first[w].sum(axis=0), self.reg_, self.tol
        )
        self.certificate_.require("LSIF", self.tol)
        return self._ratio_on_source(source)


def sparse_coefficients(
    second: FloatArray, first: FloatArray, reg: float, tol: float, allowed: BoolArray | None = None
) -> tuple[FloatArray, Certificate]:
    """min ½βᵀHβ − hᵀβ + λ1ᵀβ over β ≥ 0; centers that are not allowed, or that no source row reaches, stay at zero."""
    used = second.diagonal() > FAR_CENTER**2
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
    """Mean held-out J' over the folds, from the folds' sums alone, and the least mean of a fit over its source rows.

    `second` and `first` are Σ mass·ψψᵀ over the source and Σ mass·ψ over the target, per fold, `means` Σ mass·ψ over
    the source; `mass` the share of each domain that lies in each fold. Centers drawn from a fold are not used while
    it is held out (`of_centers` has their folds).

    Infinite where a fit's mean over its own source rows is above `MEAN_LIMIT`. Such a fit has a boundless coefficient
    where target rows but hardly any source rows are; held-out rows of that kind would praise it. A mean far below one
    is a sign of the same: all of the fit went to where the source is not.
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
