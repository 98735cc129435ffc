"""Pictures of the deep tables, from the arrays that are stored with their trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments.engine.cells import Arrays, D, M
from experiments.engine.pictures import BLUE, GRAY, GREEN, ORANGE, RED, Picture, new_figure
from experiments.engine.summary import Row, Summary
from steelyard._typing import FloatArray

# By the labels of the methods.
COLORS = {
    "Clean": GREEN,
    "Uniform": GRAY,
    "Random": "#c9b458",
    "IW": ORANGE,
    "Reweight": "#7b5ea7",
    "DIW2-L": RED,
    "DIW": RED,
    "Truth": "black",
    "ERM": GRAY,
    "EIWERM": ORANGE,
    "RIWERM": "#7b5ea7",
    "one-step": RED,
}
# Of a group by the label of its method; groups by the label of their data.
Groups = Mapping[str, Mapping[str, Arrays]]


def curves_by_epoch(summary: Summary[D, M], name: str, data: Sequence[D], methods: Sequence[M]) -> Picture | None:
    """Test accuracy after every epoch, mean and standard deviation over trials; one panel for each data set."""
    found = _groups(summary, data, [method for method in methods if method.label in COLORS])
    return Picture(name, partial(_draw_curves, found)) if found else None


def _draw_curves(found: Groups) -> Any:
    figure = new_figure(5.2 * len(found), 4.2)
    for axes, (name, each) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        lowest = 100.0
        for method, arrays in each.items():
            accuracy = 100 * arrays["curves"][:, :, 0]
            mean, spread = accuracy.mean(axis=0), accuracy.std(axis=0)
            epochs = np.arange(1, len(mean) + 1)
            axes.plot(epochs, mean, color=COLORS[method], linewidth=1.4)
            # One collapsed trial makes a standard deviation that reaches beyond every trial.
            band = np.maximum(mean - spread, accuracy.min(axis=0)), np.minimum(mean + spread, accuracy.max(axis=0))
            axes.fill_between(epochs, *band, color=COLORS[method], alpha=0.2, linewidth=0)
            lowest = min(lowest, mean[len(mean) // 10 :].min())
        axes.set(title=name, xlabel="epoch", ylabel="test accuracy, % (band: one sd)", ylim=(max(0, lowest - 3), None))
        _label_ends(axes, {method: 100 * float(a["curves"][:, -1, 0].mean()) for method, a in each.items()})
    return figure


def _label_ends(axes: Any, ends: Mapping[str, float]) -> None:
    """Names beside the ends of the curves, moved apart where they would overlap."""
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


def beside_printed(summary: Summary[D, M], name: str, data: Sequence[D], methods: Sequence[M]) -> Picture | None:
    """Accuracy of each method and the survey's, one panel for each data set; lines are one standard deviation."""
    found = {each.label: {row.method.label: row for row in summary.of(each) if row.method in methods} for each in data}
    found = {label: rows for label, rows in found.items() if rows}
    labels = [method.label for method in methods]
    return Picture(name, partial(_draw_beside_printed, found, labels)) if found else None


