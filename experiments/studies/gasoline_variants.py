"""Variants of GDM and Copula on the gasoline data beside the survey's columns, on splits that no table reports."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from experiments.engine.cells import Settings
from experiments.engine.printed import printed
from experiments.engine.study import Study
from experiments.gasoline import CODES, EXPERIMENT
from experiments.gasoline_cells import Data, Method, chosen_years, reference_error
from experiments.gasoline_networks import standardized
from steelyard import Target
from steelyard._few_shot.kernel_regression import REG_GRID, median_distance
from steelyard._numerics.kernels import gaussian
from steelyard._typing import FloatArray
from steelyard.baselines import CopulaRegressor, DiscrepancyRegressor
from steelyard.baselines._vine import Vine, fit_vine
from steelyard.baselines.copula import ConditionalMean
from steelyard.errors import SteelyardWarning

SPLITS = (1000, 1001, 1002)


def weighted_ridge(source: FloatArray, few: FloatArray, weights: FloatArray, rest: FloatArray) -> FloatArray:
    """Ridge regression on weighted source rows, λ by the squared error on the target's rows."""
    X, y, share = source[:, :-1], source[:, -1], weights / weights.sum()
    width = median_distance(np.vstack([X, few[:, :-1]]))
    kernel = gaussian(X, X, width)
    fits = [np.linalg.solve(share[:, None] * kernel + lam * np.eye(len(y)), share * y) for lam in REG_GRID]
    errors = [np.mean((gaussian(few[:, :-1], X, width) @ fit - few[:, -1]) ** 2) for fit in fits]
    return gaussian(rest[:, :-1], X, width) @ fits[int(np.argmin(errors))]


def errors_of_split(country: str, split: int) -> dict[str, float]:
    """Error of every variant, over that of leave-one-out."""
    source, rows, _ = standardized(country, leak=True)
    years = chosen_years(country, split, 0)
    few, rest = rows[years], rows[~years]
    X, y, target = source[:, :-1], source[:, -1], Target(few[:, :-1], few[:, -1])
    found: dict[str, FloatArray] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)
        for slack in (0.05, 1.0, 20.0):
            model = DiscrepancyRegressor(slack=slack, standardize=False).fit(X, y, target=target)
            found[f"GDM, slack {slack:g}"] = model.predict(rest[:, :-1])
        found["GDM's weights, ridge regression on the source"] = weighted_ridge(source, few, model.weights_, rest)
        for level, name in ((0.0, "nothing refitted"), (0.05, "level 0.05"), (1.0, "all refitted")):
            copula = CopulaRegressor(level=level, standardize=False, random_state=split).fit(X, y, target=target)
            found[f"Copula, {name}"] = copula.predict(rest[:, :-1])
            if level == 0.05:
                adapted = copula.vine_
    vine = fit_vine(source)
    marginals = [*adapted.marginals[:-1], vine.marginals[-1]]
    only_inputs = Vine(marginals, vine.trees)
    found["Copula, marginals of inputs refitted only"] = ConditionalMean(only_inputs).predict(rest[:, :-1])
    first_tree = Vine(vine.marginals, vine.trees[:1])
    found["Copula, nothing refitted, first tree"] = ConditionalMean(first_tree).predict(rest[:, :-1])
    found["zero"] = np.zeros(len(rest))
    reference = reference_error(country, True)
    return {name: float(np.mean((values - rest[:, -1]) ** 2)) / reference for name, values in found.items()}


def page(settings: Settings, folder: Path) -> str:
    """Means over splits, country by country, beside the printed ones."""
    jobs = [(country, split) for country in CODES for split in SPLITS]
    each = dict(zip(jobs, Parallel(2)(delayed(errors_of_split)(*job) for job in jobs), strict=True))
    paper = printed(EXPERIMENT)
    lines = [
        "| variant | error | over printed GDM | within 2 | over printed Copula | within 2 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in each[jobs[0]]:
        means = np.array([np.mean([each[country, split][name] for split in SPLITS]) for country in CODES])
        cells = [f"{np.exp(np.log(means).mean()):.2f}"]
        for column in ("GDM", "Copula"):
            ratio = means / np.array([paper[Data(country), Method(column)].mean for country in CODES])
            within = int(((ratio > 0.5) & (ratio < 2)).sum())
            cells += [f"{np.exp(np.log(ratio).mean()):.2f}", str(within)]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


STUDY = Study(
    name="gasoline-variants",
    title="GDM and Copula on the gasoline data: variants",
    explains=(
        f"Splits {SPLITS[0]} to {SPLITS[-1]} of each of {len(CODES)} countries. Error over that of leave-one-out, "
        "geometric mean over countries; its ratio to the survey's columns, and in how many countries it is within a "
        "factor of two of them. Zero predicts the mean of all labels."
    ),
    page=page,
)
