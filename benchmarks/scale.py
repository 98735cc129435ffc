"""How time and memory grow with rows and workers: ``python -m benchmarks.scale [--rows 1e3 ... 1e7] [--quick]``.

uLSIF with its whole default grid (9 widths × 9 regularization strengths × 5 folds, 100 centers) from Parquet files, in
a process of its own for each number of rows with one BLAS thread; then on a Dask cluster of one and two processes. The
times of a GPU beside one core come from `python -m benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak

HERE = Path(__file__).parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
D, GROUP_ROWS = 10, 100_000
PART_ROWS = 5 * GROUP_ROWS  # of a partition on a cluster
# Passes over each table: source and target for the scale, both for the sums, the source for the mean of the ratio.
PASSES = (3, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e3, 1e4, 1e5, 3e5, 1e6, 3e6, 1e7])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "benchmarks" / "scale.md")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(Path(options.child[0]), int(options.child[1]))))
        return
    sizes = [1000, 3000, 10_000] if options.quick else [int(n) for n in options.rows]
    with tempfile.TemporaryDirectory() as folder:
        found = [stream(Path(folder), n) for n in sizes]
        on_workers = [cluster(Path(folder), sizes[-1], n) for n in options.workers]
    page = written(found, on_workers)
    print(page)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page)
    draw(found, options.out.with_suffix(".png"))


def write_tables(folder: Path, n: int) -> list[Path]:
    """Source and target of so many rows as Parquet files, in row groups of `GROUP_ROWS` rows."""
    import pyarrow as pa
    from pyarrow import parquet

    paths = []
    for name, mean, sd, seed in (("source", 0.0, 1.0, 0), ("target", 0.3, 0.9, 1)):
        path = folder / f"{name}{n}.parquet"
        paths.append(path)
        if path.exists():
            continue
        rng = np.random.default_rng(seed)
        schema = pa.schema([(f"x{i}", pa.float64()) for i in range(D)])
        with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for start in range(0, n, GROUP_ROWS):
                rows = rng.standard_normal((min(GROUP_ROWS, n - start), D)) * sd + mean
                writer.write_table(pa.table({f"x{i}": rows[:, i] for i in range(D)}))
    return paths


def stream(folder: Path, n: int) -> dict[str, Any]:
    """One fit in a process of its own."""
    write_tables(folder, n)
    print(f"… {n:,} rows from Parquet", file=sys.stderr)
    command = [sys.executable, "-m", "benchmarks.scale", "--child", str(folder), str(n)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ONE_THREAD)
    return json.loads(done.stdout)


def measure(folder: Path, n: int) -> dict[str, Any]:
    """Seconds and memory of a fit, and of reading the files as often as the fit does."""
    import pyarrow.parquet

    bare = peak()
    import sklearn.base

    scikit_learn = peak()
    from steelyard import ULSIF
    from steelyard.tables.streams import as_stream

    imported = peak()
    source, target = write_tables(folder, n)
    wall, cpu = time.perf_counter(), time.process_time()
    fit = ULSIF(random_state=0).fit(source, target=target)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    fitted = peak()
    reading = 0.0
    for path, passes in zip((source, target), PASSES, strict=True):
        began = time.process_time()
        sum(len(rows) for _, rows in as_stream(path, "table").chunks())
        reading += passes * (time.process_time() - began)
    found = {"n": n, "wall": wall, "cpu": cpu, "reading": reading, "coef": fit.coef_.tolist()}
    found |= {"over_imports": fitted - imported, "over_sklearn": fitted - scikit_learn, "over_pyarrow": fitted - bare}
    return found | {"arrow": pyarrow.__version__, "sklearn": sklearn.__version__}


def cluster(folder: Path, n: int, workers: int) -> dict[str, Any]:
    """The same fit on a Dask cluster of so many processes with one thread each."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from steelyard import ULSIF

    print(f"… {n:,} rows on {workers} workers", file=sys.stderr)
    os.environ |= ONE_THREAD
    paths = write_tables(folder, n)
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local, Client(local):
        tables = [dd.read_parquet(path, split_row_groups=5) for path in paths]
        ULSIF(random_state=0, width=2.0, reg=0.1).fit(tables[0].partitions[:workers], target=tables[1].partitions[:1])
        began = time.perf_counter()
        fit = ULSIF(random_state=0).fit(tables[0], target=tables[1])
        seconds = time.perf_counter() - began
    return {"workers": workers, "n": n, "wall": seconds, "coef": fit.coef_.tolist()}


