"""Are the weights right on every kind of table? Discrete, small and mixed tables, and the methods that use weights."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
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
from experiments.engine.cells import Setting, Settings
from experiments.engine.study import Study
from experiments.studies.discrete_tables import (
    binary_columns,
    labeled_ten_cells,
    ratio_of_counts,
    target_accuracy,
    ten_cells,
)
from steelyard import KLIEP, KMM, LSIF, RULSIF, ULSIF, ClassifierRatio
from steelyard._numerics.weighted_means import standard_error
from steelyard._typing import FloatArray
from steelyard.datasets import gaussian_pair

ROOT = Path(__file__).parents[2]
SMALL = ((50, 2), (100, 2), (200, 2), (100, 5), (200, 5))
ETA = 0.3
UNSEEN = 600  # from here on, seeds that no decision was made on


def estimators() -> dict[str, Any]:
    """The density ratio estimators that are compared."""
    return {
        "ULSIF": ULSIF(random_state=0),
        "RULSIF(0.3)": RULSIF(ETA, random_state=0),
        "LSIF": LSIF(random_state=0),
        "KLIEP": KLIEP(random_state=0),
        "KMM": KMM(random_state=0),
        "ClassifierRatio": ClassifierRatio(random_state=0),
        "AutoRatio": steelyard.AutoRatio(random_state=0),
    }


def rmse(weights: Any, truth: FloatArray) -> float:
    """Root mean squared error of weights."""
    return float(np.sqrt(np.mean(np.square(weights - truth))))


def estimand(ratio: Any, truth: FloatArray) -> FloatArray:
    """What an estimator estimates: for RULSIF the relative density ratio, scaled to mean one."""
    if type(ratio) is not RULSIF:  # ULSIF is a RULSIF with η = 0
        return truth
    bounded = truth / (1 - ETA + ETA * truth)
    return np.asarray(bounded / bounded.mean())


def ten_cell_table() -> Iterator[str]:
    """Weights on ten cells against the ratio of counts."""
    yield "## Ten cells"
    yield "RMSE of the weights to the ratio of the cells' counts, n = m = 2,000, seeds 0 to 9.\n"
    yield "| estimator | mean | largest |\n|---|--:|--:|"
    tables = [ten_cells(seed) for seed in range(10)]
    truths = [ratio_of_counts(*table) for table in tables]
    errors = [rmse(1, truth) for truth in truths]
    yield f"| w ≡ 1 | {np.mean(errors):.3f} | {max(errors):.3f} |"
    for name, ratio in estimators().items():
        errors = [
            rmse(clone(ratio).fit(X, target=target).weights_, estimand(ratio, truth))
            for (X, target), truth in zip(tables, truths, strict=True)
        ]
        yield f"| {name} | {np.mean(errors):.3f} | {max(errors):.3f} |"


def binary_table() -> Iterator[str]:
    """Weights on binary columns against the ratio of the population."""
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
            errors = [_binary_error(ratio, k, seed) for seed in range(5)]
            shares.append(sum(e for e, _ in errors) / sum(e for _, e in errors))
        yield f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |"


def _binary_error(ratio: Any, k: int, seed: int) -> tuple[float, float]:
    X, target, truth = binary_columns(seed, k)
    truth = estimand(ratio, truth)
    return rmse(clone(ratio).fit(X, target=target).weights_, truth), rmse(1, truth)


def downstream(draws: int) -> Iterator[str]:
    """Methods that use the weights."""
    yield "\n## Methods that use the weights"
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
    """Results of the methods that use the weights on these draws of the ten-cell table."""
    found: dict[str, list[float]] = {name: [] for name in ("covers", "iwcv", "truth", "within", "one", "weighted")}
    for seed in seeds:
        X, y, target = labeled_ten_cells(seed)
        model = LogisticRegression().fit(X[:1000], y[:1000])
        interval = steelyard.target_performance(model, X[1000:], y[1000:], target=target).target
        low, high = interval.low, interval.high
        found["covers"].append(low is not None and high is not None and low <= target_accuracy(model) <= high)
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


def small_tables(before: str) -> Iterator[str]:
    """Weights on few rows, beside an older commit where one is given."""
    from scipy.stats import ttest_rel

    yield "\n## Few rows"
    yield (
        "`gaussian_pair(n, n, d, shift=.5, scale=.8)`, random_state 0 to 199: mean squared error of ULSIF's weights; "
        "before: the commit named below, on the same draws; p of the paired t-test.\n"
    )
    found = small_errors()
    older = errors_of(before) if before else {}
    yield "| n, d | MSE | before | p |\n|---|--:|--:|--:|"
    for size, errors in found.items():
        old = older.get(size)
        beside = " | |" if old is None else f" {np.mean(old):.3f} | {ttest_rel(errors, old).pvalue:.1g} |"
        yield f"| {size} | {np.mean(errors):.3f} |{beside}"


def errors_of(before: str) -> dict[str, list[float]]:
    """The same squared errors by the package of an older commit, which need not have the experiments."""
    imports = "import json, warnings\nimport numpy as np\nfrom steelyard import ULSIF\n"
    imports += "try:\n    from steelyard.datasets import gaussian_pair\n"
    imports += "except ModuleNotFoundError:  # as it was called before\n    from steelyard.data import gaussian_pair\n"
    imports += f"warnings.simplefilter('ignore')\nSMALL = {SMALL!r}\n"
    script = f"{imports}{inspect.getsource(small_errors)}\nprint(json.dumps(small_errors()))"
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", before, "src"], stdout=subprocess.PIPE, cwd=ROOT, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        environment = os.environ | {"PYTHONPATH": str(Path(folder) / "src")}
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment, check=True
        )
    found: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def mixed() -> Iterator[str]:
    """Balance of the columns of mixed tables."""
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
    """Effective sample size over seeds, and over tables that lack a row."""
    yield "\n## Does the seed, or a single row, matter?"
    yield (
        "Coefficient of variation of AutoRatio's effective sample size over ten seeds of the fit, and over ten tables "
        "that each lack one random row. Beside it, the same of one candidate: the most even one within one standard "
        "error of the best, by its cross-fitted weights; and the largest coefficient of variation of any candidate by "
        f"itself, over rows. Seeds from {UNSEEN} on were not looked at before the code was final.\n"
    )
    yield "| table | ESS | over seeds | over rows | one candidate, over seeds | over rows | each by itself |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name, (X, target) in stable_tables():
        rows = np.random.default_rng(0).integers(len(X), size=10)
        over_seeds = [steelyard.AutoRatio(random_state=seed).fit(X, target=target) for seed in range(10)]
        over_rows = [steelyard.AutoRatio(random_state=0).fit(np.delete(X, row, axis=0), target=target) for row in rows]
        shown = [_variation([fit.effective_sample_size_ for fit in fits]) for fits in (over_seeds, over_rows)]
        shown += [_variation([_size_of_one(fit) for fit in fits]) for fits in (over_seeds, over_rows)]
        sizes = [{c.name: c.effective_sample_size for c in fit.candidates_} for fit in over_rows]
        shown.append(max(_variation([size[candidate] for size in sizes]) for candidate in sizes[0]))
        mean = np.mean([fit.effective_sample_size_ for fit in over_seeds])
        yield f"| {name} | {mean:.0f} of {len(X)} | " + " | ".join(f"{value:.1%}" for value in shown) + " |"


def _variation(sizes: list[float]) -> float:
    return float(np.std(sizes, ddof=1) / np.mean(sizes))


def _size_of_one(fit: steelyard.AutoRatio) -> float:
    """Effective sample size of the most even candidate within one standard error of the best."""
    best = fit.candidates_[0]
    return max(c.effective_sample_size for c in fit.candidates_ if c.score <= best.score + c.error)


def stable_tables() -> Iterator[tuple[str, tuple[FloatArray, FloatArray]]]:
    """Tables of every kind, by name."""
    for shift, seed in product(("linear", "products"), (*range(5), *range(UNSEEN, UNSEEN + 5))):
        tables = steelyard.datasets.mixed_tables(shift=shift, random_state=seed)
        yield f"mixed, {shift}, seed {seed}", (tables.X, tables.X_target)
    for seed in (0, 1, UNSEEN, UNSEEN + 1):
        pair = gaussian_pair(1500, 1500, 5, shift=0.3, scale=0.9, random_state=seed)
        yield f"five Gaussian columns, seed {seed}", (pair.X, pair.X_target)
        yield f"ten cells, seed {seed}", ten_cells(seed, 1500, 1500)


def cost() -> Iterator[str]:
    """CPU seconds of a fit."""
    yield "\n## Cost"
    yield "CPU seconds of a fit on n = m rows by 20 Gaussian columns, one thread, median of five.\n"
    yield "| rows | ULSIF | AutoRatio | ratio |\n|--:|--:|--:|--:|"
    for n in (1000, 10_000):
        pair = gaussian_pair(n, n, 20, shift=0.1, scale=0.9, random_state=0)
        times = []
        for _ in range(5):
            times.append(
                [_spent(ratio, pair) for ratio in (ULSIF(random_state=0), steelyard.AutoRatio(random_state=0))]
            )
        kernel, auto = np.median(times, axis=0)
        share = np.median([b / a for a, b in times])
        yield f"| {n:,} | {kernel:.3f} | {auto:.3f} | {share:.1f} |"


def _spent(ratio: Any, pair: Any) -> float:
    start = time.process_time()
    ratio.fit(pair.X, target=pair.X_target)
    return time.process_time() - start


def commit() -> str:
    """The commit of this checkout."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    return git.stdout.strip()


def page(settings: Settings, folder: Path) -> str:
    """All parts, and the commits they were made at."""
    before, lines = str(settings["before"]), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [ten_cell_table(), binary_table(), downstream(settings["draws"]), small_tables(before), mixed()]
        for part in (*parts, stability(), cost()):
            lines += list(part)
    older = f"; before: {before}" if before else ""
    return "\n".join(lines) + f"\n\nAt commit {commit()}{older}."


STUDY = Study(
    name="weights-on-tables",
    title="Weights on every kind of table",
    explains="Importance weights on discrete, small and mixed tables, and the methods that use them.",
    page=page,
    settings={
        "draws": Setting(200, "draws of the ten-cell table"),
        "before": Setting("", "an older commit, to compare small tables with"),
    },
)
