"""Draw what docs/images holds, but for the screenshot: ``python docs/make_pictures.py`` (needs matplotlib)."""

from __future__ import annotations

from pathlib import Path

import draw_balance
import draw_tree
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from sklearn.linear_model import Ridge

from steelyard import Target, WeightedRegressor
from steelyard.datasets import sinc_toy

IMAGES = Path(__file__).with_name("images")
SOURCE, TARGET, WEIGHTED = (draw_balance.LIGHT[name] for name in ("source", "target", "weighted"))
GROUND = {"light": "#ffffff", "dark": "#14181e"}


def draw_shift(theme: str, colors: dict[str, str]) -> None:
    """The README's example: a line fitted to the source, and one fitted with importance weights."""
    with plt.style.context("default" if theme == "light" else "dark_background"):
        figure = shift_figure(colors["source"], colors["target"], colors["weighted"])
        figure.savefig(
            IMAGES / ("shift.png" if theme == "light" else "shift-dark.png"), dpi=110, facecolor=GROUND[theme]
        )


def shift_figure(source: str, target: str, weights: str) -> plt.Figure:
    """Two panels: the rows with both fits, and the densities; in three colors."""
    X, y, X_target, y_target = sinc_toy(500, 500, random_state=0)
    plain = Ridge().fit(X, y)
    weighted = WeightedRegressor(Ridge()).fit(X, y, target=Target(X_target))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), constrained_layout=True)
    left.scatter(X, y, s=10, color=source, alpha=0.5, label="source, labeled")
    left.scatter(X_target, y_target, s=10, color=target, alpha=0.35, label="target (labels unknown)")
    line = np.linspace(-0.5, 2.9, 50)[:, None]
    left.plot(line, plain.predict(line), color=source, lw=2, label="plain fit")
    left.plot(line, weighted.predict(line), color=weights, lw=2, label="weighted fit")
    left.set(xlabel="x", ylabel="y", ylim=(-0.8, 1.4), title="Training data and the data to predict")
    left.legend(frameon=False, fontsize=8)
    right.hist(X, 40, density=True, color=source, alpha=0.5, label="source")
    right.hist(X_target, 40, density=True, histtype="step", color=target, lw=2, label="target")
    right.hist(X[:, 0], 40, density=True, weights=weighted.weights_, histtype="step", color=weights, lw=2)
    right.plot([], [], color=weights, lw=2, label="source with importance weights")
    right.set(xlabel="x", title="Importance weights bring the source to the target", yticks=[])
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_facecolor("none")
    return figure


BOXES = {
    "tables": (0.0, 1.0, "tables\nCSV, Parquet,\nframes, arrays"),
    "source": (2.2, 1.9, "source (X, y)"),
    "target": (2.2, 0.1, "Target(X)"),
    "ratio": (4.4, 1.0, "ratio\nimportance weights,\nbalance"),
    "models": (6.9, 1.9, "weighted, one_step,\ndeep, causal"),
    "selection": (6.9, 0.1, "model_selection\nIWCV, search,\ntarget performance"),
    "diagnostics": (9.4, 1.0, "diagnostics\nFindings"),
    "report": (11.6, 1.0, "report\nHTML, JSON"),
}
ARROWS = ("tables source", "tables target", "source ratio", "target ratio", "ratio models", "ratio selection")
ARROWS += ("models selection", "selection diagnostics", "models diagnostics", "diagnostics report")


def draw_flow() -> None:
    """Boxes and arrows of the data flow."""
    figure, axes = plt.subplots(figsize=(11, 3.0), constrained_layout=True)
    width, height = 1.8, 0.95
    for x, y, text in BOXES.values():
        box = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.06", fc="#f1f5f9", ec=SOURCE)
        axes.add_patch(box)
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5)
    for arrow in ARROWS:
        (x, y, _), (x_to, y_to, _) = (BOXES[name] for name in arrow.split())
        down = x == x_to
        start = (x + width / 2, y - 0.06) if down else (x + width + 0.06, y + height / 2)
        end = (x_to + width / 2, y_to + height + 0.06) if down else (x_to - 0.06, y_to + height / 2)
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=WEIGHTED, lw=1.2))
    axes.set(xlim=(-0.2, 13.6), ylim=(-0.1, 3.1))
    axes.axis("off")
    figure.savefig(IMAGES / "flow.png", dpi=110)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    told = draw_balance.story()
    for theme, colors, tree_colors in (
        ("light", draw_balance.LIGHT, draw_tree.LIGHT),
        ("dark", draw_balance.DARK, draw_tree.DARK),
    ):
        ending = "" if theme == "light" else "-dark"
        draw_shift(theme, colors)
        (IMAGES / f"balance{ending}.svg").write_text(draw_balance.svg(told, colors), "utf-8")
        (IMAGES / f"tree{ending}.svg").write_text(draw_tree.svg(tree_colors), "utf-8")
    draw_flow()
