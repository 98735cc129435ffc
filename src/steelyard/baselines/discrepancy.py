"""Generalized discrepancy minimization (Cortes, Mohri and Muñoz Medina, 2019), with two convex programs by Clarabel."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from steelyard._few_shot.kernel_regression import REGS, median_distance, spectrum
from steelyard._numerics.kernels import gaussian
from steelyard._typing import FloatArray
from steelyard._validation import check_grid, check_range
from steelyard.baselines.base import FewShotRegressor
from steelyard.errors import ConvergenceError, DependencyError, SteelyardWarning

# Directions of the kernel below this share of the largest are left out.
NEGLIGIBLE = 1e-4
# Directions that the discrepancy is measured along: the cost of its program grows with their fourth power and more.
N_MEASURED = 30
# Of the weights' distance to even ones, as a share of the target's second moment: many weights are almost as good.
EVENNESS = 1e-3


class DiscrepancyRegressor(FewShotRegressor):
    """Generalized discrepancy minimization ("GDM") for Gaussian kernel ridge regression.

    First the source rows are weighted so that no two hypotheses of the kernel differ more on the target than they do on
    the weighted source, for as much as is possible. Then the hypothesis is sought that is best for the target, half way
    between the worst and the best that its labels can be: they are those of a hypothesis h'' that fits the weighted
    source, Σ qᵢ (h''(xᵢ) − yᵢ)² + λ ‖h''‖², up to ``1 + slack`` times as badly as the best one. The labels of the
    target's rows serve to choose λ only. For tables of up to some thousand rows: the kernel of all rows is formed.

    Parameters
    ----------
    slack : float, default=1.0
        How large the set of labels is that are held possible; the survey does not say which was used.
    lambdas : sequence of float, default=(2**-10, ..., 2**10)
        To choose from: how much the norm of a hypothesis costs.
    standardize : bool, default=True
        Columns and label, by the source rows.

    Attributes
    ----------
    weights_ : of the source rows, mean one
    discrepancy_ : of the weighted source to the target along the 30 largest directions of the kernel, and
        `plain_discrepancy_` without weights
    lambda_ : the λ of the least squared error on the target's rows
    errors_ : that error for every λ, the largest first, of the standardized label

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import Target
    >>> from steelyard.baselines import DiscrepancyRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, few = rng.normal(0, 1, (60, 1)), rng.normal(1, 0.5, (8, 1))
    >>> model = DiscrepancyRegressor().fit(X, X[:, 0] ** 2, target=Target(few, few[:, 0] ** 2))
    >>> bool(model.discrepancy_ < model.plain_discrepancy_)
    True
    """

    def __init__(self, *, slack: float = 1.0, lambdas: Any = REGS, standardize: bool = True) -> None:
        self.slack = slack
        self.lambdas = lambdas
        self.standardize = standardize

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        slack = check_range("slack", self.slack, 0, open_low=True)
        grid = check_grid("lambdas", self.lambdas)
        rows = np.vstack([X, target_X])
        features = kernel_features(rows, median_distance(rows))
        here, there = features.of(X), features.of(target_X)
        found = least_discrepancy(here[:, :N_MEASURED], there[:, :N_MEASURED])
        self.weights_ = found.weights * len(X)
        self.discrepancy_, self.plain_discrepancy_ = found.discrepancy, found.plain
        normals = [generalized_ridge(here, y, found.weights, there, float(lam), slack) for lam in grid]
        self.errors_ = np.array([np.mean((there @ normal - target_y) ** 2) for normal in normals])
        best = int(np.argmin(self.errors_))
        self.lambda_ = float(grid[best])
        self.model_ = LinearInFeatures(features, normals[best])


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """A Gaussian kernel as inner products of few features: its directions on some rows that are not negligible."""

    rows: FloatArray
    width: float
    directions: FloatArray  # (rows, p), the largest first

    def of(self, X: FloatArray) -> FloatArray:
        """Features (n, p)."""
        return gaussian(X, self.rows, self.width) @ self.directions


def kernel_features(rows: FloatArray, width: float) -> KernelFeatures:
    """Those of a kernel on its rows."""
    values, vectors = spectrum(gaussian(rows, rows, width))
    kept = np.flatnonzero(values > NEGLIGIBLE * values.max())[::-1]
    return KernelFeatures(rows, width, vectors[:, kept] / np.sqrt(values[kept]))


@dataclass(frozen=True, eq=False)
class LinearInFeatures:
    """A hypothesis."""

    features: KernelFeatures
    normal: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """Its values."""
        return self.features.of(X) @ self.normal


@dataclass(frozen=True)
class LeastDiscrepancy:
    """Weights that sum to one, what they reach, and the multipliers that prove it."""

    weights: FloatArray
    discrepancy: float
    plain: float
    dual: FloatArray  # (p, p), a subgradient of the norm: its inner product with the differing second moments


def least_discrepancy(here: FloatArray, there: FloatArray) -> LeastDiscrepancy:
    """Weights q of source rows for which the second moments of the features differ least from the target's.

    min ‖Σ qᵢ φᵢφᵢᵀ − 1/m Σ φ'ⱼφ'ⱼᵀ‖₂ + ε n ‖q − 1/n‖² over q ≥ 0 with Σ q = 1: with the spectral norm it is the largest
    difference between two hypotheses of norm one half, squared and averaged. ε is a thousandth of that of the
    target's moments.
    """
    n, p = here.shape
    size = float(np.sqrt(_norm(there.T @ there / len(there)))) or 1.0
    scaled, moments = here / size, there.T @ there / (len(there) * size**2)
    plain = _norm(scaled.T @ scaled / n - moments)
    row, column, twice = _triangle(p)
    each = sparse.csc_matrix((scaled[:, row] * scaled[:, column] * twice).T)
    goal, unit = moments[row, column] * twice, sparse.csc_matrix((row == column).astype(float)[:, None])
    ridge = EVENNESS * n
    try:
        solution = _solve(
            sparse.diags(np.append(np.full(n, 2 * ridge), 0.0)),
            np.append(np.full(n, -2 * ridge / n), 1.0),
            sparse.block_array([[np.ones((1, n)), None], [-sparse.eye(n), None], [each, -unit], [-each, -unit]]),
            np.concatenate([[1.0], np.zeros(n), goal, -goal]),
            [("zero", 1), ("nonnegative", n), ("psd", p), ("psd", p)],
        )
    except ConvergenceError as error:
        message = f"{error} The target may lie far from the source; its rows are weighted evenly."
        warnings.warn(message, SteelyardWarning, stacklevel=2)
        return LeastDiscrepancy(np.full(n, 1 / n), plain * size**2, plain * size**2, np.zeros((p, p)))
    weights = np.maximum(solution.x[:n], 0)
    weights /= weights.sum()
    above, below = np.split(solution.z[1 + n :], 2)
    dual = np.zeros((p, p))
    dual[row, column] = dual[column, row] = (above - below) / twice
    found = _norm((scaled.T * weights) @ scaled - moments)
    return LeastDiscrepancy(weights, found * size**2, plain * size**2, dual)


def generalized_ridge(
    here: FloatArray, y: FloatArray, weights: FloatArray, there: FloatArray, lam: float, slack: float
) -> FloatArray:
    """The h of least λ‖h‖² + (largest + least mean of (h − h'')² on the target)/2 over the h'' that are held possible.

    These are h₀ + δ with δᵀ(Σ qφφᵀ + λI)δ ≤ slack · J(h₀), so their values on the target are an ellipsoid c + Bz,
    ‖z‖ ≤ 1. In its axes, of half lengths s, the largest of ‖d − Bz‖² is by duality the least of
    μ + Σ dₖ² (1 + sₖ²/(μ − sₖ²)) over μ ≥ max s², which makes the whole a cone program.
    """
    m, p = there.shape
    gram = (here.T * weights) @ here + lam * np.eye(p)
    factor = cho_factor(gram)
    moment = here.T @ (weights * y)
    center = cho_solve(factor, moment)
    least = max(float(weights @ y**2 - moment @ center), 0.0)
    # h is in the span of the target's features: h = Rw, and LSw are its values.
    left, values, right = np.linalg.svd(there, full_matrices=False)
    kept = values > values.max() * 1e-10
    left, values, right = left[:, kept], values[kept], right[kept]
    lengths, axes = np.linalg.eigh(slack * least * there @ cho_solve(factor, there.T))
    lengths = np.sqrt(np.maximum(lengths, 0))
    to_axes, goal = axes.T @ (left * values), axes.T @ (there @ center)  # d = to_axes w − goal
    r, longest = len(values), float(lengths.max())
    if longest <= 1e-9 * max(float(np.abs(goal).max()), 1e-300):  # no doubt about the labels: ridge regression
        return right.T @ np.linalg.solve(to_axes.T @ to_axes / m + lam * np.eye(r), to_axes.T @ goal / m)
    unit = max(longest, float(np.abs(goal).max()))  # the solver's tolerances are absolute
    return unit * right.T @ _between_extremes(to_axes, goal / unit, lengths / unit, lam)


def _between_extremes(to_axes: FloatArray, goal: FloatArray, lengths: FloatArray, lam: float) -> FloatArray:
    """w of least λ‖w‖² + (max + min over ‖z‖ ≤ 1 of ‖d − s∘z‖²)/(2m), where d = to_axes w − goal.

    Variables: w, μ, e with eₖ ≥ dₖ²/(μ − sₖ²), z.
    """
    m, r = to_axes.shape
    w, mu, e, z = slice(0, r), r, slice(r + 1, r + 1 + m), slice(r + 1 + m, r + 1 + 2 * m)
    n = r + 1 + 2 * m
    quadratic, linear = np.zeros((n, n)), np.zeros(n)
    # ½‖d‖²/m of the maximum and ½‖d − s∘z‖²/m of the minimum.
    quadratic[w, w] = 2 * to_axes.T @ to_axes / m + 2 * lam * np.eye(r)
    quadratic[w, z] = -to_axes.T * lengths / m
    quadratic[z, w] = quadratic[w, z].T
    quadratic[z, z] = np.diag(lengths**2) / m
    linear[w] = -2 * to_axes.T @ goal / m
    linear[z] = lengths * goal / m
    linear[mu] = 0.5 / m
    linear[e] = 0.5 * lengths**2 / m
    rows, right, cones = [], [], []
    ball = np.zeros((1 + m, n))
    ball[1:, z] = -np.eye(m)
    rows.append(ball)
    right.append(np.append(1.0, np.zeros(m)))
    cones.append(("second_order", 1 + m))
    for k in range(m):  # e + (μ − s²) ≥ ‖(2d, e − (μ − s²))‖
        block = np.zeros((3, n))
        block[0, [r + 1 + k, mu]] = -1, -1
        block[1, w] = -2 * to_axes[k]
        block[2, [r + 1 + k, mu]] = -1, 1
        rows.append(block)
        right.append(np.array([-(lengths[k] ** 2), -2 * goal[k], lengths[k] ** 2]))
        cones.append(("second_order", 3))
    return _solve(sparse.csc_matrix(quadratic), linear, np.vstack(rows), np.concatenate(right), cones).x[w]


@dataclass(frozen=True)
class _Solution:
    x: FloatArray
    z: FloatArray


def _solve(quadratic: Any, linear: FloatArray, rows: Any, right: FloatArray, cones: list[tuple[str, int]]) -> _Solution:
    """Min ½xᵀPx + qᵀx with b − Ax in a product of cones."""
    try:
        import clarabel
    except ModuleNotFoundError as error:
        raise DependencyError(
            "DiscrepancyRegressor needs Clarabel. Install it: pip install 'steelyard[discrepancy]'."
        ) from error
    kinds = {
        "zero": clarabel.ZeroConeT,
        "nonnegative": clarabel.NonnegativeConeT,
        "second_order": clarabel.SecondOrderConeT,
        "psd": clarabel.PSDTriangleConeT,
    }
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    problem = (
        sparse.triu(quadratic).tocsc(),
        linear,
        sparse.csc_matrix(rows),
        right,
        [kinds[kind](size) for kind, size in cones],
    )
    solution = clarabel.DefaultSolver(*problem, settings).solve()
    if str(solution.status) not in ("Solved", "AlmostSolved"):
        raise ConvergenceError(f"Clarabel did not solve the program: {solution.status}.")
    return _Solution(np.array(solution.x), np.array(solution.z))


def _triangle(p: int) -> tuple[Any, Any, FloatArray]:
    """Upper triangle column by column, as Clarabel wants it, and √2 for what stands twice in a symmetric matrix."""
    column, row = np.tril_indices(p)
    return row, column, np.where(row == column, 1.0, np.sqrt(2.0))


def _norm(symmetric: FloatArray) -> float:
    return float(np.abs(np.linalg.eigvalsh(symmetric)).max())
