"""One-step against its definitions, written out: the objective, the choice of settings, the centers and the bound."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from steelyard import OneStepRegressor, Target


def gaussians(rows, centers, width):
    return np.exp(-cdist(rows, centers, "sqeuclidean") / (2 * width**2))


def shifted_wave(seed, n_source, n_target, noise=0.3):
    """A wave in two columns, and target rows of another place and spread."""
    rng = np.random.default_rng(seed)
    X, X_target = rng.normal(0, 1, (n_source, 2)), rng.normal(0.5, 0.7, (n_target, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n_source), X_target


# --- the objective ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss_bound", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("reg", [0.01, 0.3])
def test_the_objective_is_that_of_the_survey_over_the_squared_bound_of_the_loss(loss_bound, reg):
    X, y, X_target = shifted_wave(0, 80, 50)
    settings = {"width": 1.0, "reg": reg, "ratio_width": 0.8, "ratio_reg": 0.1, "loss_bound": loss_bound}
    model = OneStepRegressor(**settings, random_state=0).fit(X, y, target=Target(X_target))
    g, g_target = model.ratio_.predict(X), model.ratio_.predict(X_target)
    losses = np.square((model.predict(X) - y) / y.std())
    upper_bound = np.mean(g * losses) ** 2 + loss_bound**2 * (np.mean(g**2) - 2 * np.mean(g_target))
    on_ratio = 0.1 * loss_bound**2 * np.sum(model.ratio_.coef_**2)  # the survey's λ is ratio_reg·m²
    on_predictor = reg * np.sum(model.coef_**2)
    kept = model.objective_[model.best_round_]
    assert kept == pytest.approx((upper_bound + on_ratio + on_predictor) / loss_bound**2, rel=1e-8)
    assert kept == model.objective_[1:].min()  # of the rounds; the start is none


# --- the choice of settings ------------------------------------------------------------------------------------------

REG_GRID = 10.0 ** np.arange(-4, 2)


def losses_left_out(x, y, width):
    """Squared error on each row of a ridge fit on the other rows, for every μ of the grid; y in standard units."""
    basis, scaled = gaussians(x, x, width), (y - y.mean()) / y.std()
    losses = np.empty((len(REG_GRID), len(x)))
    for r, mu in enumerate(REG_GRID):
        for i in range(len(x)):
            phi, label = np.delete(basis, i, axis=0), np.delete(scaled, i)
            alpha = np.linalg.solve(phi.T @ phi / len(phi) + mu * np.eye(len(x)), phi.T @ label / len(phi))
            losses[r, i] = (basis[i] @ alpha - scaled[i]) ** 2
    return losses


def greatest_reg_within(losses, standard_errors):
    """The greatest μ whose mean loss is within a number of standard errors of the smallest one."""
    means, best = losses.mean(axis=1), losses[losses.mean(axis=1).argmin()]
    error = np.sqrt(np.sum((best - best.mean()) ** 2)) / len(best)
    return REG_GRID[means <= means.min() + standard_errors * error].max()


@pytest.mark.filterwarnings("ignore::steelyard.errors.NoTargetWarning")
def test_the_settings_are_those_of_leaving_out_row_by_row_and_one_standard_error():
    """Five rows in five folds are left out one by one, whatever the seed; without a target all rows count the same."""
    answers = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, (5, 1))
        y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=5)
        losses = losses_left_out(x, y, 0.8)
        answers.append([greatest_reg_within(losses, errors) for errors in (0, 1, 3)])
        for rule, expected in (("best", answers[-1][0]), ("one-standard-error", answers[-1][1])):
            model = OneStepRegressor(width=0.8, reg=REG_GRID, rule=rule, standardize=False, random_state=seed)
            assert model.fit(x, y).reg_ == pytest.approx(expected)
    none, single, triple = np.array(answers).T
    # The tables tell the rules apart.
    assert np.mean(single > none) > 0.2
    assert np.mean(triple > single) > 0.2


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_are_noise_are_not_fitted(seed):
    """By losses on rows that a fit has seen, the smallest regularization strength and the narrowest width would win."""
    rng = np.random.default_rng(seed)
    X, X_target, y = rng.uniform(-1, 1, (80, 1)), rng.uniform(-0.5, 1, (60, 1)), rng.normal(size=80)
    for options in ({"width": 0.05, "reg": [1e-6, 10.0]}, {"width": [0.05, 50.0], "reg": 1e-6}):
        model = OneStepRegressor(**options, ratio_reg=0.1, loss_bound=1.0, rule="best", random_state=seed)
        model.fit(X, y, target=Target(X_target))
        assert (model.reg_, model.width_) == (np.max(options["reg"]), np.max(options["width"]))


# --- the centers -----------------------------------------------------------------------------------------------------


def test_with_every_target_row_a_center_the_fit_can_be_written_down():
    """At an infinite bound of the loss: uLSIF and ridge regression under its weights, Gaussians around target rows."""
    X, y, X_target = shifted_wave(1, 90, 40)
    settings = {"width": 1.0, "reg": 0.01, "ratio_width": 0.6, "ratio_reg": 0.1, "loss_bound": np.inf}
    model = OneStepRegressor(**settings, standardize=False, random_state=0).fit(X, y, target=Target(X_target))
    psi, psi_target, phi = (gaussians(rows, X_target, width) for rows, width in ((X, 0.6), (X_target, 0.6), (X, 1.0)))
    beta = np.linalg.solve(psi.T @ psi / 90 + 0.1 * np.eye(40), psi_target.mean(axis=0))
    beta = np.maximum(beta, 0)
    weighted = phi.T * (psi @ beta) / 90
    alpha = np.linalg.solve(weighted @ phi + 0.01 * np.eye(40), weighted @ (y - y.mean()))
    new = np.random.default_rng(2).normal(0.3, 1, (30, 2))
    assert_allclose(model.ratio_.predict(new), gaussians(new, X_target, 0.6) @ beta, atol=1e-6)
    assert_allclose(model.predict(new), gaussians(new, X_target, 1.0) @ alpha + y.mean(), atol=1e-6)


def test_the_centers_are_target_rows():
    X, y, X_target = shifted_wave(2, 90, 70)
    model = OneStepRegressor(reg=0.01, ratio_reg=0.1, loss_bound=1.0, n_centers=20, random_state=0)
    model.fit(X, y, target=Target(X_target))
    centers = model.centers_ * model.scale_ + model.center_
    assert len(centers) == 20
    assert_allclose(cdist(centers, X_target).min(axis=1), 0, atol=1e-6)


# --- the bound -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_source", "n_target"), [(120, 30), (30, 120)])
def test_each_term_of_the_bound_has_the_rows_of_its_own_domain(n_source, n_target):
    X, y, X_target = shifted_wave(3, n_source, n_target)
    settings = {"width": 1.0, "reg": 0.1, "ratio_width": 0.8, "ratio_reg": 0.1, "loss_bound": 1.0}
    model = OneStepRegressor(**settings, n_centers=20, random_state=0).fit(X, y, target=Target(X_target))
    bound = model.risk_bound(delta=0.05)
    source, target = ((rows - model.center_) / model.scale_ for rows in (X, X_target))
    phi, psi = gaussians(source, model.centers_, 1.0), gaussians(source, model.centers_, 0.8)
    psi_target = gaussians(target, model.centers_, 0.8)
    f_norm, g_norm = np.linalg.norm(model.coef_), np.linalg.norm(model.ratio_.coef_)
    # Of a ball of linear functions: its radius times √(mean ‖φ‖² / n).
    f_source = f_norm * np.sqrt(np.sum(phi**2)) / n_source
    g_source, g_target = g_norm * np.sqrt(np.sum(psi**2)) / n_source, g_norm * np.sqrt(np.sum(psi_target**2)) / n_target
    assert bound.predictor_complexity == pytest.approx(f_source)
    assert bound.ratio_complexity == pytest.approx(g_source)
    assert bound.ratio_complexity_target == pytest.approx(g_target)
    largest_label = np.max(np.abs(y - y.mean())) / y.std()
    L = 2 * (f_norm * np.sqrt(20) + largest_label)
    M, G = max(1, (L / 2) ** 2), max(1, g_norm * np.sqrt(20))
    assert bound.complexity == pytest.approx(8 * M * G * (M + G) * (L * f_source + g_source) + 4 * M**2 * g_target)
    spread = n_source**-0.5 + n_target**-0.5
    assert bound.deviation == pytest.approx(5 * M**2 * G**2 * np.sqrt(np.log(20) / 2) * spread)
