"""Are the weights right on every kind of table? Discrete, small and mixed tables, and what stands on the weights.

python -m benchmarks.weights_on_tables [--draws 200] [--before SRC] --out results/benchmarks/weights_on_tables.md
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import steelyard
from steelyard import KLIEP, KMM, LSIF, RULSIF, ULSIF, ClassifierRatio
from steelyard._numerics.weighted_means import standard_error
from steelyard.datasets import gaussian_pair
from tests.made_up_tables import binary_columns, labelled_ten_cells, ratio_of_counts, target_accuracy, ten_cells

SMALL = ((50, 2), (100, 2), (200, 2), (100, 5), (200, 5))
ETA = 0.3
UNSEEN = 600  # from here on, seeds that no decision was made on


def estimators() -> dict[str, Any]:
    return {
        "ULSIF": ULSIF(random_state=0),
        "RULSIF(0.3)": RULSIF(ETA, random_state=0),
        "LSIF": LSIF(random_state=0),
        "KLIEP": KLIEP(random_state=0),
        "KMM": KMM(random_state=0),
        "ClassifierRatio": ClassifierRatio(random_state=0),
        "AutoRatio": steelyard.AutoRatio(random_state=0),
    }


def rmse(weights: Any, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(weights - truth))))


def relative(truth: np.ndarray, name: str) -> np.ndarray:
    """What the estimator is after: for RULSIF the relative ratio, scaled to mean one."""
    if not name.startswith("RULSIF"):
        return truth
    bounded = truth / (1 - ETA + ETA * truth)
    return bounded / bounded.mean()


def ten_cell_table() -> Iterator[str]:
    yield "## Ten cells"
    yield "RMSE of the weights to the ratio of the cells' counts, n = m = 2,000, seeds 0 to 9.\n"
    yield "| estimator | mean | largest |\n|---|--:|--:|"
    tables = [ten_cells(seed) for seed in range(10)]
    truths = [ratio_of_counts(*table) for table in tables]
    errors = [rmse(1, truth) for truth in truths]
    yield f"| w ≡ 1 | {np.mean(errors):.3f} | {max(errors):.3f} |"
    for name, ratio in estimators().items():
        errors = [
            rmse(clone(ratio).fit(X, target=target).weights_, relative(truth, name))
            for (X, target), truth in zip(tables, truths, strict=True)
        ]
        yield f"| {name} | {np.mean(errors):.3f} | {max(errors):.3f} |"


def binary_table() -> Iterator[str]:
    yield "\n## Columns of zeros and ones"
    yield (
        "The first two columns move from .5 to .8, n = m = 3,000; RMSE to the ratio of the *population* over that of "
        "w ≡ 1, mean of seeds 0 to 4.\n"
    )
    columns = (2, 3, 4, 5, 6, 8, 10)
    yield "| estimator | " + " | ".join(f"{k} columns" for k in columns) + " |\n|---|" + "--:|" * len(columns)
    for name, ratio in estimators().items():
        shares = []
        for k in columns:
            errors = [binary_error(name, ratio, k, seed) for seed in range(5)]
            shares.append(sum(e for e, _ in errors) / sum(e for _, e in errors))
        yield f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |"


def binary_error(name: str, ratio: Any, k: int, seed: int) -> tuple[float, float]:
    X, target, truth = binary_columns(seed, k)
    truth = relative(truth, name)
    return rmse(clone(ratio).fit(X, target=target).weights_, truth), rmse(1, truth)


def downstream(draws: int) -> Iterator[str]:
    yield "\n## What stands on the weights"
    yield (
        "Ten cells, n = m = 2,000, P(y = 1) = σ(2.5·1[item > 2] − 1.5·b − 0.4). The models of `target_performance` are "
        "logistic regressions on the first 1,000 rows, estimated on the others. Unseen: seeds that were not looked at "
        "before the code was final; part of the others had been.\n"
    )
    seen, unseen = (consumers(range(first, first + draws)) for first in (0, UNSEEN))
    yield f"| what | seeds 0 to {draws - 1} | unseen seeds {UNSEEN} to {UNSEEN + draws - 1} |\n|---|--:|--:|"
    for what, row in seen.items():
        yield f"| {what} | {row} | {unseen[what]} |"


def consumers(seeds: range) -> dict[str, str]:
    """What the consumers of the weights give on these draws of the ten-cell table."""
    found: dict[str, list[float]] = {name: [] for name in ("covers", "iwcv", "truth", "within", "one", "weighted")}
    for seed in seeds:
        X, y, target = labelled_ten_cells(seed)
        model = LogisticRegression().fit(X[:1000], y[:1000])
        interval = steelyard.target_performance(model, X[1000:], y[1000:], target=target).target
        found["covers"].append(interval.low <= target_accuracy(model) <= interval.high)
        model = LogisticRegression().fit(X, y)
        found["truth"].append(target_accuracy(model))
        found["iwcv"].append(float(steelyard.iwcv_score(LogisticRegression(), X, y, target=target).mean()))
        hits = (cross_val_predict(LogisticRegression(), X, y, cv=5) == y).astype(float)
        weights = steelyard.AutoRatio(random_state=0).fit(X, target=target).weights_
        found["within"].append(abs(found["iwcv"][-1] - found["truth"][-1]) <= 2 * standard_error(hits, weights))
        one_step = steelyard.OneStepClassifier(random_state=0).fit(X, y, target=target)
        weighted = steelyard.WeightedClassifier(LogisticRegression()).fit(X, y, target=target)
        found["one"].append(target_accuracy(one_step))
        found["weighted"].append(target_accuracy(weighted))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return {
        "95 % interval of `target_performance` covers": f"{means['covers']:.1%}",
        "mean of `iwcv_score`": f"{means['iwcv']:.4f}",
        "mean accuracy on the target": f"{means['truth']:.4f}",
        "`iwcv_score` within two standard errors, row by row": f"{means['within']:.1%}",
        "accuracy on the target, OneStepClassifier": f"{means['one']:.4f}",
        "accuracy on the target, weighted logistic regression": f"{means['weighted']:.4f}",
    }


def small_errors() -> dict[str, list[float]]:
    """Squared errors of ULSIF's weights, by size and seed."""
    found: dict[str, list[float]] = {}
    for n, d in SMALL:
        errors = []
        for seed in range(200):
            pair = gaussian_pair(n, n, d, shift=0.5, scale=0.8, random_state=seed)
            weights = ULSIF(random_state=0).fit(pair.X, target=pair.X_target).weights_
            errors.append(float(np.mean(np.square(weights - pair.ratio(pair.X)))))
        found[f"{n}, {d}"] = errors
    return found


