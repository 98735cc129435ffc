"""Wrong labels on small tables: the dynamically weighted classifier with its defaults, on scikit-learn's digits."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.engine.cells import Cell, Experiment, Named, Setting, Settings, stream
from experiments.engine.page import Entry, Section
from experiments.engine.summary import LEVEL, Summary, paired_p_value
from steelyard._typing import FloatArray, IntArray
from steelyard.datasets import label_noise, mixed_tables
from steelyard.errors import DataNotFoundError
from steelyard.target import Target

if TYPE_CHECKING:
    from torch import nn

PAIR, SYMMETRIC, ONE_SIDED = Named("digits pair"), Named("digits symmetric"), Named("mixed table one-sided")
DATA = [PAIR, SYMMETRIC, ONE_SIDED]
# Random numbers come from these names, under which the reported trials were drawn; those in files have no comma.
DRAWN_AS = {
    PAIR.name: "digits, pair",
    SYMMETRIC.name: "digits, symmetric",
    ONE_SIDED.name: "mixed table, one-sided",
}
DEFAULT, UNWEIGHTED, CLEAN, PEER = Named("default"), Named("no weights"), Named("clean rows alone"), Named("cleanlab")
RANKING, PEER_RANKING = Named("AUC of label_issues"), Named("AUC of cleanlab")
OWN, PEERS = [DEFAULT, UNWEIGHTED, CLEAN, RANKING], [PEER, PEER_RANKING]
PEER_FILE = Path(__file__).with_name("digits_cleanlab.csv")
TEST_DIGITS, TEST_ROWS, TABLE_ROWS, TABLE_CLEAN = 400, 1500, 4000, 200


@dataclass(frozen=True, eq=False)
class Draw:
    """Training rows with given and right labels, clean rows and test rows."""

    X: FloatArray
    given: IntArray
    right: IntArray
    X_clean: FloatArray
    y_clean: IntArray
    X_test: FloatArray
    y_test: IntArray

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.right.max()) + 1


def draw(name: str, trial: int, settings: Settings, seed: int) -> Draw:
    """The rows of a trial."""
    rng = stream(seed, "digits", DRAWN_AS[name], trial)
    if name == ONE_SIDED.name:
        X, y = _mixed_table(rng)
        n_test, n_clean = TEST_ROWS, TABLE_CLEAN
    else:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        X, n_test, n_clean = X / 16, TEST_DIGITS, settings["clean_rows"]
    order = rng.permutation(len(y))
    test, clean, rest = np.split(order, [n_test, n_test + n_clean])
    right = y[rest]
    if name == ONE_SIDED.name:
        given = np.where((right == 1) & (rng.random(len(rest)) < settings["one_sided_rate"]), 0, right)
    else:
        given = label_noise(right, settings["rate"], name.rpartition(" ")[2], n_classes=10, random_state=rng)
    X = X.astype(np.float32)
    return Draw(X[rest], given, right, X[clean], y[clean], X[test], y[test])


def _mixed_table(rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """`mixed_tables`, 7 numbers and 8 categories; whether a noisy function of them is above its median."""
    X = mixed_tables(TABLE_ROWS, 1, random_state=rng).X
    X[:, :7] = (X[:, :7] - X[:, :7].mean(axis=0)) / X[:, :7].std(axis=0)
    curve = X[:, 0] + X[:, 3] + 0.5 * X[:, 1] ** 2 + X[:, 7] * X[:, 2] + X[:, 13] - X[:, 20]
    label = curve + 0.3 * rng.normal(size=len(curve))
    return X, (label > np.median(label)).astype(np.int64)


def network(draw: Draw, trial: int, settings: Settings) -> nn.Module:
    """One hidden layer; the same initial parameters for every method."""
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(trial)
        hidden = settings["hidden"]
        return nn.Sequential(nn.Linear(draw.X.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, draw.n_classes))


def compute(cell: Cell[Named, Named], settings: Settings, seed: int) -> float:
    """Share of test rows that are classified wrongly, in %; or the AUC of a ranking of the training rows."""
    name, trial = cell.data.name, cell.trial
    if cell.method in PEERS:
        return stored_peer(name, trial, settings, seed)[cell.method.name]
    return _figures(name, trial, seed, json.dumps(dict(settings), sort_keys=True))[cell.method.name]


@lru_cache(maxsize=4)
def _figures(name: str, trial: int, seed: int, settings: str) -> dict[str, float]:
    """All figures of a trial: the cells of one trial follow each other."""
    import torch
    from sklearn.metrics import roc_auc_score

    from steelyard.deep import DynamicWeightedClassifier

    chosen = json.loads(settings)
    rows = draw(name, trial, chosen, seed)
    start = network(rows, trial, chosen)
    torch.set_num_threads(1)
    model = DynamicWeightedClassifier(start, random_state=trial, progress=False)
    model.fit(rows.X, rows.given, target=Target(rows.X_clean, rows.y_clean))
    order, scores = model.label_issues()
    n_trained = len(rows.X) + len(rows.X_clean) - len(model.kept_rows_)
    n_steps = model.epochs_ * (n_trained // model.batch_size_)
    everything = np.concatenate([rows.X, rows.X_clean]), np.concatenate([rows.given, rows.y_clean])
    return {
        DEFAULT.name: wrong(model.module_, rows),
        UNWEIGHTED.name: wrong(plain(start, *everything, n_steps, model.batch_size_, trial), rows),
        CLEAN.name: wrong(plain(start, rows.X_clean, rows.y_clean, n_steps, model.batch_size_, trial), rows),
        RANKING.name: float(roc_auc_score((rows.given != rows.right)[order], scores)),
    }


def plain(start: nn.Module, X: FloatArray, y: IntArray, n_steps: int, batch_size: int, seed: int) -> nn.Module:
    """A copy of the network after as many steps of Adam without weights; the last epoch."""
    import copy

    import torch

    from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, baseline, train

    rows, labels = torch.tensor(X), torch.tensor(y).long()
    epochs = max(1, round(n_steps / max(1, len(y) // batch_size)))
    model = copy.deepcopy(start)
    run = TrainingRun(baseline("uniform", model, epochs), TrainingData(rows, labels, Target(rows)), seed=seed)
    train(run, TrainingConfig(lambda p: torch.optim.Adam(p, lr=1e-3), batch_size=batch_size), progress=False)
    return model.eval()


def wrong(model: nn.Module, rows: Draw) -> float:
    """Share of test rows that are classified wrongly, in %."""
    import torch

    with torch.no_grad():
        found = model(torch.tensor(rows.X_test)).argmax(dim=1).numpy()
    return 100 * float(np.mean(found != rows.y_test))


@lru_cache(maxsize=1)
def _peer_rows() -> dict[tuple[str, str, str, str], dict[str, float]]:
    with PEER_FILE.open(newline="") as file:
        return {
            (row["settings"], row["seed"], row["data"], row["trial"]): {
                each.name: float(row[each.name]) for each in PEERS
            }
            for row in csv.DictReader(file)
        }


def stored_peer(name: str, trial: int, settings: Settings, seed: int) -> dict[str, float]:
    """What ``python -m benchmarks.cleanlab_digits`` measured of a trial, in an environment of its own."""
    found = _peer_rows().get((json.dumps(dict(settings), sort_keys=True), str(seed), name, str(trial)))
    if found is None:
        raise DataNotFoundError(
            f"{PEER_FILE.name} has no figures of cleanlab for {name}, trial {trial}, with these settings. Run python "
            f"-m benchmarks.cleanlab_digits --first-trial {trial} --trials 1 in the benchmark environment."
        )
    return found


def methods_of(data: Named) -> list[Named]:
    """cleanlab was measured on digits."""
    return OWN if data == ONE_SIDED else [*OWN, *PEERS]


def sections(summary: Summary[Named, Named]) -> list[Section]:
    """Accuracies and rankings, and the differences that the defaults are judged by."""
    return [_accuracies(summary), _differences(summary)]


def _accuracies(summary: Summary[Named, Named]) -> Section:
    lines = []
    for data in DATA:
        line = [Entry(data.label)]
        for method in (DEFAULT, UNWEIGHTED, CLEAN, PEER):
            errors = summary.errors.get((data, method))
            line.append(Entry("" if errors is None else f"{100 - errors.mean():.2f} ({errors.std(ddof=1):.2f})"))
        for method in (RANKING, PEER_RANKING):
            areas = summary.errors.get((data, method))
            line.append(Entry("" if areas is None else f"{areas.mean():.3f} (least {areas.min():.3f})"))
        lines.append(line)
    header = ["data", *(method.label for method in (DEFAULT, UNWEIGHTED, CLEAN, PEER, RANKING, PEER_RANKING))]
    note = (
        "Accuracy in % on the test rows, mean (sd); AUC of wrong labels against right ones by the score of the "
        "ranking. cleanlab was not run on the mixed table."
    )
    return Section("Wrong labels: accuracy and ranking", header, lines, note)


def _differences(summary: Summary[Named, Named]) -> Section:
    lines = []
    for data in DATA:
        own = summary.errors[data, DEFAULT]
        line = [Entry(data.label)]
        for method in (UNWEIGHTED, CLEAN, PEER):
            errors = summary.errors.get((data, method))
            if errors is None:
                line.append(Entry(""))
                continue
            above, p = float(np.mean(errors - own)), paired_p_value(own, errors)
            line.append(Entry(f"{above:+.2f} (p = {p:.2g})", above > 0 or p >= LEVEL))
        lines.append(line)
    header = ["data", *(f"above {method.label}" for method in (UNWEIGHTED, CLEAN, PEER))]
    note = "Points of accuracy that the default is above, paired t-test over the trials. Bold: not significantly below."
    return Section("Wrong labels: the default against the others", header, lines, note)


EXPERIMENT = Experiment(
    name="digits",
    title="Wrong labels on small tables, with default settings",
    explains=(
        "Not a table of the survey. scikit-learn's digits, 1,297 training rows with labels flipped to the next class "
        "(pair) or to any other (symmetric), a hundred clean rows and 400 test rows; and a mixed table of 7 numbers "
        "and 8 categories, 2,300 training rows whose labels are wrong in one direction only, 200 clean rows. "
        "DynamicWeightedClassifier with default settings and one hidden layer; the same network after as many steps on "
        "all rows without weights and on the clean rows alone, last epoch; and cleanlab's filtering by cross-validated "
        "probabilities of that network, followed by training on what is left, with the clean rows, a quarter of which "
        "choose the epoch as in the default."
    ),
    settings={
        "rate": Setting(0.3, "share of wrong labels of digits"),
        "one_sided_rate": Setting(0.5, "share of the positive labels of the mixed table that are given as negative"),
        "clean_rows": Setting(100, "of digits"),
        "hidden": Setting(128, "units of the hidden layer"),
    },
    data_class=Named,
    method_class=Named,
    data=lambda settings: DATA,
    methods=methods_of,
    compute=compute,
    sections=sections,
    pictures=lambda summary: [],
    controls=frozenset([RANKING, PEER_RANKING]),
    trials=range(10),
)
