"""Pictures of the tables that have no networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from experiments.engine.pictures import BLUE, GRAY, GREEN, ORANGE, RED, new_figure
from experiments.engine.printed import Printed
from experiments.engine.summary import Row
from steelyard._numerics.losses import Squared, Tukey
from steelyard._typing import FloatArray

COLORS = {"ERM": GRAY, "EIWERM": ORANGE, "RIWERM": GREEN, "one-step": RED}


def draw_errors(rows: Sequence[Row[Any, Any]], errors: Mapping[tuple[Any, Any], FloatArray]) -> Any:
    """Table 1: every trial, the mean and the median of each method, and the survey's mean."""
    figure = new_figure(9, 5)
    axes = figure.subplots()
    rows = rows[::-1]
    for place, row in enumerate(rows):
        values = errors[row.data, row.method]
        axes.plot(values, np.full(len(values), place), "|", color=GRAY, alpha=0.5, markersize=9)
        axes.plot(row.mean, place, "D", color=BLUE, markersize=7, label="mean of ours" if not place else None)
        axes.plot(row.median, place, "o", color=BLUE, fillstyle="none", label="median of ours" if not place else None)
    shown = [(place, row.paper.mean) for place, row in enumerate(rows) if row.paper is not None]
    axes.plot([mean for _, mean in shown], [place for place, _ in shown], "X", color=RED, markersize=8, label="survey")
    axes.axvline(0.01, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [row.method.label for row in rows])
    axes.set(xlabel="mean squared error on the target (dotted: noise)", title="Table 1 (ticks: trials)")
    axes.legend(frameon=False, loc="lower right")
    return figure


def draw_problem(curves: Mapping[str, FloatArray], fits: Mapping[str, tuple[str, str, FloatArray]]) -> Any:
    """The survey's figures: Tukey's loss, the two densities, and fitted functions by label, with color and style."""
    figure = new_figure(15, 4.4)
    loss, density, fitted = figure.subplots(1, 3)
    u = np.linspace(-8, 8, 400)
    residual = u[None, :, None]
    loss.plot(u, Tukey(np.array([4.685])).values(residual, np.zeros((400, 1)))[0], color=BLUE, label="Tukey, ρ = 4.685")
    loss.plot(u, Squared().values(residual, np.zeros((400, 1)))[0], "--", color=GRAY, label="squared")
    loss.set(ylim=(0, 1.6), xlabel="residual", title="Tukey's loss, and the square that bounds it")
    x = curves["x"]
    density.fill_between(x, norm.pdf(x, 1, 0.5), color=BLUE, alpha=0.35, label="source N(1, ½²)")
    density.fill_between(x, norm.pdf(x, 2, 0.25), color=ORANGE, alpha=0.45, label="target N(2, ¼²)")
    density.plot(x, curves["truth"], color=RED, label="f* = sinc")
    density.set(xlabel="x", title="Two densities, one function")
    fitted.scatter(curves["X"], curves["y"], s=8, color=BLUE, alpha=0.5, linewidths=0, label="source rows")
    fitted.plot(x, curves["truth"], color="black", linewidth=2.5, alpha=0.35, label="f*")
    for label, (color, style, values) in fits.items():
        fitted.plot(x, values, style, color=color, label=label)
    fitted.axvspan(1.5, 2.5, color=ORANGE, alpha=0.12, linewidth=0)
    fitted.set(ylim=(-0.8, 1.4), xlabel="x (shaded: most of the target)", title="Fits of trial 0 (seed 0)")
    for axes in (loss, density, fitted):
        axes.legend(frameon=False, fontsize=8)
    return figure


def draw_ratios(
    ratios: Mapping[str, Mapping[str, FloatArray]], paper: Mapping[str, Mapping[str, Printed | None]]
) -> Any:
    """Table 2: error over that of ERM by data set and method, with standard errors, beside the survey's."""
    figure = new_figure(11, 5)
    axes = figure.subplots()
    methods = [method for method in COLORS if method != "ERM"]
    for place, (name, errors) in enumerate(ratios.items()):
        for step, method in enumerate(methods):
            at = place + 0.22 * (step - 1)
            values = errors[method]
            spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
            label = method if not place else None
            axes.errorbar(at, values.mean(), spread, fmt="o", color=COLORS[method], label=label, capsize=2)
            printed, base = paper[name][method], paper[name]["ERM"]
            if printed is not None and base is not None:
                mark = "survey" if not place and not step else None
                axes.plot(at, printed.mean / base.mean, "x", color=COLORS[method], alpha=0.7, label=mark)
    axes.axhline(1, color=GRAY, linewidth=1)
    axes.set_xticks(range(len(ratios)), list(ratios))
    axes.set(ylabel="error over ERM's (bars: one standard error)", title="Table 2: below 1 is better than ERM")
    axes.legend(frameon=False, ncols=4)
    return figure


def draw_changes(pairs: Mapping[str, tuple[FloatArray, FloatArray]], label: str, title: str) -> Any:
    """Change of the mean error from the second of a pair to the first, in each problem, with an interval."""
    figure = new_figure(9, 4)
    axes = figure.subplots()
    names = list(pairs)[::-1]
    for place, name in enumerate(names):
        on, off = pairs[name]
        change = 100 * (on - off) / off.mean()
        half = 1.96 * change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else 0.0
        color = RED if abs(change.mean()) > half else GRAY
        axes.errorbar(change.mean(), place, xerr=half, fmt="o", color=color, capsize=3)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel=label, title=title)
    return figure


def draw_rates(rates: Sequence[tuple[str, float, int]]) -> Any:
    """Rates with their binomial intervals."""
    figure = new_figure(9, 0.32 * len(rates) + 1.2)
    axes = figure.subplots()
    for place, (_, rate, n) in enumerate(rates[::-1]):
        half = 1.96 * np.sqrt(max(rate * (1 - rate), 1e-4) / n)
        axes.errorbar(rate, place, xerr=half, fmt="o", color=BLUE, capsize=3)
    for level in (0.05, 0.95):
        axes.axvline(level, color=RED, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(rates)), [name for name, _, _ in rates[::-1]])
    axes.set(xlim=(-0.02, 1.02), xlabel="how often (bars: 95 %; dotted: 0.05 and 0.95)", title="Calibration")
    return figure
