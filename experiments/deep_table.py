"""What the deep tables share: baselines, the authors' training of LeNet-5, accuracies at the end and on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.engine.cells import Arrays, D, M, Settings
from experiments.engine.page import Entry, Section
from experiments.engine.summary import Row, Summary

if TYPE_CHECKING:
    from steelyard.deep.training import TrainingConfig

# Names in the survey's tables, and those of `steelyard.deep.training.baseline`.
BASELINES = {"Clean": "clean_only", "Uniform": "uniform", "Random": "random", "Reweight": "reweight"}
SHOWN_EPOCHS = (10, 26, 60)  # the authors' log has the first two
EARLY = slice(19, 60)  # epochs 20 to 60


def tenth_each_quarter(epoch: int, settings: Settings) -> float:
    """A learning rate that falls to a tenth after each quarter of the epochs, as after 100 of 400."""
    return float(0.1 ** (epoch // max(1, settings["epochs"] // 4)))


def lenet_training(settings: Settings, target_batch_size: int | None = None) -> TrainingConfig:
    """Gradient descent on summed losses, as in the authors' code."""
    import torch

    from steelyard.deep.training import TrainingConfig

    return TrainingConfig(
        lambda parameters: torch.optim.SGD(parameters, lr=settings["rate"], weight_decay=1e-4),
        lr_schedule=lambda epoch: tenth_each_quarter(epoch, settings),
        target_batch_size=target_batch_size,
        reduction="sum",
    )


def accuracies(
    summary: Summary[D, M], title: str, columns: Mapping[str, D], methods: Sequence[M], remark: str
) -> Section:
    """One row for each method; data sets by their headings, each beside the survey's. Cells not run are named.

    Where some cell was trained with clean rows kept aside, each has its accuracy in the kept epoch too.
    """
    keeps = any("kept_epochs" in arrays for arrays in summary.arrays.values())
    ran = {(row.data, row.method): row for row in summary.rows}
    lines, most = [], max(row.trials for row in summary.rows)
    for method in methods:
        line = [Entry(method.label)]
        for data in columns.values():
            row, paper = ran.get((data, method)), summary.paper.get((data, method))
            line.append(Entry("not run") if row is None else Entry(_accuracy(row, most), row.best))
            if keeps:
                line.append(Entry(_kept_accuracy(summary.arrays.get((data, method), {}))))
            line.append(Entry("" if paper is None else f"{100 - paper.mean:.2f} ({paper.sd:.2f})"))
        lines.append(line)
    head = ["method"]
    for name in columns:
        head += [name, *(["kept epoch"] if keeps else []), "survey"]
    note = (
        "Bold: best of those with the most trials, and those not significantly worse (paired t-test, 5 %, of three "
        "trials or more). "
    ) + ("Kept epoch: that of the least loss on clean rows kept aside. " if keeps else "")
    return Section(f"{title}: accuracy in %, mean (sd) at the last epoch", head, lines, note + remark)


def _accuracy(row: Row[D, M], most: int) -> str:
    """Mean and standard deviation in %, and the number of trials where others have more; one trial has no deviation."""
    spread = f" ({row.sd:.2f})" if row.trials > 1 else ""
    return f"{100 - row.mean:.2f}{spread}" + (f", {row.trials} of {most} trials" if row.trials < most else "")


def _kept_accuracy(arrays: Arrays) -> str:
    """Mean and standard deviation in % of the accuracies in the kept epochs of the trials."""
    if "kept_epochs" not in arrays:
        return "not run"
    epochs = arrays["kept_epochs"]
    found = 100 * arrays["curves"][np.arange(len(epochs)), epochs, 0]
    return f"{found.mean():.2f}" + (f" ({found.std(ddof=1):.2f})" if len(found) > 1 else "")


def course(summary: Summary[D, M], title: str, epochs: Callable[[D], int]) -> Section:
    """Test accuracy during training, of what was run; `epochs` of a data set, those of pretraining left out."""
    lines = []
    for row in summary.rows:
        arrays = summary.arrays.get((row.data, row.method))
        if arrays is None:
            continue
        accuracy = 100 * arrays["curves"][:, -epochs(row.data) :, 0]
        mean = accuracy.mean(axis=0)
        early = f"{mean[EARLY].mean():.2f}" if len(mean) >= EARLY.stop else ""
        passed = [f"{mean[k - 1]:.2f}" if k <= len(mean) else "" for k in SHOWN_EPOCHS]
        best = [f"{accuracy.max(axis=1).mean():.2f}", f"{np.median(accuracy.argmax(axis=1)) + 1:.0f}"]
        name = f"{row.data.label}: {row.method.label}"
        lines.append([Entry(text) for text in (name, *passed, early, *best, f"{mean[-1]:.2f}")])
    head = ["", *(f"after {k}" for k in SHOWN_EPOCHS), f"mean of {EARLY.start + 1} to {EARLY.stop}"]
    note = "Accuracy in % on the test images, mean over the trials; best: of each trial, and the median of its epoch."
    return Section(f"{title}: during training", [*head, "best", "in", "end"], lines, note)
