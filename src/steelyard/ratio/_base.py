"""What every ratio estimator shares: checking, scaling, normalizing and the laws of `weights_`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist, pdist
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from steelyard._numerics.empirical import Empirical, empirical
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import (
    check_centers,
    check_count,
    check_grid,
    check_new_rows,
    check_source,
    check_target,
    check_weights,
    forget_fit,
    generator,
    match_columns,
    warn_without_target,
)
from steelyard.balance import Balance, column_balance
from steelyard.errors import (
    InputError,
    NoOverlapError,
    NoShiftWarning,
    RawMeanWarning,
    SmallEffectiveSampleWarning,
    UnseenCellsWarning,
)
from steelyard.ratio._centers import covering_rows
from steelyard.report.notebook import ShowsWeights
from steelyard.weights import counted, effective_sample_size, normalize

# Nine widths of ratio √2 around the median distance: one exponential serves them all (see `kernels`).
WIDTH_FACTORS = 2.0 ** (np.arange(2, -7, -1) / 2)
REGS = 10.0 ** (np.arange(2, -7, -1) / 2)
# Kernel values below this count as zero. A center that no source row reaches would get a boundless coefficient:
# nothing on the source side holds it down.
FAR_CENTER = 1e-12
# Target rows in cells that the source lacks are named beyond this share, and beyond so many times what chance gives.
UNSEEN_SHARE, UNSEEN_TIMES = 0.01, 2.0


class RatioEstimator(ShowsWeights, BaseEstimator):
    """Estimates w(x) = p_target(x) / p_source(x) on the source rows.

    A subclass writes ``_fit(source, target, rng)``, which returns the raw ratio on the distinct source rows and may
    set fitted attributes.

    The weights are never negative, never NaN, and have mean one (counted by ``sample_weight`` where given, in which
    a row of weight 3 is three equal rows). Without a target every weight is one and a `NoTargetWarning` says so.
    Input is never changed.
    """

    # Metadata routing: `target` is asked for by default.
    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name scikit-learn looks for)

    standardize: bool
    random_state: Any

    def fit(self, X: Any, y: Any = None, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Weigh the source rows `X` so that they look like the rows of `target`.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : ignored
            There for the convention.
        target : Target or table of shape (n_target, n_columns), default=None
            The other domain. Data frames are matched by column name.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts. Weights that are all whole numbers are counts: weighting a row by three
            and repeating it three times are the same fit, what is chosen by cross-validation included. Other weights
            say only how much a row counts beside the others: their scale changes nothing, they are taken to sum to
            the number of rows with positive weight. A row of weight 0 is left out, and its weight is 0.
        """
        forget_fit(self)
        rows = check_source(self, X)
        counts = check_weights(sample_weight, len(rows))
        self._check_parameters()
        if target is None:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected", 2)
            return self._constant(rows, rows, counts)
        target_rows = check_target(self, target, X)
        if self._is_one():
            return self._constant(rows, target_rows, counts)
        dtype = np.result_type(rows, target_rows)
        rng = generator(self.random_state)
        source = empirical(rows.astype(dtype, copy=False), counts, rng)
        sample = empirical(target_rows.astype(dtype, copy=False), None, rng)
        if not self._set_scale(source, sample):
            warnings.warn(
                "Every source and target row is the same, so there is nothing to tell them apart by: "
                "every weight is 1.",
                NoShiftWarning,
                stacklevel=2,
            )
            return self._constant(rows, target_rows, counts)
        with one_blas_thread():
            raw = self._fit_samples(source, sample, rng)
        self._keep(raw, source, counts)
        self.balance_ = self._column_balance(rows, target_rows, counts)
        self._warn_of_unseen_cells(source, sample)
        return self

    def _set_scale(self, source: Empirical, target: Empirical) -> bool:
        """Center and scale of the columns; whether any column varies."""
        self.center_, self.scale_, varies = pooled_scale(source, target, self.standardize)
        return varies

    def _fit_samples(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        """Fit on merged rows, whose scale is set; the raw ratio on the distinct source rows."""
        scaled = self._scaled(source), self._scaled(target)
        self.median_distance_ = median_distance(*scaled)
        raw = self._fit(*scaled, rng).astype(np.float64)
        self.raw_mean_ = self._raw_mean(raw, *scaled)
        self.constant_ = False
        return raw

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        raise NotImplementedError

    def _column_balance(self, rows: FloatArray, target_rows: FloatArray, counts: FloatArray | None) -> Balance:
        names = getattr(self, "feature_names_in_", None)
        n_rows = None if counts is None else int(np.count_nonzero(counts))
        return column_balance(rows, target_rows, self.weights_, counts, None if names is None else list(names), n_rows)

    def _raw_mean(self, raw: FloatArray, source: Empirical, target: Empirical) -> float:
        """The mean that theory puts at one: over the source for the plain ratio."""
        return float(source.mass @ raw)

    def _check_parameters(self) -> None:
        """Refuse constructor parameters out of range; the subclass says which."""

    def _is_one(self) -> bool:
        """Whether the ratio asked for is one everywhere, whatever the rows."""
        return False

    def _constant(self, rows: FloatArray, target_rows: FloatArray, counts: FloatArray | None) -> Self:
        self._keep_ones(len(rows), counts)
        with np.errstate(over="ignore", invalid="ignore"):
            self.balance_ = self._column_balance(rows, target_rows, counts)
        return self

    def _keep_ones(self, n_rows: int, counts: FloatArray | None) -> None:
        self.constant_ = True
        self.weights_: FloatArray = np.ones(n_rows) if counts is None else np.where(counts > 0, 1.0, 0.0)
        self.raw_mean_ = self.source_mean_ = 1.0
        self.effective_sample_size_ = effective_sample_size(counted(self.weights_, counts))

    def _keep(self, raw: FloatArray, source: Empirical, counts: FloatArray | None) -> None:
        if not np.isfinite(raw).all() or not (raw > 0).any():
            raise NoOverlapError(NO_OVERLAP.format("every raw weight is 0 or not finite"))
        self.source_mean_ = float(source.mass @ raw)
        self.weights_ = normalize(source.spread(raw), counts)
        self.effective_sample_size_ = effective_sample_size(counted(self.weights_, counts))
        self._warn()

    def _warn(self) -> None:
        n_rows, size = len(self.weights_), self.effective_sample_size_
        if size < min(
            max(5, 0.01 * n_rows), n_rows / 2
        ):  # a handful of equal weights is few rows, not few effective ones
            warnings.warn(
                f"{type(self).__name__}: the weights are worth {size:.1f} equally weighted rows out of {n_rows}. "
                "Source and target hardly overlap; a fit on so few rows is unstable. Flatten the weights "
                "(flattening < 1), use RULSIF, or drop columns that differ by construction.",
                SmallEffectiveSampleWarning,
                stacklevel=4,
            )
        self._warn_of_raw_mean()

    def _warn_of_unseen_cells(self, source: Empirical, target: Empirical) -> None:
        share, cell = unseen_cells(source, target)
        if not share:
            return
        names = getattr(self, "feature_names_in_", [f"column {i}" for i in range(target.rows.shape[1])])
        named = ", ".join(f"{name} = {value:g}" for name, value in zip(names, target.rows[cell], strict=True))
        warnings.warn(
            f"{type(self).__name__}: {share:.0%} of the target rows have a combination of values that no source row "
            f"has; the most common is ({named}). No weight can stand for such rows: what is learned from the weighted "
            "source says nothing about them. Collect source rows like them, merge levels, or leave such rows out.",
            UnseenCellsWarning,
            stacklevel=3,
        )

    def _warn_of_raw_mean(self) -> None:
        if not 0.5 <= self.raw_mean_ <= 2:
            warnings.warn(
                f"{type(self).__name__}: the fitted ratio has mean {self.raw_mean_:.3g} where theory demands 1. "
                "The weights are normalized, but the ratio fits badly: widen the grids of width and reg, or check "
                "that source and target overlap.",
                RawMeanWarning,
                stacklevel=4,
            )

    def _scaled(self, sample: Empirical) -> Empirical:
        return sample.with_rows(self._scale_rows(sample.rows))

    def _scale_rows(self, rows: FloatArray) -> FloatArray:
        return ((rows - self.center_) / self.scale_).astype(rows.dtype, copy=False)


class InductiveRatio(RatioEstimator):
    """A ratio estimator that is a function, and so can be evaluated and scored on new rows.

    A subclass also writes ``_ratio(rows)``, the raw ratio at scaled rows.
    """

    eta_: float = 0.0  # of the relative ratio that is estimated; 0 for the plain one

    def predict(self, X: Any) -> FloatArray:
        """The ratio at rows `X`, as fitted: not normalized, never negative.

        ``weights_`` is this at the source rows divided by ``source_mean_`` (`ClassifierRatio` apart, whose weights
        are cross-fitted).
        """
        check_is_fitted(self, "raw_mean_")
        rows = check_new_rows(self, X)
        if self.constant_:
            return np.ones(len(rows))
        with one_blas_thread():
            return np.asarray(self._ratio(self._scale_rows(rows)), dtype=np.float64)

    def score(self, X: Any, y: Any = None, *, target: Any = None) -> float:
        """−J', the negative squared error of the ratio up to a constant: greater is better.

        J' = ½(1−η)·mean_source g² + ½η·mean_target g² − mean_target g, on rows that may be new. Without a target
        `X` stands for both domains.
        """
        check_is_fitted(self, "raw_mean_")
        on_source = self.predict(X)
        if target is None:
            warn_without_target(f"{type(self).__name__}.score", "the source rows stand for both domains", 2)
            on_target = on_source
        else:
            on_target = self.predict(match_columns(target, X))
        squares = (1 - self.eta_) * np.mean(on_source**2) + self.eta_ * np.mean(on_target**2)
        return float(np.mean(on_target) - squares / 2)

    def _ratio(self, rows: FloatArray) -> FloatArray:
        raise NotImplementedError


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
        """Centers (scaled), the distinct target row that each of them is (-1: a given one), and falling widths."""
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
        return self._reach_and_ratio(rows)[1]

    def _ratio_on_source(self, source: Empirical) -> FloatArray:
        """The ratio on the source rows; an error where the kernels of the centers reach none of them."""
        reach, ratio = self._reach_and_ratio(source.rows)
        require_reach(reach)
        return ratio

    def _reach_and_ratio(self, rows: FloatArray) -> tuple[float, FloatArray]:
        """The largest mean kernel value of a row, and the ratio at every row."""
        values, reach = np.empty(len(rows)), 0.0
        # The mean over the centers is one more column of coefficients.
        coef = np.column_stack([self.coef_, np.full(len(self.coef_), 1 / len(self.coef_))]).astype(rows.dtype)
        for block in blocks(len(rows)):
            both = gaussian(rows[block], self.centers_, self.width_) @ coef
            values[block] = both[:, 0]
            reach = max(reach, float(both[:, 1].max()))
        return reach, values


def fold_of_centers(cells: IntArray, fold_of_cells: IntArray) -> IntArray:
    """The fold with which each center is held out; -1 for centers that always stay.

    A held-out row must not serve as a center in its own fold: a basis function is at its largest on its own center,
    so the score would praise narrow widths. A center stays where an equal row is in another fold.
    """
    return np.where(cells >= 0, fold_of_cells[cells], -1)


def unseen_cells(source: Empirical, target: Empirical) -> tuple[float, int]:
    """Share of the target rows whose combination of values the source lacks, and the most common one's place.

    Zero unless both tables are discrete, and the share is more than sampling explains: by Good and Turing, the cells
    that a sample happens to lack have about as much mass as those of which it has a single row.
    """
    if source.units.max() == 1 or target.units.max() == 1:
        return 0.0, 0
    known = {row.tobytes() for row in source.rows + 0.0}  # adding zero turns −0 into 0
    unseen = np.array([row.tobytes() not in known for row in target.rows + 0.0])
    share = float(target.mass[unseen].sum())
    single = float(np.sum(source.counts == 1)) / source.n_rows
    if share <= max(UNSEEN_SHARE, UNSEEN_TIMES * single):
        return 0.0, 0
    return share, int(np.argmax(np.where(unseen, target.mass, 0)))


def require_reach(reach: float) -> None:
    """An error where the largest mean kernel value of a source row is practically zero."""
    if reach <= FAR_CENTER:
        raise NoOverlapError(NO_OVERLAP.format(f"the largest mean kernel value of a source row is {reach:.1e}"))


NO_OVERLAP = (
    "Source and target share no region ({}). No weighting of the source rows can look like the target: drop columns "
    "that differ by construction (identifiers, dates), or collect source rows nearer to the target."
)


def median_distance(source: Empirical, target: Empirical, at_most: int = 150) -> float:
    """Median distance between rows of both domains, from a sample of each: the customary width of a kernel.

    Raises `NoOverlapError` where the gap between the domains is ten times as wide as either of them: a kernel wide
    enough to bridge it sees two points, and its weights would say nothing.
    """
    some, others = source.rows[:at_most], target.rows[:at_most]  # random ones: the rows are shuffled
    across = cdist(some, others)
    within = pdist(some), pdist(others)
    spread = max(float(np.median(part)) if len(part) else 0.0 for part in within)
    if across.min() > 10 * spread > 0:
        raise NoOverlapError(
            NO_OVERLAP.format(
                f"the nearest rows are {across.min():.3g} standardized units apart, rows within a domain {spread:.3g}"
            )
        )
    return float(np.median(np.concatenate([across.ravel(), *within])))


def pooled_scale(source: Empirical, target: Empirical, standardize: bool) -> tuple[FloatArray, FloatArray, bool]:
    """Center and scale of the even mixture of both domains, and whether any column varies at all.

    Even, so that the scale does not depend on which table happens to be longer. A constant column keeps its unit:
    it adds nothing to any distance.
    """
    samples = [(sample.mass, sample.rows.astype(np.float64)) for sample in (source, target)]
    with np.errstate(over="ignore", invalid="ignore"):
        means = [mass @ rows for mass, rows in samples]
        variances = [mass @ np.square(rows - mean) for (mass, rows), mean in zip(samples, means, strict=True)]
    return mixture_scale(means, variances, standardize)


def mixture_scale(
    means: Sequence[FloatArray], variances: Sequence[FloatArray], standardize: bool
) -> tuple[FloatArray, FloatArray, bool]:
    """Center and scale of the even mixture of two domains with these means and variances of the columns."""
    center = (means[0] + means[1]) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        variance = (variances[0] + variances[1]) / 2 + np.square(means[0] - means[1]) / 4
    if not np.isfinite(variance).all():
        column = int(np.flatnonzero(~np.isfinite(variance))[0])
        raise InputError(
            f"Column {column} has values whose squares are out of range. Rescale it, or drop rows with such values."
        )
    tiny = np.spacing(np.abs(center)) ** 2 * 16
    varies = variance > tiny
    scale = np.where(varies, np.sqrt(variance), 1.0) if standardize else np.ones_like(center)
    return center, scale, bool(varies.any())
