"""The one-step method against dense solves, other solvers and its own theorem."""

import numpy as np
import piqp
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import minimize as scipy_minimize
from sklearn.linear_model import LogisticRegression

from steelyard import OneStepClassifier, OneStepRegressor, Target
from steelyard._numerics.kernels import gaussian
from steelyard._numerics.losses import Hinge, Logistic, Squared, Tukey, robust_scale, zero_one
from steelyard.datasets import sinc_toy
from steelyard.errors import InputError, NoTargetWarning, ParameterError
from steelyard.one_step._alternating import Hyperparameters, RatioProblem, alternate
from steelyard.one_step._minimize import Features, minimize, objective, weighted_ridge

REG_GRID = 10.0 ** (np.arange(-8, 1, 2) / 2)


@pytest.fixture
def toy():
    return sinc_toy(150, 150, random_state=1000)


@pytest.fixture
def problem():
    """Features, ratio problem and labels of a small two-dimensional fit."""
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(80, 2)), rng.normal(0.5, 0.8, (60, 2))
    y = np.sign(X[:, :1] - X[:, 1:] ** 2 + 0.3 * rng.normal(size=(80, 1)))
    centers, mass = X_target[:20], np.full(80, 1 / 80)
    ratio = RatioProblem(gaussian(X, centers, 0.8), mass, gaussian(X_target, centers, 0.8).mean(axis=0))
    return Features(gaussian(X, centers, 1.2)), ratio, y


def random_losses(rng, n_settings, n_rows):
    return rng.exponential(size=(n_settings, n_rows))


# --- theorem 1 -------------------------------------------------------------------------------------------------------


def surrogates(rng, name, k):
    """Labels, predictions, loss of the risk and a surrogate above it, on k points."""
    f = rng.normal(0, 3, (1, k, 1))
    if name in ("tukey", "squared-over-tukey"):
        y, rho = rng.normal(0, 3, (k, 1)), rng.uniform(np.sqrt(3), 6)
        risk = Tukey(np.array([rho])).values(f, y)[0]
        return risk, risk if name == "tukey" else Squared().values(f, y)[0]
    if name in ("squared", "hinge", "logistic"):
        y = rng.choice([-1.0, 1.0], (k, 1))
    else:
        f = rng.normal(0, 2, (1, k, 4))
        y = np.where(np.arange(4) == rng.integers(4, size=(k, 1)), 1.0, -1.0)
    kind = {"squared": Squared, "hinge": Hinge, "logistic": Logistic, "softmax": Logistic, "columns": Squared}[name]()
    return zero_one(f, y)[0], kind.values(f, y)[0]


@pytest.mark.parametrize("name", ["tukey", "squared-over-tukey", "squared", "hinge", "logistic", "softmax", "columns"])
def test_theorem_1_in_random_draws_with_known_ratio(name):
    rng = np.random.default_rng(7)
    for _ in range(10_000 // 7 + 1):
        k = rng.integers(2, 9)
        source, target = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k))
        w, g = target / source, rng.exponential(size=k) * rng.choice([0.1, 1, 10])
        below, above = surrogates(rng, name, k)
        distance = source @ (g - w) ** 2
        half_squared_risk = (target @ below) ** 2 / 2
        bound, upper = (source @ (g * below)) ** 2 + distance, (source @ (g * above)) ** 2 + distance
        assert half_squared_risk <= bound * (1 + 1e-12) <= upper * (1 + 1e-12) ** 2


def test_the_square_does_not_bound_tukey_below_root_three():
    f, y = np.full((1, 1, 1), 0.5), np.zeros((1, 1))
    assert Tukey(np.array([1.5])).values(f, y) > Squared().values(f, y)
    with pytest.raises(ParameterError, match="tukey_scale² ≥ 3"):
        OneStepRegressor(tukey_scale=1.7).fit(np.eye(3), np.arange(3.0))
    OneStepRegressor("tukey", tukey_scale=1.7)._check_parameters()


def test_natural_cross_entropy_would_not_bound_the_zero_one_loss():
    barely_wrong = np.full((1, 1, 1), -1e-9)
    assert Logistic().values(barely_wrong, np.ones((1, 1))) >= 1
    assert Logistic().values(barely_wrong, np.ones((1, 1))) * np.log(2) < 1


# --- the two half-steps ----------------------------------------------------------------------------------------------


