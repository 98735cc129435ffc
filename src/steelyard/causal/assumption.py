"""A check of the assumptions of causal mechanism transfer on the rows of several domains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from steelyard._few_shot.kernel_regression import median_distance
from steelyard._numerics.kernels import gaussian
from steelyard._typing import FloatArray
from steelyard._validation import generator

LEVEL = 0.05


@dataclass(frozen=True)
class Assumption:
    """The assumptions that can be checked: enough domains, and independent components in each of them.

    Each domain has a permutation test of the independence of its recovered components. By chance one in twenty of the
    p-values is below 0.05; ``p_value`` tests the hypothesis that no more than chance are.

    It is the attribute ``assumption_`` of `CausalTransferRegressor`; ``str`` gives a summary in words.

    Parameters
    ----------
    n_domains : int
        Number of source domains.
    domains_needed : int
        Number of domains that are needed to identify the mechanism: 2D + 1 for D columns, label included.
    p_values : dict
        The p-value of the independence test of each domain, by the name of the domain.

    Examples
    --------
    >>> from steelyard.causal import Assumption
    >>> found = Assumption(n_domains=8, domains_needed=7, p_values={"a": 0.4, "b": 0.01, "c": 0.7})
    >>> found.enough_domains, found.dependent
    (True, ['b'])
    """

    n_domains: int
    domains_needed: int
    p_values: dict[Any, float]

    @property
    def enough_domains(self) -> bool:
        """Whether there are enough domains to identify the mechanism.

        Returns
        -------
        bool
            True if there are at least ``domains_needed`` domains.
        """
        return self.n_domains >= self.domains_needed

    @property
    def dependent(self) -> list[Any]:
        """The domains whose components are dependent by the test at level 5 %.

        Returns
        -------
        list
            Names of these domains.
        """
        return [name for name, p in self.p_values.items() if p < LEVEL]

    @property
    def p_value(self) -> float:
        """The probability of at least this many such domains if the components were independent in all domains.

        Returns
        -------
        float
            The p-value over all domains.
        """
        return float(binom.sf(len(self.dependent) - 1, len(self.p_values), LEVEL))

    def __repr__(self) -> str:
        n = len(self.p_values)
        verdict = "more than expected by chance" if self.p_value < LEVEL else "no more than expected by chance"
        return (
            f"{self.n_domains} domains; {self.domains_needed} or more are needed to identify the mechanism. Components "
            f"look dependent in {len(self.dependent)} of {n} domains, {verdict} (p = {self.p_value:.2g})."
        )


def dependence(S: FloatArray) -> tuple[FloatArray, float]:
    """Centered Gaussian kernels (D, n, n) of the columns, and the sum over pairs of columns of their HSIC.

    HSIC is the Hilbert–Schmidt independence criterion.
    """
    kernels = []
    for column in S.T:
        kernel = gaussian(column[:, None], column[:, None], median_distance(column[:, None]))
        kernel -= kernel.mean(axis=0)
        kernels.append(kernel - kernel.mean(axis=1, keepdims=True))
    stacked = np.array(kernels)
    return stacked, _sum_over_pairs(stacked)


def _sum_over_pairs(kernels: FloatArray) -> float:
    """Σ over pairs i < j of ⟨Kᵢ, Kⱼ⟩/n², from the square of the sum."""
    total = kernels.sum(axis=0)
    return float((np.vdot(total, total) - np.vdot(kernels, kernels)) / 2 / kernels.shape[1] ** 2)


def independence_p_value(S: FloatArray, *, n_permutations: int = 200, random_state: Any = None) -> float:
    """The p-value of the hypothesis that the columns are independent, by random permutations of each column."""
    rng = generator(random_state)
    kernels, found = dependence(S)
    n, at_least = len(S), 1
    for _ in range(n_permutations):
        orders = [rng.permutation(n) for _ in kernels]
        shuffled = np.array([kernel[np.ix_(order, order)] for kernel, order in zip(kernels, orders, strict=True)])
        at_least += _sum_over_pairs(shuffled) >= found
    return at_least / (n_permutations + 1)
