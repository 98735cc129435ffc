"""
Two CSV files to a report
=========================

Rents are known in the center and wanted in the suburbs. ``steelyard fit`` takes two files, diagnoses the shift,
combines learners for the target, and writes a model, weights, predictions and ``report.html``, a page to read or to
send. When rents of the suburbs arrive, ``steelyard evaluate`` compares them with the promise. The flats are made up.

It takes about six seconds; ``--full`` has 4000 flats and tries all five learners.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from steelyard.app.cli import app

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_rows, options = (4000, "") if "--full" in sys.argv else (400, " --fast")


def write_flats(path, mean_size, heating, rng):
    size, built = rng.gamma(9, mean_size / 9, n_rows) + 15, rng.integers(1950, 2020, n_rows)
    heating = rng.choice(["gas", "district", "oil"], n_rows, p=heating)
    rent = 90 * size**0.6 + 3 * (built - 1950) * (heating != "oil") - 80 * (size < 45) + rng.normal(0, 60, n_rows)
    rows = zip(size.round(), heating, built, rent.round(), strict=True)
    Path(path).write_text("\n".join(["size,heating,built,rent", *(f"{a},{b},{c},{d}" for a, b, c, d in rows)]))


def terminal(command):
    print(f"$ {command}", flush=True)
    app(command.split()[1:], standalone_mode=False)  # as a terminal would run it


with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    rng = np.random.default_rng(0)
    write_flats("center.csv", 54, [0.3, 0.5, 0.2], rng)
    write_flats("suburbs.csv", 72, [0.5, 0.2, 0.3], rng)
    terminal("steelyard fit center.csv suburbs.csv --label rent --out run" + options)
    terminal("steelyard evaluate run suburbs.csv")
    found = json.loads(Path("run/findings.json").read_text("utf-8"))["comparison"]["performance"]
    weights = np.loadtxt("run/weights.csv", delimiter=",", skiprows=1, usecols=1)
    sizes = [np.loadtxt(f"{name}.csv", delimiter=",", skiprows=1, usecols=0) for name in ("center", "suburbs")]

_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
bins = {"bins": np.linspace(20, 180, 25), "density": True, "histtype": "step", "lw": 2}
left.hist(sizes, color=(SOURCE, TARGET), label=("center", "suburbs"), **bins)
left.hist(sizes[0], weights=weights, color=WEIGHTED, label="center, weighted", **bins)
left.set(xlabel="size, square meters", ylabel="density")
left.legend(frameon=False)
for i, (each, color) in enumerate(zip(found.values(), (SOURCE, TARGET, WEIGHTED), strict=True)):
    right.plot([each[name] ** 0.5 for name in ("low", "mean", "high")], [i, i, i], "|-", color=color, lw=2, ms=14)
names = "plain model,\ncenter", "plain model,\nsuburbs", "chosen model,\nsuburbs"
right.set(yticks=range(3), yticklabels=names, ylim=(2.5, -0.5), xlabel="promised error of the rent, 95 % interval")
plt.show()
