"""Time and memory: interleaved repeats in one process, peak memory in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import psutil

from benchmarks.contestants import Contestant


@dataclass
class Row:
    case: str
    n: int
    d: int
    contestant: str
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    times_ours: float | None = None  # median over repeats of its CPU time over ours in the same repeat
    quality: float | None = None
    peak_mb: float | None = None
    repeats: int = 0
    note: str = ""


def interleaved(
    case: str, contestants: list[Contestant], data: tuple[np.ndarray, np.ndarray], width: float, repeats: int
) -> list[Row]:
    """Each repeat runs every contestant once; the first is ours, and every ratio is to it within the repeat."""
    n, d = data[0].shape
    rows = [Row(case, n, d, c.name) for c in contestants]
    times: dict[str, list[tuple[float, float]]] = {c.name: [] for c in contestants}
    absent: set[str] = set()
    for contestant, row in zip(contestants, rows, strict=True):
        problem = prepare(contestant, d, width)
        if problem:
            row.note = problem
            absent.add(contestant.name)
    present = [(c, r) for c, r in zip(contestants, rows, strict=True) if c.name not in absent]
    for repeat in range(repeats):
        for contestant, row in present:
            wall, cpu = time.perf_counter(), time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = contestant.run(*data, width)
            times[contestant.name].append((time.process_time() - cpu, time.perf_counter() - wall))
            if repeat == 0:
                row.quality = contestant.quality(result, *data, width)
            say(f"  {case} n={n} {contestant.name}: {times[contestant.name][-1][0]:.3f} s")
    ours = np.array([cpu for cpu, _ in times[contestants[0].name]])
    for contestant, row in present:
        spent = np.array(times[contestant.name])
        row.cpu_seconds, row.wall_seconds = (float(v) for v in np.median(spent, axis=0))
        row.times_ours = float(np.median(spent[:, 0] / ours))
        row.repeats = repeats
    return rows


def prepare(contestant: Contestant, d: int, width: float) -> str:
    """Import and warm up on a tiny problem; what is wrong, if anything, in words."""
    rng = np.random.default_rng(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            contestant.run(rng.normal(size=(60, d)), rng.normal(0.5, 0.8, size=(60, d)), width)
    except ImportError as error:
        return f"not installed ({error.name})"
    return ""


def peak_memory(task: str, n: int, d: int, timeout: float = 900) -> tuple[float | None, float | None]:
    """Peak memory over the start in MB, and CPU seconds, of one task in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.one_task", task, str(n), str(d)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ,
    )
    if done.returncode != 0:
        say(done.stderr[-500:])
        return None, None
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return answer["peak_mb"], answer["cpu_seconds"]


def in_fresh_process(task: Callable[[], Any]) -> dict[str, float]:
    """Run a task and say what it cost; for `one_task`, the child of `peak_memory`."""
    process = psutil.Process()
    before = process.memory_info().rss
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is counted from here on, not from the imports
    cpu = time.process_time()
    task()
    seconds = time.process_time() - cpu
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    return {"peak_mb": (peak - before) / 2**20, "cpu_seconds": seconds}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def as_dicts(rows: list[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
