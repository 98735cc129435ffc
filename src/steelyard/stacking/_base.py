"""What both stacked estimators share: held-out predictions, shares under importance weights, final fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted

from steelyard._numerics.duplicates import table_columns, units_of_rows
from steelyard._numerics.written import written, written_share
from steelyard._progress import track
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_labels, check_range, check_weights, forget_fit, generator
from steelyard.errors import InputError, LearnerFailedWarning, ParameterError, warn_user
from steelyard.ratio.table_rows import ReadsTables
from steelyard.report.notebook import ShowsFit
from steelyard.stacking.held_out import (
    Data,
    Learner,
    better_of_both,
    both_ways,
    draw_folds,
    losses_of_rows,
    outputs,
    predict_held_out,
)
from steelyard.stacking.learners import default_learners
from steelyard.stacking.shares import fit_shares
from steelyard.tables.rows import count_rows, take_rows
from steelyard.weighted import flattened_weights
from steelyard.weights import effective_sample_size, multiply_counts

# Whole sample weights are counts: rows are repeated, up to so many in all. Above, they are weights of the fits.
MOST_REPEATED = 1_000_000


class StackedBase(ShowsFit, ReadsTables, MetaEstimatorMixin, BaseEstimator):
    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name that scikit-learn looks for)

    def __init__(
        self,
        estimators: Any = None,
        ratio: Any = None,
        flattening: float = 0.5,
        *,
        preprocess: Any = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        progress: bool = True,
    ) -> None:
        self.estimators = estimators
        self.ratio = ratio
        self.flattening = flattening
        self.preprocess = preprocess
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress

    @property
    def _reader(self) -> Any:
        return self

    def fit(self, X: Any, y: Any, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit every learner, and their shares by held-out predictions under importance weights.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Labels of the source rows.
        target : Target or table of shape (n_target, n_columns), default=None
            Target rows; their labels are not used. Data frames are matched by column name. Without a target this is
            ordinary stacking, with a `NoTargetWarning`.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts; multiplied with the importance weights.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        check_range("flattening", self.flattening, 0, 1)
        forget_fit(self)
        check_labels(self, X, y)
        self._check_learners()
        rows, numeric, target_rows = self._prepare(X, target)
        n_rows = count_rows(rows)
        named = (
            default_learners(isinstance(self, ClassifierMixin), n_rows) if self.estimators is None else self.estimators
        )
        counts = check_weights(sample_weight, n_rows)
        labels, codes = self._encode(y)
        self.weights_ = flattened_weights(self, numeric, target_rows, counts)
        self.effective_sample_size_ = effective_sample_size(multiply_counts(self.weights_, counts))
        order, repeated = self._in_order(table_columns(rows, codes), counts)
        data = Data(
            take_rows(rows, order),
            labels[order],
            target_rows,
            # Rounded, since a tree decides ties by the last bits, which depend on how equal rows were merged.
            np.round(self.weights_[order], 9),
            self._classes,
            None if repeated or counts is None else counts[order],
        )
        self._combine(data, codes[order], both_ways(named, data))
        return self

    _found_after = "estimators_"

    def _found(self) -> dict[str, str]:
        """The share of each learner, the largest first, and who was left out."""
        shares = sorted(self.shares_.items(), key=lambda pair: -pair[1])
        found = {"shares": ", ".join(f"{name} {written_share(share)}" for name, share in shares if share)}
        if getattr(self, "failed_", None):
            found["left out"] = ", ".join(self.failed_)
        return found | {"effective sample size": written(self.effective_sample_size_)}

    def _combine(self, data: Data, codes: NDArray[Any], learners: Sequence[Learner]) -> None:
        columns = table_columns(data.X, codes)
        groups = codes if len(self._classes) else None
        folds = draw_folds(columns, groups, units_of_rows(columns), generator(self.random_state))
        found = track(
            predict_held_out(learners, data, folds, n_jobs=self.n_jobs),
            len(learners),
            "predicting held-out rows",
            shown=self.progress,
        )
        tried = sorted(found, key=lambda each: [learner.label for learner in learners].index(each.learner.label))
        self.failed_ = {each.learner.label: each.failed for each in tried if each.failed}
        self._say_failures(len(tried))
        fitted = [each for each in tried if not each.failed]
        truth, used = data.truth, data.used_weights
        losses = {each.learner.label: losses_of_rows(each.predictions, truth) for each in fitted}
        kept = better_of_both(fitted, losses, used)
        shares = fit_shares(np.stack([each.predictions - truth for each in kept], axis=1), used, folds)
        self.shrinkage_ = shares.shrinkage
        self.losses_ = {label: float(loss @ used / used.sum()) for label, loss in losses.items()}
        self.shares_ = {each.learner.label: float(share) for each, share in zip(kept, shares.values, strict=True)}
        self.estimators_ = [
            (label, each.learner.fit(data)) for each in kept if self.shares_[label := each.learner.label]
        ]

    def _check_learners(self) -> None:
        if self.estimators is None:
            return
        if not self.estimators or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in self.estimators):
            raise ParameterError(
                "estimators must be a list of (name, estimator) pairs, or None for the default ones; got "
                f"{self.estimators!r}."
            )
        names = [name for name, _ in self.estimators]
        if len(set(names)) < len(names):
            raise ParameterError(f"Every learner needs a name of its own; got {names}.")

    def _outputs(self, X: Any) -> FloatArray:
        check_is_fitted(self, "estimators_")
        rows = self._rows(X)
        return np.asarray(
            sum(self.shares_[name] * outputs(model, rows, self._classes) for name, model in self.estimators_)
        )

    def _say_failures(self, n_learners: int) -> None:
        """Warn of learners that were left out; an error where none is left."""
        reasons = "; ".join(f"{label}: {reason}" for label, reason in self.failed_.items())
        if len(self.failed_) == n_learners:
            raise InputError(f"No learner could be fitted to these rows. {reasons}")
        if self.failed_:
            warn_user(f"Learners that could not be fitted were left out. {reasons}", LearnerFailedWarning)

    @staticmethod
    def _in_order(columns: Sequence[NDArray[Any]], counts: FloatArray | None) -> tuple[IntArray, bool]:
        """Numbers of the rows in sort order, each as often as it counts, and whether they are repeated.

        In this order, neither the order of the table nor weighting instead of repeating changes a fit that draws rows.
        """
        order = np.argsort(units_of_rows(columns), kind="stable")
        if counts is None:
            return order, False
        order = order[counts[order] > 0]
        if np.all(counts == np.round(counts)) and counts.sum() <= MOST_REPEATED:
            return np.repeat(order, counts[order].astype(np.intp)), True
        return order, False

    def assemble(
        self,
        fitted: Sequence[tuple[str, Any]],
        shares: Mapping[str, float],
        weights: FloatArray,
        n_columns: int,
    ) -> Self:
        """Take fitted learners and shares that were found elsewhere, instead of a fit.

        Parameters
        ----------
        fitted : sequence of (str, estimator)
            Fitted learners.
        shares : dict of float
            Share of each of them.
        weights : array of shape (n_source,)
            The importance weights that they, or the shares, were fitted with.
        n_columns : int
            Number of columns.

        Returns
        -------
        self : estimator
            The combination.
        """
        self.estimators_, self.shares_, self.weights_ = list(fitted), dict(shares), weights
        self.effective_sample_size_ = effective_sample_size(weights)
        self.n_features_in_ = n_columns
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
