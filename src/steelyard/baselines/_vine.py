"""Regular vine copulas: a density composed of marginals and pair copulas, each of which can be refitted alone."""

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

# Arguments of copulas are kept away from 0 and 1, where the estimates are unreliable.
EDGE = 1e-5
PAIRS_AT_A_TIME = 2_000_000
N_BISECTIONS = 60
Changed = Callable[[FloatArray, FloatArray], bool]
Values = list[dict[int, FloatArray]]


@dataclass(frozen=True, eq=False)
class KernelMarginal:
    """Kernel density estimate of one column, with Gaussian kernels at its values."""

    values: FloatArray
    width: float

    def density(self, x: FloatArray) -> FloatArray:
        """The density at points x."""
        return self._mean_of(lambda z: np.exp(-0.5 * z**2), x) / (np.sqrt(2 * np.pi) * self.width)

    def probability(self, x: FloatArray) -> FloatArray:
        """The distribution function: the probability of a value below x."""
        return self._mean_of(ndtr, x)

    def quantile(self, probability: FloatArray) -> FloatArray:
        """The quantile function, by bisection."""
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
    """A kernel density estimate with the normal reference width (bandwidth).

    The scale is the standard deviation or the scaled distance between the quartiles, whichever is smaller.
    """
    quartiles = np.subtract(*np.percentile(values, [75, 25])) / 1.349
    spread = min(values.std(ddof=1), quartiles if quartiles > 0 else np.inf)
    if not spread > 0:  # the column is constant
        spread = 1e-6 * max(1.0, float(np.abs(values).max()))
    return KernelMarginal(values, float(1.06 * spread * len(values) ** -0.2))


@dataclass(frozen=True, eq=False)
class Pair:
    """The copula of two variables, conditional on the variables that both of its nodes have in common.

    `nodes` are numbers of pairs of the previous tree, or of variables in the first tree.
    """

    nodes: tuple[int, int]
    variables: tuple[int, int]
    given: frozenset[int]
    copula: Any

    def inputs(self, before: Values) -> FloatArray:
        """The two arguments of the copula, from the values of the previous tree."""
        columns = [before[node][variable] for node, variable in zip(self.nodes, self.variables, strict=True)]
        return np.clip(np.column_stack(columns), EDGE, 1 - EDGE)

    def outputs(self, inputs: FloatArray) -> dict[int, FloatArray]:
        """Each of the two variables, also conditional on the other one."""
        first, second = self.variables
        return {first: self.copula.hfunc2(inputs), second: self.copula.hfunc1(inputs)}


@dataclass(frozen=True, eq=False)
class Vine:
    """A density of D columns: D marginals and D − 1 trees of pair copulas."""

    marginals: list[KernelMarginal]
    trees: list[list[Pair]]

    def log_density(self, Z: FloatArray) -> FloatArray:
        """The logarithm of the density of each row."""
        with np.errstate(divide="ignore"):  # the density far from all values is zero
            marginal = sum(np.log(m.density(z)) for m, z in zip(self.marginals, Z.T, strict=True))
        return np.asarray(marginal + self.log_copula(probabilities(self.marginals, Z)))

    def log_copula(self, U: Sequence[FloatArray]) -> FloatArray:
        """The logarithm of the density of the copula, from the probabilities of each column."""
        total = np.zeros(len(U[0]))
        values = _first_values(U)
        for tree in self.trees:
            inputs = [pair.inputs(values) for pair in tree]
            for pair, u in zip(tree, inputs, strict=True):
                total += np.log(pair.copula.pdf(u))
            values = [pair.outputs(u) for pair, u in zip(tree, inputs, strict=True)]
        return total

    def adapt(self, source: FloatArray, target: FloatArray, changed: Changed) -> Adapted:
        """Refit on the target rows the marginals and pair copulas that differ between source and target.

        `changed` is a two-sample test: it gets a sample of the source and one of the target and returns whether they
        differ. A pair copula is tested by its arguments: those of source rows by this vine, those of target rows by the
        parts that are refitted so far.
        """
        marginals, found = list(self.marginals), []
        for i, (in_source, in_target) in enumerate(zip(source.T, target.T, strict=True)):
            if changed(in_source[:, None], in_target[:, None]):
                marginals[i] = kernel_marginal(in_target)
                found.append(i)
        source_values = _first_values(probabilities(self.marginals, source))
        target_values = _first_values(probabilities(marginals, target))
        trees, pairs = [], []
        for tree in self.trees:
            refitted = []
            for pair in tree:
                inputs = pair.inputs(target_values)
                if changed(pair.inputs(source_values), inputs):
                    pair = replace(pair, copula=fit_copula(inputs))
                    pairs.append((pair.variables, pair.given))
                refitted.append(pair)
            source_values = [pair.outputs(pair.inputs(source_values)) for pair in tree]
            target_values = [pair.outputs(pair.inputs(target_values)) for pair in refitted]
            trees.append(refitted)
        return Adapted(Vine(marginals, trees), found, pairs)