def exponent(found: list[dict[str, Any]], low: int) -> float:
    """Slope of log time beyond reading against log rows, from `low` rows on."""
    long = [(each["n"], each["cpu"] - each["reading"]) for each in found if each["n"] >= low]
    rows, seconds = np.log(np.array(long)).T
    return float(np.polyfit(rows, seconds, 1)[0])


def projected(found: list[dict[str, Any]], n: float) -> float:
    """Seconds for n rows: a constant and a cost for each row, by least relative error."""
    rows, seconds = (np.array([each[key] for each in found], dtype=float) for key in ("n", "cpu"))
    design = np.column_stack([np.ones(len(rows)), rows]) / seconds[:, None]
    constant, per_row = np.linalg.lstsq(design, np.ones(len(rows)), rcond=None)[0]
    return float(constant + per_row * n)


def written(found: list[dict[str, Any]], on_workers: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [
        "# Scale",
        "",
        __doc__.split("\n\n")[1].strip().replace("\n", " "),
        "",
        f"{date.today()}, {processor()}, PyArrow {found[-1]['arrow']}, scikit-learn {found[-1]['sklearn']}.",
        "",
        "| rows each | CPU s | of these reading | wall s | MB over an interpreter with PyArrow, scikit-learn and "
        "Steelyard | with PyArrow and scikit-learn | with PyArrow alone |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in found:
        lines.append(
            f"| {each['n']:,} | {each['cpu']:.2f} | {each['reading']:.2f} | {each['wall']:.2f} | "
            f"{each['over_imports']:.0f} | {each['over_sklearn']:.0f} | {each['over_pyarrow']:.0f} |"
        )
    low = 100_000 if found[-1]["n"] >= 1_000_000 else 1000
    lines += [
        "",
        f"Beyond reading, time grows as n^{exponent(found, low):.2f} from {low:,} to {found[-1]['n']:,} rows. "
        "scikit-learn loads SciPy's statistics and, where it is installed, pandas: that is most of what is beyond an "
        "interpreter with PyArrow alone.",
        "",
        "![time and memory against rows](scale.png)",
        "",
        "## Workers",
        "",
        "| processes | wall s | times faster than one | largest difference of a coefficient to a fit without Dask |",
        "|--:|--:|--:|--:|",
    ]
    for each in on_workers:
        faster = on_workers[0]["wall"] / each["wall"]
        apart = np.max(np.abs(np.array(each["coef"]) - found[-1]["coef"]))
        lines.append(f"| {each['workers']} | {each['wall']:.1f} | {faster:.2f} | {apart:.0e} |")
    return "\n".join([*lines, "", *projection(found), ""])


def projection(found: list[dict[str, Any]]) -> list[str]:
    """A projection to 10⁹ rows, after a check at the largest measured number of rows."""
    last, before = found[-1], found[:-1]
    checked, long = projected(before, last["n"]), projected(found, 1e9)
    n_parts = 2 * 1e9 / PART_ROWS
    sums = 9 * 5 * 100 * 100 * 8 / 1e6  # widths, folds and a matrix of 100 × 100 in double precision
    return [
        "## Projection",
        "",
        f"A constant and a cost for each row, fitted to all sizes but the largest, predict {checked:.2f} CPU seconds "
        f"for {last['n']:,} rows; {last['cpu']:.2f} were measured ({last['cpu'] / checked - 1:+.0%}). Fitted to all "
        f"sizes they predict {long / 3600:.1f} CPU hours for 10⁹ rows of each table, which is {long / 64:.0f} "
        "seconds on 64 cores of this kind.",
        "",
        "Assumptions: files are read as fast as here, by every worker at once; the cost of a row is constant, as it is "
        f"above; partitions have {PART_ROWS:,} rows, so that their {n_parts:,.0f} sums of {sums:.1f} MB, merged eight "
        f"at a time, are {n_parts * sums / 1e3:.0f} GB over the network in all; scheduling costs nothing. Memory is "
        "that of one partition and of eight sums for each worker.",
    ]


def processor() -> str:
    """Name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Time and memory against rows, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = [each["n"] for each in found]
    left.loglog(rows, [each["cpu"] for each in found], "o-", color="#0f766e", label="fit")
    left.loglog(rows, [each["reading"] for each in found], "o--", color="#999999", label="of this reading")
    left.set(xlabel="rows of each table", ylabel="CPU seconds", title="Time")
    left.legend(frameon=False)
    right.semilogx(rows, [each["over_imports"] for each in found], "o-", color="#0f766e")
    right.set(xlabel="rows of each table", ylabel="MB over the imports", title="Peak memory", ylim=(0, None))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
