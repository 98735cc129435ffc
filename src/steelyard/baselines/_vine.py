"""Regular vines: a density as marginals and pair copulas, all of them estimated by kernels, and refitted one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.special import ndtr
from scipy.stats import kendalltau

from steelyard._numerics.kernels import blocks
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray
from steelyard.errors import DependencyError

# Values of copulas are kept off the edges, where their estimates mean nothing.
EDGE = 1e-5
PAIRS_AT_A_TIME = 2_000_000
N_BISECTIONS = 60
Changed = Callable[[FloatArray, FloatArray], bool]
Values = list[dict[int, FloatArray]]


@dataclass(frozen=True, eq=False)
class KernelMarginal:
    """The density of one column by Gaussians on its values, of the normal reference width."""

    values: FloatArray
    width: float

    def density(self, x: FloatArray) -> FloatArray:
        """At some points."""
        return self._mean_of(lambda z: np.exp(-0.5 * z**2), x) / (np.sqrt(2 * np.pi) * self.width)

    def probability(self, x: FloatArray) -> FloatArray:
        """Of a value that is less."""
        return self._mean_of(ndtr, x)

    def quantile(self, probability: FloatArray) -> FloatArray:
        """The value that is exceeded with one minus this probability, by bisection."""
        low = np.full(len(probability), self.values.min() - 10 * self.width)
        high = np.full(len(probability), self.values.max() + 10 * self.width)
        for _ in range(N_BISECTIONS):
            middle = (low + high) / 2
            below = self.probability(middle) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def _mean_of(self, function: Callable[[FloatArray], FloatArray], x: FloatArray) -> FloatArray:
        parts = blocks(len(x), max(1, PAIRS_AT_A_TIME // len(self.values)))
        each = [function((x[part, None] - self.values) / self.width).mean(axis=1) for part in parts]
        return np.concatenate(each) if each else np.empty(0)


def kernel_marginal(values: FloatArray) -> KernelMarginal:
    """Silverman's width, from the standard deviation or the quartiles, whichever is less."""
    quartiles = np.subtract(*np.percentile(values, [75, 25])) / 1.349
    spread = min(values.std(ddof=1), quartiles if quartiles > 0 else np.inf)
    if not spread > 0:  # a constant: as narrow as makes no difference
        spread = 1e-6 * max(1.0, float(np.abs(values).max()))
    return KernelMarginal(values, float(1.06 * spread * len(values) ** -0.2))


@dataclass(frozen=True, eq=False)
class Pair:
    """The copula of two variables, given those that both nodes of the tree before have.

    `nodes` are numbers of pairs of the tree before, of variables in the first tree.
    """

    nodes: tuple[int, int]
    variables: tuple[int, int]
    given: frozenset[int]
    copula: Any

    def inputs(self, before: Values) -> FloatArray:
        """Its two columns, from the values of the tree before."""
        columns = [before[node][variable] for node, variable in zip(self.nodes, self.variables, strict=True)]
        return np.clip(np.column_stack(columns), EDGE, 1 - EDGE)

    def outputs(self, inputs: FloatArray) -> dict[int, FloatArray]:
        """Each of the two given the other as well."""
        one, other = self.variables
        return {one: self.copula.hfunc2(inputs), other: self.copula.hfunc1(inputs)}


@dataclass(frozen=True, eq=False)
class Vine:
    """A density of D columns: marginals, and D − 1 trees of pair copulas."""

    marginals: list[KernelMarginal]
    trees: list[list[Pair]]

    def log_density(self, Z: FloatArray) -> FloatArray:
        """Of rows."""
        with np.errstate(divide="ignore"):  # zero, far from every value
            marginal = sum(np.log(m.density(z)) for m, z in zip(self.marginals, Z.T, strict=True))
        return np.asarray(marginal + self.log_copula(probabilities(self.marginals, Z)))

    def log_copula(self, U: Sequence[FloatArray]) -> FloatArray:
        """The density without the marginals, from a column of probabilities for each of them."""
        total = np.zeros(len(U[0]))
        values = _first_values(U)
        for tree in self.trees:
            inputs = [pair.inputs(values) for pair in tree]
            for pair, u in zip(tree, inputs, strict=True):
                total += np.log(pair.copula.pdf(u))
            values = [pair.outputs(u) for pair, u in zip(tree, inputs, strict=True)]
        return total


