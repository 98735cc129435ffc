"""The quadratic programs of KMM and LSIF, each solved with a certificate of optimality.

* box and slab: min ½xᵀQx − cᵀx  over 0 ≤ x ≤ u, low ≤ Σx ≤ high   (KMM)
* non-negative: min ½xᵀQx − cᵀx  over x ≥ 0                          (LSIF)

Small dense problems are solved by piqp, large ones with Q = GGᵀ + diag(d) and a low-rank G by `interior_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._numerics.display import fragment, table
from steelyard._typing import FloatArray
from steelyard.errors import ConvergenceError


@dataclass(frozen=True)
class Certificate:
    """Accuracy of the solution x of min ½xᵀQx − cᵀx under bounds, computed from x itself (survey, section 3.2).

    The values are measured at the solution, not reported by the solver. `KMM`, `LSIF` and `KLIEP` have one as
    ``certificate_``.

    Parameters
    ----------
    objective : float
        Value of the objective (for `KLIEP`, the negative log-likelihood).
    primal_residual : float
        Largest violation of a constraint, in the infinity norm of the problem scaled to unit weights.
    dual_residual : float
        Largest violation of stationarity, in the infinity norm of the problem scaled to unit gradients.
    gap : float
        Complementarity (duality) gap, relative to ``max(1, |objective|)``.
    n_iter : int
        Number of iterations of the solver.
    solved : bool
        Whether gap and residuals are at most the tolerance.
    truncation : float, default=0.0
        Share of the kernel matrix' trace that a low-rank factor left out; 0 where the whole matrix was used.
    truncation_cost : float, default=0.0
        What that costs at most: with the whole kernel matrix and the exact linear term, the objective of the solution
        exceeds the optimum by no more than this and the gap, both relative to ``max(1, |objective|)``. It is a proven
        bound up to rounding errors, mostly far above the true cost; above 1 it says nothing.
    rank : int, default=None
        Rank of the low-rank factor; None where the whole matrix was used.
    rank_limited : bool, default=False
        Whether the factor reached the largest rank allowed before it was accurate; `advice` says what to do.

    Examples
    --------
    >>> from steelyard import LSIF
    >>> from steelyard.datasets import gaussian_pair
    >>> pair = gaussian_pair(200, 200, random_state=0)
    >>> certificate = LSIF(random_state=0).fit(pair.X, target=pair.X_target).certificate_
    >>> certificate.solved, certificate.gap <= 1e-6
    (True, True)
    """

    objective: float
    primal_residual: float
    dual_residual: float
    gap: float
    n_iter: int
    solved: bool
    truncation: float = 0.0
    truncation_cost: float = 0.0
    rank: int | None = None
    rank_limited: bool = False

    @property
    def advice(self) -> str:
        """What is left out where the rank limit was reached, and what to do about it; empty otherwise.

        Returns
        -------
        str
            Two sentences, or an empty string.
        """
        if not self.rank_limited:
            return ""
        bound = f"at most {self.truncation_cost:.1g}" if self.truncation_cost < 1 else "no bound below 1 is known"
        return (
            f"The low-rank factor of the kernel matrix reached its limit, max_rank={self.rank}, and leaves out "
            f"{self.truncation:.1%} of the trace (relative cost of that in the objective: {bound}). Raise max_rank "
            "(memory and time grow with it), raise width, drop columns that do not shift, or use ULSIF or "
            "ClassifierRatio, which have no such limit."
        )

    @property
    def in_words(self) -> str:
        """Whether the problem was solved, and how accurately.

        Returns
        -------
        str
            A few words.
        """
        words = (
            f"{'solved' if self.solved else 'not solved'} in {self.n_iter} iterations: relative gap {self.gap:.1e}, "
            f"residuals {self.primal_residual:.1e} (primal) and {self.dual_residual:.1e} (dual)"
        )
        if self.rank is None:
            return words
        cost = f"at most {self.truncation_cost:.1g}" if self.truncation_cost < 1 else "not bounded below 1"
        return f"{words}; a factor of rank {self.rank} leaves out {self.truncation:.1%} of the trace (cost: {cost})"

    def __repr__(self) -> str:
        return f"Certificate(objective {self.objective:.6g}, {self.in_words})"

    def _repr_html_(self) -> str:
        return str(fragment(table([("certificate", self.in_words), ("objective", f"{self.objective:.6g}")])))

    def require(self, method: str, tol: float, raised: str = "tol, width or reg") -> None:
        """Raise `ConvergenceError` unless the problem was solved.

        Parameters
        ----------
        method : str
            Name of the method, for the message.
        tol : float
            The tolerance, for the message.
        raised : str, default="tol, width or reg"
            Parameters of the method that make the problem easier where they are raised, for the message.
        """
        if not self.solved:
            raise ConvergenceError(
                f"{method} did not converge: after {self.n_iter} iterations it has gap {self.gap:.1e}, primal residual "
                f"{self.primal_residual:.1e} and dual residual {self.dual_residual:.1e}; each should be at most "
                f"{tol:.1e}. Raise {raised}, or check for columns of very different scale."
            )


@dataclass(frozen=True, eq=False)
class BoxSlab:
    """The constraints 0 ≤ x ≤ upper, low ≤ Σx ≤ high."""

    upper: FloatArray
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Non-negative multipliers of x ≥ 0, x ≤ upper, Σx ≥ low and Σx ≤ high."""

    at_zero: FloatArray
    at_upper: FloatArray
    at_low: float
    at_high: float


