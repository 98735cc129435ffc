"""Kullback–Leibler importance estimation procedure (KLIEP), solved to a certified optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
from steelyard.ratio._centers import fold_of_centers
from steelyard.ratio._gaussian import GaussianRatio
from steelyard.ratio._overlap import NEGLIGIBLE_KERNEL, NO_OVERLAP, median_distance
from steelyard.ratio._sums import Basis, FoldMoments, Summary
from steelyard.tables.row_stream import RowStream


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The likelihood of mixture proportions, with what a Newton step needs."""

    objective: float  # −Σ mass log(basis π)
    pull: FloatArray  # basisᵀ(mass/fit)
    hessian: Callable[[], FloatArray]  # upper triangle of basisᵀ diag(mass/fit²) basis


def mixture_proportions(
    basis: FloatArray, mass: FloatArray, tol: float, max_iter: int = 100
) -> tuple[FloatArray, Certificate]:
    """max Σ_j mass_j log(basis π)_j over π ≥ 0, Σπ = 1, by a primal-dual interior-point method."""
    buffer = np.empty(basis.shape)  # reused in every step: allocating it anew would cost as much as the product

    def likelihood(proportions: FloatArray) -> Likelihood:
        fit = basis @ proportions

        def hessian() -> FloatArray:
            np.multiply(basis, (np.sqrt(mass) / fit)[:, None], out=buffer)
            return dsyrk(1.0, buffer.T)  # the transpose is column-major, so BLAS takes it without a copy

        return Likelihood(float(-mass @ np.log(fit)), basis.T @ (mass / fit), hessian)

    return most_likely_proportions(likelihood, np.full(basis.shape[1], 1 / basis.shape[1]), tol, max_iter)


def most_likely_proportions(
    likelihood: Callable[[FloatArray], Likelihood], start: FloatArray, tol: float, max_iter: int = 100
) -> tuple[FloatArray, Certificate]:
    """Mixture proportions of the largest likelihood, from a positive start.

    By homogeneity the multiplier of the constraint is one, so the constraint becomes a term Σπ of the objective. With
    g = basis π the vector mass/g, scaled to be feasible, is a dual point, and the duality gap is
    log max_l (basisᵀ(mass/g))_l: the certificate does not rely on the solver.
    """
    proportions: FloatArray = start
    slack: FloatArray = np.ones(len(start))
    for iteration in range(max_iter + 1):
        now = likelihood(proportions)
        gap = float(np.log(now.pull.max()) + proportions.sum() - 1)
        if gap <= tol or iteration == max_iter:
            break
        proportions, slack = _newton_step(now, proportions, slack)
    proportions = proportions / proportions.sum()
    found = likelihood(proportions)
    relative = float(np.log(found.pull.max())) / max(1.0, abs(found.objective))
    return proportions, Certificate(found.objective, 0.0, 0.0, relative, iteration, bool(relative <= tol))


