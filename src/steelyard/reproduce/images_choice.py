"""What the survey leaves open of table 3, chosen without a label of the target: by weighted validation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steelyard.reproduce.deep_runner import Job, classes, curves, pixels
from steelyard.reproduce.images import EXPERIMENT as TABLE
from steelyard.reproduce.images import LEVELS, build, epochs_used, halves, network, training, turned
from steelyard.reproduce.plan import Experiment, Settings, stream
from steelyard.reproduce.report import Entry, Section
from steelyard.reproduce.summary import Summary

if TYPE_CHECKING:
    from torch import Tensor, nn

    from steelyard.deep import Task, Trial

DATA = "Fashion-MNIST (2, 4)"
OPTIMISERS = ["adam 0.001", "adam 0.0003", "adam 0.0001", "sgd 0.1", "sgd 0.01"]
FLATTENINGS = [0.25, 0.5, 0.75, 1.0]
ETAS = [0.1, 0.3, 0.5, 0.7]
FILTERS = ["6+16", "32+64"]
# Of the table: what ERM was best with, which γ and η are chosen with.
TAKEN = {name: TABLE.settings[name].default for name in ("optimiser", "filters")}


def _named(method: str, chosen: dict[str, object]) -> str:
    rest = "".join(f", {LETTERS[name]} = {chosen[name]}" for name in LETTERS if name in chosen)
    return f"{method}, {chosen['optimiser']}, {chosen['filters']} filters{rest}"


LETTERS = {"flattening": "γ", "eta": "η"}
CANDIDATES: dict[str, tuple[str, dict[str, object]]] = {
    _named(method, chosen): (method, chosen)
    for method, choices in {
        "ERM": [{"optimiser": optimiser, "filters": filters} for filters in FILTERS for optimiser in OPTIMISERS],
        "EIWERM": [{**TAKEN, "flattening": value} for value in FLATTENINGS],
        "RIWERM": [{**TAKEN, "eta": value} for value in ETAS],
    }.items()
    for chosen in choices
}
JUDGE = {"optimiser": "adam 0.001", "filters": "6+16"}  # one for all candidates
VALIDATION_ROWS = 10000


def job(data: str, method: str, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """Trials of a candidate."""
    chosen = {**settings, **CANDIDATES[method][1]}
    made = [_trial(stream(seed, "images choice", data, trial), method, trial, settings, device) for trial in trials]
    return Job(made, training(chosen), lambda trained: {"curves": curves(trained)})


def _trial(rng: np.random.Generator, candidate: str, number: int, settings: Settings, device: str) -> Trial:
    """As in the table, but the first rows are kept for validation: drawn as often as a discriminator finds likely."""
    import torch

    from steelyard.deep import Task, Trial

    source, _ = halves("Fashion-MNIST", rng)
    n = settings["rows"] or len(source.y)
    kept = min(VALIDATION_ROWS, n // 5)
    a, b = LEVELS["(2, 4)"]
    upright, y = pixels(source.X[:n], device), classes(source.y[:n], device)
    X, target = turned(upright, 180 * rng.beta(a, b, n)), turned(upright[kept:], 180 * rng.beta(b, a, n - kept))
    task = Task(X[kept:], y[kept:], target)
    torch.manual_seed(int(rng.integers(2**31)))
    judge = network(1, JUDGE, device)
    drawn = _drawn_by_ratio(X[:kept], task, judge, settings["pretrain"], number, rng)
    method, changes = CANDIDATES[candidate]
    chosen = {**settings, **changes}
    f, g = (network(n_outputs, chosen, device) for n_outputs in (10, 1))
    return Trial(build(method, f, g, chosen), task, seed=number, watch={"test": (X[drawn], y[drawn])})


def _drawn_by_ratio(
    rows: Tensor, task: Task, judge: nn.Module, epochs: int, number: int, rng: np.random.Generator
) -> Tensor:
    """Numbers of rows, drawn with the ratio of target to source for their probability.

    The ratio is that of a network of its own, which learns from the other rows as EIWERM's does.
    """
    import torch

    from steelyard.deep import Task, Trial, onestep, train
    from steelyard.deep.plan import Method, Phase

    phase = Phase("discriminate", "g", epochs, onestep.discriminate)
    train(Trial(Method("judge", {"g": judge}, [phase]), task, seed=number), training(JUDGE), progress=False)
    ratio = onestep.source_ratio({"g": judge}, Task(rows, task.y[: len(rows)], task.target_X)).cpu().numpy()
    return torch.tensor(rng.choice(len(rows), len(rows), p=ratio / ratio.sum()), device=rows.device)


def sections(summary: Summary) -> list[Section]:
    """The accuracy of each candidate, those of a method together."""
    lines = []
    for row in summary.rows:
        method = CANDIDATES[row.method][0]
        least = min(r.mean for r in summary.rows if CANDIDATES[r.method][0] == method)
        lines.append([Entry(row.method), Entry(f"{100 - row.mean:.2f} ({row.sd:.2f})", row.mean == least)])
    note = (
        f"{DATA}, {VALIDATION_ROWS:,} training images that are not learnt from, drawn by the ratio of a discriminator: "
        "no label of the target is used. Bold: the best candidate of a method. "
    )
    head = ["candidate", "accuracy in %, mean (sd)"]
    return [Section("Table 3: what was chosen", head, lines, note + epochs_used(summary.settings))]


def figures(summary: Summary, folder: Path) -> list[Path]:
    """None beside the table."""
    return []


EXPERIMENT = Experiment(
    name="images-choice",
    file="table3_choice",
    title="Table 3: the choice of optimiser, filters, γ and η",
    explains=(
        "Optimiser and filters by ERM, then γ of EIWERM and η of RIWERM with them, judged by training images that were "
        "kept apart and drawn by an estimated ratio, as the target's labels are not to be used."
    ),
    settings={name: setting for name, setting in TABLE.settings.items() if name not in (*TAKEN, *LETTERS)},
    data=lambda settings: [DATA],
    methods=lambda data: list(CANDIDATES),
    compute=None,
    sections=sections,
    figures=figures,
    trials=1,
    job=job,
)
