"""A GPU beside one CPU core, in one run: ``python -m benchmarks.gpu --out results/benchmarks/gpu_h200.md``.

RuLSIF with the full default grid (9 widths × 9 regs × 5 folds, 100 centers) on 10⁷ × 10, and KMM on 10⁶ × 2. First
the answers are compared: at 20,000 rows the scores of a grid against sums written out in NumPy, and the objective of
KMM with the exact kernel matrix against that of the NumPy way. Data are made on the device from a seed. A time is that
of a whole ``fit`` of tables that are there already: the best of some repeats on the device, one run on the core, which
has one BLAS thread. The core has a tenth of RuLSIF's rows unless ``--full``; that time is proportional to the rows.

``--device cpu`` with few rows shows that it runs. ``--out`` is a file, or a folder for gpu.md.
"""

from __future__ import annotations

import argparse
import platform
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from steelyard import KMM, RULSIF
from steelyard.ratio import _device

N_FOLDS = 5
START = time.perf_counter()


class Page:
    """What was measured so far: written anew with every line, so that a run that is cut short leaves something."""

    def __init__(self, out: Path | None) -> None:
        self.path = out / "gpu.md" if out is not None and (out.is_dir() or not out.suffix) else out
        self.lines: list[str] = []

    def add(self, *lines: str) -> None:
        self.lines += lines
        for line in lines:
            print(f"[{time.perf_counter() - START:7.1f} s] {line}", flush=True)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("\n".join(self.lines) + "\n", "utf-8")


def progress(text: str) -> None:
    print(f"[{time.perf_counter() - START:7.1f} s] … {text}", flush=True)