def small_tables(before: Path | None) -> Iterator[str]:
    from scipy.stats import ttest_rel

    yield "\n## Few rows"
    yield (
        "`gaussian_pair(n, n, d, shift=.5, scale=.8)`, random_state 0 to 199: mean squared error of ULSIF's weights; "
        "before: the commit named below, on the same draws; p of the paired t-test.\n"
    )
    ours = small_errors()
    theirs = {} if before is None else errors_of(before)
    yield "| n, d | MSE | before | p |\n|---|--:|--:|--:|"
    for size, errors in ours.items():
        old = theirs.get(size)
        beside = " | |" if old is None else f" {np.mean(old):.3f} | {ttest_rel(errors, old).pvalue:.1g} |"
        yield f"| {size} | {np.mean(errors):.3f} |{beside}"


def errors_of(source: Path) -> dict[str, list[float]]:
    """The same by another checkout's package, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.weights_on_tables", "--child"]
    environment = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def mixed() -> Iterator[str]:
    yield "\n## Sixty columns of numbers and categories"
    yield (
        "`mixed_tables`, n = m = 1,500, seeds 0 to 9 of each kind. Share of the columns' mean standardized difference "
        "that cross-fitted weights leave; the linear ratio is `ClassifierRatio` with logistic regression.\n"
    )
    yield "| shift through | before | AutoRatio | largest | ULSIF | linear ratio | shares in AutoRatio |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    for shift in ("linear", "products"):
        rows, chosen = [], []
        for seed in range(10):
            tables = steelyard.datasets.mixed_tables(shift=shift, random_state=seed)
            auto = steelyard.AutoRatio(random_state=0).fit(tables.X, target=tables.X_target)
            others = [
                steelyard.cross_fitted_balance(ratio, tables.X, target=tables.X_target)
                for ratio in (ULSIF(random_state=0), ClassifierRatio(model, random_state=0))
            ]
            before = auto.balance_.mean_before
            rows.append([before, *(b.mean_after / before for b in (auto.balance_, *others))])
            chosen.append({c.name: c.share for c in auto.candidates_})
        means, largest = np.mean(rows, axis=0), np.max(rows, axis=0)
        names = ", ".join(f"{name} {np.mean([s.get(name, 0.0) for s in chosen]):.2f}" for name in sorted(chosen[0]))
        shown = [means[0], means[1], largest[1], means[2], means[3]]
        yield f"| {shift} | " + " | ".join(f"{value:.3f}" for value in shown) + f" | {names} |"


def stability() -> Iterator[str]:
    yield "\n## Does the seed, or a single row, matter?"
    yield (
        "Coefficient of variation of AutoRatio's effective sample size over ten seeds of the fit, and over ten tables "
        f"that each lack one random row. Seeds from {UNSEEN} on were not looked at before the code was final.\n"
    )
    yield "| table | effective sample size | over seeds | over rows |\n|---|--:|--:|--:|"
    for name, (X, target) in stable_tables():
        seeds = [fitted_size(X, target, seed) for seed in range(10)]
        rows = np.random.default_rng(0).integers(len(X), size=10)
        without = [fitted_size(np.delete(X, row, axis=0), target, 0) for row in rows]
        over = [np.std(sizes, ddof=1) / np.mean(sizes) for sizes in (seeds, without)]
        yield f"| {name} | {np.mean(seeds):.0f} of {len(X)} | {over[0]:.1%} | {over[1]:.1%} |"


def stable_tables() -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    for shift, seed in product(("linear", "products"), (*range(5), *range(UNSEEN, UNSEEN + 5))):
        tables = steelyard.datasets.mixed_tables(shift=shift, random_state=seed)
        yield f"mixed, {shift}, seed {seed}", (tables.X, tables.X_target)
    for seed in (0, 1, UNSEEN, UNSEEN + 1):
        pair = gaussian_pair(1500, 1500, 5, shift=0.3, scale=0.9, random_state=seed)
        yield f"five Gaussian columns, seed {seed}", (pair.X, pair.X_target)
        yield f"ten cells, seed {seed}", ten_cells(seed, 1500, 1500)


def fitted_size(X: np.ndarray, target: np.ndarray, seed: int) -> float:
    return steelyard.AutoRatio(random_state=seed).fit(X, target=target).effective_sample_size_


def cost() -> Iterator[str]:
    yield "\n## Cost"
    yield "CPU seconds of a fit on n = m rows by 20 Gaussian columns, one thread, median of five.\n"
    yield "| rows | ULSIF | AutoRatio | ratio |\n|--:|--:|--:|--:|"
    for n in (1000, 10_000):
        pair = gaussian_pair(n, n, 20, shift=0.1, scale=0.9, random_state=0)
        times = []
        for _ in range(5):
            times.append([spent(ratio, pair) for ratio in (ULSIF(random_state=0), steelyard.AutoRatio(random_state=0))])
        kernel, auto = np.median(times, axis=0)
        share = np.median([b / a for a, b in times])
        yield f"| {n:,} | {kernel:.3f} | {auto:.3f} | {share:.1f} |"


def spent(ratio: Any, pair: Any) -> float:
    start = time.process_time()
    ratio.fit(pair.X, target=pair.X_target)
    return time.process_time() - start


def commit(folder: Path) -> str:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=folder)
    return git.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--before", type=Path, help="src of an older checkout, to compare small tables with")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.child:
        print(json.dumps(small_errors()))
        return
    parts: list[Callable[[], Iterator[str]]] = [
        ten_cell_table,
        binary_table,
        lambda: downstream(options.draws),
        lambda: small_tables(options.before),
        mixed,
        stability,
        cost,
    ]
    lines = ["# Weights on every kind of table\n"]
    for part in parts:
        for line in part():
            print(line, flush=True)
            lines.append(line)
    older = "" if options.before is None else f"; before: {commit(options.before)}"
    lines.append(f"\nMade by `python -m benchmarks.weights_on_tables` at {commit(Path(__file__).parent)}{older}.\n")
    if options.out:
        options.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
