"""Tests of conditional independence of the domain: does p(y | x) change, does p(x | y) change?

Both are generalized covariance measures (Shah and Peters, 2020): with D the domain, D − E[D | c] and v − E[v | c] are
uncorrelated if v does not depend on D given c. The two conditional means are cross-fitted, and errors in one are
forgiven where the other is right, so the product of residuals is normal around zero under the null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from steelyard._splits.rows import random_folds
from steelyard._threads import one_blas_thread, one_openmp_thread
from steelyard._typing import FloatArray
from steelyard.diagnostics.two_sample import TestResult

ConditionalMean = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]

N_FOLDS = 5
ROWS_PER_KNOT = 30  # rows between two knots of the curve that smooths values over a number y, on average
MOST_KNOTS = 20
MOST_TRIED = 50  # columns that a split of the trees of several classes chooses from
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
    propensity = _cross_fitted(rows, domain[:, None], rng, _propensity)
    scaled = StandardScaler().fit_transform(rows)
    lenses = np.column_stack([np.ones(len(rows)), np.clip(scaled, -3, 3)])
    residuals = outputs - _cross_fitted(rows, outputs, rng, _mean)
    products = (domain[:, None] - propensity) * residuals
    return _largest(np.concatenate([_covariances(product[:, None] * lenses) for product in products.T]))


def class_conditional_test(
    rows: FloatArray, outputs: FloatArray, domain: FloatArray, rng: np.random.Generator
) -> TestResult:
    """Does x depend on the domain given y? Each column of x and its square is tried.

    Given y alone, the means of all columns are those of classes, or curves over a number: one regression for all.
    """
    scaled = StandardScaler().fit_transform(rows)
    values = np.column_stack([scaled, np.clip(scaled, -3, 3) ** 2])
    propensity = _cross_fitted(outputs, domain[:, None], rng, _propensity)
    given = _hat_functions(outputs[:, 0]) if outputs.shape[1] == 1 else outputs
    residuals = values - _cross_fitted(given, values, rng, _smoothed)
    return _largest(_covariances((domain[:, None] - propensity) * residuals))


def _covariances(products: FloatArray) -> FloatArray:
    """Mean over standard error, for each column."""
    spread = products.std(axis=0)
    return np.asarray(np.sqrt(len(products)) * products.mean(axis=0) / np.where(spread > 0, spread, 1))


def _largest(statistics: FloatArray) -> TestResult:
    from scipy.stats import norm

    largest = float(np.max(np.abs(statistics)))
    return TestResult(largest, float(min(1.0, 2 * norm.sf(largest) * len(statistics))))


def _cross_fitted(given: FloatArray, wanted: FloatArray, rng: np.random.Generator, mean: ConditionalMean) -> FloatArray:
    """E[wanted | given] at each row, for each column of `wanted`, by a model that has not seen the row."""
    fold = random_folds(len(given), N_FOLDS, rng)
    means = np.empty(wanted.shape)
    for f in range(N_FOLDS):
        train, test = fold != f, fold == f
        with one_openmp_thread(), one_blas_thread():
            means[test] = mean(given[train], wanted[train], given[test])
    return means


def _propensity(given: FloatArray, wanted: FloatArray, new: FloatArray) -> FloatArray:
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, so not before it is needed

    model = HistGradientBoostingClassifier(**TREES).fit(given, wanted[:, 0])
    return np.asarray(model.predict_proba(new)[:, 1:])


def _mean(given: FloatArray, wanted: FloatArray, new: FloatArray) -> FloatArray:
    """What is linear is taken out first: trees follow a slope only in steps. Several classes share their trees."""
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    scaler = StandardScaler().fit(given)
    line = RidgeCV(np.logspace(-2, 4, 7), alpha_per_target=True).fit(scaler.transform(given), wanted)
    left = wanted - line.predict(scaler.transform(given)).reshape(wanted.shape)
    if wanted.shape[1] == 1:
        trees = HistGradientBoostingRegressor(**TREES).fit(given, left[:, 0])
    else:
        tried = min(MOST_TRIED, given.shape[1])
        trees = ExtraTreesRegressor(60, min_samples_leaf=10, max_features=tried, random_state=0).fit(given, left)
    return np.asarray(line.predict(scaler.transform(new)) + trees.predict(new)).reshape(len(new), -1)


def _smoothed(given: FloatArray, wanted: FloatArray, new: FloatArray) -> FloatArray:
    """Means of classes, or values of a curve at its knots, drawn to the common mean as if by a tenth of a row each."""
    from sklearn.linear_model import Ridge

    return np.asarray(Ridge(alpha=0.1).fit(given, wanted).predict(new)).reshape(len(new), -1)


def _hat_functions(values: FloatArray) -> FloatArray:
    """The piecewise linear functions that are one at a knot and zero at the others; the knots are quantiles."""
    n_knots = int(np.clip(len(values) // ROWS_PER_KNOT, 3, MOST_KNOTS))
    knots = np.unique(np.quantile(values, np.linspace(0, 1, n_knots)))
    return np.column_stack([np.interp(values, knots, at_knot) for at_knot in np.eye(len(knots))])
