"""What is measured: each contestant is a function of the data that does the whole job and gives back its result.

Imports are inside, so that a peer that is not installed is a missing row and not a crash, and before the clock starts
(`prepare` calls each once on a tiny problem).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.problems import REGS, WIDTH_FACTORS, gaussians
from steelyard import KLIEP, KMM, RULSIF, ULSIF, OneStepRegressor, Target
from steelyard._numerics.kernels import blocks, gaussian


@dataclass(frozen=True)
class Contestant:
    name: str
    run: Callable[..., Any]  # (source, target, width) → result
    quality: Callable[..., float]  # (result, source, target, width) → smaller is better


# --- RuLSIF: quality is J' on fresh rows ---


def relative_error(predict: Callable[[np.ndarray], np.ndarray], d: int, eta: float = 0.1) -> float:
    source, target = gaussians(5000, d, seed=999)
    g, h = predict(source), predict(target)
    return float((1 - eta) * np.mean(g**2) / 2 + eta * np.mean(h**2) / 2 - np.mean(h))


def steelyard_rulsif(source: np.ndarray, target: np.ndarray, width: float) -> Any:
    grid = width * WIDTH_FACTORS
    return RULSIF(0.1, width=grid, reg=REGS, standardize=False, random_state=0).fit(source, target=target)


def densratio_rulsif(source: np.ndarray, target: np.ndarray, width: float) -> Any:
    import densratio

    np.random.seed(0)  # noqa: NPY002 (densratio draws its centers from the global generator)
    return densratio.RuLSIF(
        target,
        source,
        sigma_range=list(width * WIDTH_FACTORS),
        lambda_range=list(REGS),
        alpha=0.1,
        kernel_num=100,
        verbose=False,
    )


def of_steelyard(result: Any, source: np.ndarray, target: np.ndarray, width: float) -> float:
    return relative_error(result.predict, source.shape[1])


def of_densratio(result: Any, source: np.ndarray, target: np.ndarray, width: float) -> float:
    return relative_error(lambda rows: np.asarray(result.compute_density_ratio(rows)).ravel(), source.shape[1])


def single(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda source, target, width: run(source.astype(np.float32), target.astype(np.float32), width)


RULSIF_OURS = [
    Contestant("Steelyard float64", steelyard_rulsif, of_steelyard),
    Contestant("Steelyard float32", single(steelyard_rulsif), of_steelyard),
]
RULSIF_PEERS = [Contestant("densratio", densratio_rulsif, of_densratio)]


# --- KMM: quality is the objective of the full problem, computed the same way for all ---


def steelyard_kmm(ridge: float) -> Callable[..., Any]:
    def run(source: np.ndarray, target: np.ndarray, width: float) -> np.ndarray:
        fit = KMM(width=width, reg=ridge, standardize=False, random_state=0).fit(source, target=target)
        return fit.weights_ * fit.raw_mean_

    return run


def kmm_problem(source: np.ndarray, target: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray, float]:
    n = len(source)
    K = gaussian(source, source, width) + 1e-3 * np.eye(n)
    return K, n * gaussian(source, target, width).mean(axis=1), (np.sqrt(n) - 1) / np.sqrt(n)


def piqp_kmm(source: np.ndarray, target: np.ndarray, width: float) -> np.ndarray:
    import piqp

    K, kappa, slack = kmm_problem(source, target, width)
    n = len(kappa)
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-6
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-6
    solver.setup(
        np.asfortranarray(K / n),
        -kappa / n,
        G=np.ones((1, n), order="F"),
        h_l=np.array([n * (1 - slack)]),
        h_u=np.array([n * (1 + slack)]),
        x_l=np.zeros(n),
        x_u=np.full(n, 1000.0),
    )
    solver.solve()
    return np.clip(solver.result.x, 0, 1000)


def cvxopt_kmm(source: np.ndarray, target: np.ndarray, width: float) -> np.ndarray:
    from cvxopt import matrix, solvers

    K, kappa, slack = kmm_problem(source, target, width)
    n = len(kappa)
    solvers.options["show_progress"] = False
    G = np.vstack([np.ones((1, n)), -np.ones((1, n)), np.eye(n), -np.eye(n)])
    h = np.concatenate([[n * (1 + slack)], [-n * (1 - slack)], np.full(n, 1000.0), np.zeros(n)])
    solution = solvers.qp(matrix(K), matrix(-kappa), matrix(G), matrix(h))
    return np.clip(np.array(solution["x"]).ravel(), 0, 1000)


def adapt_kmm(unsplit: bool) -> Callable[..., Any]:
    def run(source: np.ndarray, target: np.ndarray, width: float) -> np.ndarray:
        from adapt.instance_based import KMM as AdaptKMM

        model = AdaptKMM(
            kernel="rbf",
            gamma=0.5 / width**2,
            max_size=len(source) + 1 if unsplit else 1000,
            verbose=0,
            random_state=0,
        )
        return np.asarray(model.fit_weights(source, target)).ravel()

    return run


def skada_kmm(source: np.ndarray, target: np.ndarray, width: float) -> np.ndarray:
    from skada import KMMReweightAdapter

    adapter = KMMReweightAdapter(kernel="rbf", gamma=0.5 / width**2)
    rows = np.concatenate([source, target])
    domain = np.repeat([1, -2], [len(source), len(target)])
    return np.asarray(adapter.fit(rows, sample_domain=domain).source_weights_)


def kmm_excess(ridge: float) -> Callable[..., float]:
    """MMD² of the weighting, plus the ridge's term, as a share of MMD² without weights."""

    def quality(w: np.ndarray, source: np.ndarray, target: np.ndarray, width: float) -> float:
        n, m = len(source), len(target)
        square = ones = cross = plain = within = 0.0
        for block in blocks(n):
            K = gaussian(source[block], source, width)
            square += w[block] @ (K @ w)
            ones += float(K.sum())
            mean = gaussian(source[block], target, width).mean(axis=1)
            cross += w[block] @ mean
            plain += float(mean.sum())
        for block in blocks(m):
            within += float(gaussian(target[block], target, width).sum())
        weighted = (square + ridge * w @ w) / n**2 - 2 * cross / n + within / m**2
        return float(weighted / (ones / n**2 - 2 * plain / n + within / m**2))

    return quality


