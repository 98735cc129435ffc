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
CASES = ("rulsif", "rulsif_scaling", "kmm", "kliep", "stream", "onestep")
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
    options.out.mkdir(parents=True, exist_ok=True)
    table = options.out / "results.csv"
    for threads in options.threads:
        for name in options.only or CASES:
            rows = [*kept(table, name, threads), *run_case(name, threads, options)]
            # Written after every case: a long run that is cut short leaves what it has.
            with open(table, "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
    report(table, options)


def kept(table: Path, name: str, threads: int) -> list[dict[str, Any]]:
    """Rows of an earlier run that this one does not measure again."""
    if not table.exists():
        return []
    with open(table, newline="") as file:
        return [r for r in csv.DictReader(file) if (r["group"], r["threads"]) != (name, str(threads))]


def run_case(name: str, threads: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One case in one process whose libraries see this many threads."""
    command = [sys.executable, "-m", "benchmarks.run", "--child", "--only", name] + ["--quick"] * options.quick
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    return [row | {"group": name, "threads": threads, "commit": commit()} for row in rows]


def child(options: argparse.Namespace) -> None:
    from benchmarks.cases import CASES as FUNCTIONS
    from benchmarks.measure import as_dicts, say

    (name,) = options.only
    say(name)
    print(json.dumps(as_dicts(FUNCTIONS[name](options.quick))))


def commit(folder: Path = HERE.parent) -> str:
    """The commit of a checkout; with a plus where its library has changes that are not in it."""
    command = ["git", "-C", str(folder)]
    name = subprocess.run([*command, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changes = subprocess.run([*command, "status", "--porcelain", "--", "src"], capture_output=True, text=True).stdout
    return f"{name}+" if changes.strip() else name


def machine() -> str:
    """The processor and the number of its cores: no names, no paths."""
    with open("/proc/cpuinfo") as file:
        processor = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    return f"{processor}, {os.cpu_count()} cores"


def provenance() -> list[str]:
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    with open("/proc/cpuinfo") as file:
        processor = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    return [
        f"Made by `make bench` (each row's commit is in results.csv), Python {platform.python_version()}, {processor}",
        ", ".join(versions),
    ]


def number(value: str, form: str) -> str:
    return "–" if not value else format(float(value), form)


def report(table: Path, options: argparse.Namespace) -> None:
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    header = (
        "| case | n | d | contestant | threads | CPU s | × ours | peak MB | quality | note |\n"
        "|---|--:|--:|---|--:|--:|--:|--:|--:|---|\n"
    )
    lines = [
        f"| {r['case']} | {int(r['n']):,} | {r['d']} | {r['contestant']} | {r['threads']} | "
        f"{number(r['cpu_seconds'], '.3f')} | {number(r['times_ours'], '.1f')} | {number(r['peak_mb'], '.0f')} | "
        f"{number(r['quality'], '.3g')} | {r['note']} |\n"
        for r in rows
    ]
    notes = (
        "\nCPU seconds are medians over interleaved repeats in one process; × ours is the median ratio within a repeat "
        "to the first contestant of the case; peak memory is over the start, in a process of its own. Quality, smaller "
        "is better: RuLSIF, J' on fresh rows; KMM, MMD² left as a share of MMD² without weights (ridge term included); "
        "KLIEP, duality gap of the likelihood at the contestant's own width and centres; one-step, squared error on "
        "the target.\n\n"
    )
    text = "# Benchmarks\n\n" + header + "".join(lines) + notes + "\n\n".join(provenance()) + "\n"
    (options.out / "README.md").write_text(text)
    draw(rows, options.out / "time_against_n.png")
    print(text)


def draw(rows: list[dict[str, str]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    for axes, method in zip(figure.subplots(1, 2), ("RuLSIF", "KMM"), strict=True):
        series: dict[str, dict[int, float]] = {}
        for r in rows:
            if r["case"].startswith(method) and r["cpu_seconds"] and r["d"] == "5" and r["threads"] == "1":
                series.setdefault(r["contestant"], {})[int(r["n"])] = float(r["cpu_seconds"])
        # Ours first, in blue; peers in warm and grey tones.
        names = sorted(series, key=lambda name: (not name.startswith("Steelyard"), name))
        colors = ["#1d3557", "#457b9d", "#d1495b", "#edae49", "#66717e", "#8d5a97", "#2e2e2e"]
        if sum(name.startswith("Steelyard") for name in names) == 1:
            del colors[1]
        for name, color in zip(names, colors, strict=False):
            x, y = zip(*sorted(series[name].items()), strict=True)
            ours = name.startswith("Steelyard")
            axes.loglog(x, y, "o-" if ours else "s--", color=color, label=name, linewidth=2 if ours else 1)
        axes.set(xlabel="rows in each domain (d = 5)", ylabel="CPU seconds", title=method)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if series:
            axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
