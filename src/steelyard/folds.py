"""Choosing one of many settings by their losses on held-out rows, weighted to look like the target."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np

from steelyard.arrays import FloatArray, IntArray
from steelyard.empirical import Empirical
from steelyard.errors import InputError, ParameterError, SteelyardWarning
from steelyard.ratio import RULSIF
from steelyard.scores import standard_error
from steelyard.target import Target

RULES = ("one-standard-error", "best")


def deal(n_rows: int, n_folds: int, groups: IntArray | None = None) -> IntArray:
    """The fold of each row, rows dealt out in turn; with `groups`, those of each group in turn.

    Rows of an `Empirical` are shuffled already, so dealing them in turn is dealing at random.
    """
    fold = np.empty(n_rows, dtype=np.intp)
    order = np.arange(n_rows) if groups is None else np.argsort(groups, kind="stable")
    fold[order] = np.arange(n_rows) % n_folds
    return fold


def deal_at_random(n_rows: int, n_folds: int, rng: np.random.Generator, groups: IntArray | None = None) -> IntArray:
    """The fold of each row, rows of a table in any order."""
    order = rng.permutation(n_rows)
    fold = np.empty(n_rows, dtype=np.intp)
    fold[order] = deal(n_rows, n_folds, None if groups is None else groups[order])
    return fold


def check_rule(rule: str) -> None:
    """An error for a rule that does not exist."""
    if rule not in RULES:
        raise ParameterError(f"rule must be one of {RULES}; got {rule!r}.")


def choose(losses: FloatArray, weights: FloatArray, penalty: FloatArray, rule: str) -> int:
    """The setting to take, from the held-out losses (C, n) of C settings and the importance (n,) of the rows.

    "best" is the least weighted mean. "one-standard-error" is, among the settings whose mean lies within one standard
    error of the least one, that with the greatest penalty (ties: the least mean): where the held-out rows cannot tell
    settings apart, the smoother one extrapolates less.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        means = losses @ weights / weights.sum()
    means = np.where(np.isfinite(means), means, np.inf)
    best = int(np.argmin(means))
    if not np.isfinite(means[best]):
        raise InputError("Every setting has an infinite held-out loss. Rescale the labels, or raise reg.")
    if rule == "best":
        return best
    near = np.flatnonzero(means <= means[best] + standard_error(losses[best], weights))
    return int(near[np.lexsort((means[near], -penalty[near]))[0]])


class Judge:
    """The importance by which settings are compared, fitted when asked for: that of RuLSIF.

    Not the plain ratio (η = 0), by which a handful of rows would decide: the relative one is bounded.
    """

    def __init__(
        self,
        source: Empirical,
        goal_rows: FloatArray | None,
        eta: float,
        n_centers: int,
        standardize: bool,
        rng: np.random.Generator,
    ) -> None:
        self.source, self.goal_rows, self.eta = source, goal_rows, eta
        self.options: dict[str, Any] = {
            "n_centers": n_centers,
            "standardize": standardize,
            "random_state": int(rng.integers(2**31)),
        }

    def fit(self, ratio: type[RULSIF], *eta: float) -> FloatArray:
        """Weights of the distinct source rows by a ratio estimator.

        Without its warnings: it only helps to choose, and what is worth a warning shows in the final weights.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)
            fitted = ratio(*eta, **self.options).fit(
                self.source.rows, target=Target(self.goal_rows), sample_weight=self.source.mass
            )
        return np.asarray(fitted.weights_)

    @cached_property
    def importance(self) -> FloatArray:
        """Weight of each distinct source row, masses included; without a target the masses alone."""
        if self.goal_rows is None:
            return self.source.mass
        if any(not np.ptp(rows, axis=0).any() for rows in (self.source.rows, self.goal_rows)):
            return self.source.mass  # a domain of one single row: no ratio can be fitted
        return self.fit(RULSIF, self.eta) * self.source.mass
