"""Least-squares importance fitting with the non-negativity constraint."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.arrays import FloatArray
from steelyard.check import check_grid, check_range
from steelyard.empirical import Empirical
from steelyard.kernels import basis_moments
from steelyard.qp import Certificate, solve_non_negative
from steelyard.ratio.base import FAR_CENTER, REGS, GaussianRatio, fold_of_rows


class LSIF(GaussianRatio):
    """Least-squares importance fitting: a sparse, non-negative ratio.

    Minimises ½βᵀHβ − hᵀβ + λ1ᵀβ over β ≥ 0 for g(x) = Σ β_l ψ_l(x) with Gaussian ψ_l, H = mean_source ψψᵀ and
    h = mean_target ψ (survey, section 3.2.2). Width and λ are chosen by 5 folds of both tables; every fold's score
    comes from sums that one pass over the rows collects.

    Parameters
    ----------
    width, reg : positive number or list of them, default=None
        σ (in units of the standardised columns) and λ. None chooses from nine widths between 1/8 and twice the
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
        centers, widths = self._basis(target)
        fold_source, n_folds = fold_of_rows(len(source))
        fold_target, n_folds = fold_of_rows(len(target), n_folds)
        first, _ = basis_moments(
            target.rows, target.mass, centers, widths, second=False, fold=fold_target, n_folds=n_folds
        )
        _, second = basis_moments(source.rows, source.mass, centers, widths, fold=fold_source, n_folds=n_folds)
        # h is at most one, so a larger reg than that leaves no coefficient.
        regs = REGS[REGS <= 1] if self.reg is None else check_grid("reg", self.reg)
        w, r = 0, 0
        if len(widths) * len(regs) > 1:
            self.widths_, self.regs_ = widths, regs
            mass = np.bincount(fold_source, source.mass), np.bincount(fold_target, target.mass)
            self.scores_ = np.array(
                [[held_out(second[i], first[i], mass, reg, self.tol) for reg in regs] for i in range(len(widths))]
            )
            w, r = (int(k) for k in np.unravel_index(np.argmin(self.scores_), self.scores_.shape))
        self.width_, self.reg_ = float(widths[w]), float(regs[r])
        self.coef_, self.certificate_ = sparse_coefficients(
            second[w].sum(axis=0), first[w].sum(axis=0), self.reg_, self.tol
        )
        self.certificate_.require("LSIF", self.tol)
        self._check_overlap(source)
        return self._ratio(source.rows)


def sparse_coefficients(
    second: FloatArray, first: FloatArray, reg: float, tol: float
) -> tuple[FloatArray, Certificate]:
    """min ½βᵀHβ − hᵀβ + λ1ᵀβ over β ≥ 0, where centres that no source row reaches stay at zero."""
    near = second.diagonal() > FAR_CENTER**2
    coef = np.zeros(len(first))
    if not near.any():
        return coef, Certificate(0.0, 0.0, 0.0, 0.0, 0, True)
    coef[near], certificate = solve_non_negative(second[np.ix_(near, near)], first[near] - reg, tol)
    return coef, certificate


def held_out(
    second: FloatArray, first: FloatArray, mass: tuple[FloatArray, FloatArray], reg: float, tol: float
) -> float:
    """Mean held-out J' over the folds, from the folds' sums alone.

    `second` and `first` are Σ mass·ψψᵀ over the source and Σ mass·ψ over the target, per fold; `mass` the share of
    each domain that lies in each fold.
    """
    total_second, total_first = second.sum(axis=0), first.sum(axis=0)
    mass_source, mass_target = mass
    score = 0.0
    for f in range(len(second)):
        rest_second = (total_second - second[f]) / (1 - mass_source[f])
        rest_first = (total_first - first[f]) / (1 - mass_target[f])
        coef, certificate = sparse_coefficients(rest_second, rest_first, reg, tol)
        if not certificate.solved:
            return np.inf  # hardly any source row near a centre: not a width to choose
        score += coef @ second[f] @ coef / 2 / mass_source[f] - first[f] @ coef / mass_target[f]
    return float(score / len(second))