def test_g_step_equals_a_dense_solve(problem):
    _, ratio, _ = problem
    rng = np.random.default_rng(1)
    settings = Hyperparameters(np.ones(6), 10.0 ** np.arange(-4, 2), np.array([1.0, 0.5, 2.0, 0.1, 1.0, 10.0]))
    losses = random_losses(rng, 6, 80)
    stepped = ratio.step(losses, settings)
    psi, n = ratio.on_source, 80
    for c in range(6):
        m, lam = settings.loss_bound[c], settings.ratio_reg[c] * settings.loss_bound[c] ** 2  # the survey's λ
        outer = psi.T @ np.outer(losses[c], losses[c]) @ psi
        matrix = psi.T @ psi / n + outer / (m * n) ** 2 + lam / m**2 * np.eye(20)
        assert_allclose(stepped[c], np.linalg.solve(matrix, ratio.h), rtol=1e-10, atol=1e-10)


def test_unclipped_g_step_is_stationary(problem):
    _, ratio, _ = problem
    settings = Hyperparameters(np.ones(3), np.array([0.01, 0.1, 1.0]), np.array([1.0, 0.3, 2.0]))
    losses = random_losses(np.random.default_rng(2), 3, 80)
    beta, h = ratio.step(losses, settings), 1e-5
    for direction in np.eye(20):
        slope = (
            ratio.objective(beta + h * direction, losses, settings)
            - ratio.objective(beta - h * direction, losses, settings)
        ) / (2 * h)
        assert_allclose(slope, 0, atol=1e-8)


def test_without_losses_the_g_step_is_ulsif(problem):
    from steelyard.ratio.ulsif import rounded_coefficients

    _, ratio, _ = problem
    settings = Hyperparameters(np.ones(1), np.array([0.1]), np.array([1.0]))
    rounded = np.maximum(ratio.step(np.zeros((1, 80)), settings)[0], 0)
    assert_allclose(rounded, rounded_coefficients(ratio.second, ratio.h, 0.1), rtol=1e-12)


@pytest.mark.parametrize("n_settings", [1, 7])
def test_f_step_equals_a_dense_solve(problem, n_settings):
    features, _, y = problem
    rng = np.random.default_rng(3)
    w, mu = rng.exponential(size=(n_settings, 80)), 10.0 ** rng.uniform(-4, 0, n_settings)
    coef = weighted_ridge(features, w / 80, y, mu)
    phi = features.values
    for c in range(n_settings):
        W = np.diag(w[c])
        expected = np.linalg.solve(phi.T @ W @ phi + mu[c] * 80 * np.eye(20), phi.T @ W @ y)
        assert_allclose(coef[c], expected, rtol=1e-10, atol=1e-10)


def test_grams_are_the_same_in_blocks(problem, monkeypatch):
    features, _, _ = problem
    w = np.random.default_rng(0).exponential(size=(5, 80))
    expected = np.einsum("cn,ni,nj->cij", w, features.values, features.values)
    assert_allclose(features.grams(w), expected, rtol=1e-12)
    monkeypatch.setattr("steelyard.one_step._minimize.PAIRS_KEPT", 0)
    monkeypatch.setattr("steelyard.one_step._minimize.PAIRS_AT_ONCE", 32 * 210)
    assert_allclose(Features(features.values).grams(w), expected, rtol=1e-12)


def test_hinge_equals_piqp(problem):
    features, _, y = problem
    rng = np.random.default_rng(4)
    w = rng.exponential(size=(5, 80)) / 80
    w[:, :5] = 0
    coef = minimize(Hinge(), features, w, y, REG_GRID, np.zeros((5, 20, 1)))
    found = objective(Hinge(), features.predictions(coef), coef, w, y, REG_GRID)
    for c in range(5):
        quadratic = sp.block_diag([2 * REG_GRID[c] * sp.eye(20), sp.csc_matrix((80, 80))]).tocsc()
        rows = sp.hstack([sp.csc_matrix(-y * features.values), -sp.eye(80)]).tocsc()
        solver = piqp.SparseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
        low = np.r_[np.full(20, -np.inf), np.zeros(80)]
        solver.setup(quadratic, np.r_[np.zeros(20), w[c]], None, None, rows, None, -np.ones(80), low, None)
        solver.solve()
        reference = solver.result.x[:20].reshape(1, 20, 1)
        best = objective(Hinge(), features.predictions(reference), reference, w[[c]], y, REG_GRID[[c]])[0]
        assert found[c] <= best * (1 + 1e-6)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_logistic_equals_scikit_learn(problem, k):
    features, _, _ = problem
    rng = np.random.default_rng(5)
    label = np.digitize(features.values[:, 0] + 0.2 * rng.normal(size=80), np.linspace(0.2, 0.6, k - 1))
    y = 2.0 * label[:, None] - 1 if k == 2 else np.where(label[:, None] == np.arange(k), 1.0, -1.0)
    w = rng.exponential(size=(5, 80)) / 80
    coef = minimize(Logistic(), features, w, y, REG_GRID, np.ones((5, 20, y.shape[1])))
    found = objective(Logistic(), features.predictions(coef), coef, w, y, REG_GRID)
    for c in range(5):
        peer = LogisticRegression(
            C=1 / (2 * REG_GRID[c] * np.log(2)), fit_intercept=False, tol=1e-10, max_iter=5000, solver="newton-cg"
        ).fit(features.values, label, sample_weight=w[c])
        reference = peer.coef_.T[None]
        best = objective(Logistic(), features.predictions(reference), reference, w[[c]], y, REG_GRID[[c]])[0]
        assert found[c] == pytest.approx(best, rel=1e-6)


