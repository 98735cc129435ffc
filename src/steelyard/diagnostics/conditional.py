"""Tests of conditional independence of the domain: does p(y | x) change, does p(x | y) change?

Both are generalized covariance measures (Shah and Peters, 2020): with D the domain, D − E[D | c] and v − E[v | c] are
uncorrelated if v does not depend on D given c. The two conditional means are cross-fitted, and errors in one are
forgiven where the other is right, so the product of residuals is normal around zero under the null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from steelyard._splits.rows import random_folds
from steelyard._threads import one_blas_thread, one_openmp_thread
from steelyard._typing import FloatArray
from steelyard.diagnostics.two_sample import TestResult

N_FOLDS = 5
TREES: dict[str, Any] = {
    "max_iter": 60,
    "max_leaf_nodes": 8,
    "min_samples_leaf": 10,
    "early_stopping": False,
    "random_state": 0,
}


def concept_test(rows: FloatArray, outputs: FloatArray, domain: FloatArray, rng: np.random.Generator) -> TestResult:
    """Does y depend on the domain given x? `outputs` has a column for a number, one a class for classes.

    The residual product is also weighted by each (standardized) column of x, for changes of slope; the p-value is the
    least of all, times their number.
    """
    propensity = _cross_fitted(rows, domain, rng, classifier=True)
    scaled = StandardScaler().fit_transform(rows)
    lenses = np.column_stack([np.ones(len(rows)), np.clip(scaled, -3, 3)])
    statistics = []
    for output in outputs.T:
        residual = output - _cross_fitted(rows, output, rng, classifier=False)
        statistics.append(_covariances((domain - propensity)[:, None] * residual[:, None] * lenses))
    return _largest(np.concatenate(statistics))


def class_conditional_test(
    rows: FloatArray, outputs: FloatArray, domain: FloatArray, rng: np.random.Generator
) -> TestResult:
    """Does x depend on the domain given y? Each column of x and its square is tried."""
    scaled = StandardScaler().fit_transform(rows)
    values = np.column_stack([scaled, np.clip(scaled, -3, 3) ** 2])
    propensity = _cross_fitted(outputs, domain, rng, classifier=True)
    statistics = []
    for value in values.T:
        residual = value - _cross_fitted(outputs, value, rng, classifier=False)
        statistics.append(_covariances(((domain - propensity) * residual)[:, None]))
    return _largest(np.concatenate(statistics))


def _covariances(products: FloatArray) -> FloatArray:
    """Mean over standard error, for each column."""
    spread = products.std(axis=0)
    return np.asarray(np.sqrt(len(products)) * products.mean(axis=0) / np.where(spread > 0, spread, 1))


def _largest(statistics: FloatArray) -> TestResult:
    from scipy.stats import norm

    largest = float(np.max(np.abs(statistics)))
    return TestResult(largest, float(min(1.0, 2 * norm.sf(largest) * len(statistics))))


def _cross_fitted(given: FloatArray, wanted: FloatArray, rng: np.random.Generator, *, classifier: bool) -> FloatArray:
    """E[wanted | given] at each row, by a model that has not seen it."""
    fold = random_folds(len(given), N_FOLDS, rng)
    means = np.empty(len(given))
    for f in range(N_FOLDS):
        train, test = fold != f, fold == f
        with one_openmp_thread(), one_blas_thread():
            means[test] = (_propensity if classifier else _mean)(given[train], wanted[train], given[test])
    return means


def _propensity(given: FloatArray, wanted: FloatArray, new: FloatArray) -> FloatArray:
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, so not before it is needed

    model = HistGradientBoostingClassifier(**TREES).fit(given, wanted)
    return np.asarray(model.predict_proba(new)[:, 1])


def _mean(given: FloatArray, wanted: FloatArray, new: FloatArray) -> FloatArray:
    """What is linear is taken out first: trees follow a slope only in steps."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    scaler = StandardScaler().fit(given)
    line = RidgeCV(np.logspace(-2, 4, 7)).fit(scaler.transform(given), wanted)
    left = wanted - line.predict(scaler.transform(given))
    trees = HistGradientBoostingRegressor(**TREES).fit(given, left)
    return np.asarray(line.predict(scaler.transform(new)) + trees.predict(new))
