"""What every ratio estimator shares: validating, scaling, normalizing, and the guarantees of `weights_`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from steelyard._numerics.empirical import Empirical, empirical
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._numerics.tensors import as_array
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
from steelyard.errors import NoOverlapError, NoShiftWarning, RawMeanWarning, UnseenCellsWarning, warn_user
from steelyard.ratio._centers import covering_rows
from steelyard.ratio._overlap import NO_OVERLAP, median_distance, require_overlap, unseen_cells
from steelyard.ratio._scaling import pooled_scale
from steelyard.ratio._tensors import fit_tensors, given_tensors, predict_tensor
from steelyard.report.notebook import ShowsWeights
from steelyard.weights import effective_sample_size, multiply_counts, normalize, warn_of_small_sample

# Nine kernel widths, each √2 times the next, around the median distance: one exponential serves all (see `kernels`).
WIDTH_FACTORS = 2.0 ** (np.arange(2, -7, -1) / 2)
REGS = 10.0 ** (np.arange(2, -7, -1) / 2)


class RatioEstimator(ShowsWeights, BaseEstimator):
    """Estimates the density ratio w(x) = p_target(x) / p_source(x) on the source rows.

    A subclass implements ``_fit(source, target, rng)``, which returns the ratio before normalization on the distinct
    source rows and may set fitted attributes.

    The weights are never negative, never NaN, and have mean one (under ``sample_weight`` where given, in which a row
    of weight 3 is three equal rows). Without a target every weight is one, with a `NoTargetWarning`. Input is never
    modified.
    """

    # Metadata routing: `target` is requested by default.
    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name that scikit-learn looks for)

    standardize: bool
    random_state: Any

    def fit(self, X: Any, y: Any = None, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Estimate one importance weight per source row.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows. PyTorch tensors give ``weights_`` as a tensor on their device and of their type; other fitted
            attributes are arrays. With more than 100,000 rows on a GPU, `KMM`, `ULSIF` and `RULSIF` are fitted there,
            the latter two with five folds by the number of the row instead of leave-one-out; everything else goes by
            way of the host.
        y : ignored
            Present by scikit-learn's convention.
        target : Target or table of shape (n_target, n_columns), default=None
            Target rows. Data frames are matched by column name; tensors are on the device of the source.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts. Weights that are all whole numbers are counts: weighting a row by three
            and repeating it three times give the same fit, including everything chosen by cross-validation. Other
            weights are relative: they are rescaled to sum to the number of rows with positive weight, so their scale
            does not matter. A row of weight 0 is left out of the fit, and its importance weight is 0.

        Returns
        -------
        self : estimator
            The fitted estimator; the importance weights are in ``weights_``.
        """
        if given_tensors(X, target, sample_weight):
            fit_tensors(self, X, target, sample_weight)
            return self
        forget_fit(self)
        rows = check_source(self, X)
        counts = check_weights(sample_weight, len(rows))
        self._check_parameters()
        if target is None:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected")
            return self._constant(rows, rows, counts)
        target_rows = check_target(self, target, X)
        if self._is_one():
            return self._constant(rows, target_rows, counts)
        dtype = np.result_type(rows, target_rows)
        rng = generator(self.random_state)
        source = empirical(rows.astype(dtype, copy=False), counts, rng)
        sample = empirical(target_rows.astype(dtype, copy=False), None, rng)
        if not self._set_scale(source, sample):
            warn_user(
                "All source and target rows are equal, so no shift can be estimated: every weight is 1.",
                NoShiftWarning,
            )
            return self._constant(rows, target_rows, counts)
        with one_blas_thread():
            raw = self._fit_samples(source, sample, rng)
        self._keep(raw, source, counts)
        self.balance_ = self._column_balance(rows, target_rows, counts)
        self._warn_of_unseen_cells(source, sample)
        return self

    def _set_scale(self, source: Empirical, target: Empirical) -> bool:
        """Set center and scale of the columns; whether any column varies."""
        self.center_, self.scale_, varies = pooled_scale(source, target, self.standardize)
        return varies

    def _fit_samples(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        """Fit on merged rows, after `_set_scale`; the ratio before normalization on the distinct source rows."""
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
        """The mean that is one in theory: over the source for the plain density ratio."""
        return float(source.mass @ raw)

    def _check_parameters(self) -> None:
        """Raise an error for constructor parameters out of range; subclasses implement it."""

    def _is_one(self) -> bool:
        """Whether the ratio to be estimated is one everywhere, whatever the rows."""
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
        self.effective_sample_size_ = effective_sample_size(multiply_counts(self.weights_, counts))

    def _keep(self, raw: FloatArray, source: Empirical, counts: FloatArray | None) -> None:
        if not np.isfinite(raw).all() or not (raw > 0).any():
            raise NoOverlapError(NO_OVERLAP.format("every estimated weight is 0 or not finite"))
        self.source_mean_ = float(source.mass @ raw)
        self.weights_ = normalize(source.spread(raw), counts)
        self.effective_sample_size_ = effective_sample_size(multiply_counts(self.weights_, counts))
        self._warn()

    def _warn(self) -> None:
        advice = (
            "Flatten the weights (WeightedRegressor(..., flattening=0.5)), use RULSIF, or drop columns that differ by "
            "construction."
        )
        warn_of_small_sample(type(self).__name__, self.effective_sample_size_, len(self.weights_), advice)
        self._warn_of_raw_mean()

    def _warn_of_unseen_cells(self, source: Empirical, target: Empirical) -> None:
        share, cell = unseen_cells(source, target)
        if not share:
            return
        names = getattr(self, "feature_names_in_", [f"column {i}" for i in range(target.rows.shape[1])])
        named = ", ".join(f"{name} = {value:g}" for name, value in zip(names, target.rows[cell], strict=True))
        warn_user(
            f"{type(self).__name__}: {share:.0%} of the target rows have a combination of values that no source row "
            f"has; the most common is ({named}). Weighting cannot represent them, so predictions for them are "
            "extrapolation. Collect source rows with these values, merge levels, or leave these target rows out.",
            UnseenCellsWarning,
        )

    def _warn_of_raw_mean(self) -> None:
        if not 0.5 <= self.raw_mean_ <= 2:
            grids = " and ".join(name for name in ("width", "reg") if hasattr(self, name))
            widen = f"widen the grid of {grids}, or " if grids else ""
            warn_user(
                f"{type(self).__name__}: the fitted density ratio has mean {self.raw_mean_:.3g}, where it should be 1. "
                f"The weights are normalized, but the ratio fits badly: {widen}check that "
                "source and target overlap.",
                RawMeanWarning,
            )

    def _scaled(self, sample: Empirical) -> Empirical:
        return sample.with_rows(self._scale_rows(sample.rows))

    def _scale_rows(self, rows: FloatArray) -> FloatArray:
        return ((rows - self.center_) / self.scale_).astype(rows.dtype, copy=False)


class InductiveRatio(RatioEstimator):
    """A ratio estimator that is a function of x, and can be evaluated and scored on new rows.

    A subclass also implements ``_ratio(rows)``, the ratio before normalization at scaled rows.
    """

    eta_: float = 0.0  # η of the relative density ratio that is estimated; 0 for the plain one

    def predict(self, X: Any) -> Any:
        """The estimated density ratio at new rows, before normalization.

        ``weights_`` is this ratio at the source rows divided by ``source_mean_`` (except where the weights are
        cross-fitted, as those of `ClassifierRatio`).

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            The ratio at each row, never negative; a tensor where `X` is one.
        """
        check_is_fitted(self, "raw_mean_")
        if given_tensors(X):
            return predict_tensor(self, X)
        rows = check_new_rows(self, X)
        if self.constant_:
            return np.ones(len(rows))
        with one_blas_thread():
            return np.asarray(self._ratio(self._scale_rows(rows)), dtype=np.float64)

    def score(self, X: Any, y: Any = None, *, target: Any = None) -> float:
        """−J', the negative squared error of the ratio up to a constant; greater is better.

        J' = ½(1−η)·mean_source g² + ½η·mean_target g² − mean_target g for the estimated ratio g.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows, for example held-out ones.
        y : ignored
            Present by scikit-learn's convention.
        target : Target or table of shape (n_target, n_columns), default=None
            Target rows. Without them `X` is used for both domains, with a `NoTargetWarning`.

        Returns
        -------
        float
            The score −J'.
        """
        check_is_fitted(self, "raw_mean_")
        on_source = as_array(self.predict(X))
        if target is None:
            warn_without_target(f"{type(self).__name__}.score", "the source rows are used for both domains")
            on_target = on_source
        else:
            on_target = as_array(self.predict(match_columns(target, X)))
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
        """Scaled centers, the distinct target row that each of them is (-1: a given center), and decreasing widths."""
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
        return self._ratio_and_kernel_mean(rows)[0]

    def _ratio_on_source(self, source: Empirical) -> FloatArray:
        """The ratio on the source rows; an error where every kernel value between them and the centers is zero."""
        ratio, largest_mean = self._ratio_and_kernel_mean(source.rows)
        require_overlap(largest_mean)
        return ratio

    def _ratio_and_kernel_mean(self, rows: FloatArray) -> tuple[FloatArray, float]:
        """The ratio at every row, and the largest mean kernel value (over the centers) of a row."""
        values, largest_mean = np.empty(len(rows)), 0.0
        # The mean over the centers is one more column of coefficients.
        coef = np.column_stack([self.coef_, np.full(len(self.coef_), 1 / len(self.coef_))]).astype(rows.dtype)
        for block in blocks(len(rows)):
            both = gaussian(rows[block], self.centers_, self.width_) @ coef
            values[block] = both[:, 0]
            largest_mean = max(largest_mean, float(both[:, 1].max()))
        return values, largest_mean
