"""Run the benchmarks and write the table: ``python -m benchmarks.run [--quick] [--only CASE] [--threads N ...]``.

The results of earlier runs, on other machines or days, stay in results.csv (what they ran with is in runs.csv); the
page sets all runs side by side, and of their ratios the smallest counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import string
import subprocess
import sys
from collections.abc import Callable
from datetime import date
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
SAME = ("run", "group", "threads")  # what is measured in one go, and replaced by measuring it again
ENTRY = ("group", "case", "n", "d", "contestant", "threads")  # what a line of the page is about
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Rows = list[dict[str, str]]


def main() -> None:
    """Read the command line, run the cases and write the page."""
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
    table, runs = options.out / "results.csv", options.out / "runs.csv"
    run = f"{date.today()}, {machine()}"
    write(runs, [*(row for row in read(runs) if row["run"] != run), {"run": run, "made_with": made_with()}])
    for threads in options.threads:
        for name in options.only or CASES:
            # Written after every case: a long run that is cut short leaves what it has.
            write(table, merged(read(table), run_case(name, threads, options), run))
    report(options.out)


def read(path: Path) -> Rows:
    """The rows of a CSV file; none where there is no file yet."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: Rows) -> None:
    """Write the rows to a CSV file."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def merged(stored: Rows, measured: list[dict[str, Any]], run: str) -> Rows:
    """The stored rows and those just measured, which take the place of the same case in the same run."""
    fresh = [{"run": run} | {key: "" if v is None else str(v) for key, v in row.items()} for row in measured]
    again = {tuple(row[key] for key in SAME) for row in fresh}
    return [*(row for row in stored if tuple(row[key] for key in SAME) not in again), *fresh]


def run_case(name: str, threads: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One case in one process whose libraries see this many threads."""
    command = [sys.executable, "-m", "benchmarks.run", "--child", "--only", name] + ["--quick"] * options.quick
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    return [row | {"group": name, "threads": threads, "commit": commit()} for row in rows]


def child(options: argparse.Namespace) -> None:
    """Run one case and print its rows as JSON."""
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


def made_with() -> str:
    """The versions of Python and of the packages that take part."""
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    return ", ".join(versions)


def number(value: str, form: str) -> str:
    """A number in this form, or a dash where there is none."""
    return "–" if not value else format(float(value), form)


def letters(rows: Rows) -> dict[str, str]:
    """A letter for every run, the earliest first."""
    return dict(zip(sorted({row["run"] for row in rows}), string.ascii_uppercase, strict=False))


def entries(rows: Rows) -> list[Rows]:
    """The rows of every line of the page: one contestant of one case in every run, the earliest run first."""
    found: dict[tuple[str, ...], Rows] = {}
    for row in sorted(rows, key=lambda row: (CASES.index(row["group"]), row["run"])):
        found.setdefault(tuple(row[key] for key in ENTRY), []).append(row)
    return list(found.values())


def quoted(entry: Rows) -> str:
    """The ratio to our time that may be quoted: of all runs the smallest; of a variant of our own, the largest."""
    ratios = [row["times_ours"] for row in entry if row["times_ours"]]
    worst = max if entry[0]["contestant"].startswith("Steelyard") else min
    return worst(ratios, key=float, default="")


def seconds(value: str) -> str:
    """Seconds with three decimals."""
    return number(value, ".3f")


def ratio(value: str) -> str:
    """A ratio with one decimal, or with two where it is below one."""
    return number(value, ".2f" if value and float(value) < 0.95 else ".1f")


def by_run(entry: Rows, field: str, form: Callable[[str], str], names: dict[str, str]) -> str:
    """A field of every run that has it, with the letter of the run."""
    return ", ".join(f"{names[row['run']]} {form(row[field])}" for row in entry if row[field]) or "–"


def latest(entry: Rows, field: str) -> str:
    """A field of the latest run that has it."""
    return next((row[field] for row in reversed(entry) if row[field]), "")


def line(entry: Rows, names: dict[str, str]) -> str:
    """One line of the page's table."""
    first = entry[0]
    return (
        f"| {first['case']} | {int(first['n']):,} | {first['d']} | {first['contestant']} | {first['threads']} | "
        f"{by_run(entry, 'cpu_seconds', seconds, names)} | {ratio(quoted(entry))} | "
        f"{by_run(entry, 'times_ours', ratio, names)} | {number(latest(entry, 'peak_mb'), '.0f')} | "
        f"{number(latest(entry, 'quality'), '.3g')} | {latest(entry, 'note')} |\n"
    )


def report(folder: Path) -> None:
    """The page and the picture of all runs that are in the folder."""
    rows, packages = read(folder / "results.csv"), {row["run"]: row["made_with"] for row in read(folder / "runs.csv")}
    names = letters(rows)
    header = (
        "| case | n | d | contestant | threads | CPU s, by run | × ours, smallest | × ours, by run | peak MB | quality "
        "| note |\n|---|--:|--:|---|--:|--:|--:|--:|--:|--:|---|\n"
    )
    runs = "".join(
        f"- {letter}: {run} (commits {', '.join(sorted({r['commit'] for r in rows if r['run'] == run}))}; "
        f"{packages.get(run, 'versions unknown')})\n"
        for run, letter in names.items()
    )
    notes = (
        "\nMade by `make bench`, on every machine once. CPU seconds are medians over interleaved repeats in one "
        "process; × ours is the median ratio within a repeat to the first contestant of the case. Ratios differ "
        "between machines: the smallest over the runs is the one to quote (of our own float32, the largest). Peak "
        "memory is over the start, in a process of its own; it, quality and note are of the latest run that has "
        "them. Quality, "
        "smaller is better: RuLSIF, J' on fresh rows; KMM, MMD² left as a share of MMD² without weights (ridge term "
        "included); KLIEP, duality gap of the likelihood at the contestant's own width and centers; one-step, squared "
        "error on the target.\n\nThe runs (a plus: that commit and changes that came later):\n\n"
    )
    text = "# Benchmarks\n\n" + header + "".join(line(entry, names) for entry in entries(rows)) + notes + runs
    (folder / "README.md").write_text(text)
    draw([entry[-1] for entry in entries(rows)], folder / "time_against_n.png")
    print(text)


def draw(rows: Rows, path: Path) -> None:
    """CPU seconds against the number of rows, one line for each contestant."""
    from experiments.engine.pictures import new_figure, save_figure

    figure = new_figure(10, 5)
    for axes, method in zip(figure.subplots(1, 2), ("RuLSIF", "KMM"), strict=True):
        series: dict[str, dict[int, float]] = {}
        for r in rows:
            if r["case"].startswith(method) and r["cpu_seconds"] and r["d"] == "5" and r["threads"] == "1":
                series.setdefault(r["contestant"], {})[int(r["n"])] = float(r["cpu_seconds"])
        # Ours first, in blue; peers in warm and gray tones.
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
        if series:
            axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    save_figure(figure, path)


if __name__ == "__main__":
    main()