@dataclass(frozen=True, eq=False)
class Adapted:
    """A vine of the target, and which of its parts differ from those of the source."""

    vine: Vine
    marginals: list[int]
    pairs: list[tuple[tuple[int, int], frozenset[int]]]


def fit_vine(Z: FloatArray) -> Vine:
    """Fit a vine; each tree is a spanning tree of largest |Kendall's τ| (the algorithm of Dissmann)."""
    marginals = [kernel_marginal(column) for column in Z.T]
    values = _first_values(probabilities(marginals, Z))
    full = [frozenset({i}) for i in range(Z.shape[1])]  # all variables of a node
    joined: list[tuple[int, ...]] = [(i,) for i in range(Z.shape[1])]  # nodes of the previous tree that a node joins
    trees: list[list[Pair]] = []
    for level in range(Z.shape[1] - 1):
        # The two variables of each pair of nodes that can be joined: from the second tree on, those that have a node of
        # the previous tree in common.
        variables = {
            (i, j): (min(full[i] - full[j]), min(full[j] - full[i]))
            for i, j in combinations(range(len(full)), 2)
            if level == 0 or set(joined[i]) & set(joined[j])
        }
        costs = np.zeros((len(values), len(values)))
        for (i, j), (first, second) in variables.items():
            strength = kendalltau(values[i][first], values[j][second]).statistic
            costs[i, j] = 2 - (abs(strength) if np.isfinite(strength) else 0.0)  # a cost of zero would mean no edge
        edges = zip(*minimum_spanning_tree(costs).nonzero(), strict=True)
        tree = []
        for i, j in sorted((int(i), int(j)) for i, j in edges):
            pair = Pair((i, j), variables[i, j], full[i] & full[j], None)
            tree.append(replace(pair, copula=fit_copula(pair.inputs(values))))
        values = [pair.outputs(pair.inputs(values)) for pair in tree]
        full = [full[pair.nodes[0]] | full[pair.nodes[1]] for pair in tree]
        joined = [pair.nodes for pair in tree]
        trees.append(tree)
    return Vine(marginals, trees)


def probabilities(marginals: Sequence[KernelMarginal], Z: FloatArray) -> list[FloatArray]:
    """The arguments of the copula: the distribution function of each column at its values."""
    return [marginal.probability(z) for marginal, z in zip(marginals, Z.T, strict=True)]


def _first_values(U: Sequence[FloatArray]) -> Values:
    return [{i: u} for i, u in enumerate(U)]


def fit_copula(inputs: FloatArray) -> Any:
    """Fit a pair copula by local likelihood; with fewer than ten rows pyvinecopulib fits independence."""
    try:
        from pyvinecopulib import Bicop, FitControlsBicop
        from pyvinecopulib.families import tll
    except ModuleNotFoundError as error:
        raise DependencyError("Vine copulas need pyvinecopulib. Install it: pip install 'steelyard[vine]'.") from error
    with one_blas_thread():
        return Bicop.from_data(inputs, controls=FitControlsBicop(family_set=[tll], num_threads=1))
