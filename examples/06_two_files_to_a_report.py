"""
Two CSV files to a report
=========================

Rents are known for flats in the center and wanted for flats in the suburbs. Two files and one command: ``steelyard fit``
diagnoses the shift, combines learners for the target, and writes a model, weights, predictions and ``report.html``, one
page to read or to send. When some rents of the suburbs arrive, ``steelyard evaluate`` says whether the promise was kept.
Both commands run here from Python, as a terminal would run them. The flats are made up.

It takes about ten seconds; ``--full`` has 4000 flats and tries all five learners.
"""

import contextlib
import csv
import json
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from steelyard.app.cli import app

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
n_rows, options = (4000, "") if "--full" in sys.argv else (400, " --fast")


def write_flats(path, suburbs, rng):
    size = rng.gamma(9, 8 if suburbs else 6, n_rows) + 15
    heating = rng.choice(["gas", "district", "oil"], n_rows, p=[0.5, 0.2, 0.3] if suburbs else [0.3, 0.5, 0.2])
    built = rng.integers(1950, 2020, n_rows)
    rent = 90 * size**0.6 + 3 * (built - 1950) * (heating != "oil") - 80 * (size < 45) + rng.normal(0, 60, n_rows)
    with open(path, "w", newline="") as file:
        rows = zip(size.round(), heating, built, rent.round(), strict=True)
        csv.writer(file).writerows([("size", "heating", "built", "rent"), *rows])


def terminal(command):
    print(f"$ {command}", flush=True)
    app(command.split()[1:], standalone_mode=False)


with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    rng = np.random.default_rng(0)
    write_flats("center.csv", False, rng)
    write_flats("suburbs.csv", True, rng)
    terminal("steelyard fit center.csv suburbs.csv --label rent --out run" + options)
    terminal("steelyard evaluate run suburbs.csv")
    found = json.loads(Path("run/findings.json").read_text("utf-8"))["comparison"]["performance"]
    weights = np.loadtxt("run/weights.csv", delimiter=",", skiprows=1, usecols=1)
    sizes = [np.loadtxt(name, delimiter=",", skiprows=1, usecols=0) for name in ("center.csv", "suburbs.csv")]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
curves = (
    (sizes[0], None, SOURCE, "center"),
    (sizes[1], None, TARGET, "suburbs"),
    (sizes[0], weights, WEIGHTED, "weighted"),
)
for size, counts, color, label in curves:
    left.hist(
        size, np.linspace(20, 180, 25), density=True, weights=counts, histtype="step", lw=2, color=color, label=label
    )
left.set(xlabel="size, square meters", ylabel="density")
left.legend(frameon=False)
names = {"source": "plain model,\ncenter", "plain": "plain model,\nsuburbs", "chosen": "chosen model,\nsuburbs"}
for i, (key, color) in enumerate(zip(names, (SOURCE, TARGET, WEIGHTED), strict=True)):
    mean, low, high = (found[key][name] ** 0.5 for name in ("mean", "low", "high"))
    right.errorbar(mean, i, xerr=[[mean - low], [high - mean]], fmt="o", color=color, capsize=5, lw=2)
right.set(
    yticks=range(3), yticklabels=names.values(), ylim=(2.5, -0.5), xlabel="promised error of the rent, 95 % interval"
)
plt.show()
