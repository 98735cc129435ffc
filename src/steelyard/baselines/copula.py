"""Adaptation of a vine of copulas (Lopez-Paz, Hernández-Lobato and Schölkopf, 2012)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._numerics.kernels import blocks
from steelyard._typing import FloatArray
from steelyard._validation import check_range, generator
from steelyard.baselines._vine import Vine, adapt, fit_vine, probabilities
from steelyard.baselines.base import FewShotRegressor
from steelyard.diagnostics.two_sample import mmd_test
from steelyard.errors import InputError

# Labels that the mean is taken over: quantiles of the label's marginal, equally likely.
N_LABELS = 200
ROWS_AT_A_TIME = 2000
# With fewer rows pyvinecopulib makes every pair independent, and nothing could be predicted.
FEWEST = 10


class CopulaRegressor(FewShotRegressor):
    """Mean of the label given the inputs by a vine of the source, parts of which are refitted on the target ("Copula").

    Columns and label have a density of kernel marginals and pair copulas. A test of maximum mean discrepancy says which
    of them differ between the domains; these are estimated from the target's rows alone. (A pair copula of fewer than
    ten rows is independence.)

    Parameters
    ----------
    level : float, default=0.05
        A marginal or a pair copula is refitted where the p-value of its test is not above this.
    standardize : bool, default=True
        Columns and label, by the source rows.
    random_state : int, default=None
        Of the tests' permutations.

    Attributes
    ----------
    vine_ : of the target; its last column is the label
    changed_marginals_ : columns whose marginal was refitted, the label the last
    changed_pairs_ : ((column, column), columns given) of pair copulas that were refitted

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import Target
    >>> from steelyard.baselines import CopulaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, few = rng.normal(0, 1, (200, 1)), rng.normal(3, 1, (8, 1))
    >>> model = CopulaRegressor(random_state=0).fit(X, X[:, 0], target=Target(few, few[:, 0]))
    >>> model.changed_marginals_
    [0, 1]
    """

    def __init__(self, *, level: float = 0.05, standardize: bool = True, random_state: int | None = None) -> None:
        self.level = level
        self.standardize = standardize
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        level = check_range("level", self.level, 0, 1)
        if len(y) < FEWEST:
            raise InputError(f"A vine needs at least {FEWEST} source rows; got {len(y)}.")
        source, target = np.column_stack([X, y]), np.column_stack([target_X, target_y])
        rng = generator(self.random_state)
        found = adapt(fit_vine(source), source, target, lambda one, other: mmd_test(one, other, rng).p_value <= level)
        self.vine_, self.changed_marginals_, self.changed_pairs_ = found.vine, found.marginals, found.pairs
        self.model_ = conditional_mean(found.vine)


@dataclass(frozen=True, eq=False)
class ConditionalMean:
    """The mean of the last column of a vine given the others: of its quantiles, weighted by the copula."""

    vine: Vine
    probabilities: FloatArray
    quantiles: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """Of every row."""
        return np.concatenate([self._predict(X[part]) for part in blocks(len(X), ROWS_AT_A_TIME)])

    def _predict(self, X: FloatArray) -> FloatArray:
        *of_inputs, _ = self.vine.marginals
        U = [np.repeat(u, len(self.quantiles)) for u in probabilities(of_inputs, X)]
        logs = self.vine.log_copula([*U, np.tile(self.probabilities, len(X))]).reshape(len(X), -1)
        share = np.exp(logs - logs.max(axis=1, keepdims=True))
        return (share @ self.quantiles) / share.sum(axis=1)


def conditional_mean(vine: Vine) -> ConditionalMean:
    """Of the vine's last column."""
    even = (np.arange(N_LABELS) + 0.5) / N_LABELS
    return ConditionalMean(vine, even, vine.marginals[-1].quantile(even))