def _draw_beside_printed(found: Mapping[str, Mapping[str, Row[Any, Any]]], methods: Sequence[str]) -> Any:
    figure = new_figure(3.8 * len(found), 0.9 + 0.32 * len(methods))
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(panels, found.items(), strict=True):
        for place, method in enumerate(methods):
            axes.axhline(place, color="#eeeeee", linewidth=0.8, zorder=0)
            if method in rows:
                row, paper = rows[method], rows[method].paper
                spread = row.sd if row.trials > 1 else 0
                axes.errorbar(100 - row.mean, place, xerr=spread, fmt="o", color=RED, label="ours")
                if paper is not None:
                    axes.errorbar(
                        100 - paper.mean, place, xerr=paper.sd, fmt="o", mfc="white", color=GRAY, label="survey"
                    )
        axes.set(title=name, xlabel="test accuracy, %", yticks=range(len(methods)), yticklabels=methods)
    panels[0].invert_yaxis()
    labels = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    panels[-1].legend(labels.values(), labels, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def weights_of_labels(summary: Summary[D, M], name: str, data: D, methods: Sequence[M]) -> Picture | None:
    """Weights of intact and mislabeled rows in the last epoch, clean rows left out: boxes above, histograms below."""
    found = _groups(summary, [data], methods)
    return Picture(name, partial(_draw_weights_of_labels, data.label, found[data.label])) if found else None


def _draw_weights_of_labels(title: str, each: Mapping[str, Arrays]) -> Any:
    figure = new_figure(4.2 * len(each), 6)
    grid = figure.subplots(2, len(each), squeeze=False)
    kinds = ("intact", BLUE), ("mislabeled", RED)
    for column, (method, arrays) in enumerate(each.items()):
        # One row for each kind of label: whiskers and quartiles, and counts of the bins.
        quartiles, counts = arrays["weight_quartiles"], arrays["weight_counts"]
        boxes = [
            {"whislo": low, "q1": q1, "med": median, "q3": q3, "whishi": high, "label": kind}
            for (kind, _), (low, q1, median, q3, high) in zip(kinds, quartiles.tolist(), strict=True)
        ]
        drawn = grid[0, column].bxp(boxes, showfliers=False, patch_artist=True)
        edges = np.linspace(0, float(arrays["weight_top"]), counts.shape[1] + 1)
        for box, heights, (kind, color) in zip(drawn["boxes"], counts, kinds, strict=True):
            box.set(facecolor=color, alpha=0.5)
            grid[1, column].stairs(heights, edges, fill=True, color=color, alpha=0.5, label=kind)
        grid[0, column].set(title=method, ylabel="weight" if not column else "")
        grid[1, column].set(xlabel="weight", ylabel="rows" if not column else "")
        grid[1, column].legend(frameon=False)
    figure.suptitle(title)
    return figure


def weights_by_angle(
    summary: Summary[Any, M], name: str, data: Sequence[Any], methods: Sequence[M], edges: FloatArray
) -> Picture | None:
    """Mean weight of images by their angle, beside the true density ratio; one panel for each level of shift."""
    found = _groups(summary, data, methods)
    levels = {each.label: (each.a, each.b) for each in data}
    return Picture(name, partial(_draw_weights_by_angle, found, levels, edges)) if found else None


def _draw_weights_by_angle(found: Groups, levels: Mapping[str, tuple[int, int]], edges: FloatArray) -> Any:
    figure = new_figure(4.6 * len(found), 3.8)
    for axes, (name, each) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        for method, arrays in each.items():
            sums, counts = arrays["weights_by_angle"]
            seen = counts >= min(10, counts.sum() / 100)
            middle = (edges[1:] + edges[:-1]) / 2
            axes.plot(middle[seen], (sums / np.maximum(counts, 1))[seen], color=COLORS[method], label=method)
        a, b = levels[name]
        turn = np.linspace(0.02, 0.98, 200)
        ratio = (turn / (1 - turn)) ** (b - a)
        axes.plot(180 * turn, ratio, color="black", linestyle="--", linewidth=1, label="true ratio")
        axes.set(title=name, xlabel="angle, degrees", yscale="log", ylim=(1e-3, 1e3))
        axes.set_ylabel("weight in the last epoch")
        axes.legend(frameon=False)
    return figure


def embeddings(summary: Summary[D, M], name: str, data: D, methods: Sequence[M]) -> Picture | None:
    """Test images in the last hidden layer, by t-SNE; colors are the true classes."""
    found = _groups(summary, [data], methods)
    return Picture(name, partial(_draw_embeddings, data.label, found[data.label])) if found else None


def _draw_embeddings(title: str, each: Mapping[str, Arrays]) -> Any:
    columns = min(5, len(each))
    rows = -(-len(each) // columns)
    figure = new_figure(2.8 * columns, 3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (method, arrays) in zip(panels, each.items(), strict=False):
        axes.scatter(*arrays["embedded"].T, c=arrays["embedded_labels"], cmap="tab10", s=5, linewidths=0)
        axes.set(title=method, xticks=[], yticks=[])
    for axes in panels[len(each) :]:
        axes.set_visible(False)
    figure.suptitle(f"{title}\ntest images in the last hidden layer (t-SNE)")
    return figure


def denoising(summary: Summary[D, M], name: str, data: D, methods: Sequence[M]) -> Picture | None:
    """Accuracy after every epoch: test, intact rows, mislabeled rows by both labels; one panel for each method."""
    found = _groups(summary, [data], methods)
    return Picture(name, partial(_draw_denoising, data.label, found[data.label])) if found else None


def _draw_denoising(title: str, each: Mapping[str, Arrays]) -> Any:
    figure = new_figure(3.6 * len(each), 3.8)
    panels = figure.subplots(1, len(each), squeeze=False, sharey=True)[0]
    shown = [("test", "black"), ("intact", BLUE), ("mislabeled, given label", RED), ("mislabeled, true label", GREEN)]
    for axes, (method, arrays) in zip(panels, each.items(), strict=True):
        for place, (label, color) in enumerate(shown):
            mean = 100 * arrays["curves"][:, :, place].mean(axis=0)
            axes.plot(np.arange(1, len(mean) + 1), mean, color=color, linewidth=1.4, label=label)
        axes.set(title=method, xlabel="epoch", ylim=(0, 100))
    panels[0].set_ylabel("accuracy, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title)
    return figure


def _groups(summary: Summary[D, M], data: Sequence[D], methods: Sequence[M]) -> dict[str, dict[str, Arrays]]:
    """Arrays of the groups that were run, by the labels of data and method."""
    found = {
        each.label: {m.label: summary.arrays[each, m] for m in methods if (each, m) in summary.arrays} for each in data
    }
    return {label: groups for label, groups in found.items() if groups}
