"""The predictor of table 7 against refits, and against the survey's column of the target alone."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from steelyard._few_shot.kernel_regression import (
    LeaveOneOutKernelRegressor,
    leave_one_out,
    spectrum,
)
from steelyard._numerics.kernels import gaussian
from steelyard.errors import InputError, ParameterError


def problem(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n), gaussian(X, X, 1.3)


def test_spectrum_is_that_of_the_kernel():
    _, _, kernel = problem(60)
    values, vectors = spectrum(kernel)
    np.testing.assert_allclose((vectors * values) @ vectors.T, kernel, atol=1e-8)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(kernel)[-len(values) :], atol=1e-9)


@pytest.mark.parametrize("regularize", ["coefficients", "function"])
def test_leave_one_out_is_that_of_refits(regularize):
    _, y, kernel = problem()
    reg = np.array([0.01, 1.0])
    errors, theta = leave_one_out(kernel, y, reg, regularize)
    for place, value in enumerate(reg):
        eye = np.eye(len(y))
        if regularize == "coefficients":
            np.testing.assert_allclose(
                theta[place], np.linalg.solve(kernel @ kernel + value * eye, kernel @ y), rtol=1e-6, atol=1e-8
            )
        else:
            np.testing.assert_allclose(theta[place], np.linalg.solve(kernel + value * eye, y), rtol=1e-6, atol=1e-8)
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            if regularize == "coefficients":  # the row that is left out stays a center
                rows = kernel[rest]
                refit = kernel[i] @ np.linalg.solve(rows.T @ rows + value * eye, rows.T @ y[rest])
            else:
                inner = kernel[np.ix_(rest, rest)] + value * np.eye(len(y) - 1)
                refit = kernel[i, rest] @ np.linalg.solve(inner, y[rest])
            assert errors[place, i] == pytest.approx(y[i] - refit, rel=1e-5, abs=1e-8)


def test_weighted_leave_one_out_is_that_of_refits():
    _, y, kernel = problem()
    weight = np.random.default_rng(1).uniform(0.1, 3, len(y))
    errors, theta = leave_one_out(kernel, y, np.array([0.3]), "coefficients", weight)
    system = kernel @ (weight[:, None] * kernel) + 0.3 * np.eye(len(y))
    np.testing.assert_allclose(theta[0], np.linalg.solve(system, kernel @ (weight * y)), rtol=1e-6, atol=1e-8)
    for i in range(len(y)):
        less = weight.copy()
        less[i] = 0
        system = kernel @ (less[:, None] * kernel) + 0.3 * np.eye(len(y))
        assert errors[0, i] == pytest.approx(y[i] - kernel[i] @ np.linalg.solve(system, kernel @ (less * y)), abs=1e-7)
    plain = leave_one_out(kernel, y, np.array([0.3]), "coefficients")
    np.testing.assert_allclose(
        leave_one_out(kernel, y, np.array([0.3]), "coefficients", np.ones(len(y)))[0], plain[0], atol=1e-7
    )


def test_lambda_is_chosen_by_the_scored_rows():
    X, y, _ = problem(40)
    y[20:] = np.random.default_rng(3).normal(size=20)  # noise, which only a large λ survives
    clean = LeaveOneOutKernelRegressor().fit(X, y, scored=np.arange(20))
    every = LeaveOneOutKernelRegressor().fit(X, y)
    assert clean.reg_ < every.reg_
    assert clean.loo_.shape == (21,)
    with pytest.raises(InputError, match="scored contains no row"):
        LeaveOneOutKernelRegressor().fit(X, y, scored=[])
    with pytest.raises(ParameterError, match="regularize must be one of"):
        LeaveOneOutKernelRegressor(regularize="both").fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_check_estimator():
    results = check_estimator(LeaveOneOutKernelRegressor(), on_fail=None)
    assert {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"} == {}
