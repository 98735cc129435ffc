"""Least-squares ratios whose fit and whose whole grid follow from sums over the rows: in streams, and part by part."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from steelyard._numerics.empirical import Empirical, empirical
from steelyard._threads import one_blas_thread
from steelyard._typing import IntArray
from steelyard._validation import (
    check_new_rows,
    check_range,
    check_source,
    check_target,
    forget_fit,
    generator,
    warn_without_target,
)
from steelyard.errors import InputError, NoOverlapError
from steelyard.ratio._centers import fold_of_centers
from steelyard.ratio._gaussian import GaussianRatio
from steelyard.ratio._overlap import NO_OVERLAP, median_distance
from steelyard.ratio._scaling import mixture_scale
from steelyard.ratio._sums import N_FOLDS, Basis, FoldMoments, Summary
from steelyard.tables.row_stream import RowStream
from steelyard.weights import effective_sample_size_of_sums


class RatioFromSums(GaussianRatio):
    """A ratio whose coefficients and held-out scores follow from Σψ and Σψψᵀ over the folds of both domains.

    A subclass implements ``_solve(on_source, on_target, of_centers)``, which chooses the width and sets ``coef_``; it
    returns the position of the width in the grid.
    """

    def _solve(self, on_source: FoldMoments, on_target: FoldMoments, of_centers: IntArray) -> int:
        raise NotImplementedError

    def _fit_tables(
        self,
        tables: tuple[RowStream, RowStream],
        summaries: list[Summary],
        samples: list[Empirical],
        rng: np.random.Generator,
    ) -> None:
        basis, of_centers = self._start_sums(summaries, samples)
        on_source, on_target = (
            table.reduce(partial(FoldMoments, basis, second=second), "summing")
            for table, second in zip(tables, (True, self.eta_ > 0), strict=True)
        )
        self._solve(on_source, on_target, of_centers)

    def _fit_on_device(self, tables: list[Any], samples: list[Empirical], rng: np.random.Generator) -> tuple[Any, Any]:
        """Fit to large tables of tensors; the ratio at the source rows, and its mean on the target."""
        from steelyard.ratio import _device  # needs PyTorch

        return _device.fit_from_moments(self, tables, samples)

    def _start_sums(self, summaries: list[Summary], samples: list[Empirical]) -> tuple[Basis, IntArray]:
        scaled = [self._scaled(sample) for sample in samples]
        self.median_distance_ = median_distance(scaled[0], scaled[1])
        centers, cells, widths = self._basis(scaled[1])
        of_centers = fold_of_centers(cells, summaries[1].fold_of_cells(samples[1]))
        return Basis(self.center_, self.scale_, centers, widths), of_centers

    def partial_fit(self, X: Any = None, y: Any = None, *, target: Any = None, half_life: float | None = None) -> Self:
        """Add rows to the sums of the fit, and fit again; no row is kept.

        The first call that has rows of both domains sets the scale of the columns, the centers and the widths, which
        later calls keep (give ``centers=`` where the target will drift far from its first rows). Afterwards source
        rows, target rows or both may be added. There is no ``weights_``: the weights of rows are ``predict(rows) /
        source_mean_``. With η > 0 the means are those before the ratio is cut off at 1/η.

        Parameters
        ----------
        X : table of shape (n_source, n_columns), default=None
            More source rows.
        y : ignored
            Present by scikit-learn's convention.
        target : Target or table of shape (n_target, n_columns), default=None
            More target rows.
        half_life : positive number, default=None
            For a target that drifts: a target row counts half as much after this many further target rows. It does
            not matter how the rows are divided among calls. None forgets nothing.

        Returns
        -------
        self : estimator
            The fitted estimator, for ``predict`` and ``score``.
        """
        if half_life is not None:
            check_range("half_life", half_life, 0, open_low=True)
        if not hasattr(self, "sums_"):
            if target is None and X is not None:
                return self._without_target(X)
            self._start_partial_fit(X, target)
        rows, target_rows = (
            None if table is None else check_new_rows(self, getattr(table, "X", table), name)
            for table, name in ((X, "source"), (target, "target"))
        )
        on_source, on_target, of_centers = self.sums_
        with one_blas_thread():
            if rows is not None:
                on_source.add(on_source.n_rows, rows)
            if target_rows is not None:
                mass = None
                if half_life is not None:
                    on_target.scale(0.5 ** (len(target_rows) / half_life))
                    mass = 0.5 ** (np.arange(len(target_rows))[::-1] / half_life)
                on_target.add(on_target.n_rows, target_rows, mass)
            w = self._solve(on_source, on_target, of_centers)
        self._keep_means(on_source, on_target, w)
        return self

    def _without_target(self, X: Any) -> Self:
        """The ratio is one everywhere, as after `fit` without a target."""
        warn_without_target(f"{type(self).__name__}.partial_fit", "every weight is 1 and no shift is corrected")
        self._check_parameters()
        if hasattr(self, "n_features_in_"):
            check_new_rows(self, X, "source")
        else:
            check_source(self, X)
        self.constant_, self.raw_mean_, self.source_mean_ = True, 1.0, 1.0
        return self

    def _start_partial_fit(self, X: Any, target: Any) -> None:
        if X is None or target is None:
            raise InputError("The first call of partial_fit needs source rows X and target rows (target=...).")
        forget_fit(self)
        self._check_parameters()
        rows = check_source(self, X)
        target_rows = check_target(self, target, X)
        rng = generator(self.random_state)
        dtype = np.result_type(rows, target_rows)
        summaries = []
        for table in (rows, target_rows):
            summary = Summary(self._n_sample(), int(rng.integers(2**62)))
            summary.add(0, table)
            summaries.append(summary)
        self.center_, self.scale_, varies = mixture_scale(
            [s.mean for s in summaries], [s.variance for s in summaries], self.standardize
        )
        if not varies or min(s.count for s in summaries) < 2 * N_FOLDS or self._is_one():
            raise InputError(
                f"The first call of partial_fit needs at least {2 * N_FOLDS} rows of each domain that are not all "
                "equal, and eta below 1, to set the scale of the columns and the centers."
            )
        samples = [empirical(s.sample.astype(dtype, copy=False), None, rng) for s in summaries]
        basis, of_centers = self._start_sums(summaries, samples)
        self.constant_ = False
        self.sums_ = FoldMoments(basis), FoldMoments(basis, second=self.eta_ > 0), of_centers

    def _keep_means(self, on_source: FoldMoments, on_target: FoldMoments, w: int) -> None:
        first, second = on_source.without(w, None)
        self.source_mean_ = float(first @ self.coef_)
        if not self.source_mean_ > 0:
            raise NoOverlapError(NO_OVERLAP.format("the fitted ratio is 0 at every source row"))
        over_target = float(on_target.without(w, None)[0] @ self.coef_)
        self.raw_mean_ = (1 - self.eta_) * self.source_mean_ + self.eta_ * over_target
        n_rows = float(on_source.counts.sum())
        squares = float(self.coef_ @ second @ self.coef_)
        self.effective_sample_size_ = effective_sample_size_of_sums(n_rows * self.source_mean_, n_rows * squares)
