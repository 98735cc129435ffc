"""What causal mechanism transfer costs: ``python -m benchmarks.causal``.

Networks that are trained as one batch (countries, configurations, seeds) beside networks one by one, in turn and on one
thread; and the choice among candidates by leave-one-out. ``--out FILE`` keeps what was printed.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path

import numpy as np
import torch

from steelyard.causal.contrast import Start, learn
from steelyard.causal.inflate import combinations
from steelyard.causal.transfer import leave_one_out_error, one_class, synthesize

N_TABLES, N_ROWS, N_DOMAINS, N_COLUMNS = 18, 323, 17, 4  # as in table 7


def seconds_of_a_network(n: int, epochs: int) -> float:
    """Of 300 epochs, extrapolated from a few."""
    rng = np.random.default_rng(1000)
    Z = torch.tensor(rng.normal(size=(N_TABLES, N_ROWS, N_COLUMNS)), dtype=torch.float32)
    domain = torch.tensor(np.arange(N_ROWS) % N_DOMAINS).expand(N_TABLES, -1)
    starts = [Start(k % N_TABLES, (10, 20)[k % 2], 0.01, k) for k in range(n)]
    start = time.perf_counter()
    learn(Z, domain, starts, epochs=epochs, every=epochs)
    return (time.perf_counter() - start) / epochs / n * 300


def seconds_of_a_candidate(repeats: int) -> float:
    """Seven fits on up to 1,302 rows."""
    rng = np.random.default_rng(1000)
    source, few = rng.normal(size=(N_ROWS, N_COLUMNS)), rng.normal(0, 0.7, size=(6, N_COLUMNS))
    domain = torch.tensor(np.arange(N_ROWS) % N_DOMAINS)[None]
    starts = [Start(0, 10, 0.01, k) for k in range(repeats)]
    networks = learn(torch.tensor(source, dtype=torch.float32)[None], domain, starts, epochs=0)[0].mechanisms
    made = synthesize(networks, few, combinations(6, N_COLUMNS, 10_000), one_class(source))
    start = time.perf_counter()
    for one in made:
        leave_one_out_error(None, few, one)
    return (time.perf_counter() - start) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a Markdown file")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    seconds_of_a_network(2, 1)  # what is loaded at first
    sizes = (1, 72, 360, 720)
    times: dict[int, list[float]] = {n: [] for n in sizes}
    for _ in range(3):
        for n in sizes:
            times[n].append(seconds_of_a_network(n, 6 if n == 1 else 2))
    ones = np.array(times[1])
    lines = [
        "# Causal mechanism transfer: costs",
        "",
        f"PyTorch {torch.__version__}, Python {platform.python_version()}, one thread. One network as in table 7: 323",
        "rows, 4 columns, 17 domains, 300 epochs (extrapolated from a few).",
        "",
        "| networks in a batch | seconds a network | times faster than one by one |",
        "|--:|--:|--:|",
    ]
    for n in sizes:
        ratio = "" if n == 1 else f"{np.median(ones / np.array(times[n])):.0f}"
        lines.append(f"| {n} | {np.median(times[n]):.2f} | {ratio} |")
    lines += [
        "",
        f"The leave-one-out error of a candidate, over six rows, takes: {1e3 * seconds_of_a_candidate(30):.0f} ms.",
    ]
    print("\n".join(lines))
    if chosen.out is not None:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
