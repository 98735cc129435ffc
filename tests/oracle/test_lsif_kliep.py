"""LSIF and KLIEP against their optimality conditions and against general-purpose solvers."""

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from steelyard import KLIEP, LSIF
from steelyard._numerics.kernels import gaussian
from steelyard._numerics.quadratic_programs import solve_non_negative
from steelyard.ratio.kliep import mixture_proportions


def pair(seed, d=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(150, d)), rng.normal(0.6, 0.7, size=(120, d))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("width", "reg"), [(0.4, 0.01), (1.0, 0.001), (2.0, 0.1)])
def test_lsif_satisfies_its_optimality_conditions(seed, width, reg):
    source, target = pair(seed)
    fit = LSIF(width=width, reg=reg, centers=target[:40], standardize=False, random_state=0)
    fit.fit(source, target=target)
    a, t = gaussian(source, target[:40], width), gaussian(target, target[:40], width)
    gradient = a.T @ a @ fit.coef_ / len(source) - t.mean(axis=0) + reg
    assert fit.coef_.min() >= 0
    assert gradient.min() >= -1e-8
    assert np.abs(gradient * fit.coef_).max() <= 1e-8
    assert (fit.coef_ > 1e-6).any()


def test_non_negative_solver_equals_nnls():
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(60, 20)), rng.normal(size=60)
    x, certificate = solve_non_negative(A.T @ A, A.T @ b, 1e-6)
    np.testing.assert_allclose(x, nnls(A, b)[0], atol=1e-8)
    assert certificate.solved
    assert certificate.objective == pytest.approx(np.sum((A @ x - b) ** 2) / 2 - b @ b / 2)


def test_lsif_held_out_score_equals_refitting_fold_by_fold():
    source, target = pair(1)
    fit = LSIF(width=[1.0], reg=[0.1, 0.01], centers=target[:20], standardize=False, random_state=0)
    fit.fit(source, target=target)
    from steelyard._numerics.empirical import empirical
    from steelyard._splits.merged_rows import assign_folds

    rng = np.random.default_rng(0)
    s, t = empirical(source, None, rng), empirical(target, None, rng)
    a, b = gaussian(s.rows, target[:20], 1.0), gaussian(t.rows, target[:20], 1.0)
    fold_a, fold_b = (np.zeros(len(rows), dtype=int) for rows in (a, b))
    for fold, sample in ((fold_a, s), (fold_b, t)):
        parts = assign_folds(sample, 5, rng)
        fold[parts.cell] = parts.fold
    for r, reg in enumerate([0.1, 0.01]):
        scores = []
        for f in range(5):
            kept_a, kept_b = a[fold_a != f], b[fold_b != f]
            coef, _ = solve_non_negative(kept_a.T @ kept_a / len(kept_a), kept_b.mean(axis=0) - reg, 1e-6)
            scores.append(np.mean((a[fold_a == f] @ coef) ** 2) / 2 - np.mean(b[fold_b == f] @ coef))
        assert fit.scores_[0, r] == pytest.approx(np.mean(scores), abs=1e-9)


def test_kliep_held_out_score_equals_refitting_fold_by_fold():
    """Both domains are held out, and so are centers drawn from the fold."""
    from steelyard._numerics.empirical import empirical
    from steelyard._splits.merged_rows import assign_folds
    from steelyard.ratio._centers import covering_rows

    source, target = pair(2)
    fit = KLIEP(width=[1.0, 0.4], n_centers=25, standardize=False, random_state=0, tol=1e-8)
    fit.fit(source, target=target)
    rng = np.random.default_rng(0)
    s, t = (empirical(rows, None, rng) for rows in (source, target))
    folds = []
    cells = covering_rows(t.with_rows(t.rows - fit.center_), 25, fit.median_distance_)
    for sample in (s, t):
        parts = assign_folds(sample, 5, rng)
        folds.append(np.empty(len(sample), dtype=int))
        folds[-1][parts.cell] = parts.fold
    for w, width in enumerate(fit.widths_):
        a, b = (gaussian(sample.rows, t.rows[cells], width) for sample in (s, t))
        score = 0.0
        for f in range(5):
            used = folds[1][cells] != f
            mean = a[np.ix_(folds[0] != f, used)].mean(axis=0)
            train, held = b[np.ix_(folds[1] != f, used)], b[np.ix_(folds[1] == f, used)]
            proportions, _ = mixture_proportions(train / mean, np.full(len(train), 1 / len(train)), 1e-8)
            coef = proportions / mean
            on_source = a[np.ix_(folds[0] == f, used)] @ coef
            score += len(held) / len(b) * (np.log(held @ coef).mean() - np.log(on_source.mean()))
        assert fit.scores_[w] == pytest.approx(score, abs=1e-3)  # the width is chosen by likelihoods of four digits


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [0.3, 1.0, 2.0])
def test_kliep_gap_is_certified(seed, width):
    source, target = pair(seed)
    fit = KLIEP(width=width, centers=target[:40], standardize=False, random_state=0).fit(source, target=target)
    a, t = gaussian(source, target[:40], width), gaussian(target, target[:40], width)
    mean = a.mean(axis=0)
    assert mean @ fit.coef_ == pytest.approx(1, abs=1e-12)
    # The dual bound, written out: no feasible ratio has a likelihood that exceeds that of the fit by more than the gap.
    gap = np.log(np.max((t / (t @ fit.coef_)[:, None]).mean(axis=0) / mean))
    assert gap + 1e-12 >= 0
    assert gap <= 1e-6
    assert fit.certificate_.gap <= 1e-6


def test_kliep_equals_a_general_purpose_solver():
    source, target = pair(3, d=1)
    centers, width = target[:8], 0.7
    a, t = gaussian(source, centers, width), gaussian(target, centers, width)
    mean = a.mean(axis=0)
    reference = minimize(
        lambda b: -np.log(t @ b).mean(),
        np.full(8, 1 / mean.sum()),
        jac=lambda b: -(t / (t @ b)[:, None]).mean(axis=0),
        bounds=[(0, None)] * 8,
        constraints={"type": "eq", "fun": lambda b: mean @ b - 1, "jac": lambda b: mean},
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    fit = KLIEP(width=width, centers=centers, standardize=False, random_state=0).fit(source, target=target)
    assert -np.log(t @ fit.coef_).mean() <= reference.fun + 1e-6


def test_mixture_proportions_of_a_known_mixture():
    """With one observation per component the optimum is known: proportions equal the masses."""
    proportions, certificate = mixture_proportions(np.eye(4), np.array([0.1, 0.2, 0.3, 0.4]), 1e-9)
    np.testing.assert_allclose(proportions, [0.1, 0.2, 0.3, 0.4], atol=1e-6)
    assert certificate.solved


@pytest.mark.parametrize("n_target", [2, 3, 4, 5])
def test_lsif_uses_every_source_row_however_few_target_rows(n_target):
    source, target = pair(0)
    target = target[:n_target]
    fit = LSIF(width=1.0, reg=0.01, centers=target, standardize=False, random_state=0).fit(source, target=target)
    a, t = gaussian(source, target, 1.0), gaussian(target, target, 1.0)
    gradient = a.T @ a @ fit.coef_ / len(source) - t.mean(axis=0) + 0.01
    assert gradient.min() >= -1e-8
    assert np.abs(gradient * fit.coef_).max() <= 1e-8
