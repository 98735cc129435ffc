"""Whether rows of several domains look as causal mechanism transfer assumes they do."""

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
    """What can be checked: are there enough domains, and are the recovered components independent in each?

    `p_values` are of permutation tests, a domain each. By chance one in twenty is below 0.05; `p_value` is of the
    hypothesis that no more are.
    """

    n_domains: int
    domains_needed: int  # 2D + 1
    p_values: dict[Any, float]

    @property
    def enough_domains(self) -> bool:
        """Whether the mixing can be identified by so many domains at all."""
        return self.n_domains >= self.domains_needed

    @property
    def dependent(self) -> list[Any]:
        """Domains whose components look dependent, at 5 %."""
        return [name for name, p in self.p_values.items() if p < LEVEL]

    @property
    def p_value(self) -> float:
        """Chance of so many such domains or more, were the components independent in all."""
        return float(binom.sf(len(self.dependent) - 1, len(self.p_values), LEVEL))

    def __str__(self) -> str:
        n = len(self.p_values)
        verdict = "more than chance would have" if self.p_value < LEVEL else "no more than chance may have"
        return (
            f"{self.n_domains} domains; {self.domains_needed} or more are needed to identify the mechanism. Components "
            f"look dependent in {len(self.dependent)} of {n} domains, {verdict} (p = {self.p_value:.2g})."
        )


def dependence(S: FloatArray) -> tuple[FloatArray, float]:
    """Centred Gaussian kernels (D, n, n) of the columns, and the sum over pairs of columns of their HSIC."""
    kernels = []
    for column in S.T:
        kernel = gaussian(column[:, None], column[:, None], median_distance(column[:, None]))
        kernel -= kernel.mean(axis=0)
        kernels.append(kernel - kernel.mean(axis=1, keepdims=True))
    stacked = np.array(kernels)
    return stacked, _pairs(stacked)


def _pairs(kernels: FloatArray) -> float:
    """Σ over pairs of ⟨Kᵢ, Kⱼ⟩/n², from the square of the sum."""
    total = kernels.sum(axis=0)
    return float((np.vdot(total, total) - np.vdot(kernels, kernels)) / 2 / kernels.shape[1] ** 2)


def independence_p_value(S: FloatArray, *, n_permutations: int = 200, random_state: Any = None) -> float:
    """Of the hypothesis that the columns are independent, by permuting each of them."""
    rng = generator(random_state)
    kernels, found = dependence(S)
    n, at_least = len(S), 1
    for _ in range(n_permutations):
        orders = [rng.permutation(n) for _ in kernels]
        shuffled = np.array([kernel[np.ix_(order, order)] for kernel, order in zip(kernels, orders, strict=True)])
        at_least += _pairs(shuffled) >= found
    return at_least / (n_permutations + 1)