def test_tukey_reaches_a_stationary_point_below_its_start(problem):
    features, _, _ = problem
    rng = np.random.default_rng(6)
    y = features.values[:, :1] + 0.1 * rng.standard_t(2, size=(80, 1))
    w, mu = rng.exponential(size=(1, 80)) / 80, np.array([1e-3])
    loss = Tukey(np.array([0.8]))
    start = weighted_ridge(features, w, y, mu)
    coef = start
    for _ in range(30):
        coef = minimize(loss, features, w, y, mu, coef)

    def value(flat):
        alpha = flat.reshape(1, 20, 1)
        return objective(loss, features.predictions(alpha), alpha, w, y, mu)[0]

    assert value(coef.ravel()) < value(start.ravel())
    polished = scipy_minimize(value, coef.ravel(), method="BFGS", options={"gtol": 1e-10})
    assert value(coef.ravel()) == pytest.approx(polished.fun, rel=1e-6)


def test_parabola_touches_tukey_and_lies_above():
    loss, y = Tukey(np.array([2.0])), np.zeros((1, 1))
    for at in (0.1, 0.7, 1.9, 3.0):
        predictions = np.full((1, 1, 1), at)
        c, level = loss.curvature(predictions, y)[0, 0], loss.values(predictions, y)[0, 0]
        for f in np.linspace(-5, 5, 101):
            assert loss.values(np.full((1, 1, 1), f), y)[0, 0] <= level + c * (f**2 - at**2) + 1e-12


def test_robust_scale_is_the_weighted_median():
    residuals = np.array([[1.0, -2.0, 3.0, -4.0, 5.0]])
    assert robust_scale(residuals, np.ones(5))[0] == pytest.approx(3 / 0.6745)
    assert robust_scale(residuals, np.array([9.0, 1, 1, 1, 1]))[0] == pytest.approx(1 / 0.6745)
    noise = np.random.default_rng(0).normal(0, 2, (1, 100_000))
    assert robust_scale(noise, np.ones(100_000))[0] == pytest.approx(2, rel=0.02)


# --- the alternation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss", [Squared(), Hinge(), Logistic(), Tukey(np.full(12, 1.5))], ids=lambda x: type(x).__name__
)
def test_no_half_step_raises_its_own_objective(problem, loss):
    features, ratio, y = problem
    axes = np.meshgrid([1e-3, 1e-1], [1e-2, 1e-1], [1.0, 0.3, 0.05], indexing="ij")
    settings = Hyperparameters(*(axis.ravel() for axis in axes))
    found = alternate(lambda *_: loss, features, ratio, y, settings, max_iter=6, tol=0.0)
    assert len(found.rounds) == 6
    for done in found.rounds:
        for before, after in (done.ratio_step, done.predictor_step):
            assert np.all(after <= before + 1e-9 * np.abs(before))


def test_the_best_round_is_kept(problem):
    features, ratio, y = problem
    settings = Hyperparameters(np.array([1e-3]), np.array([0.1]), np.array([0.05]))
    found = alternate(lambda *_: Squared(), features, ratio, y, settings, max_iter=6, tol=0.0)
    totals = np.array([done.total[0] for done in found.rounds])
    assert found.best_total[0] == totals.min()
    assert found.best_round[0] == 1 + totals.argmin()


