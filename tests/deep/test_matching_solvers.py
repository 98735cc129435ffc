"""Every solver of the matching problem on the same problems, against one oracle.

The oracle is a point that piqp finds to 1e-10 and that its certificate, measured on the point itself, proves optimal to
that tolerance: a solver agrees if its objective exceeds the certified one by at most 1e-6 (relative to one where the
objective is smaller) and if it keeps the constraints.
"""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from steelyard._numerics.interior_point import solve_box_slab_low_rank
from steelyard._numerics.quadratic_programs import BoxSlab, solve_box_slab
from steelyard.deep._matching import choice
from steelyard.deep._matching.choice import MatchingRule, gamma_of, match_losses
from steelyard.deep._matching.dense import pose, solve, solve_as_cvxopt

NORMALIZED = MatchingRule(w_max=50.0, reg=1e-3, normalized=False, quantile=0.5, is_gamma=False, as_cvxopt=False)
WIDE = replace(NORMALIZED, reg=1e-5, quantile=0.01, is_gamma=True)
N, M = 48, 40


@cache
def problems():
    """Losses of learned and mislabeled rows, validation losses and a rule."""
    rng = np.random.default_rng(0)
    train = np.where(rng.random(N) < 0.6, rng.gamma(1, 0.5, N), np.abs(rng.normal(4, 1.3, N)))
    low, high = rng.gamma(1, 0.5, M), np.abs(rng.normal(6, 1, M))
    return {
        "median width": (train, low, NORMALIZED),
        "wide kernel": (train, low, WIDE),
        "wide kernel, large losses wanted": (train, high, WIDE),
        "median distance as γ": (train, low, replace(NORMALIZED, reg=1e-5, is_gamma=True)),
        "active upper bound": (train, low, replace(NORMALIZED, w_max=1.5)),
        "least sum": (train, low + 40, NORMALIZED),
        "64 nodes": (train, low, replace(NORMALIZED, quantile=0.2)),
        "narrow kernel": (train, high, replace(NORMALIZED, quantile=0.02)),
    }


def posed(train, validation, rule):
    z, v = (torch.tensor(values)[None, :, None] for values in (train, validation))
    return pose(z, v, gamma_of(z, rule), w_max=rule.w_max, reg=rule.reg)


def bounds(rule):
    return BoxSlab(np.full(N, rule.w_max), np.sqrt(N), 2 * N - np.sqrt(N))


@cache
def oracle(name):
    """The kernel, the linear term and the optimal objective of a problem."""
    train, validation, rule = problems()[name]
    problem = posed(train, validation, rule)
    kernel, linear = problem.kernel[0].numpy(), problem.linear[0].numpy()
    # Written out once more, so that a mistake in posing the problem cannot agree with itself.
    gamma = gamma_of(torch.tensor(train)[None, :, None], rule).item()
    assert kernel == pytest.approx(np.exp(-gamma * (train[:, None] - train) ** 2) + rule.reg * np.eye(N), rel=1e-12)
    assert linear == pytest.approx(N / M * np.exp(-gamma * (train[:, None] - validation) ** 2).sum(axis=1), rel=1e-12)
    _, certificate = solve_box_slab(kernel, linear, bounds(rule), 1e-10)
    assert certificate.solved
    return kernel, linear, certificate.objective


def by_numba(train, validation, rule):
    pytest.importorskip("numba", reason="numba is not installed; losses are matched by PyTorch alone")
    assert choice.HAS_NUMBA
    return match_losses(torch.tensor(train), torch.tensor(validation), rule).numpy()


def by_dense(train, validation, rule):
    problem = posed(train, validation, rule)
    return (solve_as_cvxopt if rule.as_cvxopt else solve)(problem)[0].numpy()


def by_piqp(train, validation, rule):
    problem = posed(train, validation, rule)
    return solve_box_slab(problem.kernel[0].numpy(), problem.linear[0].numpy(), bounds(rule), 1e-8)[0]


def by_low_rank(train, validation, rule):
    problem = posed(train, validation, rule)
    values, vectors = np.linalg.eigh(problem.kernel[0].numpy() - rule.reg * np.eye(N))
    factor = vectors * np.sqrt(np.maximum(values, 0))
    start = np.full(N, min(1.0, rule.w_max / 2))
    reg, linear = np.full(N, rule.reg), problem.linear[0].numpy()  # the tolerance is the default of KMM
    x, certificate = solve_box_slab_low_rank(factor, reg, linear, bounds(rule), start, tol=1e-6)
    assert certificate.solved
    return x


