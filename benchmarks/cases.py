"""The cases: which contestants meet on which data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk

from benchmarks import contestants as c
from benchmarks.contestants import Contestant
from benchmarks.measure import Row, interleaved, peak_memory, say
from benchmarks.problems import gaussians, median_width
from steelyard._numerics.kernels import squared_distances


def task(contestant: Contestant) -> Callable[[int, int], Callable[[], Any]]:
    """The contestant as a task for a fresh process: imports and data first, then what is measured."""

    def make(n: int, d: int) -> Callable[[], Any]:
        data, width = gaussians(n, d), median_width(n, d)
        small = gaussians(60, d)
        contestant.run(*small, width)
        return lambda: contestant.run(*data, width)

    return make


STEELYARD_KMM = Contestant("Steelyard", c.steelyard_kmm(1e-3), c.kmm_excess(1e-3))
STEELYARD_KMM_PLAIN = Contestant("Steelyard", c.steelyard_kmm(0.0), c.kmm_excess(0.0))
PIQP = Contestant("piqp", c.piqp_kmm, c.kmm_excess(1e-3))
CVXOPT = Contestant("cvxopt", c.cvxopt_kmm, c.kmm_excess(1e-3))
ADAPT_UNSPLIT = Contestant("ADAPT, unsplit", c.adapt_kmm(True), c.kmm_excess(0.0))
ADAPT_SPLIT = Contestant("ADAPT, default (splits)", c.adapt_kmm(False), c.kmm_excess(0.0))
SKADA = Contestant("skada", c.skada_kmm, c.kmm_excess(0.0))
KLIEPS = [
    Contestant("Steelyard", c.steelyard_kliep, c.kliep_gap),
    Contestant("densratio", c.densratio_kliep, c.kliep_gap),
    Contestant("ADAPT", c.adapt_kliep, c.kliep_gap),
]

TASKS: dict[str, Callable[[int, int], Callable[[], Any]]] = {
    "rulsif float64": task(c.RULSIF_OURS[0]),
    "rulsif float32": task(c.RULSIF_OURS[1]),
    "rulsif densratio": task(c.RULSIF_PEERS[0]),
    "kmm": task(STEELYARD_KMM),
    "stream": lambda n, d: lambda: c.stream_ulsif(n),
}


def rulsif(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for n, repeats in ((1000, 7), (10_000, 1)) if not quick else ((300, 2),):
        contestants = [*c.RULSIF_OURS, *c.RULSIF_PEERS]
        found = interleaved(
            "RuLSIF, 9×9, exact leave-one-out", contestants, gaussians(n, 5), median_width(n, 5), repeats
        )
        for row, name in zip(found, ("rulsif float64", "rulsif float32", "rulsif densratio"), strict=True):
            row.peak_mb, _ = peak_memory(name, n, 5)
        rows += found
    return rows


def rulsif_scaling(quick: bool) -> list[Row]:
    sizes = (1000, 3162, 10_000, 31_623, 100_000) if not quick else (300, 1000)
    rows: list[Row] = []
    for n in sizes:
        rows += interleaved("RuLSIF, time against n", c.RULSIF_OURS[:1], gaussians(n, 5), median_width(n, 5), 3)
    slope = np.polyfit(np.log([r.n for r in rows]), np.log([r.cpu_seconds or np.nan for r in rows]), 1)[0]
    rows[-1].note = f"fitted exponent {slope:.2f}"
    return rows


def kmm(quick: bool) -> list[Row]:
    rounds: list[tuple[int, int, list[Contestant], str]] = [
        (1000, 7, [STEELYARD_KMM, PIQP, CVXOPT], "KMM, ridge 0.001"),
        (3000, 1, [STEELYARD_KMM_PLAIN, ADAPT_UNSPLIT], "KMM, no ridge"),
        (10_000, 1, [STEELYARD_KMM_PLAIN, ADAPT_SPLIT, SKADA], "KMM, no ridge"),
    ]
    if quick:
        rounds = [(500, 2, [STEELYARD_KMM, PIQP], "KMM, ridge 0.001")]
    rows: list[Row] = []
    for n, repeats, contestants, case in rounds:
        found = interleaved(case, contestants, gaussians(n, 5), median_width(n, 5), repeats)
        say_gaps(found, c.shift_over_norm(*gaussians(n, 5), median_width(n, 5)))
        rows += found
    n = 10**6 if not quick else 20_000
    peak, seconds = peak_memory("kmm", n, 2)
    say(f"  KMM n={n} d=2: {seconds} s, {peak} MB")
    rows.append(Row("KMM, ridge 0.001", n, 2, "Steelyard", seconds, peak_mb=peak, repeats=1))
    return rows


def say_gaps(rows: list[Row], shift: float) -> None:
    """Beside the share of MMD² that is left: how far the objective is from the best one of the case, relatively."""
    reached = [row.quality for row in rows if row.quality is not None]
    for row in rows:
        if row.quality is not None:
            gap = (row.quality - min(reached)) * shift / (1 - min(reached) * shift)
            row.note = f"objective {gap:.0e} above the best of the case" if gap > 0 else "best objective of the case"


def kliep(quick: bool) -> list[Row]:
    n, repeats = (2000, 3) if not quick else (300, 1)
    contestants = KLIEPS if not quick else KLIEPS[:2]
    return interleaved("KLIEP, 9 widths, 5 folds", contestants, gaussians(n, 5), median_width(n, 5), repeats)


def stream(quick: bool) -> list[Row]:
    n = 10**7 if not quick else 100_000
    peak, seconds = peak_memory("stream", n, 10, timeout=3000)
    row = Row("uLSIF from blocks, 9×9, 5 folds", n, 10, "Steelyard", seconds, peak_mb=peak, repeats=1)
    if seconds is not None:
        unit = _exp_and_rank_update()
        row.note = (
            f"{seconds / n / 9 * 1e9:.0f} ns per row and width, {seconds / n / 9 / unit:.2f} × one exp and rank update"
        )
    say(f"  stream: {row}")
    return [row]


def _exp_and_rank_update() -> float:
    """Seconds per row for one exponential and one rank update of a block of 512 rows by 100 centers."""
    rows = np.random.default_rng(0).standard_normal((512, 10))
    distances = squared_distances(rows, rows[:100])
    kernel, total = np.empty_like(distances), np.zeros((100, 100), order="F")
    start = time.process_time()
    for _ in range(2000):
        np.multiply(distances, -0.5, out=kernel)
        np.exp(kernel, out=kernel)
        dsyrk(1.0, kernel.T, beta=1.0, c=total, overwrite_c=1)
    return (time.process_time() - start) / 2000 / 512


ONESTEP = [
    Contestant("Steelyard", c.steelyard_onestep, c.onestep_error),
    Contestant("scikit-learn's Ridge", c.sklearn_ridge, c.ridge_error),
]


def onestep(quick: bool) -> list[Row]:
    """A fit at fixed settings beside a ridge fit on the same features, which are made before the clock starts."""
    rows: list[Row] = []
    sizes = (10_000, 20_000, 40_000) if not quick else (300, 600)
    for n in sizes:
        width = median_width(n, 5)
        c.ridge_features(n, 5, width)
        found = interleaved("one-step, fixed settings, 50 Gaussians", ONESTEP, gaussians(n, 5), width, 5)
        found[0].note = f"{1 / (found[1].times_ours or np.nan):.1f} × the ridge fit"
        if rows:
            found[0].note += f", {(found[0].cpu_seconds or 0) / (rows[-2].cpu_seconds or np.nan):.2f} × half the rows"
        rows += found
    return rows


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "rulsif": rulsif,
    "rulsif_scaling": rulsif_scaling,
    "kmm": kmm,
    "kliep": kliep,
    "stream": stream,
    "onestep": onestep,
}
