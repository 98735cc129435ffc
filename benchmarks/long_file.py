"""`steelyard weigh` of a long CSV file: ``python -m benchmarks.long_file [--gigabytes 5] [--out PAGE]``.

A CSV file of 10 columns and the same rows as Parquet are each weighed against a short target by the command line, in a
process of its own with one BLAS thread. Seconds and memory are those of the whole process, the interpreter and all
libraries included.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak
from benchmarks.scale import HERE, ONE_THREAD, D, processor

PART_ROWS, TARGET_ROWS = 100_000, 200_000
KINDS = ("csv", "parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of the CSV file of the source")
    parser.add_argument("--target-rows", type=int, default=TARGET_ROWS)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "benchmarks" / "long_file.md")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(weigh(*options.child)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        n_rows = write_tables(folder, "source", size=options.gigabytes * 1e9)
        write_tables(folder, "target", n_rows=options.target_rows)
        sizes = [(folder / f"source.{kind}").stat().st_size / 1e9 for kind in KINDS]
        found = [in_own_process(folder, kind) for kind in KINDS]
        apart = largest_difference(*(folder / f"{kind}.weights" for kind in KINDS))
    page = written(n_rows, options.target_rows, sizes, found, apart)
    print(page)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page)


def write_tables(folder: Path, name: str, *, size: float = np.inf, n_rows: float = np.inf) -> int:
    """The same rows as CSV and as Parquet, until the CSV file has a size or a number of rows; how many these are."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    mean, sd, seed = (0.0, 1.0, 0) if name == "source" else (0.3, 0.9, 1)
    rng, total = np.random.default_rng(seed), 0
    schema = pa.schema([(f"x{i}", pa.float64()) for i in range(D)])
    text = folder / f"{name}.csv"
    with (
        arrow_csv.CSVWriter(text, schema) as lines,
        parquet.ParquetWriter(folder / f"{name}.parquet", schema) as groups,
    ):
        while total < n_rows and text.stat().st_size < size:
            rows = rng.standard_normal((int(min(PART_ROWS, n_rows - total)), D)) * sd + mean
            table = pa.table({f"x{i}": rows[:, i] for i in range(D)})
            lines.write_table(table)
            groups.write_table(table)
            total += len(rows)
    return total


def in_own_process(folder: Path, kind: str) -> dict[str, Any]:
    """Seconds and memory of the command in a process of its own."""
    print(f"… weighing source.{kind}", file=sys.stderr)
    files = [str(folder / name) for name in (f"source.{kind}", f"target.{kind}", f"{kind}.weights")]
    command = [sys.executable, "-m", "benchmarks.long_file", "--child", *files]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ONE_THREAD)
    return json.loads(done.stdout.splitlines()[-1])


def weigh(source: str, target: str, out: str) -> dict[str, Any]:
    """The command of the command line, and what it took."""
    from steelyard.app.cli import app

    app(["weigh", source, target, "--out", out], standalone_mode=False)
    return {"cpu": time.process_time(), "peak": peak()}


def largest_difference(first: Path, second: Path) -> float:
    """The largest relative difference of a weight between two files, which have the same rows."""
    with open(first) as one, open(second) as other:
        pairs = zip(csv.reader(one), csv.reader(other), strict=True)
        next(pairs)
        return max(abs(float(a[1]) - float(b[1])) / float(b[1]) if a != b else 0.0 for a, b in pairs)


def written(n_rows: int, n_target: int, sizes: list[float], found: list[dict[str, Any]], apart: float) -> str:
    """The page."""
    lines = [
        "# A long file through the command line",
        "",
        __doc__.split("\n\n")[1].strip().replace("\n", " "),
        "",
        f"{date.today()}, {processor()}: {n_rows:,} source rows and {n_target:,} target rows of {D} columns.",
        "",
        "| source file | GB | CPU s | peak MB |",
        "|---|--:|--:|--:|",
    ]
    for kind, size, each in zip(KINDS, sizes, found, strict=True):
        lines.append(f"| {kind} | {size:.2f} | {each['cpu']:.0f} | {each['peak']:.0f} |")
    same = f"differ by at most {apart:.0e} of a weight" if apart else "are equal"
    return "\n".join([*lines, "", f"The weights of the two files {same}.", ""])


if __name__ == "__main__":
    main()
