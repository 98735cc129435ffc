"""What baselines choose by leaving rows out: the step of boosting, and λ of weighted kernel regression."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.tree import DecisionTreeRegressor

from steelyard import Target
from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
from steelyard.baselines import JointlyWeightedRegressor, TwoStageTrAdaBoostR2


@pytest.mark.parametrize("seed", range(3))
def test_leave_one_out_of_boosting_knows_nothing_of_the_row_that_is_left_out(seed):
    """Every label is 0 but one of the target, 100: without it all predictions are 0, in whatever step."""
    rng = np.random.default_rng(seed)
    X, X_target = rng.uniform(size=(20, 1)), np.append(rng.uniform(size=4), 100.0)[:, None]
    model = TwoStageTrAdaBoostR2(n_steps=4, n_estimators=5, standardize=False, random_state=seed)
    model.fit(X, np.zeros(20), target=Target(X_target, [0.0, 0.0, 0.0, 0.0, 100.0]))
    assert (model.loo_ >= 100.0**2 / 5 - 1e-9).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("sign", "bound"), [(1, 0.7), (-1, 5)], ids=["sources that agree", "that contradict"])
def test_boosting_takes_the_step_of_least_leave_one_out_error(sign, bound, seed):
    """The first step leans on the sources and the last has let go of them all; the label has a mean square of 4.5."""

    def curve(X):
        return 3 * np.sin(3 * X[:, 0])

    rng = np.random.default_rng(seed)
    X, X_target, new = rng.uniform(0, 6, (80, 1)), np.linspace(0.3, 5.7, 8)[:, None], np.linspace(0, 6, 50)[:, None]
    tree = DecisionTreeRegressor()
    model = TwoStageTrAdaBoostR2(tree, n_steps=5, n_estimators=5, standardize=False, random_state=seed)
    model.fit(X, sign * curve(X), target=Target(X_target, curve(X_target)))
    assert np.mean((model.predict(new) - curve(new)) ** 2) < bound


def contradicting(n, seed):
    """Inputs, and labels of two curves, one the negative of the other, with noise: of both alike 0 is the best fit."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, 2 * n)
    return x[:, None], np.repeat([1, -1], n) * (np.cos(x) + 2) + 0.1 * rng.normal(size=2 * n)


def chosen_by_refits(X, y, weights):
    """The best λ of the survey's grid and its fit, a function of rows. A row left out is a row without weight."""
    width = np.median(pdist(X))

    def kernel(rows):
        return np.exp(-(cdist(rows, X) ** 2) / (2 * width**2))

    K = kernel(X)

    def coefficients(reg, weights):
        return np.linalg.solve(K @ (weights[:, None] * K) + reg * np.eye(len(y)), K @ (weights * y))

    def score(reg):
        errors = []
        for i in range(len(y)):
            rest = np.where(np.arange(len(y)) == i, 0, weights)
            errors.append(K[i] @ coefficients(reg, rest) - y[i])
        return weights @ np.square(errors)

    best = min(2.0 ** np.arange(-10, 11), key=score)
    return best, lambda rows: kernel(rows) @ coefficients(best, weights)


@pytest.mark.parametrize("seed", range(3))
def test_lambda_of_weighted_kernel_regression_is_chosen_by_weighted_leave_one_out_errors(seed):
    X, y = contradicting(20, seed)
    weights = np.repeat([1.0, 0.02], 20)
    best, expected = chosen_by_refits(X, y, weights)
    model = LeaveOneOutKernelRegressor().fit(X, y, importance_weights=weights)
    assert model.reg_ == best
    np.testing.assert_allclose(model.predict(X), expected(X), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_joint_weights_also_weight_the_errors_that_choose_lambda(seed):
    X, y = contradicting(20, seed)
    X_target = np.linspace(-2.9, 2.9, 20)[:, None]
    target = Target(X_target, np.cos(X_target[:, 0]) + 2)
    model = JointlyWeightedRegressor(standardize=False, random_state=seed).fit(X, y, target=target)
    _, expected = chosen_by_refits(X, y, model.weights_)
    np.testing.assert_allclose(model.predict(X_target), expected(X_target), atol=1e-5)
