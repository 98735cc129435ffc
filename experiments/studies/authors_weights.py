"""Dynamic importance weights as the authors compute them: a quadratic program on the host, by cvxopt or piqp."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from steelyard._typing import FloatArray

AUTHORS_SOLVER = "cvxopt" if find_spec("cvxopt") else "piqp"


def authors_weights(train_losses: FloatArray, validation_losses: FloatArray) -> FloatArray:
    """Weights of training losses that match them to validation losses, as in the authors' code."""
    z, v = train_losses.astype(float), validation_losses.astype(float)
    distances = [abs(z[i] - z[j]) for i in range(len(z)) for j in range(i + 1, len(z))]
    return quadratic_program(*kernels(z, v, float(np.quantile(distances, 0.01)), 1e-5))


def kernels(z: FloatArray, v: FloatArray, gamma: float, reg: float) -> tuple[FloatArray, FloatArray]:
    """Quadratic and linear term of the program, with exp(−γ·distance²)."""
    kernel = np.exp(-gamma * (z[:, None] - z) ** 2) + reg * np.eye(len(z))
    return kernel, len(z) / len(v) * np.exp(-gamma * (z[:, None] - v) ** 2).sum(axis=1)


def quadratic_program(kernel: FloatArray, linear: FloatArray) -> FloatArray:
    """The weights by cvxopt as the authors call it, or by piqp where cvxopt is not installed."""
    if AUTHORS_SOLVER == "piqp":
        return piqp_weights(kernel, linear)
    cvxopt: Any = import_module("cvxopt")
    matrix, solvers = cvxopt.matrix, cvxopt.solvers
    n = len(linear)
    solvers.options["show_progress"] = False
    sides = np.concatenate([np.full(n, 50.0), np.zeros(n), [2 * n - np.sqrt(n), -np.sqrt(n)]])
    matrices = np.vstack([np.eye(n), -np.eye(n), np.ones(n), -np.ones(n)])
    found = solvers.qp(matrix(kernel), matrix(-linear), matrix(matrices), matrix(sides))
    return np.array(found["x"]).ravel()


def piqp_weights(kernel: FloatArray, linear: FloatArray) -> FloatArray:
    """The weights by piqp's dense solver, bounds as bounds, at its own tolerances (1e-8 absolute, 1e-9 relative)."""
    import piqp

    n = len(linear)
    solver = piqp.DenseSolver()
    slab = np.ones((1, n))
    sides = np.array([np.sqrt(n)]), np.array([2 * n - np.sqrt(n)])
    solver.setup(kernel, -linear, None, None, slab, *sides, np.zeros(n), np.full(n, 50.0))
    if solver.solve() != piqp.PIQP_SOLVED:
        raise RuntimeError("piqp did not solve the problem")
    return np.asarray(solver.result.x)
