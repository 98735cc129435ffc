"""Pictures of the deep tables, from what their groups of trials kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.engine.cells import Experiment
from experiments.engine.deep_runner import kept
from experiments.engine.drawing import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save_figure
from experiments.engine.summary import Summary
from steelyard._typing import FloatArray

COLORS = {
    "Clean": GREEN,
    "Uniform": GREY,
    "Random": "#c9b458",
    "IW": ORANGE,
    "Reweight": "#7b5ea7",
    "DIW2-L": RED,
    "DIW": RED,
    "Truth": "black",
    "ERM": GREY,
    "EIWERM": ORANGE,
    "RIWERM": "#7b5ea7",
    "one-step": RED,
}


def draw_curves(
    experiment: Experiment, names: Sequence[str], methods: Sequence[str], folder: Path, file: str
) -> Path | None:
    """Test accuracy after every epoch, mean and standard deviation over trials; a panel a data set."""
    found = {name: _ran(experiment, name, [m for m in methods if m in COLORS], folder) for name in names}
    found = {name: each for name, each in found.items() if each}
    if not found:
        return None
    figure = new_figure(5.2 * len(found), 4.2)
    for axes, (name, each) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        lowest = 100.0
        for method, arrays in each.items():
            accuracy = 100 * arrays["curves"][:, :, 0]
            mean, spread = accuracy.mean(axis=0), accuracy.std(axis=0)
            epochs = np.arange(1, len(mean) + 1)
            axes.plot(epochs, mean, color=COLORS[method], linewidth=1.4)
            # A trial that collapses makes a standard deviation that reaches beyond every trial.
            band = np.maximum(mean - spread, accuracy.min(axis=0)), np.minimum(mean + spread, accuracy.max(axis=0))
            axes.fill_between(epochs, *band, color=COLORS[method], alpha=0.2, linewidth=0)
            lowest = min(lowest, mean[len(mean) // 10 :].min())
        axes.set(title=name, xlabel="epoch", ylabel="test accuracy, % (band: one sd)", ylim=(max(0, lowest - 3), None))
        _label_ends(axes, {method: 100 * float(a["curves"][:, -1, 0].mean()) for method, a in each.items()})
    return save_figure(figure, folder / file)


def draw_beside_printed(summary: Summary, names: Sequence[str], methods: Sequence[str], path: Path) -> Path | None:
    """Accuracy of each method and the survey's, a panel a data set; lines are one standard deviation."""
    found = {name: {row.method: row for row in summary.of(name) if row.method in methods} for name in names}
    found = {name: rows for name, rows in found.items() if rows}
    if not found:
        return None
    figure = new_figure(3.8 * len(found), 0.9 + 0.32 * len(methods))
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(panels, found.items(), strict=True):
        for place, method in enumerate(methods):
            axes.axhline(place, color="#eeeeee", linewidth=0.8, zorder=0)
            if method in rows:
                ours, theirs = rows[method], rows[method].paper
                spread = ours.sd if ours.trials > 1 else 0
                axes.errorbar(100 - ours.mean, place, xerr=spread, fmt="o", color=RED, label="ours")
                if theirs is not None:
                    axes.errorbar(
                        100 - theirs.mean, place, xerr=theirs.sd, fmt="o", mfc="white", color=GREY, label="survey"
                    )
        axes.set(title=name, xlabel="test accuracy, %", yticks=range(len(methods)), yticklabels=methods)
    panels[0].invert_yaxis()
    labels = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    panels[-1].legend(labels.values(), labels, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return save_figure(figure, path)


def _label_ends(axes: Any, ends: Mapping[str, float]) -> None:
    """Names beside the ends of the curves, pushed apart where they would lie on each other."""
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    place = -np.inf
    for method, value in sorted(ends.items(), key=lambda pair: pair[1]):
        place = max(value, place + 0.055 * (high - low))
        axes.annotate(
            f"{method} {value:.1f}",
            (right, place),
            color=COLORS[method],
            va="center",
            fontsize=9,
            annotation_clip=False,
        )


def weights_of_intact_and_mislabelled(arrays: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """In the last epoch of the first trial; rows that are known to be clean are left out."""
    weights = arrays["weights"].astype(float)
    wrong = np.unpackbits(arrays["wrong"])[: len(weights)].astype(bool)
    there = np.isfinite(weights)
    there[arrays["clean"]] = False
    return weights[there & ~wrong], weights[there & wrong]


def draw_weights(experiment: Experiment, name: str, methods: Sequence[str], folder: Path, file: str) -> Path | None:
    """Weights of intact and mislabelled rows in the last epoch: boxes above, histograms below; clean rows left out."""
    each = _ran(experiment, name, methods, folder)
    if not each:
        return None
    figure = new_figure(4.2 * len(each), 6)
    grid = figure.subplots(2, len(each), squeeze=False)
    for column, (method, arrays) in enumerate(each.items()):
        intact, mislabelled = weights_of_intact_and_mislabelled(arrays)
        boxes = grid[0, column].boxplot(
            [intact, mislabelled], tick_labels=["intact", "mislabelled"], showfliers=False, patch_artist=True
        )
        for box, color in zip(boxes["boxes"], (BLUE, RED), strict=True):
            box.set(facecolor=color, alpha=0.5)
        grid[0, column].set(title=method, ylabel="weight" if not column else "")
        edges = np.linspace(0, max(float(np.quantile(np.concatenate([intact, mislabelled]), 0.995)), 1e-3), 60)
        for values, color, label in ((intact, BLUE, "intact"), (mislabelled, RED, "mislabelled")):
            grid[1, column].hist(np.clip(values, 0, edges[-1]), edges, color=color, alpha=0.5, label=label)
        grid[1, column].set(xlabel="weight", ylabel="rows" if not column else "")
        grid[1, column].legend(frameon=False)
    figure.suptitle(name)
    return save_figure(figure, folder / file)


def draw_weights_by_angle(
    experiment: Experiment, names: Sequence[str], methods: Sequence[str], folder: Path, file: str
) -> Path | None:
    """Mean weight of the images that were turned as far, beside the true ratio; a panel a level of shift."""
    found = {name: _ran(experiment, name, methods, folder) for name in names}
    found = {name: each for name, each in found.items() if each}
    if not found:
        return None
    figure = new_figure(4.6 * len(found), 3.8)
    edges = np.linspace(0, 180, 37)
    for axes, (name, each) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        for method, arrays in each.items():
            weights, angles = arrays["weights"].astype(float), arrays["angles"].astype(float)
            there = np.isfinite(weights)
            place = np.clip(np.digitize(angles[there], edges) - 1, 0, len(edges) - 2)
            sums, counts = (np.bincount(place, w, len(edges) - 1) for w in (weights[there], None))
            seen = counts >= min(10, len(angles) / 100)
            middle = (edges[1:] + edges[:-1]) / 2
            axes.plot(middle[seen], (sums / np.maximum(counts, 1))[seen], color=COLORS[method], label=method)
            a, b = arrays["level"]
        turn = np.linspace(0.02, 0.98, 200)
        ratio = (turn / (1 - turn)) ** (b - a)
        axes.plot(180 * turn, ratio, color="black", linestyle="--", linewidth=1, label="true ratio")
        axes.set(title=name, xlabel="angle, degrees", yscale="log", ylim=(1e-3, 1e3))
        axes.set_ylabel("weight in the last epoch")
        axes.legend(frameon=False)
    return save_figure(figure, folder / file)


def draw_embeddings(experiment: Experiment, name: str, methods: Sequence[str], folder: Path, file: str) -> Path | None:
    """Test images as the last hidden layer sees them, by t-SNE; colours are the true classes."""
    each = _ran(experiment, name, methods, folder)
    if not each:
        return None
    columns = min(5, len(each))
    rows = -(-len(each) // columns)
    figure = new_figure(2.8 * columns, 3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (method, arrays) in zip(panels, each.items(), strict=False):
        axes.scatter(*arrays["embedded"].T, c=arrays["embedded_labels"], cmap="tab10", s=5, linewidths=0)
        axes.set(title=method, xticks=[], yticks=[])
    for axes in panels[len(each) :]:
        axes.set_visible(False)
    figure.suptitle(f"{name}\ntest images in the last hidden layer (t-SNE)")
    return save_figure(figure, folder / file)


def draw_denoising(experiment: Experiment, name: str, methods: Sequence[str], folder: Path, file: str) -> Path | None:
    """Accuracy after every epoch: of the test, of intact rows, of mislabelled ones by both labels; a panel a method."""
    each = _ran(experiment, name, methods, folder)
    if not each:
        return None
    figure = new_figure(3.6 * len(each), 3.8)
    panels = figure.subplots(1, len(each), squeeze=False, sharey=True)[0]
    shown = [("test", "black"), ("intact", BLUE), ("mislabelled, given label", RED), ("mislabelled, true label", GREEN)]
    for axes, (method, arrays) in zip(panels, each.items(), strict=True):
        for place, (label, color) in enumerate(shown):
            mean = 100 * arrays["curves"][:, :, place].mean(axis=0)
            axes.plot(np.arange(1, len(mean) + 1), mean, color=color, linewidth=1.4, label=label)
        axes.set(title=method, xlabel="epoch", ylim=(0, 100))
    panels[0].set_ylabel("accuracy, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(name)
    return save_figure(figure, folder / file)


def _ran(experiment: Experiment, name: str, methods: Sequence[str], folder: Path) -> dict[str, Mapping[str, Any]]:
    found = {method: kept(folder, experiment, name, method) for method in methods}
    return {method: arrays for method, arrays in found.items() if arrays is not None}
