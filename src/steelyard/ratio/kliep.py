"""Kullback–Leibler importance estimation, solved to a certified optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments, blocks, gaussian
from steelyard._numerics.quadratic_programs import Certificate
from steelyard._splits.merged_rows import FoldParts, assign_folds, number_of_folds
from steelyard._typing import BoolArray, FloatArray, IntArray
from steelyard._validation import check_range
from steelyard.errors import NoOverlapError
from steelyard.ratio._base import FAR_CENTER, NO_OVERLAP, GaussianRatio, fold_of_centers


def mixture_proportions(
    basis: FloatArray, mass: FloatArray, tol: float, max_iter: int = 100
) -> tuple[FloatArray, Certificate]:
    """max Σ_j mass_j log(basisᵀπ)_j over π ≥ 0, Σπ = 1, by a primal-dual interior point.

    Homogeneity puts the multiplier of the constraint at one, so the constraint becomes a term Σπ of the objective.
    With g = basis π the vector mass/g, scaled to be feasible, is a dual point, and the duality gap is
    log max_l (basisᵀ(mass/g))_l: the certificate needs no solver's word.
    """
    n_centers = basis.shape[1]
    proportions: FloatArray = np.full(n_centers, 1 / n_centers)
    slack: FloatArray = np.ones(n_centers)
    buffer = np.empty(basis.shape)  # used again in every step: fresh pages would cost as much as the product they feed
    for iteration in range(max_iter + 1):
        fit = basis @ proportions
        pull = basis.T @ (mass / fit)
        gap = float(np.log(pull.max()) + proportions.sum() - 1)
        if gap <= tol or iteration == max_iter:
            break
        proportions, slack = _newton(basis, mass, fit, 1 - pull, proportions, slack, buffer)
    proportions = proportions / proportions.sum()
    objective = float(-mass @ np.log(basis @ proportions))
    gap = float(np.log((basis.T @ (mass / (basis @ proportions))).max()))
    relative = gap / max(1.0, abs(objective))
    return proportions, Certificate(objective, 0.0, 0.0, relative, iteration, bool(relative <= tol))


def _newton(
    basis: FloatArray,
    mass: FloatArray,
    fit: FloatArray,
    gradient: FloatArray,
    proportions: FloatArray,
    slack: FloatArray,
    buffer: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """One step toward a tenth of the present complementarity."""
    goal = 0.1 * float(proportions @ slack) / len(proportions)
    np.multiply(basis, (np.sqrt(mass) / fit)[:, None], out=buffer)
    hessian = dsyrk(1.0, buffer.T)  # row-major rows are column-major columns: no copy for BLAS
    hessian[np.diag_indices(len(proportions))] += slack / proportions
    right = goal / proportions - gradient
    step = cho_solve(cho_factor(hessian, overwrite_a=True, check_finite=False), right, check_finite=False)
    slack_step = goal / proportions - slack - slack / proportions * step
    length = min(1.0, 0.99 * _longest(proportions, step))
    return proportions + length * step, slack + min(1.0, 0.99 * _longest(slack, slack_step)) * slack_step


def _longest(point: FloatArray, step: FloatArray) -> float:
    shrink = float(np.min(step / point))
    return np.inf if shrink >= 0 else -1 / shrink


class KLIEP(GaussianRatio):
    """Kullback–Leibler importance estimation: the ratio of greatest target likelihood.

    Maximizes mean_target log g(x) subject to mean_source g = 1, β ≥ 0, for g(x) = Σ β_l ψ_l(x) with Gaussian ψ_l
    (survey, section 3.2). The width is chosen by mean_target log g − log mean_source g on held-out rows of both domains
    (5 folds, whose rows do not serve as centers meanwhile).

    The fitted ratio has mean one over the source, to rounding. ``certificate_.gap`` bounds how far the likelihood
    is from the optimum.

    Parameters
    ----------
    width : positive number or list of them, default=None
        σ in units of the standardized columns. None chooses from nine values between 1/8 and twice the median
        distance.
    n_centers, centers, standardize, random_state
        As in `RULSIF`.
    tol : float, default=1e-6
        Largest duality gap of the fit.

    Attributes
    ----------
    weights_, raw_mean_, width_, coef_, centers_, effective_sample_size_ : as in `RULSIF`.
    scores_ : held-out likelihood of each of ``widths_`` (−inf where some target row is out of reach of the
        source); absent where the width was given.
    certificate_ : `Certificate` of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import KLIEP, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> KLIEP(random_state=0).fit(source, target=Target(target)).certificate_.gap <= 1e-6
    True
    """

    def __init__(
        self,
        *,
        width: Any = None,
        n_centers: int = 100,
        centers: Any = None,
        tol: float = 1e-6,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.n_centers = n_centers
        self.centers = centers
        self.tol = tol
        self.standardize = standardize
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_range("tol", self.tol, 0, open_low=True)

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        _, center_cells, widths = self._basis(target)
        n_folds = number_of_folds(source, target) if len(widths) > 1 else 1
        parts = [assign_folds(sample, n_folds, rng) for sample in (source, target)]
        by_fold, _ = basis_moments(
            source.rows[parts[0].cell],
            parts[0].mass,
            self.centers_,
            widths,
            second=False,
            fold=parts[0].fold,
            n_folds=n_folds,
        )
        means = by_fold.sum(axis=1)
        chosen = 0
        if len(widths) > 1:
            self.widths_ = widths
            of_centers = fold_of_centers(center_cells, parts[1].fold_of_cells(len(target)))
            mass = np.bincount(parts[0].fold, parts[0].mass).astype(np.float64)
            self.scores_ = np.array(
                [
                    self._held_out(target, width, sums, mass, parts[1], of_centers)
                    for width, sums in zip(widths, by_fold, strict=True)
                ]
            )
            chosen = int(np.argmax(self.scores_))
        self.width_ = float(widths[chosen])
        near, basis = self._reachable(target, self.width_, means[chosen])
        if basis is None:
            raise NoOverlapError(NO_OVERLAP.format("some target rows are out of reach of every source row"))
        proportions, self.certificate_ = mixture_proportions(basis, target.mass, self.tol)
        self.certificate_.require("KLIEP", self.tol)
        self.coef_ = np.zeros(len(self.centers_))
        self.coef_[near] = proportions / means[chosen, near]
        return self._ratio_on_source(source)

    def _reachable(self, target: Empirical, width: float, means: FloatArray) -> tuple[BoolArray, FloatArray | None]:
        """Which centers the source reaches, and the target's basis over them scaled to mean one on the source.

        None where a target row is near no such center: its likelihood would be zero whatever the coefficients.
        """
        near = means > FAR_CENTER
        if not near.any():
            return near, None
        basis = np.empty((len(target), int(near.sum())))
        for block in blocks(len(target)):
            basis[block] = gaussian(target.rows[block], self.centers_[near], width)
        basis /= means[near]
        return near, basis if _covers(basis) else None

    def _held_out(
        self,
        target: Empirical,
        width: float,
        sums: FloatArray,
        mass: FloatArray,
        parts: FoldParts,
        of_centers: IntArray,
    ) -> float:
        """Mean over the folds of mean_target log g − log mean_source g, on held-out rows of both domains.

        With g scaled by the mean over *all* source rows, a narrow g that is large where the source happens to have few
        rows would be praised. `sums` are those of ψ over the source rows of each fold, `mass` their shares.
        """
        near, basis = self._reachable(target, width, sums.sum(axis=0))
        if basis is None:
            return -np.inf
        basis *= sums.sum(axis=0)[near]  # the plain basis: every fold has its own scale
        total = 0.0
        for f in range(parts.n_folds):
            held_mean = sums[f, near] / mass[f]
            train_mean = (sums.sum(axis=0) - sums[f])[near] / (1 - mass[f])
            columns = (of_centers[near] != f) & (train_mean > FAR_CENTER)
            kept = parts.masses(len(target), without=f)
            train = basis[np.ix_(kept > 0, columns)] / train_mean[columns]
            if not columns.any() or not _covers(train):
                return -np.inf
            # Selection needs no more than four digits of the likelihood.
            proportions, _ = mixture_proportions(train, kept[kept > 0] / kept.sum(), max(self.tol, 1e-4))
            coef = proportions / train_mean[columns]
            held = parts.fold == f
            with np.errstate(divide="ignore"):
                likelihood = np.log(basis[np.ix_(parts.cell[held], columns)] @ coef)
                total += float(parts.mass[held] @ likelihood)
                total -= float(parts.mass[held].sum() * np.log(held_mean[columns] @ coef))
        return total if np.isfinite(total) else -np.inf


def _covers(basis: FloatArray) -> bool:
    """Whether every row is near some center."""
    return bool(basis.max(axis=1).min() > FAR_CENTER)