def _newton_step(now: Likelihood, proportions: FloatArray, slack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One Newton step toward a tenth of the current complementarity."""
    complementarity = 0.1 * float(proportions @ slack) / len(proportions)
    hessian = now.hessian()
    hessian[np.diag_indices(len(proportions))] += slack / proportions
    right = complementarity / proportions - (1 - now.pull)
    step = cho_solve(cho_factor(hessian, overwrite_a=True, check_finite=False), right, check_finite=False)
    slack_step = complementarity / proportions - slack - slack / proportions * step
    length = min(1.0, 0.99 * _longest(proportions, step))
    return proportions + length * step, slack + min(1.0, 0.99 * _longest(slack, slack_step)) * slack_step


class LikelihoodSums:
    """Sums over target rows of what a Newton step toward the most likely proportions needs."""

    def __init__(self, basis: Basis, means: FloatArray, proportions: FloatArray) -> None:
        self.basis, self.means, self.proportions = basis, means, proportions
        self.count, self.logs, self.reached = 0, 0.0, True
        self.pull: FloatArray = np.zeros(len(means))
        self.hessian: FloatArray = np.zeros((len(means), len(means)), order="F")

    def add(self, start: int, rows: FloatArray) -> None:
        """Add rows."""
        scaled = self.basis.scaled(rows)
        width = float(self.basis.widths[0])
        self.count += len(rows)
        for block in blocks(len(scaled)):
            values = gaussian(scaled[block], self.basis.centers, width).astype(np.float64, copy=False)
            values /= self.means
            self.reached &= _covers(values)
            fit = values @ self.proportions
            if not fit.min() > 0:
                self.reached = False
                return
            self.logs += float(np.log(fit).sum())
            values /= fit[:, None]
            self.pull += values.sum(axis=0)
            dsyrk(1.0, values.T, beta=1.0, c=self.hessian, overwrite_c=1)

    def merge(self, part: LikelihoodSums) -> None:
        """Add another part of the table."""
        self.count += part.count
        self.logs += part.logs
        self.reached &= part.reached
        self.pull += part.pull
        self.hessian += part.hessian

    def likelihood(self) -> Likelihood:
        """The mean likelihood; an error where a target row is out of reach of every source row."""
        if not self.reached:
            raise NoOverlapError(NO_OVERLAP.format("some target rows are out of reach of every source row"))
        return Likelihood(-self.logs / self.count, self.pull / self.count, lambda: self.hessian / self.count)


def _longest(point: FloatArray, step: FloatArray) -> float:
    shrink = float(np.min(step / point))
    return np.inf if shrink >= 0 else -1 / shrink


class KLIEP(GaussianRatio):
    """Density ratio g(x) = Σ β_l ψ_l(x) by max mean_target log g(x) subject to mean_source g = 1, β ≥ 0.

    Kullback–Leibler importance estimation procedure (survey, section 3.2), with Gaussian ψ_l centered at target rows.
    The width is chosen by mean_target log g − log mean_source g on held-out rows of both domains (5 folds; held-out
    rows are not used as centers).

    The fitted ratio has mean one over the source, up to rounding. ``certificate_.gap`` bounds how far the likelihood
    is from the optimum.

    Parameters
    ----------
    width : positive number or list of them, default=None
        Kernel width (bandwidth) σ, in units of the standardized columns, or a grid to choose from. None chooses from
        nine widths between 1/8 and twice the median distance.
    n_centers : int, default=100
        Number of centers, chosen among the target rows so that they cover the target.
    centers : table of shape (n_centers, n_columns), default=None
        Centers to use instead of target rows.
    tol : float, default=1e-6
        Largest duality gap of the fit.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    random_state : int, Generator or None, default=None
        For the choice of the centers and the folds.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One weight per source row, non-negative with mean one.
    width_ : float
        The kernel width that was chosen or given.
    coef_ : array of shape (n_centers,)
        Coefficients β of the basis functions.
    centers_ : array of shape (n_centers, n_columns)
        The centers, scaled as the columns were.
    scores_ : array of shape (n_widths,)
        Held-out likelihood of each of ``widths_``; −inf where some target row has no source row within the kernel's
        range. Absent where a single width was given.
    widths_ : array of shape (n_widths,)
        The widths that were compared, in decreasing order; absent where a single width was given.
    certificate_ : Certificate
        Duality gap of the fit.
    balance_ : Balance
        Standardized differences of the columns to the target, before and after weighting.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    raw_mean_, source_mean_ : float
        Mean of the ratio over the source before normalization; one up to rounding.
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
        n_folds = number_of_folds(source, target, chosen="width") if len(widths) > 1 else 1
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
        reached, basis = self._reachable(target, self.width_, means[chosen])
        if basis is None:
            raise NoOverlapError(NO_OVERLAP.format("some target rows are out of reach of every source row"))
        proportions, self.certificate_ = mixture_proportions(basis, target.mass, self.tol)
        self.certificate_.require("KLIEP", self.tol, "tol or width")
        self.coef_ = np.zeros(len(self.centers_))
        self.coef_[reached] = proportions / means[chosen, reached]
        return self._ratio_on_source(source)

    def _n_sample(self) -> int:
        return 20_000

    def _fit_tables(
        self,
        tables: tuple[RowStream, RowStream],
        summaries: list[Summary],
        samples: list[Empirical],
        rng: np.random.Generator,
    ) -> None:
        """The centers and the width are those of the samples; the coefficients are fitted to all rows."""
        scaled = [self._scaled(sample) for sample in samples]
        self.median_distance_ = median_distance(scaled[0], scaled[1])
        self._fit(scaled[0], scaled[1], rng)
        basis = Basis(self.center_, self.scale_, self.centers_, np.array([self.width_]))
        over_source = tables[0].reduce(partial(FoldMoments, basis, second=False), "summing")
        means = over_source.without(0, None)[0]
        # The start is strictly positive and close to the proportions of the sample.
        reached = means > NEGLIGIBLE_KERNEL
        sampled = (self.coef_ * means)[reached]
        start = 0.9 * sampled / sampled.sum() + 0.1 / reached.sum()
        basis = Basis(self.center_, self.scale_, self.centers_[reached], basis.widths)

        def likelihood(proportions: FloatArray) -> Likelihood:
            make = partial(LikelihoodSums, basis, means[reached], proportions)
            return tables[1].reduce(make, "fitting").likelihood()

        proportions, self.certificate_ = most_likely_proportions(likelihood, start, self.tol)
        self.certificate_.require("KLIEP", self.tol, "tol or width")
        self.coef_ = np.zeros(len(self.centers_))
        self.coef_[reached] = proportions / means[reached]

    def _reachable(self, target: Empirical, width: float, means: FloatArray) -> tuple[BoolArray, FloatArray | None]:
        """Which centers have source rows within reach, and their basis at the target rows, scaled to source mean one.

        The basis is None where a target row is out of reach of all these centers: its likelihood would be zero for
        any coefficients.
        """
        reached = means > NEGLIGIBLE_KERNEL
        if not reached.any():
            return reached, None
        basis = np.empty((len(target), int(reached.sum())))
        for block in blocks(len(target)):
            basis[block] = gaussian(target.rows[block], self.centers_[reached], width)
        basis /= means[reached]
        return reached, basis if _covers(basis) else None

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

        With g normalized over *all* source rows, the score would favor a narrow g that is large where the source has
        few rows by chance. `sums` are Σ mass·ψ over the source rows of each fold, `mass` the share of each fold.
        """
        reached, basis = self._reachable(target, width, sums.sum(axis=0))
        if basis is None:
            return -np.inf
        basis *= sums.sum(axis=0)[reached]  # not scaled: every fold has its own scale
        total = 0.0
        for f in range(parts.n_folds):
            held_mean = sums[f, reached] / mass[f]
            train_mean = (sums.sum(axis=0) - sums[f])[reached] / (1 - mass[f])
            columns = (of_centers[reached] != f) & (train_mean > NEGLIGIBLE_KERNEL)
            kept = parts.masses(len(target), without=f)
            train = basis[np.ix_(kept > 0, columns)] / train_mean[columns]
            if not columns.any() or not _covers(train):
                return -np.inf
            # Choosing a width needs no more than four digits of the likelihood.
            proportions, _ = mixture_proportions(train, kept[kept > 0] / kept.sum(), max(self.tol, 1e-4))
            coef = proportions / train_mean[columns]
            held = parts.fold == f
            with np.errstate(divide="ignore"):
                likelihood = np.log(basis[np.ix_(parts.cell[held], columns)] @ coef)
                total += float(parts.mass[held] @ likelihood)
                total -= float(parts.mass[held].sum() * np.log(held_mean[columns] @ coef))
        return total if np.isfinite(total) else -np.inf


def _covers(basis: FloatArray) -> bool:
    """Whether every row is within reach of some center."""
    return bool(basis.max(axis=1).min() > NEGLIGIBLE_KERNEL)
