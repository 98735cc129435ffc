"""What every ratio estimator shares: validating, scaling, normalizing, and the guarantees of `weights_`."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from steelyard._numerics.empirical import Empirical, empirical
from steelyard._numerics.tensors import as_array
from steelyard._numerics.written import written
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray
from steelyard._validation import (
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
    InputTypeError,
    NoOverlapError,
    NoShiftWarning,
    RawMeanWarning,
    UnseenCellsWarning,
    warn_user,
)
from steelyard.ratio._overlap import NO_OVERLAP, median_distance, unseen_cells
from steelyard.ratio._scaling import pooled_scale
from steelyard.ratio._streaming import FOLDS_ABOVE, BlockWeights, fit_streams, values_of_rows
from steelyard.ratio._sums import Summary
from steelyard.ratio._tensors import fit_tensors, given_tensors, predict_tensor
from steelyard.report.notebook import ShowsFit
from steelyard.tables.row_stream import RowStream
from steelyard.tables.streams import as_stream, is_stream
from steelyard.target import Target
from steelyard.weights import effective_sample_size, multiply_counts, normalize, warn_of_small_sample


class RatioEstimator(ShowsFit, BaseEstimator):
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
        X : table of shape (n_source, n_columns), path, or iterable of blocks
            Source rows. Every estimator but `KMM` also takes tables that do not fit in memory: the path of a Parquet
            file, a folder of them or a CSV file (or `TableBlocks`), or any object whose ``__iter__`` starts again at
            the first of its blocks of rows; then ``weights_`` is an iterable of one array for each block. Of a Dask
            array or data frame it is a lazy Dask array, of a PyTorch tensor a tensor on its device and of its type.
            More than 100,000 rows of a domain are fitted as blocks are: with five folds by the number of the row
            instead of leave-one-out. So many rows on a GPU stay there for `KMM`, `ULSIF`, `RULSIF` and `LSIF`, and go
            by way of the host for the others.
        y : ignored
            Present by scikit-learn's convention.
        target : Target or table of shape (n_target, n_columns), path, or iterable of blocks, default=None
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
        if is_stream(X) or is_stream(target.X if isinstance(target, Target) else target):
            return self._fit_streams(X, target, sample_weight)
        rows = check_source(self, X)
        counts = check_weights(sample_weight, len(rows))
        self._check_parameters()
        if target is None:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected")
            return self._constant(rows, rows, counts)
        target_rows = check_target(self, target, X)
        if self._is_one():
            return self._constant(rows, target_rows, counts)
        if self._is_long(rows, target_rows) and counts is None:
            return self._fit_long(rows, target_rows)
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

    def _fit_streams(self, X: Any, target: Any, sample_weight: Any) -> Self:
        raise InputTypeError(
            f"{type(self).__name__} needs its rows in memory and takes no blocks or paths. Use ULSIF, RULSIF, LSIF, "
            "KLIEP, ClassifierRatio or AutoRatio, or give arrays."
        )

    def _fit_long(self, rows: FloatArray, target_rows: FloatArray) -> Self:
        """Fit long tables in memory as streams are."""
        raise NotImplementedError

    def _is_long(self, rows: FloatArray, target_rows: FloatArray) -> bool:
        """Whether tables in memory are fitted as streams are."""
        return False

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
        self._warn(len(self.weights_))

    def _warn(self, n_rows: int) -> None:
        advice = (
            "Flatten the weights (WeightedRegressor(..., flattening=0.5)), use RULSIF, or drop columns that differ by "
            "construction."
        )
        warn_of_small_sample(type(self).__name__, self.effective_sample_size_, n_rows, advice)
        self._warn_of_raw_mean()

    _found_after = "balance_"

    def _found(self) -> dict[str, str]:
        """The chosen parameters, the quality of the weights, and the certificate of the solver."""
        own = vars(self)
        chosen = {"kernel width": "width_", "regularization strength": "reg_", "mean before normalization": "raw_mean_"}
        found = {name: written(own[key]) for name, key in chosen.items() if isinstance(own.get(key), float)}
        found["effective sample size"] = written(own["effective_sample_size_"])
        found["mean difference of the columns"] = self.balance_.in_words
        if "certificate_" in own:
            found["certificate"] = own["certificate_"].in_words
        return found

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

    def _fit_streams(self, X: Any, target: Any, sample_weight: Any) -> Self:
        if sample_weight is not None:
            raise InputTypeError("sample_weight needs tables in memory: give arrays, or repeat the rows in the blocks.")
        self._check_parameters()
        source = as_stream(X, "source")
        self.n_features_in_ = source.n_columns
        if source.columns is not None:
            self.feature_names_in_ = np.array(source.columns, dtype=object)
        if target is None:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected")
            self.constant_, self.raw_mean_, self.source_mean_ = True, 1.0, 1.0
        else:
            rows = target.X if isinstance(target, Target) else target
            fit_streams(self, source, as_stream(rows, "target").matched(source.columns, source.n_columns))
        weights = values_of_rows(copy(self)._numbered_ratio, source, self.source_mean_)
        self.weights_: Any = weights if is_stream(X) else weights.in_one_array()
        return self

    def _fit_long(self, rows: FloatArray, target_rows: FloatArray) -> Self:
        source = as_stream(rows, "source")
        fit_streams(self, source, as_stream(target_rows, "target"))
        self.weights_ = BlockWeights(self._numbered_ratio, source, self.source_mean_).in_one_array()
        return self

    def _is_long(self, rows: FloatArray, target_rows: FloatArray) -> bool:
        return max(len(rows), len(target_rows)) > FOLDS_ABOVE

    def _n_sample(self) -> int:
        """How many rows of each table a fit to streams samples."""
        return 3000

    def _fit_tables(
        self,
        tables: tuple[RowStream, RowStream],
        summaries: list[Summary],
        samples: list[Empirical],
        rng: np.random.Generator,
    ) -> None:
        """Fit in passes over the tables; `samples` are the merged rows of the even samples, not scaled."""
        raise NotImplementedError

    def _numbered_ratio(self, start: int, rows: FloatArray) -> FloatArray:
        """The ratio before normalization at source rows that are numbered from `start` on."""
        return self._plain_ratio(start, rows)

    def _plain_ratio(self, start: int, rows: FloatArray) -> FloatArray:
        """The ratio before normalization at any rows."""
        if self.constant_:
            return np.ones(len(rows))
        return np.asarray(self._ratio(self._scale_rows(rows)), dtype=np.float64)

    def predict(self, X: Any) -> Any:
        """The estimated density ratio at new rows, before normalization.

        ``weights_`` is this ratio at the source rows divided by ``source_mean_`` (except where the weights are
        cross-fitted, as those of `ClassifierRatio`).

        Parameters
        ----------
        X : table of shape (n_rows, n_columns), path, or iterable of blocks
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            The ratio at each row, never negative; of a path or of blocks an iterable of one array for each block,
            and of a tensor a tensor.
        """
        check_is_fitted(self, "raw_mean_")
        if is_stream(X):
            names = getattr(self, "feature_names_in_", None)
            rows = as_stream(X, "table to predict").matched(names, self.n_features_in_)
            return values_of_rows(self._plain_ratio, rows)
        if given_tensors(X):
            return predict_tensor(self, X)
        checked = check_new_rows(self, X)
        with one_blas_thread():
            return self._plain_ratio(0, checked)

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