def shift_over_norm(source: np.ndarray, target: np.ndarray, width: float) -> float:
    """MMD² without weights over the squared norm of the target's mean embedding.

    It turns differences of the quality above into differences relative to the QP's objective, which leaves that norm
    out and so is nearly constant: a relative gap of 1e-6 can still be a large share of the MMD² that is left.
    """
    ones = sum(float(gaussian(source[block], source, width).sum()) for block in blocks(len(source)))
    cross = sum(float(gaussian(source[block], target, width).sum()) for block in blocks(len(source)))
    within = sum(float(gaussian(target[block], target, width).sum()) for block in blocks(len(target)))
    n, m = len(source), len(target)
    return (ones / n**2 - 2 * cross / (n * m) + within / m**2) / (within / m**2)


# --- KLIEP: quality is how far the likelihood at the chosen width is from its optimum ---


def steelyard_kliep(source: np.ndarray, target: np.ndarray, width: float) -> Any:
    fit = KLIEP(width=width * WIDTH_FACTORS, standardize=False, random_state=0).fit(source, target=target)
    return fit.centers_ + fit.center_, fit.coef_, fit.width_


def densratio_kliep(source: np.ndarray, target: np.ndarray, width: float) -> Any:
    import densratio

    np.random.seed(0)  # noqa: NPY002 (densratio draws its centers from the global generator)
    fit = densratio.KLIEP(target, source, sigma=list(width * WIDTH_FACTORS), kernel_num=100, fold=5, verbose=False)
    return np.asarray(fit.kernel_info.centers), np.asarray(fit.theta).ravel(), float(fit.kernel_info.sigma)


def adapt_kliep(source: np.ndarray, target: np.ndarray, width: float) -> Any:
    from adapt.instance_based import KLIEP as AdaptKLIEP

    gammas = [float(g) for g in 0.5 / (width * WIDTH_FACTORS) ** 2]
    model = AdaptKLIEP(kernel="rbf", gamma=gammas, max_centers=100, cv=5, verbose=0, random_state=0)
    model.fit_weights(source, target)
    return (
        np.asarray(model.centers_),
        np.asarray(model.alphas_).ravel(),
        float((0.5 / model.best_params_["gamma"]) ** 0.5),
    )


def kliep_gap(result: Any, source: np.ndarray, target: np.ndarray, width: float) -> float:
    """The duality gap: no ratio over the same centers and width has a mean log-likelihood higher by more."""
    centers, coef, chosen = result
    t, h = gaussian(target, centers, chosen), gaussian(source, centers, chosen).mean(axis=0)
    g = t @ (coef / (h @ coef))
    with np.errstate(divide="ignore"):
        return float(np.log(np.max((t / np.maximum(g, 1e-300)[:, None]).mean(axis=0) / h)))


# --- streams ---


class NormalBlocks:
    """Rows of a normal distribution in blocks, made anew for every pass."""

    def __init__(self, n_rows: int, mean: float, sd: float, seed: int, n_columns: int = 10) -> None:
        self.n_rows, self.mean, self.sd, self.seed, self.n_columns = n_rows, mean, sd, seed, n_columns

    def __iter__(self) -> Any:
        rng = np.random.default_rng(self.seed)
        for block in blocks(self.n_rows, 50_000):
            rows = rng.standard_normal((block.stop - block.start, self.n_columns))
            rows *= self.sd
            rows += self.mean
            yield rows


def stream_ulsif(n_rows: int) -> Any:
    return ULSIF(random_state=0).fit(NormalBlocks(n_rows, 0.0, 1.0, 0), target=NormalBlocks(n_rows, 0.3, 0.9, 1))


# --- One-step at fixed settings beside one ridge fit on the same features; quality is the error on the target ---

N_CENTERS = 50


def labels(rows: np.ndarray) -> np.ndarray:
    return np.sin(rows[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=len(rows))


@lru_cache
def ridge_features(n: int, d: int, width: float) -> np.ndarray:
    source, target = gaussians(n, d)
    return gaussian(source, target[:N_CENTERS], width)


def steelyard_onestep(source: np.ndarray, target: np.ndarray, width: float) -> Any:
    model = OneStepRegressor(
        width=width, reg=0.01, ratio_width=width, ratio_reg=0.1, loss_bound=1.0, n_centers=N_CENTERS, random_state=0
    )
    return model.fit(source, labels(source), target=Target(target))


def sklearn_ridge(source: np.ndarray, target: np.ndarray, width: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=0.01 * len(source)).fit(ridge_features(*source.shape, width), labels(source))


def onestep_error(result: Any, source: np.ndarray, target: np.ndarray, width: float) -> float:
    return float(np.mean(np.square(result.predict(target) - np.sin(target[:, 0]))))


def ridge_error(result: Any, source: np.ndarray, target: np.ndarray, width: float) -> float:
    predicted = result.predict(gaussian(target, target[:N_CENTERS], width))
    return float(np.mean(np.square(predicted - np.sin(target[:, 0]))))
