"""Domain adaptation by a vine copula (Lopez-Paz, Hernández-Lobato and Schölkopf, 2012)."""

from __future__ import annotations

import numpy as np

from steelyard._numerics.kernels import blocks
from steelyard._typing import FloatArray
from steelyard._validation import check_range, generator
from steelyard.baselines._vine import Vine, fit_vine, probabilities
from steelyard.baselines.base import FewShotRegressor
from steelyard.diagnostics.two_sample import mmd_test
from steelyard.errors import InputError

# The mean is taken over this many equally likely labels, which are quantiles of the marginal distribution of the label.
N_LABELS = 200
ROWS_AT_A_TIME = 2000
# With fewer rows pyvinecopulib fits independence to every pair, and the prediction would not depend on the columns.
FEWEST = 10


class CopulaRegressor(FewShotRegressor):
    """Regression by a vine copula of the source, parts of which are refitted on the target ("Copula").

    The prediction is the conditional mean of the label. The joint density of columns and label is composed of kernel
    density estimates of the marginals and of pair copulas. A test of the maximum mean discrepancy (MMD) decides which
    of them differ between source and target; these are estimated from the target rows alone. (With fewer than ten rows
    a pair copula is independence.)

    Parameters
    ----------
    level : float, default=0.05
        A marginal or a pair copula is refitted if the p-value of its test is at most this level.
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.
    random_state : int, default=None
        Seed of the permutations of the tests.

    Attributes
    ----------
    vine_ : Vine
        The vine copula of the target; its last column is the label.
    changed_marginals_ : list of int
        Numbers of the columns whose marginals were refitted; the label is the last column.
    changed_pairs_ : list of tuples
        ((column, column), conditioning columns) for each pair copula that was refitted.
    model_ : object
        The conditional mean of the label.
    scale_ : Scale
        Mean and standard deviation of columns and label.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import Target
    >>> from steelyard.baselines import CopulaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (200, 1)), rng.normal(3, 1, (8, 1))
    >>> model = CopulaRegressor(random_state=0).fit(X, X[:, 0], target=Target(X_target, X_target[:, 0]))
    >>> model.changed_marginals_
    [0, 1]
    """

    def __init__(self, *, level: float = 0.05, standardize: bool = True, random_state: int | None = None) -> None:
        self.level = level
        self.standardize = standardize
        self.random_state = random_state

    def _found(self) -> dict[str, str]:
        return {
            "marginals that differ in the target": ", ".join(map(str, self.changed_marginals_)) or "none",
            "pairs that differ in the target": ", ".join(map(str, self.changed_pairs_)) or "none",
        }

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        level = check_range("level", self.level, 0, 1)
        if len(y) < FEWEST:
            raise InputError(f"A vine copula needs at least {FEWEST} source rows; got {len(y)}.")
        source, target = np.column_stack([X, y]), np.column_stack([X_target, y_target])
        rng = generator(self.random_state)

        def changed(in_source: FloatArray, in_target: FloatArray) -> bool:
            return mmd_test(in_source, in_target, rng).p_value <= level

        adapted = fit_vine(source).adapt(source, target, changed)
        self.vine_, self.changed_marginals_, self.changed_pairs_ = adapted.vine, adapted.marginals, adapted.pairs
        self.model_ = ConditionalMean(adapted.vine)


class ConditionalMean:
    """The conditional mean of the last column of a vine given the other columns.

    It is the mean of quantiles of the last column, weighted by the density of the copula.
    """

    def __init__(self, vine: Vine) -> None:
        self.vine = vine
        self.probabilities = (np.arange(N_LABELS) + 0.5) / N_LABELS
        self.quantiles = vine.marginals[-1].quantile(self.probabilities)

    def predict(self, X: FloatArray) -> FloatArray:
        """The conditional mean for each row."""
        return np.concatenate([self._predict(X[part]) for part in blocks(len(X), ROWS_AT_A_TIME)])

    def _predict(self, X: FloatArray) -> FloatArray:
        *of_columns, _ = self.vine.marginals
        U = [np.repeat(u, len(self.quantiles)) for u in probabilities(of_columns, X)]
        logs = self.vine.log_copula([*U, np.tile(self.probabilities, len(X))]).reshape(len(X), -1)
        share = np.exp(logs - logs.max(axis=1, keepdims=True))
        return (share @ self.quantiles) / share.sum(axis=1)
