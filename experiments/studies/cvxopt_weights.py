"""Where cvxopt stops, after ``pip install cvxopt==1.3.3``, which is GPL.

Writes tests/deep/cvxopt_weights.npz, losses and the weights that cvxopt finds for them as the authors call it: the
tests use these weights and do not need cvxopt. Compares those weights with the optimum.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from experiments.engine.cells import Settings
from experiments.engine.pictures import new_figure, save_figure
from experiments.engine.study import Study
from experiments.studies.authors_weights import (
    AUTHORS_SOLVER,
    authors_weights,
    kernels,
    piqp_weights,
    quadratic_program,
)
from steelyard._typing import BoolArray, FloatArray
from steelyard.errors import DependencyError

STORED_FILE = Path(__file__).parents[2] / "tests" / "deep" / "cvxopt_weights.npz"
STORED, COMPARED = 12, 50  # batches for the tests; and of each scale for the page
SCALES = (0.5, 0.2, 0.05, 0.02)  # of learned losses, early to late in training
KINDS = ("learned, below the scale", "learned, above thrice the scale", "mislabeled")


def losses(rng: np.random.Generator, n: int, m: int, scale: float) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Losses of training rows, learned and mislabeled, and of validation rows; and which rows are learned."""
    learned = rng.random(n) < 0.7
    train = np.where(learned, rng.exponential(scale, n), np.abs(rng.normal(4, 1.5, n)))
    return train, rng.exponential(scale, m), learned


def store(path: Path) -> None:
    """Every sixth batch has validation losses far from the training losses; with few rows cvxopt starts infeasible."""
    rng = np.random.default_rng(1000)
    found = {"version": np.array(version("cvxopt"))}
    for k in range(STORED):
        train, validation, _ = losses(rng, (256, 64, 16)[k % 3], (256, 100)[k % 2], SCALES[k % 4])
        validation += 5 if k % 6 == 5 else 0
        found |= {f"train{k}": train, f"validation{k}": validation, f"weights{k}": authors_weights(train, validation)}
    np.savez_compressed(path, allow_pickle=False, **found)


def compare(scale: float, axes: Any) -> list[str]:
    """A row of the table, over many batches; the first one is drawn."""
    rng = np.random.default_rng(1001)
    gaps, weights, kinds = [], [], []
    for k in range(COMPARED):
        train, validation, learned = losses(rng, 256, 256, scale)
        distances = np.abs(train[:, None] - train)[np.triu_indices(len(train), 1)]
        kernel, linear = kernels(train, validation, float(np.quantile(distances, 0.01)), 1e-5)
        both = quadratic_program(kernel, linear), piqp_weights(kernel, linear)
        stopped, least = (0.5 * w @ kernel @ w - linear @ w for w in both)
        gaps.append((stopped - least) / abs(least))
        weights.append(both)
        kinds.append([learned & (train < scale), learned & (train > 3 * scale), ~learned])
        if k == 0:
            draw(axes, train, both, f"learned losses of about {scale}")
    row = [f"about {scale}", f"{np.median(gaps):.0e}"]
    for kind in range(len(KINDS)):
        for which in range(2):
            found = np.concatenate([w[which][of[kind]] for w, of in zip(weights, kinds, strict=True)])
            row.append(f"{found.mean():.2f}")
    return row


def draw(axes: Any, train: FloatArray, both: tuple[FloatArray, FloatArray], title: str) -> None:
    """Weights by the loss, at the stop and at the optimum."""
    order = np.argsort(train)
    for weights, name in zip(both, ("where cvxopt stops", "optimum (piqp)"), strict=True):
        axes.plot(train[order], weights[order], ".-", label=name, markersize=3)
    axes.set(xscale="log", xlabel="loss of a training row", ylabel="weight", title=title)
    axes.grid(alpha=0.3)


def page(settings: Settings, folder: Path) -> str:
    """The table and the picture."""
    if AUTHORS_SOLVER != "cvxopt":
        raise DependencyError("This study compares with cvxopt. Install it: pip install cvxopt==1.3.3.")
    store(STORED_FILE)
    figure = new_figure(9, 6.5)
    head = ["learned losses", "gap of the objective, median"]
    head += [f"{kind}: {which}" for kind in KINDS for which in ("cvxopt", "optimum")]
    rows = [compare(scale, axes) for scale, axes in zip(SCALES, figure.subplots(2, 2).flat, strict=True)]
    figure.axes[0].legend()
    save_figure(figure, folder / "weights.png")
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return (
        f"cvxopt {version('cvxopt')}. Mean weights of rows:\n\n" + "\n".join(lines) + "\n\nThe first batch of each:\n\n"
        "![weights](weights.png)"
    )


STUDY = Study(
    name="cvxopt-weights",
    title="Where cvxopt stops",
    explains=(
        f"{COMPARED} batches for each row, of 256 training losses (simulated: 70 % learned, exponential, and 30 % "
        "mislabeled, about 4) that are matched to 256 learned ones, with the authors' kernel, ridge and bounds; cvxopt "
        "with its default settings."
    ),
    page=page,
)