def as_cvxopt(solver):
    return lambda train, validation, rule: solver(train, validation, replace(rule, as_cvxopt=True))


CPU_SOLVERS = {
    "numba, line": by_numba,
    "numba, line as cvxopt": as_cvxopt(by_numba),
    "PyTorch, dense": by_dense,
    "PyTorch, dense as cvxopt": as_cvxopt(by_dense),
    "piqp": by_piqp,
    "low-rank interior point": by_low_rank,
}
TRITON_SOLVERS = ("Triton, line", "Triton, line as cvxopt", "Triton, class")

# Triton reads TRITON_INTERPRET when it is imported, which another test may have done in this process.
PROGRAM = """
import sys
import torch
from steelyard.deep._matching.triton_kernels import match_classes, match_lines

found = {}
for name, (train, validation, settings, narrowest) in torch.load(sys.argv[1]).items():
    for as_cvxopt in (False, True):
        weights = match_lines(train[None], validation[None], narrowest=narrowest, as_cvxopt=as_cvxopt, **settings)
        found["Triton, line" + " as cvxopt" * as_cvxopt, name] = weights[0]
    everyone = (torch.ones(1, len(values), dtype=torch.bool) for values in (train, validation))
    found["Triton, class", name] = match_classes(train[:, None], validation[:, None], *everyone, **settings)[0]
torch.save(found, sys.argv[2])
"""


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """Weights of all problems by the Triton kernels, in Triton's interpreter."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed; the GPU kernels need it")
    folder = tmp_path_factory.mktemp("triton")
    given = {}
    for name, (train, validation, rule) in problems().items():
        settings = {"quantile": rule.quantile, "is_gamma": rule.is_gamma, "w_max": rule.w_max, "reg": rule.reg}
        given[name] = torch.tensor(train), torch.tensor(validation), settings, rule.narrowest
    torch.save(given, folder / "given")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, folder / "given", folder / "found"],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    return torch.load(folder / "found")


@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize("solver", [*CPU_SOLVERS, *TRITON_SOLVERS])
def test_every_solver_reaches_the_certified_optimum(solver, name, request):
    train, validation, rule = problems()[name]
    if solver in TRITON_SOLVERS:
        weights = request.getfixturevalue("interpreted")[solver, name].numpy()
    else:
        weights = CPU_SOLVERS[solver](train, validation, rule)
    kernel, linear, optimum = oracle(name)
    assert weights.shape == (N,)
    assert weights.min() >= -1e-9
    assert weights.max() <= rule.w_max + 1e-9
    assert np.sqrt(N) * (1 - 1e-7) <= weights.sum() <= (2 * N - np.sqrt(N)) * (1 + 1e-7)
    gap = (0.5 * weights @ kernel @ weights - linear @ weights - optimum) / max(1, abs(optimum))
    assert abs(gap) <= 1e-6


def test_the_problems_reach_what_they_are_named_for():
    """The bound and the least sum are active, and the narrow kernel is left to the dense solver by numba."""
    bounded, least = (by_dense(*problems()[name]) for name in ("active upper bound", "least sum"))
    assert (bounded > 1.5 - 1e-4).sum() >= 5
    assert least.sum() == pytest.approx(np.sqrt(N), rel=1e-6)
    pytest.importorskip("numba", reason="numba is not installed; losses are matched by PyTorch alone")
    from steelyard.deep._matching.line import match

    for name, (train, validation, rule) in problems().items():
        gamma = gamma_of(torch.tensor(train)[None, :, None], rule).item()
        _, solved = match(train, validation, gamma, rule.w_max, rule.reg, False)
        assert solved == (name != "narrow kernel")


def test_the_first_compilation_is_logged_once():
    """In a process of its own, where nothing is compiled yet."""
    pytest.importorskip("numba", reason="numba is not installed; losses are matched by PyTorch alone")
    program = """
import logging, torch
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
from steelyard.deep._matching.choice import MatchingRule, match_losses
for _ in range(2):
    match_losses(torch.linspace(0, 1, 8), torch.linspace(0, 1, 5), MatchingRule(10.0, 1e-3, True, 0.5, False, False))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert [line for line in said.splitlines() if line.startswith("steelyard: ")] == [
        "steelyard: numba compiles the matching of losses, once in a process; it keeps the result in its cache"
    ]
