"""Where cvxopt stops: ``python -m benchmarks.cvxopt_weights``, after ``pip install cvxopt==1.3.3``, which is GPL.

Writes tests/deep/cvxopt_weights.npz, losses and the weights that cvxopt finds for them as the authors call it: tests
have its weights and not itself. Compares those weights with the optimum's in results/benchmarks.
"""

from __future__ import annotations

from pathlib import Path

import cvxopt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.dynamic import authors_weights, kernels, piqp_weights, quadratic_program

ROOT = Path(__file__).parent.parent
STORED, COMPARED = 12, 50  # batches for the tests; and of each scale for the page
SCALES = (0.5, 0.2, 0.05, 0.02)  # of learned losses, early to late in training
KINDS = ("learned, below the scale", "learned, above thrice the scale", "mislabeled")


def losses(rng: np.random.Generator, n: int, m: int, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of learned and of mislabeled rows, of validation rows, and which rows are learned."""
    learned = rng.random(n) < 0.7
    train = np.where(learned, rng.exponential(scale, n), np.abs(rng.normal(4, 1.5, n)))
    return train, rng.exponential(scale, m), learned


def store(path: Path) -> None:
    """Every sixth goal is far from the training losses; for few rows cvxopt starts outside of the constraints."""
    rng = np.random.default_rng(1000)
    found = {"version": np.array(cvxopt.__version__)}
    for k in range(STORED):
        train, validation, _ = losses(rng, (256, 64, 16)[k % 3], (256, 100)[k % 2], SCALES[k % 4])
        validation += 5 if k % 6 == 5 else 0
        found |= {f"train{k}": train, f"validation{k}": validation, f"weights{k}": authors_weights(train, validation)}
    np.savez_compressed(path, **found)


def compare(scale: float, axes: Axes) -> list[str]:
    """A row of the table, of many batches; the first one is drawn."""
    rng = np.random.default_rng(1001)
    gaps, weights, kinds = [], [], []
    for k in range(COMPARED):
        train, validation, learned = losses(rng, 256, 256, scale)
        distances = np.abs(train[:, None] - train)[np.triu_indices(len(train), 1)]
        kernel, linear = kernels(train, validation, np.quantile(distances, 0.01), 1e-5)
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


def draw(axes: Axes, train: np.ndarray, both: tuple[np.ndarray, np.ndarray], title: str) -> None:
    order = np.argsort(train)
    for weights, name in zip(both, ("where cvxopt stops", "optimum (piqp)"), strict=True):
        axes.plot(train[order], weights[order], ".-", label=name, markersize=3)
    axes.set(xscale="log", xlabel="loss of a training row", ylabel="weight", title=title)
    axes.grid(alpha=0.3)


def main() -> None:
    store(ROOT / "tests" / "deep" / "cvxopt_weights.npz")
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    head = ["learned losses", "gap of the objective, median"]
    head += [f"{kind}: {which}" for kind in KINDS for which in ("cvxopt", "optimum")]
    rows = [compare(scale, axes) for scale, axes in zip(SCALES, figure.subplots(2, 2).flat, strict=True)]
    figure.axes[0].legend()
    folder = ROOT / "results" / "benchmarks"
    figure.savefig(folder / "cvxopt_weights.png", dpi=110)
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    text = (
        f"# Where cvxopt {cvxopt.__version__} stops\n\n{COMPARED} batches a row, of 256 training losses (simulated: "
        "70 % learned, exponential, and 30 % mislabeled, about 4) that are matched to 256 learned ones, with the "
        "authors' kernel, ridge and bounds; cvxopt with its settings as they come. Mean weights of rows:\n\n"
        + "\n".join(lines)
        + "\n\nThe first batch of each:\n\n![weights](cvxopt_weights.png)\n"
    )
    (folder / "cvxopt_weights.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
