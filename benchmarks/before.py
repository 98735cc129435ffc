"""uLSIF and RuLSIF of this checkout beside an older one: ``python -m benchmarks.before OLD_CHECKOUT [--out FILE]``.

Each checkout has a process of its own. In every round each process fits every case, and the order of the two
processes alternates; a ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.run import HERE, THREAD_VARIABLES, commit, machine

ROUNDS = 15
SIZES, COLUMNS = {1000: 5, 10_000: 1}, 5  # rows each, with the number of fits in a round
METHODS, TYPES = ("ULSIF", "RULSIF"), ("float64", "float32")
LIMIT = 1.15


def main() -> None:
    """Read the command line, measure, print the page and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?", help="the older checkout")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="a Markdown file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child()
        return
    if options.old is None:
        parser.error("name the older checkout")
    checkouts = {"new": HERE.parent.resolve(), "old": options.old.resolve()}
    text = page({name: commit(folder) for name, folder in checkouts.items()}, measure(checkouts, options.rounds))
    print(text)
    if options.out:
        options.out.write_text(text)


def measure(checkouts: dict[str, Path], rounds: int) -> dict[str, list[dict[str, float]]]:
    """CPU seconds of every case in every round, by checkout."""
    processes = {name: start(folder) for name, folder in checkouts.items()}
    times: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    try:
        for k in range(rounds):
            for name in list(checkouts)[:: 1 if k % 2 == 0 else -1]:
                times[name].append(ask(processes[name]))
    finally:
        for process in processes.values():
            process.communicate()  # no more rounds: it ends
    return times


def start(folder: Path) -> subprocess.Popen[str]:
    """A process that fits with this checkout's library; an error if it finds another one."""
    source = folder / "src"
    environment = (
        os.environ | dict.fromkeys(THREAD_VARIABLES, "1") | {"PYTHONPATH": f"{source}{os.pathsep}{HERE.parent}"}
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.before", "--child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    found = Path(process.stdout.readline().strip())
    if not found.is_relative_to(source):
        process.kill()
        process.communicate()
        raise RuntimeError(f"the process of {source} imported {found}")
    return process


def ask(process: subprocess.Popen[str]) -> dict[str, float]:
    """One round of one process."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("round\n")
    process.stdin.flush()
    answer: dict[str, float] = json.loads(process.stdout.readline())
    return answer


def child() -> None:
    """Say which library this is; then, for every line that arrives, fit every case and say what a fit took."""
    import steelyard

    print(steelyard.__file__, flush=True)
    jobs = {name: job(*name.split()) for name in names()}
    for run in jobs.values():
        run()
    for _ in sys.stdin:
        print(
            json.dumps({name: cpu_seconds(run, SIZES[int(name.split()[-1])]) for name, run in jobs.items()}), flush=True
        )


def names() -> list[str]:
    """The cases, each as the words of `job`."""
    return [f"{method} {dtype} {n}" for n in SIZES for method in METHODS for dtype in TYPES]


def job(method: str, dtype: str, n: str) -> Callable[[], Any]:
    """A fit over 9 widths and 9 regs, its data made beforehand."""
    import steelyard
    from benchmarks.problems import REGS, WIDTH_FACTORS, gaussians, median_width

    source, target = gaussians(int(n), COLUMNS, dtype)
    settings = {"width": median_width(int(n), COLUMNS) * WIDTH_FACTORS, "reg": REGS, "standardize": False}
    settings |= {"random_state": 0} | ({"eta": 0.1} if method == "RULSIF" else {})
    return lambda: getattr(steelyard, method)(**settings).fit(source, target=target)


def cpu_seconds(run: Callable[[], Any], fits: int) -> float:
    """Of one fit, over a few of them."""
    begin = time.process_time()
    for _ in range(fits):
        run()
    return (time.process_time() - begin) / fits


def page(commits: dict[str, str], times: dict[str, list[dict[str, float]]]) -> str:
    """The medians and the ratios as Markdown."""
    lines = [
        "# uLSIF and RuLSIF beside an older commit",
        "",
        f"CPU seconds of one fit over 9 widths × 9 λ (exact leave-one-out, d = {COLUMNS}, RuLSIF with η = 0.1, one",
        f"thread) at commit {commits['new']} and at the older commit {commits['old']}, in one run of",
        f"{len(times['new'])} rounds in which the two alternate (a plus: that commit and changes that came later). The",
        "ratio is the median of the ratios within a round; in brackets, the smallest and the largest of them. The",
        f"limit is {LIMIT}. Machine: {machine()}.",
        "",
        "| method | rows each | type | old, s | new, s | new / old |",
        "|---|--:|---|--:|--:|--:|",
    ]
    for name in names():
        method, dtype, n = name.split()
        old, new = ([one[name] for one in times[which]] for which in ("old", "new"))
        ratios = [b / a for a, b in zip(old, new, strict=True)]
        label = {"ULSIF": "uLSIF", "RULSIF": "RuLSIF"}[method]
        lines.append(
            f"| {label} | {int(n):,} | {dtype} | {median(old):.3f} | {median(new):.3f} | "
            f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
