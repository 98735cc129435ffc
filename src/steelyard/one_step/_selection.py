"""Choosing one of many settings of one-step by their losses on held-out rows, weighted to look like the target."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.weighted_means import standard_error
from steelyard._typing import FloatArray
from steelyard.errors import InputError, ParameterError, SteelyardWarning
from steelyard.ratio import RULSIF
from steelyard.target import Target

RULES = ("one-standard-error", "best")


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


class ValidationWeights:
    """The importance by which settings are compared, fitted when asked for: that of RuLSIF.

    Not the plain ratio (η = 0), by which a handful of rows would decide: the relative one is bounded.

    Parameters
    ----------
    rows, counts : source rows, and how often each counts.
    source : the same, merged together with their labels; weights are given for its distinct rows.
    target_rows : None without a target.
    """

    def __init__(
        self,
        rows: FloatArray,
        counts: FloatArray | None,
        source: Empirical,
        target_rows: FloatArray | None,
        eta: float,
        n_centers: int,
        standardize: bool,
        rng: np.random.Generator,
    ) -> None:
        self.rows, self.counts, self.source = rows, counts, source
        self.target_rows, self.eta = target_rows, eta
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
                self.rows, target=Target(self.target_rows), sample_weight=self.counts
            )
        weights = np.empty(len(self.source))
        present = self.source.position >= 0
        weights[self.source.position[present]] = fitted.weights_[present]
        return weights

    @cached_property
    def importance(self) -> FloatArray:
        """Weight of each distinct source row, masses included; without a target the masses alone."""
        if self.target_rows is None:
            return self.source.mass
        return self.fit(RULSIF, self.eta) * self.source.mass
