"""Generalized discrepancy minimization (Cortes, Mohri and Muñoz Medina, 2019) as cone programs for Clarabel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from steelyard._few_shot.kernel_regression import REG_GRID, median_distance, spectrum
from steelyard._numerics.kernels import gaussian
from steelyard._numerics.written import written
from steelyard._typing import FloatArray
from steelyard._validation import check_grid, check_range
from steelyard.baselines.base import FewShotRegressor
from steelyard.errors import ConvergenceError, DependencyError, SteelyardWarning, warn_user

# Eigenvectors of the kernel matrix are left out if their eigenvalue is below this share of the largest one.
NEGLIGIBLE = 1e-4
# The discrepancy is measured along this many eigenvectors: the cost of its program grows with the fourth power or more.
N_MEASURED = 30
# Regularization strength of the distance to uniform weights, as a share of the target's second moment. Without it many
# different weights are almost equally good.
EVENNESS = 1e-3


class DiscrepancyRegressor(FewShotRegressor):
    """Generalized discrepancy minimization ("GDM") for Gaussian kernel ridge regression.

    Step 1 finds importance weights of the source rows that minimize the discrepancy: the largest difference, over pairs
    of hypotheses of the kernel, between their mean squared distance on the weighted source and on the target. Step 2
    finds the hypothesis whose loss on the target, averaged between the worst and the best case of the target's labels,
    is smallest. The possible target labels are the values of all hypotheses h'' whose objective on the weighted source,
    Σ qᵢ (h''(xᵢ) − yᵢ)² + λ ‖h''‖², is at most ``1 + slack`` times the smallest one. The labels of the target rows only
    choose λ. The kernel matrix of all rows is formed, so the method is for tables of up to some thousand rows.

    Parameters
    ----------
    slack : float, default=1.0
        Size of the set of possible target labels; the survey does not say which value was used.
    reg : positive number or list of them, default=(2**-10, ..., 2**10)
        λ, the regularization strength. One of a list is chosen by the squared error on the target rows.
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One importance weight for each source row, with mean one.
    discrepancy_ : float
        Discrepancy between the weighted source and the target, along the 30 leading eigenvectors of the kernel matrix.
    plain_discrepancy_ : float
        The same for the unweighted source.
    reg_ : float
        The λ with the smallest squared error on the target rows.
    errors_ : array of shape (n_reg,)
        That error for each λ, in descending order of λ, in units of the standardized label.
    model_ : object
        The chosen hypothesis.
    scale_ : Scale
        Mean and standard deviation of columns and label.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import Target
    >>> from steelyard.baselines import DiscrepancyRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (60, 1)), rng.normal(1, 0.5, (8, 1))
    >>> model = DiscrepancyRegressor().fit(X, X[:, 0] ** 2, target=Target(X_target, X_target[:, 0] ** 2))
    >>> bool(model.discrepancy_ < model.plain_discrepancy_)
    True
    """

    def __init__(self, *, slack: float = 1.0, reg: Any = REG_GRID, standardize: bool = True) -> None:
        self.slack = slack
        self.reg = reg
        self.standardize = standardize

    def _found(self) -> dict[str, str]:
        plain = written(self.plain_discrepancy_)
        return {
            "discrepancy": f"{written(self.discrepancy_)} with weights, {plain} without",
            "regularization strength": written(self.reg_),
        }

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        slack = check_range("slack", self.slack, 0, open_low=True)
        grid = check_grid("reg", self.reg)
        rows = np.vstack([X, X_target])
        features = KernelFeatures(rows, median_distance(rows))
        source, target = features.of(X), features.of(X_target)
        found = least_discrepancy(source[:, :N_MEASURED], target[:, :N_MEASURED])
        self.weights_ = found.weights * len(X)
        self.discrepancy_, self.plain_discrepancy_ = found.discrepancy, found.plain
        hypotheses = [generalized_ridge(source, y, found.weights, target, float(reg), slack) for reg in grid]
        self.errors_ = np.array([np.mean((target @ coef - y_target) ** 2) for coef in hypotheses])
        best = int(np.argmin(self.errors_))
        self.reg_ = float(grid[best])
        self.model_ = LinearInFeatures(features, hypotheses[best])


class KernelFeatures:
    """A Gaussian kernel as inner products of a few features: the leading eigenvectors of its matrix on some rows."""

    def __init__(self, rows: FloatArray, width: float) -> None:
        self.rows, self.width = rows, width
        values, vectors = spectrum(gaussian(rows, rows, width))
        kept = np.flatnonzero(values > NEGLIGIBLE * values.max())[::-1]
        self.directions = vectors[:, kept] / np.sqrt(values[kept])  # (rows, p), the largest eigenvalue first

    def of(self, X: FloatArray) -> FloatArray:
        """The features (n, p) of rows."""
        return gaussian(X, self.rows, self.width) @ self.directions


@dataclass(frozen=True, eq=False)
class LinearInFeatures:
    """A hypothesis: a linear function of the features."""

    features: KernelFeatures
    coef: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """The values of the hypothesis."""
        return self.features.of(X) @ self.coef


@dataclass(frozen=True)
class LeastDiscrepancy:
    """Weights that sum to one, their discrepancy, and the dual variables that prove their optimality."""

    weights: FloatArray
    discrepancy: float
    plain: float  # discrepancy of uniform weights
    dual: FloatArray  # (p, p), a subgradient of the norm of the difference of the second moments


def least_discrepancy(source: FloatArray, target: FloatArray) -> LeastDiscrepancy:
    """Weights q of the source rows that bring the second moments of the features as close as possible to the target's.

    min ‖Σ qᵢ φᵢφᵢᵀ − 1/m Σ φ'ⱼφ'ⱼᵀ‖₂ + ε n ‖q − 1/n‖² over q ≥ 0 with Σ q = 1. The spectral norm is the largest
    difference of the mean squared distance between two hypotheses of norm one half. ε is a thousandth of the spectral
    norm of the target's second moments.
    """
    n, p = source.shape
    size = float(np.sqrt(_norm(target.T @ target / len(target)))) or 1.0
    scaled, moments = source / size, target.T @ target / (len(target) * size**2)
    plain = _norm(scaled.T @ scaled / n - moments)
    # The upper triangle column by column, as Clarabel expects it, with √2 for the entries off the diagonal.
    column, row = np.tril_indices(p)
    twice = np.where(row == column, 1.0, np.sqrt(2.0))
    each = sparse.csc_matrix((scaled[:, row] * scaled[:, column] * twice).T)
    wanted, unit = moments[row, column] * twice, sparse.csc_matrix((row == column).astype(float)[:, None])
    reg = EVENNESS * n
    try:
        solution = _solve(
            sparse.diags(np.append(np.full(n, 2 * reg), 0.0)),
            np.append(np.full(n, -2 * reg / n), 1.0),
            sparse.block_array([[np.ones((1, n)), None], [-sparse.eye(n), None], [each, -unit], [-each, -unit]]),
            np.concatenate([[1.0], np.zeros(n), wanted, -wanted]),
            [("zero", 1), ("nonnegative", n), ("psd", p), ("psd", p)],
        )
    except ConvergenceError as error:
        message = f"{error.message} The target may lie far from the source. All source rows get the same weight."
        warn_user(message, SteelyardWarning)
        return LeastDiscrepancy(np.full(n, 1 / n), plain * size**2, plain * size**2, np.zeros((p, p)))
    weights = np.maximum(solution.x[:n], 0)
    weights /= weights.sum()
    above, below = np.split(solution.z[1 + n :], 2)
    dual = np.zeros((p, p))
    dual[row, column] = dual[column, row] = (above - below) / twice
    found = _norm((scaled.T * weights) @ scaled - moments)
    return LeastDiscrepancy(weights, found * size**2, plain * size**2, dual)


def generalized_ridge(
    source: FloatArray, y: FloatArray, weights: FloatArray, target: FloatArray, reg: float, slack: float
) -> FloatArray:
    """The h that minimizes λ‖h‖² + (max + min over possible h'' of the mean of (h − h'')² on the target)/2.

    The possible h'' are h₀ + δ with δᵀ(Σ qφφᵀ + λI)δ ≤ slack · J(h₀), so their values on the target form an ellipsoid
    c + Bz, ‖z‖ ≤ 1. Along its axes, of half lengths s, the maximum of ‖d − Bz‖² is by duality the minimum of
    μ + Σ dₖ² (1 + sₖ²/(μ − sₖ²)) over μ ≥ max s². The whole problem is therefore a cone program.
    """
    m, p = target.shape
    gram = (source.T * weights) @ source + reg * np.eye(p)
    factor = cho_factor(gram)
    moment = source.T @ (weights * y)
    center = cho_solve(factor, moment)
    least = max(float(weights @ y**2 - moment @ center), 0.0)
    # h is in the span of the target's features: h = Rw, with the values LSw on the target.
    left, values, right = np.linalg.svd(target, full_matrices=False)
    kept = values > values.max() * 1e-10
    left, values, right = left[:, kept], values[kept], right[kept]
    lengths, axes = np.linalg.eigh(slack * least * target @ cho_solve(factor, target.T))
    lengths = np.sqrt(np.maximum(lengths, 0))
    to_axes, middle = axes.T @ (left * values), axes.T @ (target @ center)  # d = to_axes w − middle
    r, longest = len(values), float(lengths.max())
    if longest <= 1e-9 * max(float(np.abs(middle).max()), 1e-300):  # one possible labeling: ridge regression
        return right.T @ np.linalg.solve(to_axes.T @ to_axes / m + reg * np.eye(r), to_axes.T @ middle / m)
    unit = max(longest, float(np.abs(middle).max()))  # the tolerances of the solver are absolute
    return unit * right.T @ _between_extremes(to_axes, middle / unit, lengths / unit, reg)


def _between_extremes(to_axes: FloatArray, middle: FloatArray, lengths: FloatArray, reg: float) -> FloatArray:
    """The w that minimizes λ‖w‖² + (max + min over ‖z‖ ≤ 1 of ‖d − s∘z‖²)/(2m), where d = to_axes w − middle.

    Variables: w, μ, e with eₖ ≥ dₖ²/(μ − sₖ²), and z.
    """
    m, r = to_axes.shape
    w, mu, e, z = slice(0, r), r, slice(r + 1, r + 1 + m), slice(r + 1 + m, r + 1 + 2 * m)
    n = r + 1 + 2 * m
    quadratic, linear = np.zeros((n, n)), np.zeros(n)
    # ½‖d‖²/m comes from the maximum and ½‖d − s∘z‖²/m from the minimum.
    quadratic[w, w] = 2 * to_axes.T @ to_axes / m + 2 * reg * np.eye(r)
    quadratic[w, z] = -to_axes.T * lengths / m
    quadratic[z, w] = quadratic[w, z].T
    quadratic[z, z] = np.diag(lengths**2) / m
    linear[w] = -2 * to_axes.T @ middle / m
    linear[z] = lengths * middle / m
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
        right.append(np.array([-(lengths[k] ** 2), -2 * middle[k], lengths[k] ** 2]))
        cones.append(("second_order", 3))
    return _solve(sparse.csc_matrix(quadratic), linear, np.vstack(rows), np.concatenate(right), cones).x[w]


@dataclass(frozen=True)
class _Solution:
    x: FloatArray
    z: FloatArray


def _solve(quadratic: Any, linear: FloatArray, rows: Any, right: FloatArray, cones: list[tuple[str, int]]) -> _Solution:
    """Minimize ½xᵀPx + qᵀx subject to b − Ax in a product of cones."""
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
        raise ConvergenceError(f"Clarabel did not solve the cone program (status {solution.status}).")
    return _Solution(np.array(solution.x), np.array(solution.z))


def _norm(symmetric: FloatArray) -> float:
    """The spectral norm of a symmetric matrix."""
    return float(np.abs(np.linalg.eigvalsh(symmetric)).max())