def fit_vine(Z: FloatArray) -> Vine:
    """Trees that span the largest |Kendall's τ|, one after the other (Dissmann's way)."""
    marginals = [kernel_marginal(column) for column in Z.T]
    values = _first_values(probabilities(marginals, Z))
    full = [frozenset({i}) for i in range(Z.shape[1])]  # all variables of a node
    joined: list[tuple[int, ...]] = [(i,) for i in range(Z.shape[1])]  # what a node joins, in the tree before
    trees: list[list[Pair]] = []
    for level in range(Z.shape[1] - 1):
        # From the second tree on, nodes are joined that have one in common.
        allowed = [
            (i, j) for i, j in combinations(range(len(full)), 2) if level == 0 or set(joined[i]) & set(joined[j])
        ]
        tree = [_pair(i, j, full, values) for i, j in _spanning(allowed, full, values)]
        values = [pair.outputs(pair.inputs(values)) for pair in tree]
        full = [full[pair.nodes[0]] | full[pair.nodes[1]] for pair in tree]
        joined = [pair.nodes for pair in tree]
        trees.append(tree)
    return Vine(marginals, trees)


def probabilities(marginals: Sequence[KernelMarginal], Z: FloatArray) -> list[FloatArray]:
    """What enters the copula: of every column the probability of less."""
    return [marginal.probability(z) for marginal, z in zip(marginals, Z.T, strict=True)]


def _first_values(U: Sequence[FloatArray]) -> Values:
    return [{i: u} for i, u in enumerate(U)]


def _spanning(allowed: list[tuple[int, int]], full: list[frozenset[int]], values: Values) -> list[tuple[int, int]]:
    costs = np.zeros((len(full), len(full)))
    for i, j in allowed:
        (one,), (other,) = full[i] - full[j], full[j] - full[i]
        strength = kendalltau(values[i][one], values[j][other]).statistic
        costs[i, j] = 2 - (abs(strength) if np.isfinite(strength) else 0.0)  # zero would be no edge
    rows, columns = minimum_spanning_tree(costs).nonzero()
    return sorted((int(i), int(j)) for i, j in zip(rows, columns, strict=True))


def _pair(i: int, j: int, full: list[frozenset[int]], values: Values) -> Pair:
    (one,), (other,) = full[i] - full[j], full[j] - full[i]
    empty = Pair((i, j), (one, other), full[i] & full[j], None)
    return replace(empty, copula=fit_copula(empty.inputs(values)))


def fit_copula(inputs: FloatArray) -> Any:
    """A pair copula by local likelihood; of fewer than ten rows pyvinecopulib makes independence."""
    try:
        from pyvinecopulib import Bicop, FitControlsBicop
        from pyvinecopulib.families import tll
    except ModuleNotFoundError as error:
        raise DependencyError("Vines need pyvinecopulib. Install it: pip install 'steelyard[vine]'.") from error
    with one_blas_thread():
        return Bicop.from_data(inputs, controls=FitControlsBicop(family_set=[tll], num_threads=1))


@dataclass(frozen=True, eq=False)
class Adapted:
    """A vine of the target, and what was found to differ from the source's."""

    vine: Vine
    marginals: list[int]
    pairs: list[tuple[tuple[int, int], frozenset[int]]]


def adapt(vine: Vine, source: FloatArray, target: FloatArray, changed: Changed) -> Adapted:
    """The vine with those marginals and pair copulas refitted on the target that `changed` tells from the source's.

    A pair is compared by what enters it: of source rows by the source's vine, of target rows by what is refitted so
    far. `changed` gets two samples and is a test.
    """
    marginals, found = list(vine.marginals), []
    for i, (here, there) in enumerate(zip(source.T, target.T, strict=True)):
        if changed(here[:, None], there[:, None]):
            marginals[i] = kernel_marginal(there)
            found.append(i)
    here, there = (_first_values(probabilities(of, Z)) for of, Z in ((vine.marginals, source), (marginals, target)))
    trees, pairs = [], []
    for tree in vine.trees:
        refitted = []
        for pair in tree:
            inputs = pair.inputs(there)
            if changed(pair.inputs(here), inputs):
                pair = replace(pair, copula=fit_copula(inputs))
                pairs.append((pair.variables, pair.given))
            refitted.append(pair)
        here = [pair.outputs(pair.inputs(here)) for pair in tree]
        there = [pair.outputs(pair.inputs(there)) for pair in refitted]
        trees.append(refitted)
    return Adapted(Vine(marginals, trees), found, pairs)