def test_infinite_bound_is_ulsif_then_ridge(toy):
    X, y, X_target, _ = toy
    model = OneStepRegressor(loss_bound=np.inf, reg=0.01, ratio_reg=0.1, random_state=0)
    model.fit(X, y, target=Target(X_target))
    g = model.ratio_.predict(X)
    phi = gaussian((X - model.center_) / model.scale_, model.centers_, model.width_)
    scaled = (y - y.mean()) / y.std()
    alpha = np.linalg.solve(phi.T * g @ phi / 150 + 0.01 * np.eye(100), phi.T * g @ scaled / 150)
    assert_allclose(model.predict(X), phi @ alpha * y.std() + y.mean(), atol=1e-7)
    close = OneStepRegressor(loss_bound=1e6, reg=0.01, ratio_reg=0.1, random_state=0)
    assert_allclose(close.fit(X, y, target=Target(X_target)).predict(X), model.predict(X), atol=1e-6)


def test_coupling_lowers_weights_where_losses_are_large(toy):
    X, y, X_target, _ = toy
    y = y + np.where(X[:, 0] > 1.8, np.random.default_rng(0).normal(0, 3, 150), 0)  # noise in one region only
    settings = {"reg": 0.01, "ratio_reg": 0.1, "random_state": 0}
    free = OneStepRegressor(loss_bound=np.inf, **settings).fit(X, y, target=Target(X_target))
    bound = OneStepRegressor(loss_bound=0.3, **settings).fit(X, y, target=Target(X_target))
    noisy = X[:, 0] > 1.8
    assert bound.weights_[noisy].sum() < free.weights_[noisy].sum()


# --- the estimators --------------------------------------------------------------------------------------------------


def test_the_toy_is_learned(toy):
    X, y, X_target, _ = toy
    truth = np.sinc(X_target[:, 0])
    for loss in ("squared", "tukey"):
        model = OneStepRegressor(loss, n_centers=50, random_state=0).fit(X, y, target=Target(X_target))
        assert np.mean((model.predict(X_target) - truth) ** 2) < 0.01
        assert model.weights_.mean() == pytest.approx(1)
        assert_allclose(model.ratio_.predict(X) / model.ratio_.source_mean_, model.weights_, rtol=1e-9)
        assert np.all(model.ratio_steps_[:, 1] <= model.ratio_steps_[:, 0])
        assert len(model.objective_) == model.n_iter_ == 1 + len(model.predictor_steps_)


@pytest.mark.parametrize("loss", ["squared", "tukey"])
def test_the_unit_of_y_does_not_matter(toy, loss):
    X, y, X_target, _ = toy
    model = OneStepRegressor(loss, n_centers=50, random_state=0)
    once = model.fit(X, y, target=Target(X_target)).predict(X_target)
    times = model.fit(X, 1000 * y, target=Target(X_target)).predict(X_target)
    assert_allclose(times, 1000 * once, rtol=1e-8, atol=1e-8)


def test_without_scaling_the_unit_does_matter(toy):
    X, y, X_target, _ = toy
    y = y + np.where(X[:, 0] > 1.8, np.random.default_rng(0).normal(0, 1, 150), 0)
    model = OneStepRegressor(scale_y=False, loss_bound=1.0, reg=0.01, ratio_reg=0.1, random_state=0)
    once = model.fit(X, y, target=Target(X_target)).weights_
    times = model.fit(X, 10 * y, target=Target(X_target)).weights_
    assert np.max(np.abs(times - once)) > 0.01


def test_order_of_rows_and_repetition_do_not_matter(toy):
    X, y, X_target, _ = toy
    model = OneStepRegressor(n_centers=50, random_state=0)
    once = model.fit(X, y, target=Target(X_target)).predict(X_target)
    order = np.random.default_rng(0).permutation(150)
    assert_allclose(model.fit(X[order], y[order], target=Target(X_target)).predict(X_target), once, atol=1e-9)
    weight = np.random.default_rng(1).integers(0, 4, 150)
    weighted = model.fit(X, y, target=Target(X_target), sample_weight=weight).predict(X_target)
    repeated = model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight), target=Target(X_target))
    assert_allclose(repeated.predict(X_target), weighted, atol=1e-8)


def test_fixed_settings_are_used_as_given(toy):
    X, y, X_target, _ = toy
    given = {"width": 0.7, "reg": 0.02, "ratio_width": 0.4, "ratio_reg": 0.3, "loss_bound": 2.0}
    model = OneStepRegressor(**given, random_state=0).fit(X, y, target=Target(X_target))
    assert {name: getattr(model, f"{name}_") for name in given} == given


