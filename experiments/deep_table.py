"""What the deep tables share: baselines, the authors' training of LeNet-5, accuracies at the end and on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.engine.cells import Experiment, Settings, printed
from experiments.engine.deep_runner import kept
from experiments.engine.page import Entry, Section
from experiments.engine.summary import Row, Summary

if TYPE_CHECKING:
    from steelyard.deep import Settings as Training

# Names in the survey's tables, and what `steelyard.deep.training.methods.baseline` calls them.
BASELINES = {"Clean": "clean_only", "Uniform": "uniform", "Random": "random", "Reweight": "reweight"}
ON_THE_WAY = (10, 26, 60)  # epochs; the authors' log has the first two
EARLY = slice(19, 60)  # epochs 20 to 60


def tenth_each_quarter(epoch: int, settings: Settings) -> float:
    """A learning rate that falls to a tenth after each quarter of the epochs, as after 100 of 400."""
    return float(0.1 ** (epoch // max(1, settings["epochs"] // 4)))


def lenet_training(settings: Settings, target_batch_size: int | None = None) -> Training:
    """Gradient descent on summed losses, as in the authors' code."""
    import torch

    from steelyard.deep import Settings as Training

    return Training(
        lambda parameters: torch.optim.SGD(parameters, lr=settings["rate"], weight_decay=1e-4),
        schedule=lambda epoch: tenth_each_quarter(epoch, settings),
        target_batch_size=target_batch_size,
        summed=True,
    )


def accuracies(
    experiment: Experiment, summary: Summary, title: str, names: Mapping[str, str], methods: Sequence[str], remark: str
) -> Section:
    """A row a method; data sets by their heads, each beside the survey's column. What was not run says so."""
    ran = {(row.data, row.method): row for row in summary.rows}
    paper = printed(f"{experiment.file}.csv")
    lines, most = [], max(row.trials for row in summary.rows)
    for method in methods:
        line = [Entry(method)]
        for data in names.values():
            row, theirs = ran.get((data, method)), paper.get((data, method))
            line.append(Entry("not run") if row is None else Entry(_accuracy(row, most), row.best))
            line.append(Entry("" if theirs is None else f"{100 - theirs.mean:.2f} ({theirs.sd:.2f})"))
        lines.append(line)
    head = ["method", *(text for name in names for text in (name, "survey"))]
    note = (
        "Bold: best of those with the most trials, and what is not significantly worse (paired t-test, 5 %, of three "
        "trials or more). "
    )
    return Section(f"{title}: accuracy in %, mean (sd) at the last epoch", head, lines, note + remark)


def _accuracy(row: Row, most: int) -> str:
    """Mean and spread in %, and of how many trials where others have more; one trial has no spread."""
    spread = f" ({row.sd:.2f})" if row.trials > 1 else ""
    return f"{100 - row.mean:.2f}{spread}" + (f", {row.trials} of {most} trials" if row.trials < most else "")


def course(experiment: Experiment, summary: Summary, title: str, epochs: Mapping[str, int]) -> Section:
    """Test accuracy on the way, of what was run; `epochs` of each data set, those of pretraining left out."""
    lines = []
    for row in summary.rows:
        arrays = kept(summary.folder, experiment, row.data, row.method)
        if arrays is None:
            continue
        accuracy = 100 * arrays["curves"][:, -epochs[row.data] :, 0]
        mean = accuracy.mean(axis=0)
        early = f"{mean[EARLY].mean():.2f}" if len(mean) >= EARLY.stop else ""
        passed = [f"{mean[k - 1]:.2f}" if k <= len(mean) else "" for k in ON_THE_WAY]
        best = [f"{accuracy.max(axis=1).mean():.2f}", f"{np.median(accuracy.argmax(axis=1)) + 1:.0f}"]
        lines.append([Entry(text) for text in (f"{row.data}: {row.method}", *passed, early, *best, f"{mean[-1]:.2f}")])
    head = ["", *(f"after {k}" for k in ON_THE_WAY), f"mean of {EARLY.start + 1} to {EARLY.stop}", "best", "in", "end"]
    note = "Accuracy in % on the test images, mean over the trials; best: of each trial, and the median of its epoch."
    return Section(f"{title}: on the way", head, lines, note)
