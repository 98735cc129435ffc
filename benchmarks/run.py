"""Run the benchmarks and write the table: ``python -m benchmarks.run [--quick] [--only CASE] [--threads N ...]``."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = (
    "steelyard",
    "numpy",
    "scipy",
    "scikit-learn",
    "piqp",
    "densratio",
    "skada",
    "adapt",
    "tensorflow",
    "cvxopt",
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--only", action="append", help="a case; may be given again")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="BLAS threads, one process for each number")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "benchmarks")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    rows = [row for threads in options.threads for row in run_with(threads, options)]
    options.out.mkdir(parents=True, exist_ok=True)
    write(rows, options)


def run_with(threads: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases in one process whose libraries see this many threads."""
    command = [sys.executable, "-m", "benchmarks.run", "--child"]
    command += ["--quick"] * options.quick + [word for name in options.only or [] for word in ("--only", name)]
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return [row | {"threads": threads} for row in json.loads(done.stdout.strip().splitlines()[-1])]


def child(options: argparse.Namespace) -> None:
    from benchmarks.cases import CASES
    from benchmarks.measure import as_dicts, say

    rows = []
    for name in options.only or CASES:
        say(name)
        rows += as_dicts(CASES[name](options.quick))
    print(json.dumps(rows))


def provenance(options: argparse.Namespace) -> list[str]:
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    commit = git.stdout.strip()
    with open("/proc/cpuinfo") as file:
        processor = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    return [
        f"`{' '.join(['python -m benchmarks.run', *sys.argv[1:]])}`, commit {commit}, "
        f"Python {platform.python_version()}, {processor}",
        ", ".join(versions),
    ]


def number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def write(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    with open(options.out / "results.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    header = (
        "| case | n | d | contestant | CPU s | × ours | peak MB | quality | note |\n"
        "|---|--:|--:|---|--:|--:|--:|--:|---|\n"
    )
    lines = [
        f"| {r['case']} | {r['n']:,} | {r['d']} | {r['contestant']} | {number(r['cpu_seconds'], '.3f')} | "
        f"{number(r['times_ours'], '.1f')} | {number(r['peak_mb'], '.0f')} | {number(r['quality'], '.3g')} | "
        f"{r['note']} |\n"
        for r in rows
    ]
    notes = (
        "\nCPU seconds are medians over interleaved repeats in one process; × ours is the median ratio within a repeat "
        "to the first contestant of the case; peak memory is over the start, in a process of its own. Quality, smaller "
        "is better: RuLSIF, J' on fresh rows; KMM, MMD² left as a share of MMD² without weights (ridge term included); "
        "KLIEP, duality gap of the likelihood at the contestant's own width and centres.\n\n"
    )
    text = "# Benchmarks\n\n" + header + "".join(lines) + notes + "\n\n".join(provenance(options)) + "\n"
    (options.out / "README.md").write_text(text)
    draw(rows, options.out / "time_against_n.png")
    print(text)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, method in zip(figure.subplots(1, 2), ("RuLSIF", "KMM"), strict=True):
        series: dict[str, list[tuple[int, float]]] = {}
        for r in rows:
            if r["case"].startswith(method) and r["cpu_seconds"] and r["d"] == 5:
                name = r["contestant"].split(",")[0] if "Steelyard" in r["contestant"] else r["contestant"]
                series.setdefault(name, []).append((r["n"], r["cpu_seconds"]))
        for name, points in sorted(series.items()):
            x, y = zip(*sorted(points), strict=True)
            ours = name.startswith("Steelyard")
            axes.loglog(x, y, "o-" if ours else "s--", label=name, linewidth=2 if ours else 1)
        axes.set(xlabel="rows in each domain (d = 5)", ylabel="CPU seconds", title=method)
        axes.legend(frameon=False, fontsize=8)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
