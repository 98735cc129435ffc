"""Baselines of few labeled target rows: against plain fits, and boosting against rounds worked out by hand."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from steelyard import RULSIF, Target
from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
from steelyard.baselines import (
    CopulaRegressor,
    DiscrepancyRegressor,
    JointlyWeightedRegressor,
    SourceAndTargetRegressor,
    SourceOnlyRegressor,
    TargetOnlyRegressor,
    TwoStageTrAdaBoostR2,
)
from steelyard.baselines.boosting import Committee, boost, reduce_source_weights
from steelyard.errors import InputError, MissingTargetError, NotFiniteError, ParameterError

EVERY = [
    TargetOnlyRegressor(),
    SourceOnlyRegressor(),
    SourceAndTargetRegressor(),
    JointlyWeightedRegressor(random_state=0),
    DiscrepancyRegressor(),
    CopulaRegressor(random_state=0),
    TwoStageTrAdaBoostR2(n_steps=3, n_estimators=3, random_state=0),
]


def tables(seed=0):
    rng = np.random.default_rng(seed)
    X, X_target = rng.normal(size=(60, 2)), rng.normal(0.5, 1, size=(7, 2))
    return X, np.sin(X[:, 0]) + X[:, 1], X_target, np.sin(X_target[:, 0]) + X_target[:, 1] + 1


@pytest.mark.parametrize("model", EVERY, ids=lambda model: type(model).__name__)
def test_contract(model):
    needed = {"DiscrepancyRegressor": "clarabel", "CopulaRegressor": "pyvinecopulib"}.get(type(model).__name__, "numpy")
    pytest.importorskip(needed, reason=f"{needed} is not installed; {type(model).__name__} needs it")
    X, y, X_target, y_target = tables()
    before = X.copy()
    first = clone(model).fit(X, y, domain=np.arange(60) % 3, target=Target(X_target, y_target))
    second = clone(model).fit(X, y, target=Target(X_target, y_target))
    np.testing.assert_array_equal(first.predict(X_target), second.predict(X_target))
    np.testing.assert_array_equal(X, before)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(MissingTargetError, match=f"{type(model).__name__} needs a few rows of the target"):
        clone(model).fit(X, y)
    with pytest.raises(MissingTargetError):
        clone(model).fit(X, y, target=Target(X_target))
    with pytest.raises(InputError, match="one row"):
        clone(model).fit(X, y, target=Target(X_target[:1], y_target[:1]))
    with pytest.raises(InputError, match="label for each row"):
        clone(model).fit(X, y, target=Target(X_target, y_target[:-1]))
    holed, unknown = X.copy(), y_target.copy()
    holed[3, 1], unknown[2] = np.nan, np.inf
    with pytest.raises(NotFiniteError, match=r"source contains NaN in 1 of 60 rows \(column 1, first at rows \[3\]"):
        clone(model).fit(holed, y, target=Target(X_target, y_target))
    with pytest.raises(NotFiniteError, match="The target's y contains NaN or infinity, first at row 2"):
        clone(model).fit(X, y, target=Target(X_target, unknown))
    with pytest.raises(NotFiniteError, match="table to predict contains NaN"):
        first.predict(holed)
    with pytest.raises(InputError, match="y must be one number for each row"):
        clone(model).fit(X, ["a"] * 60, target=Target(X_target, y_target))


def test_the_plain_three_are_plain_fits():
    X, y, X_target, y_target = tables()
    target = Target(X_target, y_target)
    np.testing.assert_allclose(
        TargetOnlyRegressor(Ridge(), standardize=False).fit(X, y, target=target).predict(X),
        Ridge().fit(X_target, y_target).predict(X),
    )
    np.testing.assert_allclose(
        SourceOnlyRegressor(Ridge(), standardize=False).fit(X, y, target=target).predict(X),
        Ridge().fit(X, y).predict(X),
    )
    rows, values = np.vstack([X_target, X]), np.concatenate([y_target, y])
    by_target = LeaveOneOutKernelRegressor().fit(rows, values, scored=np.arange(7))
    by_all = LeaveOneOutKernelRegressor().fit(rows, values)
    assert by_target.reg_ != by_all.reg_
    for name, expected in (("target", by_target), ("all", by_all)):
        found = SourceAndTargetRegressor(scored=name, standardize=False).fit(X, y, target=target)
        np.testing.assert_allclose(found.predict(X), expected.predict(X))
    with pytest.raises(ParameterError, match="scored must be"):
        SourceAndTargetRegressor(scored="source").fit(X, y, target=target)


def test_joint_weights_are_those_of_rulsif():
    X, y, X_target, y_target = tables()
    found = JointlyWeightedRegressor(eta=0.95, standardize=False, random_state=3).fit(
        X, y, target=Target(X_target, y_target)
    )
    ratio = RULSIF(0.95, random_state=3).fit(np.column_stack([X, y]), target=np.column_stack([X_target, y_target]))
    np.testing.assert_allclose(found.weights_, ratio.weights_)
    np.testing.assert_allclose(
        found.predict(X_target),
        LeaveOneOutKernelRegressor().fit(X, y, importance_weights=ratio.weights_).predict(X_target),
    )


def test_first_two_steps_of_boosting_by_hand():
    """With a learner that draws nothing: e of the step's fit, β by bisection, and the share that is prescribed."""
    X, y, X_target, y_target = tables()
    model = TwoStageTrAdaBoostR2(LinearRegression(), n_steps=5, n_estimators=2, standardize=False, random_state=0)
    model.fit(X, y, target=Target(X_target, y_target))
    rows, values = np.vstack([X, X_target]), np.concatenate([y, y_target])
    weights = np.full(67, 1 / 67)
    for step in range(2):
        np.testing.assert_allclose(model.weights_[step], weights, rtol=1e-6)
        residuals = np.abs(LinearRegression().fit(rows, values, sample_weight=weights).predict(rows) - values)
        share = residuals / residuals.max()
        wanted = 7 / 67 + (step + 1) / 4 * (1 - 7 / 67)
        low, high = 0.0, 1.0
        for _ in range(200):
            beta = (low + high) / 2
            trial = np.concatenate([weights[:60] * beta ** share[:60], weights[60:]])
            low, high = (low, beta) if trial[60:].sum() / trial.sum() < wanted else (beta, high)
        weights = trial / trial.sum()
        assert weights[60:].sum() == pytest.approx(wanted, rel=1e-9)
    np.testing.assert_allclose(model.weights_[2], weights, rtol=1e-6)
    assert model.step_ == np.argmin(model.loo_)
    assert model.loo_.shape == (5,)


