"""Choice of the hyperparameters of the one-step method by importance-weighted losses on held-out rows."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.weighted_means import simplest_within_one_standard_error, standard_error
from steelyard._typing import FloatArray
from steelyard.errors import InputError, SteelyardWarning
from steelyard.ratio import RULSIF
from steelyard.target import Target

RULES = ("one-standard-error", "best")


def choose(losses: FloatArray, weights: FloatArray, reg: FloatArray, rule: str) -> int:
    """Choose one of C settings by its losses (C, n) on held-out rows and the validation weights (n,) of these rows.

    "best" chooses the smallest weighted mean. "one-standard-error" chooses, among the settings whose mean is within one
    standard error of the smallest one, the one with the greatest regularization strength (ties: the smallest mean):
    where the held-out rows do not distinguish two settings, the more regularized one extrapolates less.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        means = losses @ weights / weights.sum()
    means = np.where(np.isfinite(means), means, np.inf)
    best = int(np.argmin(means))
    if not np.isfinite(means[best]):
        raise InputError("The held-out loss of every setting is infinite. Rescale the labels, or raise reg.")
    if rule == "best":
        return best
    return int(simplest_within_one_standard_error(means, standard_error(losses[best], weights), reg)[0])


class ValidationWeights:
    """The validation weights by which settings are compared: those of RuLSIF, fitted when they are first needed.

    The relative density ratio is bounded. With the plain one (η = 0) a handful of rows could decide.

    Parameters
    ----------
    rows : array of shape (n_source, n_columns)
        Source rows.
    counts : array of shape (n_source,) or None
        How often each source row counts.
    source : Empirical
        The source rows, merged where rows and labels are equal. There is one weight for each of its distinct rows.
    target_rows : array of shape (n_target, n_columns) or None
        None without a target.
    eta : float
        η of the relative density ratio.
    n_centers : int
        Number of Gaussians of the ratio.
    standardize : bool
        Whether the ratio standardizes the columns.
    rng : Generator
        Draws the random state of the ratio.
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

        Warnings are suppressed: these weights only serve to compare settings, and the final fit has its own warnings.
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
        """Validation weight of each distinct source row times its mass; without a target, the mass alone."""
        if self.target_rows is None:
            return self.source.mass
        return self.fit(RULSIF, self.eta) * self.source.mass
