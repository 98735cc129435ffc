"""Tests of whether two samples come from one distribution, all with permutation or exact p-values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.preprocessing import StandardScaler

from steelyard._numerics.kernels import gaussian
from steelyard._splits.rows import random_folds
from steelyard._threads import one_blas_thread, one_openmp_thread
from steelyard._typing import FloatArray, IntArray
from steelyard.tables import Column

N_PERMUTATIONS = 500
MMD_ROWS = 500


@dataclass(frozen=True)
class TestResult:
    """A statistic and how often chance alone makes it as large."""

    statistic: float
    p_value: float


def classifier_test(source: FloatArray, target: FloatArray, rng: np.random.Generator) -> TestResult:
    """Can a classifier tell rows apart that it has not seen? Area under the ROC curve, ½ if not.

    Two classifiers, a linear one and boosted trees, are averaged by rank, so that both a shifted mean and a changed
    shape are seen. They learn from half of the rows and score the other half; the p-value permutes the domains of the
    scored rows, and nothing is refitted. (With several folds that would not be exact: the rows scored in one fold
    have taught the others, and under no shift the test would reject in nine of a hundred cases instead of five.)
    """
    from scipy.stats import rankdata

    rows = np.concatenate([source, target])
    domain = np.repeat([0, 1], [len(source), len(target)])
    half = random_folds(len(rows), 2, rng, domain)
    train, test = half == 0, half == 1
    linear, trees = _probabilities(rows[train], domain[train], rows[test])
    ranks = rankdata(rankdata(linear) + rankdata(trees))
    assignments = np.stack([domain[test], *(rng.permutation(domain[test]) for _ in range(N_PERMUTATIONS))])
    areas = _auc(ranks, assignments)
    return TestResult(float(areas[0]), float((1 + np.sum(areas[1:] >= areas[0])) / (1 + N_PERMUTATIONS)))


def _probabilities(rows: FloatArray, domain: IntArray, new: FloatArray) -> tuple[FloatArray, FloatArray]:
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, so not before it is needed
    from sklearn.linear_model import LogisticRegression

    scaler = StandardScaler().fit(rows)
    with one_blas_thread():
        linear = LogisticRegression(C=0.1, max_iter=200).fit(scaler.transform(rows), domain)
    trees = HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, min_samples_leaf=10, learning_rate=0.1, early_stopping=False, random_state=0
    )
    with one_openmp_thread():
        of_trees = trees.fit(rows, domain).predict_proba(new)[:, 1]
    return linear.predict_proba(scaler.transform(new))[:, 1], of_trees


def _auc(ranks: FloatArray, domains: IntArray) -> FloatArray:
    """Area under the ROC curve for each of several assignments of domains, shape (P, n)."""
    positive = domains == 1
    n_positive = positive.sum(axis=1)
    n_negative = len(ranks) - n_positive
    return np.asarray((positive @ ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def mmd_test(source: FloatArray, target: FloatArray, rng: np.random.Generator) -> TestResult:
    """Maximum mean discrepancy with a Gaussian kernel at the median distance; rows of all columns standardized."""
    some = source[rng.permutation(len(source))[:MMD_ROWS]], target[rng.permutation(len(target))[:MMD_ROWS]]
    rows = StandardScaler().fit_transform(np.concatenate(some))
    width = float(np.median(pdist(rows[rng.permutation(len(rows))[:300]]))) or 1.0
    with one_blas_thread():
        kernel = gaussian(rows, rows, width)
    np.fill_diagonal(kernel, 0)  # the unbiased estimate leaves out a row's similarity to itself
    sign = np.repeat([0, 1], [len(some[0]), len(some[1])])
    assignments = np.stack([sign, *(rng.permutation(sign) for _ in range(N_PERMUTATIONS))])
    values = _mmd(kernel, assignments)
    return TestResult(float(values[0]), float((1 + np.sum(values[1:] >= values[0])) / (1 + N_PERMUTATIONS)))


def _mmd(kernel: FloatArray, assignments: IntArray) -> FloatArray:
    """Unbiased squared MMD of several assignments (P, n) of rows to source (0) and target (1)."""
    source = (assignments == 0).astype(np.float64)
    target = 1 - source
    n, m = source.sum(axis=1), target.sum(axis=1)
    within = np.einsum("pn,pn->p", source @ kernel, source) / (n * (n - 1))
    within += np.einsum("pn,pn->p", target @ kernel, target) / (m * (m - 1))
    return np.asarray(within - 2 * np.einsum("pn,pn->p", source @ kernel, target) / (n * m))


def column_test(source: Column, target: Column) -> TestResult:
    """Kolmogorov and Smirnov's test for numbers, the χ² test for categories; missing values count as a value.

    The statistic is the largest distance of the two distribution functions, or half the sum of differences of shares
    (both lie between 0 and 1).
    """
    from scipy.stats import ks_2samp

    if source.kind == "category":
        return _category_test(source, target)
    values = [np.where(np.isnan(c.values), -np.inf, c.values) for c in (source, target)]
    found = ks_2samp(*values, method="asymp")
    return TestResult(float(found.statistic), float(found.pvalue))


def text_test(source: FloatArray, target: FloatArray) -> TestResult:
    """Kolmogorov and Smirnov's test of each of the numbers that a text is encoded as, corrected for their number.

    The p-value is the least of the k tests, times k. The statistic is the largest distance D, brought down to what one
    test alone would need for that p-value: √(D² − log(k) / 2N) with N = nm / (n + m), because P(D > d) ≈ 2 exp(−2Nd²).
    """
    from scipy.stats import ks_2samp

    found = [ks_2samp(a, b, method="asymp") for a, b in zip(source.T, target.T, strict=True)]
    largest = max(float(test.statistic) for test in found)
    size = len(source) * len(target) / (len(source) + len(target))
    distance = np.sqrt(max(0.0, largest**2 - np.log(len(found)) / (2 * size)))
    return TestResult(float(distance), min(1.0, len(found) * min(float(test.pvalue) for test in found)))


def _category_test(source: Column, target: Column) -> TestResult:
    from scipy.stats import chi2_contingency

    text = [np.array(["\0" if v is None else v for v in c.values], dtype=str) for c in (source, target)]
    levels, inverse = np.unique(np.concatenate(text), return_inverse=True)
    counts = np.stack([np.bincount(part, minlength=len(levels)) for part in np.split(inverse, [len(text[0])])]).astype(
        np.float64
    )
    rare = counts.sum(axis=0) < 10  # the approximation needs a few rows of a level
    if rare.any():
        counts = np.column_stack([counts[:, ~rare], counts[:, rare].sum(axis=1)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    distance = float(np.abs(shares[0] - shares[1]).sum() / 2)
    counts = counts[:, counts.sum(axis=0) > 0]
    if counts.shape[1] < 2:
        return TestResult(0.0, 1.0)
    return TestResult(distance, float(chi2_contingency(counts, correction=False).pvalue))
