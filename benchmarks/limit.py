"""How far RuLSIF is from the arithmetic: ``python -m benchmarks.limit``.

Counts the operations of one fit (9 widths × 9 regs, exact leave-one-out, b = 100, d = 5), measures what this machine
needs for them in the same run (matrix products of a block's shape, exponentials, eigendecompositions, plain passes
over a block), and sets the sum beside the time of the fit. One BLAS thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import median_width
from benchmarks.contestants import gaussians, steelyard_rulsif
from steelyard._threads import one_blas_thread
from steelyard.ratio import _leave_one_out as module

B, WIDTHS, REGS = 100, 9, 9


def seconds(run: Callable[[], Any], repeats: int) -> float:
    run()
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


def count_coefficients(n: int, dtype: Any) -> tuple[int, int]:
    """Coefficients, per row, that had to be computed, summed over the grid and the blocks; and grid points skipped."""
    rows = points = 0
    original = module.RegularizedInverse.back

    def counting(self: Any, reg: int, centers: Any) -> Any:
        nonlocal rows, points
        rows, points = rows + len(centers), points + 1
        return original(self, reg, centers)

    module.RegularizedInverse.back = counting  # type: ignore[method-assign]
    try:
        fit(n, dtype)
    finally:
        module.RegularizedInverse.back = original  # type: ignore[method-assign]
    blocks = -(-n // module.PAIR_BLOCK)
    return rows // blocks, WIDTHS * REGS - points // blocks


def fit(n: int, dtype: Any) -> Any:
    source, target = gaussians(n, 5, dtype)
    return steelyard_rulsif(source, target, median_width(n, 5))


def limit(n: int, dtype: Any) -> str:
    rng = np.random.default_rng(0)
    m = module.PAIR_BLOCK
    square, block = rng.random((B, B)).astype(dtype), rng.random((B, m)).astype(dtype)
    out = np.empty_like(block)
    flop = seconds(lambda: np.matmul(square, block, out=out), 500) / (2 * B * B * m)
    exp = seconds(lambda: np.exp(-block, out=out), 500) / block.size
    step = seconds(lambda: np.add(block, block, out=out), 500) / block.size
    eigh = seconds(lambda: np.linalg.eigh(np.eye(B) + square.astype(np.float64) @ square.T), 20)
    per_row, skipped = count_coefficients(n, dtype)
    exps = 1 if dtype == np.float64 else 5  # single precision takes a fresh one every other width
    parts = {
        "sums H and h (two tables, half a product each)": 2 * WIDTHS * B * B * n * flop,
        "turning into the eigenbasis (two tables)": 2 * WIDTHS * 2 * B * B * n * flop,
        f"coefficients that may be negative ({per_row / (WIDTHS * REGS * B):.0%} of all)": per_row * 2 * B * n * flop,
        "exponentials (two passes, two tables)": 4 * exps * B * n * exp,
        "eigendecompositions": WIDTHS * eigh,
        "five passes over each block that is left": 5 * per_row * n * step,
    }
    total = sum(parts.values())
    spent = min(seconds(lambda: fit(n, dtype), 1) for _ in range(3))
    lines = [f"| {name} | {value:.3f} |" for name, value in parts.items()]
    return (
        f"## n = {n:,}, {np.dtype(dtype).name}\n\n| operation | s |\n|---|--:|\n" + "\n".join(lines) + "\n"
        f"| **sum: the limit** | **{total:.3f}** |\n| the fit | {spent:.3f} |\n\n"
        f"The fit takes {spent / total:.1f} × the limit. {skipped} of {WIDTHS * REGS} grid points needed no "
        f"coefficient at all. Products ran at {1e-9 / flop:.0f} GFlop/s, an exponential took {exp * 1e9:.1f} ns.\n"
    )


if __name__ == "__main__":
    text = "# Distance of RuLSIF to the arithmetic\n\n" + (__doc__ or "").split("\n\n", 1)[1] + "\n"
    with one_blas_thread():
        text += "\n".join(limit(n, dtype) for n in (1000, 10_000) for dtype in (np.float64, np.float32))
    folder = Path(__file__).parent.parent / "results" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "limit.md").write_text(text)
    print(text)
