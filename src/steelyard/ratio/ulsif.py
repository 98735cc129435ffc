"""Unconstrained and relative least-squares importance fitting (uLSIF, RuLSIF)."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_grid, check_range
from steelyard.errors import InputError
from steelyard.ratio._from_sums import RatioFromSums
from steelyard.ratio._gaussian import REGS
from steelyard.ratio._leave_one_out import Moments, leave_one_out
from steelyard.ratio._sums import FoldMoments, fold_scores


def rounded_coefficients(second: FloatArray, first: FloatArray, reg: float) -> FloatArray:
    """β = max(0, (H + λI)⁻¹ h), by the eigenvectors of H, which are accurate even where H is singular."""
    values, vectors = np.linalg.eigh(second)
    solution = vectors @ ((vectors.T @ first) / (np.maximum(values, 0) + reg))
    return np.maximum(solution, 0)


def _locate_minimum(scores: FloatArray) -> tuple[int, int]:
    """Position of the smallest score in the grid; NaN is never chosen."""
    w, r = np.unravel_index(np.argmin(np.where(np.isnan(scores), np.inf, scores)), scores.shape)
    return int(w), int(r)


class RULSIF(RatioFromSums):
    """Relative density ratio w_η(x) = p_target(x) / (η p_target(x) + (1−η) p_source(x)) in closed form.

    Relative unconstrained least-squares importance fitting (survey, section 4.2): g(x) = Σ β_l ψ_l(x) with Gaussian
    ψ_l centered at target rows and β = max(0, (H_η + λI)⁻¹ h), where H_η = η mean_target ψψᵀ + (1−η) mean_source ψψᵀ
    and h = mean_target ψ. Width and λ are chosen by the exact leave-one-out score of the whole grid.

    The relative density ratio lies in [0, 1/η]. The weights are normalized to mean one over the source, while the
    mean of the ratio that is one in theory is that over the mixture (``raw_mean_``). With eta=1 every weight is
    exactly one.

    Parameters
    ----------
    eta : float in [0, 1], default=0.1
        η of the relative density ratio: 0 is the plain density ratio (the same as `ULSIF`), 1 gives equal weights.
    width : positive number or list of them, default=None
        Kernel width (bandwidth) σ, in units of the standardized columns, or a grid to choose from. None chooses from
        nine widths between 1/8 and twice the median distance.
    reg : positive number or list of them, default=None
        Regularization strength λ, or a grid to choose from. None chooses from nine values between 0.001 and 10.
    n_centers : int, default=100
        Number of centers, chosen among the target rows so that they cover the target.
    centers : table of shape (n_centers, n_columns), default=None
        Centers to use instead of target rows.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    random_state : int, Generator or None, default=None
        For the choice of the centers and the pairs of rows of the leave-one-out score.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One weight per source row, non-negative with mean one; for a source given as a path or in blocks an iterable of
        one array for each block.
    width_, reg_ : float
        The kernel width and the regularization strength that were chosen or given.
    coef_ : array of shape (n_centers,)
        Coefficients β of the basis functions.
    centers_ : array of shape (n_centers, n_columns)
        The centers, scaled as the columns were.
    scores_ : array of shape (n_widths, n_regs)
        Leave-one-out J' of the grid ``widths_`` × ``regs_``, smaller is better; absent where both were given.
    widths_, regs_ : array
        The grid, in decreasing order; absent where both were given.
    balance_ : Balance
        Standardized differences of the columns to the target, before and after weighting.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    raw_mean_ : float
        Mean of the ratio over the mixture before normalization; one in theory.
    source_mean_ : float
        Mean of the ratio over the source before normalization.
    n_clipped_ : int
        Number of distinct source rows at which the fit exceeded 1/η and was clipped.
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
    >>> from steelyard import RULSIF, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> ratio = RULSIF(eta=0.5, random_state=0).fit(source, target=Target(target))
    >>> bool(np.average(source[:, 0], weights=ratio.weights_) > 0.5)
    True
    """

    def __init__(
        self,
        eta: float = 0.1,
        *,
        width: Any = None,
        reg: Any = None,
        n_centers: int = 100,
        centers: Any = None,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.eta = eta
        self.width = width
        self.reg = reg
        self.n_centers = n_centers
        self.centers = centers
        self.standardize = standardize
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.eta_ = check_range("eta", self.eta, 0, 1)
        if self.reg is not None:
            check_grid("reg", self.reg)

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        centers, center_cells, widths = self._basis(target)
        regs = REGS if self.reg is None else check_grid("reg", self.reg)
        first, second_target = basis_moments(target.rows, target.mass, centers, widths, second=self.eta_ > 0)
        _, second_source = basis_moments(source.rows, source.mass, centers, widths)
        moments = Moments(first[:, 0], second_source[:, 0], second_target[:, 0])
        w, r = self._choose(source, target, center_cells, widths, regs, moments, rng)
        self.width_, self.reg_ = float(widths[w]), float(regs[r])
        self.coef_ = rounded_coefficients(moments.second(w, self.eta_), moments.first[w], self.reg_)
        raw = self._ratio_on_source(source)
        self.n_clipped_ = int(np.count_nonzero(raw > self._largest()))
        return np.minimum(raw, self._largest())

    def _choose(
        self,
        source: Empirical,
        target: Empirical,
        center_cells: IntArray,
        widths: FloatArray,
        regs: FloatArray,
        moments: Moments,
        rng: np.random.Generator,
    ) -> tuple[int, int]:
        if len(widths) == len(regs) == 1:
            return 0, 0
        if min(source.n_units, target.n_units) < 2:
            raise InputError(
                "Choosing width and reg by leave-one-out needs at least two rows in the source and in the target that "
                f"are not duplicates of one another; got {source.n_units} and {target.n_units}. Give width= and reg=, "
                "or more rows."
            )
        self.widths_, self.regs_ = widths, regs
        self.scores_ = leave_one_out(source, target, self.centers_, center_cells, widths, regs, self.eta_, moments, rng)
        return _locate_minimum(self.scores_)

    def _is_one(self) -> bool:
        return self.eta_ == 1  # the mixture is the target itself, so the ratio is one

    def _solve(self, on_source: FoldMoments, on_target: FoldMoments, of_centers: IntArray) -> int:
        widths = on_source.basis.widths
        regs = REGS if self.reg is None else check_grid("reg", self.reg)
        w = r = 0
        if len(widths) * len(regs) > 1:
            self.widths_, self.regs_ = widths, regs
            self.scores_ = fold_scores(on_source, on_target, regs, self.eta_, of_centers)
            w, r = _locate_minimum(self.scores_)
        self.width_, self.reg_ = float(widths[w]), float(regs[r])
        first, second_target = on_target.without(w, None)
        second = (1 - self.eta_) * on_source.without(w, None)[1] + self.eta_ * second_target
        self.coef_ = rounded_coefficients(second, first, self.reg_)
        return w

    def _ratio(self, rows: FloatArray) -> FloatArray:
        return np.minimum(super()._ratio(rows), self._largest())

    def _largest(self) -> float:
        return 1 / self.eta_ if self.eta_ > 0 else np.inf

    def _raw_mean(self, raw: FloatArray, source: Empirical, target: Empirical) -> float:
        over_source = float(source.mass @ raw)
        if self.eta_ == 0:
            return over_source
        return self.eta_ * float(target.mass @ self._ratio(target.rows)) + (1 - self.eta_) * over_source


class ULSIF(RULSIF):
    """Density ratio w(x) = p_target(x) / p_source(x) ≈ Σ β_l ψ_l(x) with β = max(0, (H + λI)⁻¹ h), in closed form.

    Unconstrained least-squares importance fitting (survey, section 3.2.2), with H = mean_source ψψᵀ,
    h = mean_target ψ and Gaussian ψ_l centered at target rows. Width and λ are chosen by the exact leave-one-out
    score of the whole grid. It is `RULSIF` at η = 0.

    Parameters
    ----------
    width : positive number or list of them, default=None
        Kernel width (bandwidth) σ, in units of the standardized columns, or a grid to choose from. None chooses from
        nine widths between 1/8 and twice the median distance.
    reg : positive number or list of them, default=None
        Regularization strength λ, or a grid to choose from. None chooses from nine values between 0.001 and 10.
    n_centers : int, default=100
        Number of centers, chosen among the target rows so that they cover the target.
    centers : table of shape (n_centers, n_columns), default=None
        Centers to use instead of target rows.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    random_state : int, Generator or None, default=None
        For the choice of the centers and the pairs of rows of the leave-one-out score.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One weight per source row, non-negative with mean one; for a source given as a path or in blocks an iterable of
        one array for each block.
    width_, reg_ : float
        The kernel width and the regularization strength that were chosen or given.
    coef_ : array of shape (n_centers,)
        Coefficients β of the basis functions.
    centers_ : array of shape (n_centers, n_columns)
        The centers, scaled as the columns were.
    scores_ : array of shape (n_widths, n_regs)
        Leave-one-out J' of the grid ``widths_`` × ``regs_``, smaller is better; absent where both were given.
    widths_, regs_ : array
        The grid, in decreasing order; absent where both were given.
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
    >>> from steelyard import ULSIF, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> ratio = ULSIF(random_state=0).fit(source, target=Target(target))
    >>> round(float(ratio.weights_.mean()), 12)
    1.0
    """

    def __init__(
        self,
        *,
        width: Any = None,
        reg: Any = None,
        n_centers: int = 100,
        centers: Any = None,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            0.0,
            width=width,
            reg=reg,
            n_centers=n_centers,
            centers=centers,
            standardize=standardize,
            random_state=random_state,
        )
