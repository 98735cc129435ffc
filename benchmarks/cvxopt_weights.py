"""Where cvxopt stops: ``python -m benchmarks.cvxopt_weights``, after ``pip install cvxopt==1.3.3``, which is GPL.

Writes tests/deep/cvxopt_weights.npz, losses and the weights that cvxopt finds for them as the authors call it: tests
have its weights and not itself. Draws those weights beside the optimum's into results/benchmarks.
"""

from __future__ import annotations

from pathlib import Path

import cvxopt
import numpy as np
from matplotlib.figure import Figure

from benchmarks.dynamic import authors_weights, kernels, piqp_weights

ROOT = Path(__file__).parent.parent
BATCHES = 12
SCALES = (0.5, 0.2, 0.05, 0.02)  # of learnt losses, early to late in training
DRAWN = (0, 9, 6, 3)  # batches of 256 rows, one for each of them


def losses(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Learnt and mislabelled rows, by how long it was trained; every third goal is far from them."""
    n, m, scale = (256, 64, 31)[k % 3], (256, 100)[k % 2], SCALES[k % 4]
    train = np.where(rng.random(n) < 0.7, rng.exponential(scale, n), np.abs(rng.normal(4, 1.5, n)))
    return train, rng.exponential(scale, m) + (5 if k % 3 == 2 else 0)


def compare(train: np.ndarray, validation: np.ndarray, stopped: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The optimum's weights by piqp, and a row of the table."""
    distances = np.abs(train[:, None] - train)[np.triu_indices(len(train), 1)]
    kernel, linear = kernels(train, validation, np.quantile(distances, 0.01), 1e-5)
    optimum = piqp_weights(kernel, linear)
    values = [0.5 * w @ kernel @ w - linear @ w for w in (stopped, optimum)]
    shares = [w.sum() ** 2 / (w @ w) / len(w) for w in (stopped, optimum)]
    middle = (train > 0.3) & (train < 1)
    between = [f"{w[middle].mean():.2f}" if middle.any() else "none" for w in (stopped, optimum)]
    gap = f"{(values[0] - values[1]) / abs(values[1]):.0e}"
    return optimum, [gap, f"{np.abs(stopped - optimum).max():.2f}", *(f"{share:.2f}" for share in shares), *between]


def main() -> None:
    rng = np.random.default_rng(1000)
    found = {"version": np.array(cvxopt.__version__)}
    for k in range(BATCHES):
        train, validation = losses(rng, k)
        found |= {f"train{k}": train, f"validation{k}": validation, f"weights{k}": authors_weights(train, validation)}
    np.savez_compressed(ROOT / "tests" / "deep" / "cvxopt_weights.npz", **found)
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    head = ["learnt losses", "gap of the objective", "largest difference of a weight"]
    head += [
        f"{what}, {which}"
        for what in ("effective share", "mean weight of losses 0.3 to 1")
        for which in ("cvxopt", "optimum")
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for axes, k in zip(figure.subplots(2, 2).flat, DRAWN, strict=True):
        train, validation, stopped = (found[f"{name}{k}"] for name in ("train", "validation", "weights"))
        optimum, row = compare(train, validation, stopped)
        lines.append("| " + " | ".join([f"about {SCALES[k % 4]}", *row]) + " |")
        order = np.argsort(train)
        axes.plot(train[order], stopped[order], ".-", label="where cvxopt stops", markersize=3)
        axes.plot(train[order], optimum[order], ".-", label="optimum (piqp)", markersize=3)
        axes.set(xscale="log", xlabel="loss of a training row", ylabel="weight")
        axes.set_title(f"learnt losses of about {SCALES[k % 4]}")
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    folder = ROOT / "results" / "benchmarks"
    figure.savefig(folder / "cvxopt_weights.png", dpi=110)
    text = (
        f"# Where cvxopt {cvxopt.__version__} stops\n\nBatches of 256 training losses, 70 % learnt and 30 % "
        "mislabelled (about 4), matched to learnt validation losses with the authors' kernel, ridge and bounds; "
        "cvxopt with its settings as they come.\n\n" + "\n".join(lines) + "\n\n![weights](cvxopt_weights.png)\n"
    )
    (folder / "cvxopt_weights.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
