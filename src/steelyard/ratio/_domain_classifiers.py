"""Domain classifiers of `AutoRatio`: linear log-odds, boosted trees on top of them, and a bounded calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._splits.merged_rows import FoldParts
from steelyard._typing import FloatArray
from steelyard.ratio.classifier import LARGEST_LOGIT, calibration_line, training_rows

# Boosted trees are fitted to at most this many rows of each domain.
MOST_BOOSTED = 5000
# Log-odds are truncated above those of the largest TAIL / √n share of the n source rows.
TAIL = 0.5


class LinearOdds:
    """Logistic regression on standardized columns."""

    def fit(self, domains: Sequence[tuple[FloatArray, FloatArray]]) -> LinearOdds:
        """Fit to source and target, each given as rows and their weights."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        rows, weights, domain = _stacked(domains)
        self.scaler_ = StandardScaler().fit(rows)
        model = LogisticRegression(C=0.1, max_iter=1000)
        self.classifier_ = model.fit(self.scaler_.transform(rows), domain, sample_weight=weights)
        return self

    def log_odds(self, rows: FloatArray) -> FloatArray:
        """Log-odds of the target at each row."""
        return np.asarray(self.classifier_.decision_function(self.scaler_.transform(rows)), dtype=np.float64)


class BoostedOdds:
    """Boosted trees with the linear log-odds as one more column.

    A linear shift in many columns takes trees a great many splits and leaves them with jumps; given the linear
    log-odds, they only have to add what is not linear.
    """

    def fit(self, domains: Sequence[tuple[FloatArray, FloatArray]], linear: LinearOdds) -> BoostedOdds:
        """Fit to a sample of source and target, each given as rows and their weights."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        self.linear_ = linear
        samples = []
        for rows, weights in domains:
            # A systematic sample of the rows, each in proportion to its weight. (Trees could take weights, but
            # scikit-learn bins a weighted column ten times more slowly than it does all the rest.)
            kept, n_kept = np.arange(len(rows)), min(len(rows), MOST_BOOSTED)
            if n_kept < len(rows) or np.any(weights != 1):
                places = np.searchsorted(np.cumsum(weights) / weights.sum(), (np.arange(n_kept) + 0.5) / n_kept)
                kept = np.minimum(places, len(rows) - 1)
            samples.append((rows[kept], np.ones(n_kept)))
        rows, _, domain = _stacked(samples)
        model = HistGradientBoostingClassifier(
            max_iter=100,
            max_leaf_nodes=8,
            min_samples_leaf=20,
            early_stopping=True,
            n_iter_no_change=5,
            random_state=0,
        )
        self.classifier_ = model.fit(self._with_linear(rows), domain)
        return self

    def log_odds(self, rows: FloatArray) -> FloatArray:
        """Log-odds of the target at each row."""
        return np.asarray(self.classifier_.decision_function(self._with_linear(rows)), dtype=np.float64)

    def _with_linear(self, rows: FloatArray) -> FloatArray:
        return np.column_stack([rows, self.linear_.log_odds(rows)])


def _stacked(domains: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows of both domains, weights with the same total in each domain, and the domain of each row (1: target)."""
    rows = np.concatenate([rows for rows, _ in domains])
    domain = np.repeat([0, 1], [len(rows) for rows, _ in domains])
    half = len(rows) / 2
    weights = np.concatenate([weights * (half / weights.sum()) for _, weights in domains])
    return rows, weights, domain


class BoundedCalibration:
    """The density ratio as exp of a linear function of the log-odds, truncated where there are few source rows.

    Log-odds are truncated at ``largest_``, above which lies a share of TAIL/√n of the source rows: too few to fit the
    line there, and a handful of them would carry all the weight. The truncated share vanishes as n grows, as in
    truncated importance sampling. ``outside_share_`` is the share of the target rows above ``largest_``.
    """

    def fit(self, log_odds: Sequence[FloatArray], mass: Sequence[FloatArray], n_rows: int) -> BoundedCalibration:
        """Fit to held-out log-odds of source and target, with masses that sum to one in each domain."""
        # The largest log-odds with at least a share of TAIL / √n of the source mass at or above them.
        order = np.argsort(log_odds[0])[::-1]
        reached = np.searchsorted(np.cumsum(mass[0][order]), TAIL / np.sqrt(n_rows) * mass[0].sum())
        self.largest_ = float(log_odds[0][order[min(int(reached), len(order) - 1)]])
        self.outside_share_ = float(mass[1][log_odds[1] > self.largest_].sum() / mass[1].sum())
        held_out = np.minimum(np.concatenate(log_odds), self.largest_)
        domain = np.repeat([0, 1], [len(values) for values in log_odds])
        self.slope_, self.intercept_ = calibration_line(held_out, domain, np.concatenate(mass) * n_rows)
        return self

    def ratio(self, log_odds: FloatArray) -> FloatArray:
        """The density ratio for given log-odds."""
        logits = self.slope_ * np.minimum(log_odds, self.largest_) + self.intercept_
        return np.asarray(np.exp(np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)))


def fit_odds(
    samples: Sequence[Empirical], parts: Sequence[FoldParts], without: int | None, *, boosted: bool
) -> list[Any]:
    """The linear and (if `boosted`) the boosted classifier, fitted without one fold (None: to all rows)."""
    domains = [training_rows(sample, part, without) for sample, part in zip(samples, parts, strict=True)]
    linear = LinearOdds().fit(domains)
    return [linear, BoostedOdds().fit(domains, linear)] if boosted else [linear]
