"""The Triton kernels in Triton's interpreter, without a GPU, against the dense solver; and compiled for a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")
pytest.importorskip("triton", reason="Triton is not installed; the GPU kernels need it")

from steelyard.deep._matching.dense import pose, solve, solve_as_cvxopt

NORMALIZED = {"quantile": 0.5, "is_gamma": False, "w_max": 50.0, "reg": 1e-3}
WIDE = {"quantile": 0.01, "is_gamma": True, "w_max": 50.0, "reg": 1e-5}

# Triton reads TRITON_INTERPRET when it is imported, which another test may have done in this process.
PROGRAM = """
import sys
import torch
from steelyard.deep._matching import triton_kernels as kernel
calls = torch.load(sys.argv[1])
torch.save([getattr(kernel, name)(*tensors, **settings) for name, tensors, settings in calls], sys.argv[2])
"""


def interpreted(tmp_path, *calls):
    """What functions of the module return for (name, tensors, settings)."""
    torch.save(list(calls), tmp_path / "calls")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "calls", tmp_path / "returned"],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=120,
    )
    return torch.load(tmp_path / "returned")


def losses(seed, n, m, count=2):
    """Learned and mislabeled rows; in every other batch all validation losses are large."""
    rng = np.random.default_rng(seed)
    train = np.where(
        rng.random((count, n)) < 0.6, rng.gamma(1, 0.5, (count, n)), np.abs(rng.normal(4, 1.3, (count, n)))
    )
    validation = np.where(
        np.arange(count)[:, None] % 2, np.abs(rng.normal(6, 1, (count, m))), rng.gamma(1, 0.5, (count, m))
    )
    return torch.tensor(train), torch.tensor(validation)


def of_lines(batch, settings, narrowest=0.0):
    return "match_lines", batch, {"as_cvxopt": False, "narrowest": narrowest} | settings


def gamma_of(rows, quantile, is_gamma, narrowest=0.0):
    distances = torch.pdist(rows.double())
    found = np.quantile(distances, quantile) if len(distances) else 1.0
    if narrowest:
        found = max(found, narrowest * float(distances.max()))
    return found if is_gamma else 0.5 / found**2 if found > 0 else 0.5


def assert_optimal(weights, train, validation, *, quantile, is_gamma, w_max, reg, narrowest=0.0):
    """Weights of the rows of one problem, (n, d) and (m, d); the gap is relative to 1 where the objective is less."""
    gamma = torch.tensor([gamma_of(train, quantile, is_gamma, narrowest)])
    problem = pose(train[None], validation[None], gamma, w_max=w_max, reg=reg)
    n = len(train)
    assert weights.dtype == torch.float64
    assert weights.min() >= 0
    assert weights.max() <= w_max
    assert np.sqrt(n) * (1 - 1e-9) <= weights.sum() <= (2 * n - np.sqrt(n)) * (1 + 1e-9)
    ours, theirs = (0.5 * w @ problem.kernel[0] @ w - problem.linear[0] @ w for w in (weights, solve(problem)[0]))
    assert (ours - theirs) / max(1, abs(theirs)) <= 1e-6


def test_lines_reach_the_optimum(tmp_path):
    """Also with validation losses so far away that the sum is at its lower bound, and with float32."""
    train, validation = losses(0, 64, 48)
    validation[1] += 40
    cases = [((train, validation), settings) for settings in (WIDE, NORMALIZED)]
    cases.append((tuple(z.float() for z in losses(1, 50, 64)), NORMALIZED | {"w_max": 1.5}))
    found = interpreted(tmp_path, *(of_lines(batch, settings) for batch, settings in cases))
    for weights, ((train, validation), settings) in zip(found, cases, strict=True):
        for k in range(2):
            assert_optimal(weights[k], train[k, :, None], validation[k, :, None], **settings)


def test_weights_are_those_at_which_cvxopt_stops(tmp_path):
    """Starts inside and outside of the constraints; and without a factor the weights of `solve_as_cvxopt`."""
    stored = np.load(Path(__file__).parent / "cvxopt_weights.npz")
    batches = [[torch.tensor(stored[f"{name}{k}"])[None] for name in ("train", "validation")] for k in (3, 4, 5)]
    narrow, as_cvxopt = losses(7, 60, 64), {"as_cvxopt": True}
    calls = [of_lines(batch, WIDE | as_cvxopt) for batch in batches]
    *found, dense = interpreted(tmp_path, *calls, of_lines(narrow, NORMALIZED | {"quantile": 0.02} | as_cvxopt))
    for k, weights in zip((3, 4, 5), found, strict=True):
        np.testing.assert_allclose(weights[0], stored[f"weights{k}"], atol=2e-3)
    for weights, train, validation in zip(dense, *narrow, strict=True):
        gamma = torch.tensor([gamma_of(train[:, None], 0.02, False)])
        posed = pose(train[None, :, None], validation[None, :, None], gamma, w_max=50.0, reg=1e-3)
        np.testing.assert_allclose(weights, solve_as_cvxopt(posed)[0], atol=1e-4)


@pytest.mark.parametrize("quantile", [0.2, 0.02], ids=["64 nodes", "dense"])
def test_narrow_kernels_reach_the_optimum(tmp_path, quantile):
    settings = NORMALIZED | {"quantile": quantile}
    train, validation = losses(2, 60, 64)
    validation[1] += 40
    (weights,) = interpreted(tmp_path, of_lines((train, validation), settings))
    assert weights[1].sum().item() == pytest.approx(np.sqrt(60), rel=1e-6)
    for k in range(2):
        assert_optimal(weights[k], train[k, :, None], validation[k, :, None], **settings)


def test_a_width_is_at_least_a_share_of_the_range(tmp_path):
    """Of most losses next to nothing and a few large ones; where the median is wider, it stays."""
    rng = np.random.default_rng(5)
    few = torch.tensor(np.where(rng.random((1, 60)) < 0.9, rng.gamma(1, 1e-4, (1, 60)), rng.gamma(2, 1, (1, 60))))
    validation = torch.tensor(rng.gamma(1, 0.5, (1, 40)))
    batches = (few, validation), losses(6, 60, 40, 1)
    found = interpreted(tmp_path, *(of_lines(batch, NORMALIZED, 1 / 8) for batch in batches))
    for weights, (train, validation) in zip(found, batches, strict=True):
        assert_optimal(weights[0], train[0, :, None], validation[0, :, None], **NORMALIZED, narrowest=1 / 8)
    assert gamma_of(few.T, 0.5, False, 1 / 8) < 1e-4 * gamma_of(few.T, 0.5, False)
    assert gamma_of(batches[1][0].T, 0.5, False, 1 / 8) == gamma_of(batches[1][0].T, 0.5, False)


def test_gamma_is_the_quantile_of_the_distances(tmp_path):
    train, _ = losses(1, 41, 1, 3)
    train[1] = (4 * train[1]).round() / 4  # ties
    train[2] *= 1e-7
    more, _ = losses(4, 300, 1, 1)  # more distances than are held at once
    cases = [(train, 0.0), (train, 0.01), (train, 0.5), (train, 1.0), (more, 0.3)]
    calls = [("_gammas", (z, None), {"quantile": q, "is_gamma": True, "narrowest": 0.5}) for z, q in cases]
    for (z, quantile), found in zip(cases, interpreted(tmp_path, *calls), strict=True):
        np.testing.assert_allclose(found, [gamma_of(row[:, None], quantile, True) for row in z], rtol=1e-6)


def test_losses_that_are_all_the_same_and_single_ones_and_nan(tmp_path):
    same, one, validation = torch.full((1, 20), 0.3), torch.tensor([[0.3]]), torch.tensor([[0.1, 0.2]])
    train, validations = losses(2, 32, 32, 3)
    train[0, 3], validations[1, 5] = torch.nan, torch.nan
    batches = (same, validation), (one, validation), (train, validations)
    as_cvxopt = NORMALIZED | {"as_cvxopt": True}
    calls = [of_lines(batch, settings) for settings in (NORMALIZED, as_cvxopt) for batch in batches]
    of_same, of_one, of_nan, *stopped = interpreted(tmp_path, *calls)
    assert_optimal(of_same[0], same.T, validation.T, **NORMALIZED)
    assert_optimal(stopped[0][0], same.T, validation.T, **NORMALIZED)
    assert of_one.item() == stopped[1].item() == 1
    assert of_nan[:2].isnan().all()
    assert stopped[2][:2].isnan().all()
    assert stopped[2][2].isfinite().all()
    assert_optimal(of_nan[2], train[2, :, None], validations[2, :, None], **NORMALIZED)


def test_classes_reach_the_optimum(tmp_path):
    rng = np.random.default_rng(3)
    sizes = 12, 34, 66, 1  # three sizes of matrices, and none
    labels = torch.tensor(rng.permutation(np.repeat(range(4), sizes)))
    validation_labels = torch.tensor(np.repeat(range(4), (9, 20, 8, 2)))
    train, validation = (torch.tensor(rng.normal(size=(len(y), 5))) + y[:, None] for y in (labels, validation_labels))
    validation += 0.5
    members, validation_members = (y == torch.arange(4)[:, None] for y in (labels, validation_labels))
    settings = WIDE | {"w_max": 1.5}
    (weights,) = interpreted(tmp_path, ("match_classes", (train, validation, members, validation_members), settings))
    assert not weights[~members].any()
    assert weights[3][members[3]].item() == 1
    for k in range(3):
        assert_optimal(weights[k][members[k]], train[members[k]], validation[validation_members[k]], **settings)


def test_classes_that_lack_rows_have_finite_weights(tmp_path):
    members = torch.tensor([[True] * 6, [False] * 6, [True] * 6])
    validation_members = torch.tensor([[False] * 4, [True] * 4, [True] * 4])
    rows = torch.arange(12.0).reshape(6, 2)
    (weights,) = interpreted(tmp_path, ("match_classes", (rows, rows[:4], members, validation_members), NORMALIZED))
    assert weights.isfinite().all()
    assert not weights[1].any()
    assert_optimal(weights[2], rows, rows[:4], **NORMALIZED)


COMPILE = """
import json
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from steelyard.deep._matching import triton_kernels as kernel