def tables(n: int, d: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal source rows, and target rows of another mean and a smaller spread, in double precision."""
    random = torch.Generator(device).manual_seed(n + d)
    source, target = (torch.randn(n, d, generator=random, dtype=torch.float64, device=device) for _ in range(2))
    return source, target.mul_(0.8).add_(0.5 / d**0.5)


def fit_on_device(estimator: Any, source: torch.Tensor, target: torch.Tensor) -> Any:
    """The public fit where the device is a GPU; elsewhere the same code, which the public fit would not take."""
    if source.device.type == "cuda":
        estimator.fit(source, target=target)
        torch.cuda.synchronize()
    else:
        _device.fit(estimator, source, target)
    assert estimator.weights_.device == source.device
    assert estimator.weights_.dtype == source.dtype
    return estimator


def seconds_on_device(estimator: Any, source: torch.Tensor, target: torch.Tensor, repeats: int) -> tuple[float, str]:
    """The best of some fits, after one of a part of the rows that loads what is needed; and the memory it takes."""
    some = min(len(source), 200_000)
    fit_on_device(estimator, source[:some], target[:some])
    if source.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        fit_on_device(estimator, source, target)
        times.append(time.perf_counter() - start)
    progress(f"{type(estimator).__name__} {source.dtype}: {', '.join(f'{t:.3f}' for t in times)} s")
    peak = f"{(torch.cuda.max_memory_allocated() - before) / 2**30:.1f} GiB" if source.device.type == "cuda" else "–"
    return min(times), peak


def seconds_on_core(estimator: Any, source: torch.Tensor, target: torch.Tensor) -> float:
    """One fit of arrays by NumPy; RuLSIF from blocks, that is with the same five folds and the same sums."""
    X, T = source.cpu().numpy(), target.cpu().numpy()
    start = time.perf_counter()
    if isinstance(estimator, KMM):
        estimator.fit(X, target=T)
    else:
        estimator.fit([X], target=[T])
    return time.perf_counter() - start


def written_out(X: np.ndarray, T: np.ndarray, centers: np.ndarray, widths: Any, regs: Any, eta: float) -> np.ndarray:
    """The scores of the grid from their definition, in NumPy alone."""
    scores = np.zeros((len(widths), len(regs)))
    folds = [np.arange(len(table)) % N_FOLDS for table in (X, T)]
    for w, width in enumerate(widths):
        kernels = [np.exp(-np.square(t[:, None] - centers).sum(axis=2) / (2 * width**2)) for t in (X, T)]
        for f in range(N_FOLDS):
            a, t = (kernel[fold != f] for kernel, fold in zip(kernels, folds, strict=True))
            held_a, held_t = (kernel[fold == f] for kernel, fold in zip(kernels, folds, strict=True))
            second = (1 - eta) * a.T @ a / len(a) + eta * t.T @ t / len(t)
            for r, reg in enumerate(regs):
                coef = np.maximum(np.linalg.solve(second + reg * np.eye(len(centers)), t.mean(axis=0)), 0)
                g, h = held_a @ coef, held_t @ coef
                scores[w, r] += (1 - eta) * np.mean(g**2) / 2 + eta * np.mean(h**2) / 2 - np.mean(h)
    return scores / N_FOLDS


def rulsif_agreement(n: int, d: int, device: str, dtype: torch.dtype) -> float:
    """Largest relative difference of a score between the device and NumPy."""
    X, T = tables(n, d, device)
    centers = T[:100].cpu().numpy() * 1.01  # not rows themselves, so that no center is held out
    width = float(np.sqrt(2 * d))
    widths, regs = [width * 2 ** (k / 2) for k in (2, 0, -2, -3)], [10.0, 0.1, 0.001]
    ratio = RULSIF(0.1, width=widths, reg=regs, centers=centers, standardize=False, random_state=0)
    _device.fit(ratio, X.to(dtype), T.to(dtype))
    truth = written_out(X.cpu().numpy(), T.cpu().numpy(), centers, ratio.widths_, ratio.regs_, 0.1)
    return float(np.max(np.abs(ratio.scores_ - truth) / np.abs(truth)))


def kmm_agreement(n: int, d: int, device: str) -> tuple[float, float]:
    """Relative difference of the objectives with the exact kernel matrix, and how far one may exceed the optimum."""
    X, T = tables(n, d, device)
    settings = {"width": float(np.sqrt(2 * d)), "standardize": False, "random_state": 0}
    fast, plain = KMM(**settings), KMM(**settings).fit(X.cpu().numpy(), target=T.cpu().numpy())
    _device.fit(fast, X, T)
    W = torch.stack([k * raw for k, raw in ((fast.weights_, fast.raw_mean_), (to(plain.weights_, X), plain.raw_mean_))])
    square, linear = torch.zeros(2, dtype=W.dtype, device=device), torch.zeros(2, dtype=W.dtype, device=device)
    for i in range(0, n, 1000):
        rows = X[i : i + 1000]
        square += (W[:, i : i + 1000] @ torch.exp(-(torch.cdist(rows, X) ** 2) / (4 * d)) * W).sum(dim=1)
        linear += W[:, i : i + 1000] @ torch.exp(-(torch.cdist(rows, T) ** 2) / (4 * d)).mean(dim=1)
    objective = (square + 1e-3 * (W * W).sum(dim=1)) / 2 - n * linear
    return float(abs(objective[0] / objective[1] - 1)), fast.certificate_.truncation_cost


def to(values: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(values, device=like.device)


def row(job: str, rows: int, d: int, precision: str, where: str, spent: float, times: str, note: str) -> str:
    return f"| {job} | {rows:,} × {d} | {precision} | {where} | {spent:.3f} | {times} | {note} |"


def rulsif(page: Page, options: Any) -> None:
    n, d, device = options.rows, options.columns, options.device
    X, T = tables(n, d, device)
    spent, peak = seconds_on_device(RULSIF(random_state=0), X, T, options.repeats)
    single, single_peak = seconds_on_device(RULSIF(random_state=0), X.float(), T.float(), options.repeats)
    page.add(row("RuLSIF", n, d, "float64", device, spent, "", f"{peak} of working memory"))
    page.add(row("RuLSIF", n, d, "float32", device, single, "", f"{single_peak} of working memory"))
    for on_core in sorted({min(n, options.cpu_rows), n} if options.full else {min(n, options.cpu_rows)}):
        progress(f"RuLSIF on one core, {on_core:,} rows")
        core = seconds_on_core(RULSIF(random_state=0), X[:on_core], T[:on_core])
        ratios = f"{core * n / on_core / spent:.0f}; float32 {core * n / on_core / single:.0f}"
        note = "measured at these rows" if on_core == n else f"at {n:,} rows, by proportion: {core * n / on_core:.1f} s"
        page.add(row("RuLSIF", on_core, d, "float64", "one core", core, ratios, note))


def kmm(page: Page, options: Any) -> None:
    n, d, device = options.kmm_rows, options.kmm_columns, options.device
    X, T = tables(n, d, device)
    fast, plain = KMM(random_state=0), KMM(random_state=0)
    spent, peak = seconds_on_device(fast, X, T, options.repeats)
    page.add(row("KMM", n, d, "float64", device, spent, "", f"{proof(fast)}; {peak} of working memory"))
    progress(f"KMM on one core, {n:,} rows")
    core = seconds_on_core(plain, X, T)
    page.add(row("KMM", n, d, "float64", "one core", core, f"{core / spent:.1f}", proof(plain)))


def proof(fit: Any) -> str:
    c = fit.certificate_
    size = f"ESS {fit.effective_sample_size_:,.0f}"
    return f"gap {c.gap:.0e}, rank {c.rank}, {c.n_iter} iterations, truncation ≤ {c.truncation_cost:.0e}, {size}"


def agreement(page: Page, options: Any) -> None:
    n = options.check_rows
    progress(f"comparing answers at {n:,} rows")
    double, single = (
        rulsif_agreement(n, options.columns, options.device, dtype) for dtype in (torch.float64, torch.float32)
    )
    page.add(f"RuLSIF at {n:,} rows: scores differ from NumPy by {double:.0e} (float64), {single:.0e} (float32).", "")
    difference, cost = kmm_agreement(n, options.kmm_columns, options.device)
    page.add(
        f"KMM at {n:,} rows: the objective differs from that of the NumPy way by {difference:.0e} "
        f"(certified: at most {cost:.0e} above the optimum).",
        "",
    )
    if not max(double, difference) <= 1e-6:
        page.add("**The answers differ by more than 1e-6.**", "")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of each table for RuLSIF")
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--kmm-rows", type=int, default=1_000_000)
    parser.add_argument("--kmm-columns", type=int, default=2)
    parser.add_argument("--cpu-rows", type=int, default=1_000_000, help="rows for RuLSIF on one core")
    parser.add_argument("--check-rows", type=int, default=20_000, help="rows at which the answers are compared")
    parser.add_argument("--full", action="store_true", help="RuLSIF on one core with all rows, too")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    page = Page(options.out)
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "a CPU"
    page.add(
        f"# {device} beside one core of {processor()}",
        "",
        " ".join((__doc__ or "").split("\n\n")[1].split()),
        "",
        f"Python {platform.python_version()}, PyTorch {torch.__version__}, NumPy {np.__version__}.",
        "",
    )
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = ("| job | rows | precision | where | s | times | |", "|---|--:|---|---|--:|--:|---|")
        failed = [not run(agreement, page, options)]
        page.add(*head)
        failed += [not run(job, page, options) for job in (rulsif, kmm)]
    progress("done")
    if any(failed):
        raise SystemExit(1)


def run(job: Any, page: Page, options: Any) -> bool:
    """A job; where it fails the page says so, and the next one has its turn."""
    try:
        job(page, options)
    except Exception as error:
        traceback.print_exc()
        page.add("", f"**{job.__name__} failed: {type(error).__name__}: {str(error).splitlines()[0]}**", "")
        return False
    return True


def processor() -> str:
    """The name of the CPU where Linux says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