def certify(
    x: FloatArray,
    product: FloatArray,
    linear: FloatArray,
    bounds: BoxSlab,
    multipliers: Multipliers,
    n_iter: int,
    tol: float,
    truncation: float = 0.0,
) -> Certificate:
    """Certificate of a point x of the box-and-slab problem; `product` is Qx."""
    total, m = float(x.sum()), multipliers
    objective = float(x @ product / 2 - linear @ x)
    violation = max(float((-x).max()), float((x - bounds.upper).max()), 0.0)
    slab = max(bounds.low - total, total - bounds.high, 0.0) / max(1.0, len(x))
    stationarity = product - linear - m.at_zero + m.at_upper - m.at_low + m.at_high
    # With a negative multiplier small residuals would not prove optimality.
    wrong_sign = max(0.0, -float(m.at_zero.min()), -float(m.at_upper.min()), -m.at_low, -m.at_high)
    dual = max(float(abs(stationarity).max()), wrong_sign) / max(1.0, float(abs(linear).max()))
    gap = abs(float(x @ m.at_zero + (bounds.upper - x) @ m.at_upper))
    # An infinite side has multiplier 0; 0 · inf would be NaN.
    gap += abs(m.at_low * (total - bounds.low)) if m.at_low else 0.0
    gap += abs(m.at_high * (bounds.high - total)) if m.at_high else 0.0
    gap = float(gap) / max(1.0, abs(objective))
    solved = bool(max(violation, slab, dual, gap) <= tol)
    return Certificate(objective, max(violation, slab), dual, gap, n_iter, solved, truncation)


def solve_box_slab(
    matrix: FloatArray, linear: FloatArray, bounds: BoxSlab, tol: float
) -> tuple[FloatArray, Certificate]:
    """The box-and-slab problem with a dense matrix, by piqp."""
    n = len(linear)
    # Scaled so that the gradient is of order one, whatever the number of rows.
    scale = max(1.0, float(np.max(np.abs(linear))))
    result = _piqp(
        matrix / scale,
        -linear / scale,
        x_l=np.zeros(n),
        x_u=bounds.upper,
        G=np.ones((1, n), order="F"),
        h_l=np.array([bounds.low]),
        h_u=np.array([bounds.high]),
    )
    x = np.clip(result.x, 0, bounds.upper)
    multipliers = Multipliers(
        scale * np.maximum(result.z_bl, 0),
        scale * np.maximum(result.z_bu, 0),
        scale * max(float(result.z_l[0]), 0.0),
        scale * max(float(result.z_u[0]), 0.0),
    )
    return x, certify(x, matrix @ x, linear, bounds, multipliers, result.info.iter, tol)


def solve_non_negative(matrix: FloatArray, linear: FloatArray, tol: float) -> tuple[FloatArray, Certificate]:
    """min ½xᵀQx − cᵀx over x ≥ 0, by piqp, scaled to a unit diagonal and a unit linear term.

    The scaling matters: a basis function that is almost zero at every source row has a tiny diagonal entry and a huge
    coefficient, which would dominate all others. The certificate is that of the scaled problem, its objective that of
    the original one.
    """
    per_column = 1 / np.sqrt(np.maximum(matrix.diagonal(), np.finfo(np.float64).tiny))
    scaled_linear = linear * per_column
    size = max(float(np.max(np.abs(scaled_linear))), np.finfo(np.float64).tiny)
    scaled_matrix, scaled_linear = matrix * per_column * per_column[:, None], scaled_linear / size
    result = _piqp(scaled_matrix, -scaled_linear, x_l=np.zeros(len(linear)))
    x = np.maximum(result.x, 0)
    at_zero = np.maximum(result.z_bl, 0)
    product = scaled_matrix @ x
    objective = float(x @ product / 2 - scaled_linear @ x)
    dual = float(np.max(np.abs(product - scaled_linear - at_zero)))
    gap = float(x @ at_zero) / max(1.0, abs(objective))
    solved = bool(max(dual, gap) <= tol)
    return x * per_column * size, Certificate(objective * size**2, 0.0, dual, gap, result.info.iter, solved)


def _piqp(matrix: FloatArray, linear: FloatArray, **constraints: Any) -> Any:
    import piqp  # imported here, so that importing the library does not load a solver

    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-11
    solver.setup(np.asfortranarray(matrix), linear, **constraints)
    solver.solve()
    return solver.result