found = []

def compile_for_hopper(function, types, constants, n_warps):
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    constants = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": n_warps})
    ptx, cubin = made.asm["ptx"], made.asm["cubin"]
    target = next(line for line in ptx.splitlines() if line.startswith(".target"))
    entry = next(line for line in ptx.splitlines() if ".entry" in line)
    found.append({"name": function.__name__, "target": target, "entry": entry, "float64": ".f64" in ptx,
                  "magic": cubin[:4].hex(), "machine": int.from_bytes(cubin[18:20], "little")})

rule = {"quantile": 0.5, "is_gamma": False, "narrowest": 0.125, "N": 256}
losses = {"source": "*fp64", "gamma": "*fp64", "n": "i32"}
compile_for_hopper(kernel._find_gamma, losses, rule | {"member": None}, 32)
compile_for_hopper(kernel._find_gamma, losses | {"member": "*i8"}, rule | {"narrowest": 0.0}, 32)
names = ("train", "validation", "gamma", "node_root", "linear", "factors")
types = dict.fromkeys(names, "*fp64") | {"n": "i32", "m": "i32"}
compile_for_hopper(kernel._factor_line, types, {"N": 256, "M": 128}, 4)
names = ("train", "gamma", "linear", "factors", "weights", "scratch")
types = dict.fromkeys(names, "*fp64") | {"n": "i32"}
problem = {"w_max": 50.0, "reg": 1e-5, "is_narrow": False, "N": 256}
for as_cvxopt in (False, True):
    compile_for_hopper(kernel._match_line, types, problem | {"as_cvxopt": as_cvxopt}, 4)
print(json.dumps(found))
"""
ELF, NVIDIA = "7f454c46", 190  # the first bytes of an object file, and its number for CUDA


def test_kernels_compile_for_a_hopper_gpu(tmp_path):
    """To machine code, without a GPU: the interpreter accepts code that the compiler may reject."""
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**without, "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE]
    output = subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True).stdout
    found = json.loads(output)
    assert [made["name"] for made in found] == ["_find_gamma"] * 2 + ["_factor_line"] + ["_match_line"] * 2
    for made in found:
        assert made["target"].startswith(".target sm_90")
        assert made["name"] in made["entry"]
        assert made["float64"]
        assert (made["magic"], made["machine"]) == (ELF, NVIDIA)