def test_lists_are_searched(toy):
    X, y, X_target, _ = toy
    # One sensible value among useless ones, wherever it stands.
    for useless in ([100.0, 1e4], [1e-3, 1e-4]):
        model = OneStepRegressor(width=[0.9, *useless], rule="best", random_state=0)
        assert model.fit(X, y, target=Target(X_target)).width_ == 0.9
    for reg in ([0.01, 1e6], [1e6, 0.01]):
        model = OneStepRegressor(reg=reg, ratio_reg=0.1, loss_bound=1.0, random_state=0)
        assert model.fit(X, y, target=Target(X_target)).reg_ == 0.01


def test_the_rule_prefers_the_greater_regularization(toy):
    X, y, X_target, _ = toy
    within = OneStepRegressor(random_state=0).fit(X, y, target=Target(X_target))
    best = OneStepRegressor(rule="best", random_state=0).fit(X, y, target=Target(X_target))
    assert within.reg_ >= best.reg_


def two_moons(rng, n, shift):
    X = rng.normal(shift, 1, (n, 2))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=n) > 1, "out", "in")


@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
def test_two_classes(loss):
    rng = np.random.default_rng(0)
    X, y = two_moons(rng, 150, 0.0)
    X_target, y_target = two_moons(rng, 300, 0.7)
    model = OneStepClassifier(loss, ratio_reg=0.1, loss_bound=1.0, n_centers=40, random_state=0)
    model.fit(X, y, target=Target(X_target))
    assert model.score(X_target, y_target) > 0.85
    assert np.all(model.predict(X_target) == model.classes_[(model.decision_function(X_target) > 0).astype(int)])
    assert hasattr(model, "predict_proba") == (loss == "logistic")


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_three_classes(loss):
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(0, 1, (150, 2)), rng.normal(0.5, 0.8, (200, 2))
    name = np.array(["left", "middle", "right"])
    y, y_target = (name[np.digitize(T[:, 0], [-0.4, 0.6])] for T in (X, X_target))
    model = OneStepClassifier(loss, ratio_reg=0.1, loss_bound=1.0, n_centers=40, random_state=0)
    model.fit(X, y, target=Target(X_target))
    assert model.score(X_target, y_target) > 0.85
    assert model.decision_function(X_target).shape == (200, 3)
    if loss == "logistic":
        assert_allclose(model.predict_proba(X_target).sum(axis=1), 1)


def test_hinge_is_for_two_classes():
    with pytest.raises(InputError, match="two classes"):
        OneStepClassifier("hinge").fit(np.arange(6.0)[:, None], [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "huber"}, "loss must be one of"),
        ({"loss_bound": -1}, "loss_bound"),
        ({"loss_bound": [np.nan]}, "loss_bound"),
        ({"reg": 0}, "reg"),
        ({"rule": "largest"}, "rule must be one of"),
        ({"n_centers": 0}, "n_centers"),
        ({"residual_scale": "mean"}, "residual_scale"),
        ({"tol": -1}, "tol"),
    ],
)
def test_bad_parameters_are_refused_by_name(toy, options, message):
    X, y, X_target, _ = toy
    with pytest.raises(ParameterError, match=message):
        OneStepRegressor(**options).fit(X, y, target=Target(X_target))


@pytest.mark.parametrize("bounds", [np.inf, [np.inf], [np.inf, 1.0], [1.0, 2.0]])
def test_loss_bound_may_be_infinite(toy, bounds):
    X, y, X_target, _ = toy
    model = OneStepRegressor(loss_bound=bounds, reg=0.01, ratio_reg=0.1, random_state=0)
    assert model.fit(X, y, target=Target(X_target)).loss_bound_ in np.atleast_1d(bounds)


def test_tukey_ignores_one_label_however_far_off(toy):
    X, y, X_target, _ = toy
    y = y.copy()
    errors = []
    for size in (0.0, 1e3, 1e6):
        y[3] += size
        model = OneStepRegressor("tukey", n_centers=50, random_state=0).fit(X, y, target=Target(X_target))
        errors.append(np.mean((model.predict(X_target) - np.sinc(X_target[:, 0])) ** 2))
    assert max(errors) < 0.02


