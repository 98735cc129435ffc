"""A first look on real data: small cells to learn from, large ones to predict."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LinearRegression

from steelyard.arrays import FloatArray
from steelyard.data import biased_split
from steelyard.errors import SteelyardWarning
from steelyard.ratio import KMM, RULSIF, ULSIF
from steelyard.select import ImportanceWeightedSearchCV
from steelyard.target import Target
from steelyard.weighted import WeightedRegressor

INPUTS = ("mean radius", "mean texture", "mean smoothness")
LABEL = "mean area"
SLOPE = 2.0
STORY = (
    "scikit-learn's breast cancer table: a linear model predicts the area of cell nuclei from radius, texture and "
    "smoothness. It is trained on a sample in which large nuclei are rare and must predict one in which they are "
    "common, whose labels it never sees. Area grows with the square of the radius, so no straight line fits "
    "everywhere: weighting decides where it fits."
)


def candidates() -> dict[str, WeightedRegressor]:
    """The methods shown, by name."""
    plain = LinearRegression()
    return {
        "ERM (no weights)": WeightedRegressor(plain, flattening=0),
        "EIWERM, uLSIF, γ=½": WeightedRegressor(plain, ULSIF(random_state=0), flattening=0.5),
        "IWERM, uLSIF": WeightedRegressor(plain, ULSIF(random_state=0)),
        "IWERM, KMM": WeightedRegressor(plain, KMM(random_state=0)),
        "RIWERM, RuLSIF, η=½": WeightedRegressor(plain, RULSIF(0.5, random_state=0)),
    }


CHOSEN = "chosen by IWCV"


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found, over several random splits."""

    errors: dict[str, FloatArray]  # root mean squared error on the target, per split
    effective: dict[str, FloatArray]  # effective sample size of the weights, per split
    chosen: list[str]  # what importance-weighted cross-validation chose, per split
    n_source: int
    example: Example


@dataclass(frozen=True, eq=False)
class Example:
    """The first split, for the picture."""

    X: FloatArray
    y: FloatArray
    X_target: FloatArray
    y_target: FloatArray
    plain: WeightedRegressor
    weighted: WeightedRegressor


def run(seed: int = 0, n_splits: int = 10, advance: Callable[[], None] = lambda: None) -> Demo:
    """Split, fit and judge `n_splits` times; `advance` is called after each."""
    table = load_breast_cancer()
    names_of_columns = list(table.feature_names)
    X = table.data[:, [names_of_columns.index(name) for name in INPUTS]]
    y = table.data[:, names_of_columns.index(LABEL)]
    names = [*candidates(), CHOSEN]
    errors: dict[str, list[float]] = {name: [] for name in names}
    effective: dict[str, list[float]] = {name: [] for name in names}
    chosen: list[str] = []
    examples = []
    for k in range(n_splits):
        # Source rows are likelier the smaller the radius.
        direction = np.array([-1.0, 0.0, 0.0])
        source, target = biased_split(X, direction=direction, slope=SLOPE, random_state=seed * 1000 + k)
        goal = Target(X[target])
        with warnings.catch_warnings():
            # Rough fits on so few rows are part of the story; the table has a column of effective rows.
            warnings.simplefilter("ignore", SteelyardWarning)
            fitted: dict[str, Any] = {
                name: model.fit(X[source], y[source], target=goal) for name, model in candidates().items()
            }
            chosen.append(_choose(X[source], y[source], goal))
        fitted[CHOSEN] = fitted[chosen[-1]]
        for name in names:
            residual = fitted[name].predict(X[target]) - y[target]
            errors[name].append(float(np.sqrt(np.mean(residual**2))))
            effective[name].append(fitted[name].effective_sample_size_)
        models = fitted["ERM (no weights)"], fitted["IWERM, uLSIF"]
        examples.append(Example(X[source], y[source], X[target], y[target], *models))
        advance()
    return Demo(
        {name: np.array(values) for name, values in errors.items()},
        {name: np.array(values) for name, values in effective.items()},
        chosen,
        len(examples[0].X),
        examples[0],
    )


def _choose(X: FloatArray, y: FloatArray, target: Target) -> str:
    """The method that importance-weighted cross-validation picks; no target label is looked at."""
    methods = candidates()
    settings = [{"ratio": [m.ratio], "flattening": [m.flattening]} for m in methods.values()]
    search = ImportanceWeightedSearchCV(WeightedRegressor(LinearRegression()), settings).fit(X, y, target=target)
    return list(methods)[search.best_index_]


def draw(demo: Demo, path: Path) -> None:
    """One picture: what the weights do to the fit, and the target error of each method."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no screen

    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1])
    _draw_fits(left, demo.example)
    names = list(demo.errors)[::-1]
    for place, name in enumerate(names):
        values = demo.errors[name]
        right.plot(values, np.full(len(values), place), "o", color=GREY, alpha=0.6, markersize=5)
        right.plot(values.mean(), place, "D", color=BLUE, markersize=8)
    right.set_yticks(range(len(names)), names)
    right.set_xlim(left=0)
    right.set(xlabel="root mean squared error on the target", title="Target error (dots: splits, diamonds: mean)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


GREY, RED, BLUE = "#9aa5b1", "#d1495b", "#1d3557"


def _draw_fits(axes: Any, example: Example) -> None:
    radius = np.linspace(example.X[:, 0].min(), example.X_target[:, 0].max(), 50)
    line = np.tile(np.median(example.X_target, axis=0), (len(radius), 1))
    line[:, 0] = radius
    axes.scatter(
        example.X[:, 0],
        example.y,
        s=4 + 12 * example.weighted.weights_,
        color=GREY,
        alpha=0.6,
        linewidths=0,
        label="source (size: weight)",
    )
    axes.scatter(example.X_target[:, 0], example.y_target, s=5, color=RED, alpha=0.6, linewidths=0, label="target")
    axes.plot(radius, example.plain.predict(line), "--", color="black", label="fit without weights")
    axes.plot(radius, example.weighted.predict(line), color=BLUE, linewidth=2, label="fit with weights (uLSIF)")
    axes.set(xlabel=INPUTS[0], ylabel=LABEL, title="One split: where the line fits")
    axes.legend(frameon=False)
