"""Adaptation of a vine of copulas (Lopez-Paz, Hernández-Lobato and Schölkopf, 2012)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.arrays import FloatArray
from steelyard.baselines.base import FewShotRegressor
from steelyard.check import generator
from steelyard.diagnose.twosample import mmd_test
from steelyard.errors import ParameterError
from steelyard.kernels import blocks
from steelyard.vine import Vine, adapt, fit_vine

# Of the labels that the mean is taken over, and how far beyond the known ones they reach, in standard deviations.
N_LABELS = 200
BEYOND = 2.0
ROWS_AT_A_TIME = 2000


class CopulaRegressor(FewShotRegressor):
    """Mean of the label given the inputs by a vine of the source, parts of which are refitted on the target ("Copula").

    Columns and label have a density of kernel marginals and pair copulas. A test of maximum mean discrepancy says which
    of them differ between the domains; these are estimated from the target's rows alone. (A pair copula of fewer than
    ten rows is independence.)

    Parameters
    ----------
    level : float, default=0.05
        Of the tests.
    standardize : bool, default=True
        Columns and label, by the source rows.
    random_state : int, default=None
        Of the tests' permutations.

    Attributes
    ----------
    vine_ : of the target; its last column is the label
    changed_marginals_ : columns whose marginal was refitted, the label the last
    changed_pairs_ : ((column, column), columns given) of pair copulas that were refitted
    """

    def __init__(self, *, level: float = 0.05, standardize: bool = True, random_state: int | None = None) -> None:
        self.level = level
        self.standardize = standardize
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        if not 0 <= self.level <= 1:
            raise ParameterError(f"level must be between 0 and 1; got {self.level}.")
        source, target = np.column_stack([X, y]), np.column_stack([target_X, target_y])
        seed = int(generator(self.random_state).integers(2**31))

        def changed(here: FloatArray, there: FloatArray) -> bool:
            return mmd_test(here, there, np.random.default_rng(seed)).p_value < self.level

        found = adapt(fit_vine(source), source, target, changed)
        self.vine_, self.changed_marginals_, self.changed_pairs_ = found.vine, found.marginals, found.pairs
        labels = np.concatenate([y, target_y])
        reach = BEYOND * labels.std()
        self.model_ = ConditionalMean(found.vine, np.linspace(labels.min() - reach, labels.max() + reach, N_LABELS))


@dataclass(frozen=True, eq=False)
class ConditionalMean:
    """The mean of the last column of a vine given the others, over evenly spaced labels."""

    vine: Vine
    labels: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """Of every row."""
        return np.concatenate([self._predict(X[part]) for part in blocks(len(X), ROWS_AT_A_TIME)])

    def _predict(self, X: FloatArray) -> FloatArray:
        # Without the inputs' marginals, which are the same for all labels and may be zero far from every value.
        *of_inputs, of_label = self.vine.marginals
        U = [np.repeat(m.probability(x), len(self.labels)) for m, x in zip(of_inputs, X.T, strict=True)]
        U.append(np.tile(of_label.probability(self.labels), len(X)))
        logs = self.vine.log_copula(U).reshape(len(X), -1)
        logs += np.log(np.maximum(of_label.density(self.labels), np.finfo(float).tiny))
        share = np.exp(logs - logs.max(axis=1, keepdims=True))
        return (share @ self.labels) / share.sum(axis=1)