def test_a_target_of_one_single_row(toy):
    X, y, _, _ = toy
    model = OneStepRegressor(random_state=0).fit(X, y, target=Target(np.full((4, 1), 1.5)))
    assert model.weights_[np.abs(X[:, 0] - 1.5) < 0.1].mean() > model.weights_.mean()


def test_labels_must_be_in_range(toy):
    X, y, X_target, _ = toy
    with pytest.raises(InputError, match="out of range"):
        OneStepRegressor().fit(X, 1e200 * y, target=Target(X_target))


def test_labels_must_be_finite(toy):
    X, y, X_target, _ = toy
    with pytest.raises(InputError, match="y contains NaN"):
        OneStepRegressor().fit(X, np.where(y > 0, y, np.nan), target=Target(X_target))


def test_the_ratio_cannot_be_fitted_alone(toy):
    X, y, X_target, _ = toy
    model = OneStepRegressor(random_state=0).fit(X, y, target=Target(X_target))
    with pytest.raises(ParameterError, match="fitted by OneStepRegressor"):
        model.ratio_.fit(X, target=Target(X_target))


# --- lemma 2 and theorem 3 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "tukey"])
def test_terms_of_the_bound(toy, loss):
    X, y, X_target, _ = toy
    model = OneStepRegressor(loss, n_centers=50, random_state=0).fit(X, y, target=Target(X_target))
    bound = model.risk_bound(delta=0.1)
    g, beta = model.ratio_.predict(X), model.ratio_.coef_
    assert bound.ratio_norm == pytest.approx(np.linalg.norm(beta))
    assert bound.predictor_norm == pytest.approx(np.linalg.norm(model.coef_))
    assert bound.largest_ratio >= max(1, g.max())
    assert bound.constant == pytest.approx(model.ratio_.predict(X_target).mean())
    M, G, L = bound.largest_loss, bound.largest_ratio, bound.lipschitz
    complexity = 8 * M * G * (M + G) * (L * bound.predictor_complexity + bound.ratio_complexity)
    complexity += 4 * M**2 * bound.ratio_complexity_target
    assert bound.complexity == pytest.approx(complexity)
    assert bound.deviation == pytest.approx(5 * (M * G) ** 2 * np.sqrt(np.log(10) / 2) * 2 / np.sqrt(150))
    psi = gaussian((X - model.center_) / model.scale_, model.centers_, model.ratio_width_)
    assert bound.ratio_complexity == pytest.approx(bound.ratio_norm * np.sqrt((psi**2).sum() / 150**2))
    assert bound.total == pytest.approx(max(0, bound.objective + bound.constant) + bound.complexity + bound.deviation)
    assert bound.risk == pytest.approx(np.sqrt(2 * bound.total))
    assert bound.vacuous
    if loss == "squared":
        scaled = (y - model.y_mean_) / model.y_scale_
        losses = ((model.predict(X) - y) / model.y_scale_) ** 2
        expected = np.mean(g * losses) ** 2 + np.mean(g**2) - 2 * bound.constant
        assert bound.objective == pytest.approx(expected)
        assert losses.max() <= bound.largest_loss
        assert bound.lipschitz == pytest.approx(2 * (bound.predictor_norm * np.sqrt(50) + np.abs(scaled).max()))


def test_lipschitz_constants_are_the_steepest_slopes():
    y, f = np.ones((1, 1)), np.linspace(-3, 3, 6001)
    for loss in (Squared(), Tukey(np.array([1.3])), Hinge(), Logistic()):
        values = np.array([loss.values(np.full((1, 1, 1), at), y)[0, 0] for at in f])
        steepest = np.max(np.abs(np.diff(values) / np.diff(f)))
        assert steepest <= loss.lipschitz(3.0, 1.0) * (1 + 1e-6)
        assert steepest >= loss.lipschitz(3.0, 1.0) * 0.95
        assert values.max() <= loss.largest(3.0, 1.0) * (1 + 1e-12)


def test_the_bound_needs_a_target_and_one_column(toy):
    X, y, X_target, _ = toy
    with pytest.warns(NoTargetWarning):
        alone = OneStepRegressor(random_state=0).fit(X, y)
    with pytest.raises(InputError, match="without a target"):
        alone.risk_bound()
    classes = np.digitize(X[:, 0], [0.7, 1.3])
    many = OneStepClassifier(reg=0.1, ratio_reg=0.1, loss_bound=1.0, random_state=0)
    with pytest.raises(InputError, match="more classes"):
        many.fit(X, classes, target=Target(X_target)).risk_bound()