def test_two_rounds_of_the_inner_boosting_by_hand():
    X, y, X_target, y_target = tables()
    rows, values = np.vstack([X, X_target]), np.concatenate([y, y_target])
    start = np.random.default_rng(1).uniform(0.5, 1.5, 67)
    start /= start.sum()
    found = boost(LinearRegression(), rows, values, start, 7, 2, np.random.default_rng(5))
    rng, weights, votes, members = np.random.default_rng(5), start.copy(), [], []
    for _ in range(2):
        drawn = rng.choice(67, 67, p=weights)
        members.append(LinearRegression().fit(rows[drawn], values[drawn]))
        residuals = np.abs(members[-1].predict(rows) - values)
        error = sum(w * e for w, e in zip(weights, residuals / residuals.max(), strict=True))
        assert error < 0.5
        beta = error / (1 - error)
        votes.append(np.log(1 / beta))
        changed = weights.copy()
        for i in range(60, 67):
            changed[i] *= beta ** (1 - residuals[i] / residuals.max())
        changed[60:] *= weights[60:].sum() / changed[60:].sum()
        np.testing.assert_array_equal(changed[:60], weights[:60])  # source rows never change
        weights = changed
    np.testing.assert_allclose(found.votes, votes)
    for member, expected in zip(found.members, members, strict=True):
        np.testing.assert_allclose(member.coef_, expected.coef_)


def test_a_committee_says_the_weighted_median():
    class Says:
        def __init__(self, value):
            self.value = value

        def predict(self, X):
            return np.full(len(X), self.value)

    committee = Committee([Says(5.0), Says(1.0), Says(3.0)], np.array([0.2, 0.45, 0.35]))
    np.testing.assert_array_equal(committee.predict(np.zeros((2, 1))), [3.0, 3.0])


def test_letting_go_when_no_beta_is_small_enough():
    weights, share = np.full(6, 1 / 6), np.array([0.0, 0.0, 0.5, 1.0, 0.1, 0.2])
    found = reduce_source_weights(weights, share, 2, 0.9)  # two source rows without error would keep half of the weight
    assert found[4:].sum() == pytest.approx(0.9)
    np.testing.assert_allclose(found[:4], [0.05, 0.05, 0, 0])


@pytest.mark.parametrize("model", EVERY[:4], ids=lambda model: type(model).__name__)
def test_units_do_not_matter(model):
    X, y, X_target, y_target = tables()
    first = clone(model).fit(X, y, target=Target(X_target, y_target)).predict(X_target)
    second = clone(model).fit(100 * X - 7, 5 * y + 1000, target=Target(100 * X_target - 7, 5 * y_target + 1000))
    np.testing.assert_allclose(second.predict(100 * X_target - 7), 5 * first + 1000, rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_boosting_of_labels_that_fit_exactly(seed):
    """Source rows without error keep all the source's weight; a member may then err on nothing that counts."""
    rng = np.random.default_rng(seed)
    X, X_target = (rng.integers(0, 3, (n, 2)).astype(float) for n in (30, 5))
    y = (X[:, 0] == 1) * 1.0
    y = np.where(rng.random(30) < 0.2, 1 - y, y)
    model = TwoStageTrAdaBoostR2(n_steps=4, n_estimators=4, random_state=seed).fit(
        X, y, target=Target(X_target, np.ones(5))
    )
    assert np.isfinite(model.predict(X)).all()


def test_trees_are_the_default_and_a_seed_gives_the_same():
    X, y, X_target, y_target = tables()
    models = [
        TwoStageTrAdaBoostR2(n_steps=4, n_estimators=4, random_state=seed).fit(X, y, target=Target(X_target, y_target))
        for seed in (1, 1, 2)
    ]
    assert isinstance(models[0].model_.members[0], DecisionTreeRegressor)
    assert models[0].model_.members[0].max_depth == 6
    np.testing.assert_array_equal(models[0].loo_, models[1].loo_)
    assert not np.array_equal(models[0].loo_, models[2].loo_)
