"""What dynamic importance weighting costs: ``python -m benchmarks.dynamic`` (a CPU), or with ``--device cuda``.

Prints, in one run and as ratios: the weights of one batch beside piqp and beside the authors' formula, and one step of
plain training, of plain training with the validation forward that every such method needs, of dynamic weights, of
learning to reweight. ``--epochs 400`` then trains as the authors do on Fashion-MNIST with symmetric noise of 0.4, and
``--out FILE`` keeps all that was printed. Images are Fashion-MNIST where it is there, otherwise noise.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from experiments.studies.authors_weights import AUTHORS_SOLVER, authors_weights, kernels, piqp_weights
from steelyard.datasets import label_noise, load_images
from steelyard.deep import DynamicWeights
from steelyard.deep.nets import LeNet5, ResNet32
from steelyard.deep.training import (
    Batch,
    History,
    Phase,
    TrainingConfig,
    TrainingData,
    TrainingMethod,
    TrainingRun,
    methods,
    train,
)
from steelyard.deep.training.graphs import CapturedSteps
from steelyard.deep.training.phases import Networks, Step
from steelyard.deep.training.trainer import Trainer
from steelyard.errors import DataNotFoundError
from steelyard.target import Target

BATCH = 256
NOISE_SEED = 100  # the authors', whatever the seed of the run


def fashion(seed: int, device: str) -> tuple[TrainingData, tuple[torch.Tensor, torch.Tensor], np.ndarray, str]:
    """The authors' data: 60,000 rows with noise of 0.4, of which 1,000 are clean and known to be; test; wrong rows."""
    try:
        images, held_out = load_images("fashion_mnist", "train"), load_images("fashion_mnist", "test")
        X, y, test_X, test_y, what = images.X, images.y, held_out.X, held_out.y, "Fashion-MNIST"
    except DataNotFoundError:
        rng = np.random.default_rng(0)
        X, test_X = (rng.integers(0, 256, (n, 1, 28, 28)).astype(np.uint8) for n in (60000, 10000))
        y, test_y = (rng.integers(0, 10, n) for n in (60000, 10000))
        what = "noise instead of Fashion-MNIST"
    clean = np.random.default_rng(seed).permutation(len(y))[:1000]
    noisy = label_noise(y, 0.4, n_classes=10, random_state=NOISE_SEED)
    noisy[clean] = y[clean]
    wrong = np.where(noisy != y, 1.0, 0.0)
    wrong[clean] = np.nan
    rows, labels = pixels(X, device), torch.tensor(noisy).long().to(device)
    return (
        TrainingData(rows, labels, Target(rows[clean], labels[clean])),
        (pixels(test_X, device), torch.tensor(test_y).long().to(device)),
        wrong,
        what,
    )


def pixels(X: np.ndarray, device: str) -> torch.Tensor:
    return (torch.tensor(X).float() / 255).to(device)


def authors_config() -> TrainingConfig:
    return TrainingConfig(
        lambda parameters: torch.optim.SGD(parameters, lr=3e-4, weight_decay=1e-4),
        lr_schedule=lambda epoch: 0.1 ** (epoch // 100),
        reduction="sum",
    )


def with_validation_forward(networks: Networks, data: TrainingData) -> Step:
    """Plain training that also looks at a validation batch, and does nothing with what it sees."""
    model = networks["f"]

    def step(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            data.row_losses(model(batch.X_target), batch.y_target)
        losses = data.row_losses(model(batch.X), batch.y)
        return losses, torch.ones_like(losses)

    return step


def by_the_authors(networks: Networks, data: TrainingData) -> Step:
    """As their code does it: losses to the host, the quantile pair by pair, a quadratic program, weights back."""
    model = networks["f"]

    def step(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            goal = data.row_losses(model(batch.X_target), batch.y_target).cpu().numpy()
        losses = data.row_losses(model(batch.X), batch.y)
        weights = authors_weights(losses.detach().cpu().numpy(), goal)
        return losses, torch.tensor(weights).to(losses)

    return step


def piqp_from_losses(z: np.ndarray, v: np.ndarray, gamma: float, ridge: float) -> np.ndarray:
    return piqp_weights(*kernels(z, v, gamma, ridge))


class Report:
    """Lines that are printed and kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def table(self, head: list[str], rows: list[list[str]]) -> None:
        for row in (head, ["---"] * len(head), *rows):
            self.say("| " + " | ".join(row) + " |")
        self.say()


def losses_of_a_batch(data: TrainingData, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses of LeNet-5 after an epoch of plain training on a few thousand rows, and of validation rows."""
    torch.manual_seed(seed)
    model = LeNet5()
    some = TrainingData(data.X[:20480].cpu(), data.y[:20480].cpu(), Target(data.X_target.cpu(), data.y_target.cpu()))
    train(
        TrainingRun(methods.baseline("uniform", model, 1), some), TrainingConfig(lambda p: torch.optim.Adam(p, lr=2e-3))
    )
    with torch.no_grad():
        return tuple(
            some.row_losses(model(X[:4096]), y[:4096]).double().numpy()
            for X, y in ((some.X[20480 - 4096 :], some.y[20480 - 4096 :]), (some.X_target, some.y_target))
        )


def weight_estimation_on_cpu(report: Report, data: TrainingData, repeats: int) -> None:
    """Our weights and piqp's on the same batches, in turn; the times and the objective."""
    from steelyard.deep._matching.line import match  # needs numba, which is for CPUs

    here, there = losses_of_a_batch(data, seed=1000)
    rng = np.random.default_rng(1000)
    report.say(f"## Weights of one batch on a CPU, {BATCH} + {BATCH} losses, one thread, {repeats} batches\n")
    rows = []
    for preset, ridge in (("normalized", 1e-3), ("authors", 1e-5)):
        dynamic = DynamicWeights(preset=preset)
        times: dict[str, list[float]] = {"ours": [], "piqp": [], "theirs": []}
        gaps = []
        for k in range(repeats):
            z, v = (rng.choice(part, BATCH, replace=False) for part in (here, there))
            pair = torch.tensor(z), torch.tensor(v)
            times["ours"].append(seconds(partial(dynamic, *pair), 7))
            gamma = float(dynamic.gamma(pair[0][None, :, None])[0])
            times["piqp"].append(seconds(partial(piqp_from_losses, z, v, gamma, ridge), 3))
            if k < 3:
                times["theirs"].append(seconds(partial(authors_weights, z, v)))
            kernel, linear = kernels(z, v, gamma, ridge)
            ours = match(z, v, gamma, dynamic.w_max, ridge, dynamic.preset.as_cvxopt)[0]
            solved = ours, piqp_weights(kernel, linear)
            value = [0.5 * w @ kernel @ w - linear @ w for w in solved]
            gaps.append((value[0] - value[1]) / abs(value[1]))
        took = np.array(times["ours"])
        ratio = np.median(np.array(times["piqp"]) / took)
        rows.append(
            [
                preset,
                f"{1e3 * np.median(took):.3f}",
                f"{1e3 * np.median(times['piqp']):.2f}",
                f"{ratio:.0f}",
                f"{1e3 * np.median(times['theirs']):.0f}",
                f"{max(gaps):.1e}",
            ]
        )
    head = [
        "preset",
        "ours, ms",
        "piqp, ms",
        "piqp / ours",
        f"authors' formula by {AUTHORS_SOLVER}, ms",
        "largest gap to piqp",
    ]
    report.table(head, rows)


def seconds(run: Callable[[], Any], repeats: int = 1) -> float:
    """The median of some repeats."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return float(np.median(found))


def contestants(make: Callable[[], torch.nn.Module], preset: str) -> dict[str, TrainingMethod]:
    """Methods whose steps are measured, each with a network of its own."""

    def one(name: str, begin: Any) -> TrainingMethod:
        return TrainingMethod(name, {"f": make()}, [Phase(name, "f", 1, begin)])

    return {
        "plain": methods.baseline("uniform", make(), 1),
        "plain + validation forward": one("forward", with_validation_forward),
        "dynamic weights": methods.importance_weighting(make(), 1, preset=preset),
        "learning to reweight": methods.baseline("reweight", make(), 1),
        "authors' formula": one("authors", by_the_authors),
    }


def begun(method: TrainingMethod, data: TrainingData, config: TrainingConfig) -> Trainer:
    trainer = Trainer(TrainingRun(method, data), config)
    trainer.begin_phase(method.phases[-1])
    trainer.begin_epoch(0)
    return trainer


def steps_on_cpu(report: Report, data: TrainingData, repeats: int) -> None:
    """One step of each, in turn."""
    report.say(f"## One step on a CPU, LeNet-5, batches of {BATCH}, {torch.get_num_threads()} threads\n")
    runs = {name: begun(m, data, authors_config()) for name, m in contestants(LeNet5, "authors").items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run.step()
    for k in range(repeats):
        for name, run in runs.items():
            if name != "authors' formula" or k < 5:
                times[name].append(seconds(run.step))
    base = np.array(times["plain + validation forward"])
    rows = []
    for name, found in times.items():
        each = np.array(found)
        rows.append([name, f"{1e3 * np.median(each):.2f}", f"{np.median(each / base[: len(each)]):.3f}"])
    report.table(["step", "ms", "times plain + validation forward"], rows)


def on_the_card(go: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> float:
    """Seconds of one call, from many that are only waited for at the end."""
    for _ in range(10):
        go()
    found = []
    for _ in range(5):
        before()
        torch.cuda.synchronize()
        found.append(seconds(partial(_many, go, repeats)) / repeats)
    return float(np.median(found))


def _many(go: Callable[[], Any], repeats: int) -> None:
    for _ in range(repeats):
        go()
    torch.cuda.synchronize()


def replays(runs: list[Trainer], repeats: int) -> float:
    """Seconds of one captured step of these runs side by side."""
    captured = CapturedSteps([run.step for run in runs])
    return on_the_card(captured.replay, repeats, lambda: [run.counter.zero_() for run in runs])


def eager(run: Trainer, repeats: int) -> float:
    return on_the_card(run.step, repeats, run.counter.zero_)


def steps_on_gpu(report: Report, data: TrainingData) -> None:
    """Captured steps of LeNet-5, alone and five side by side; of ResNet-32; and the weights alone."""
    report.say(f"## One step on {torch.cuda.get_device_name()}, batches of {BATCH}\n")
    made = contestants(lambda: LeNet5().to("cuda"), "authors")
    config = authors_config()
    rows = [["LeNet-5, plain, not captured", f"{1e3 * eager(begun(made['plain'], data, config), 100):.3f}", ""]]
    slow = begun(made.pop("authors' formula"), data, config)
    rows.append(["LeNet-5, authors' formula", f"{1e3 * eager(slow, 5):.1f}", ""])
    alone = {name: replays([begun(method, data, config)], 200) for name, method in made.items()}
    base = alone["plain + validation forward"]
    rows += [[f"LeNet-5, {name}", f"{1e3 * t:.3f}", f"{t / base:.2f}"] for name, t in alone.items()]
    for k in (5, 10):
        many = [methods.importance_weighting(LeNet5().to("cuda"), 1, preset="authors") for _ in range(k)]
        t = replays([begun(method, data, config) for method in many], 200)
        rows.append([f"LeNet-5, dynamic weights, {k} runs side by side", f"{1e3 * t:.3f}", f"{t / base:.2f}"])
    color = torch.rand(4096, 3, 32, 32, device="cuda")
    other = TrainingData(
        color, torch.arange(4096, device="cuda") % 10, Target(color[:1000], torch.arange(1000, device="cuda") % 10)
    )
    adam = TrainingConfig(lambda parameters: torch.optim.Adam(parameters, lr=5e-4))
    deep = contestants(lambda: ResNet32().to("cuda"), "normalized")
    found = {name: replays([begun(deep[name], other, adam)], 14) for name in list(deep)[:3]}
    rows += [[f"ResNet-32, {name}", f"{1e3 * t:.2f}", ""] for name, t in found.items()]
    report.table(["step", "ms", "times plain + validation forward"], rows)
    report.say("## Weights of one batch alone, as a graph\n")
    rows = []
    for transform in ("loss", "features"):
        for preset in ("normalized", "authors"):
            t = weights_alone(transform, preset)
            rows.append([transform, preset, f"{1e3 * t:.3f}", f"{t / found['dynamic weights']:.1%}"])
    report.table(["transform", "preset", "ms", "share of the ResNet-32 step"], rows)


def weights_alone(transform: str, preset: str) -> float:
    rng = np.random.default_rng(1000)
    dynamic = DynamicWeights(transform, preset=preset, class_ratio=torch.ones(10, device="cuda"))
    if transform == "loss":
        learned = rng.random(BATCH) < 0.6
        pair = np.where(learned, rng.gamma(1, 0.5, BATCH), np.abs(rng.normal(4, 1.3, BATCH))), rng.gamma(1, 0.5, BATCH)
        inputs = [torch.tensor(part, device="cuda", dtype=torch.float32) for part in pair]
    else:
        parts = [rng.normal(size=(BATCH, 64)) for _ in range(2)]
        inputs = [torch.tensor(part, device="cuda", dtype=torch.float32) for part in parts]
        inputs += [torch.arange(BATCH, device="cuda") % 10] * 2
    return on_the_card(CapturedSteps([lambda: dynamic(*inputs)]).replay, 200)


def as_the_authors_train(report: Report, epochs: int, seeds: list[int], device: str) -> None:
    """DIW2-L with the authors' settings; accuracy on the 10,000 test images, and the weights.

    ``python -m experiments label-noise`` trains the other methods beside it.
    """
    report.say(f"## LeNet-5 as the authors train, symmetric noise 0.4, {epochs} epochs\n")
    draws = {seed: fashion(seed, device) for seed in seeds}

    def trained(epochs: int, seeds: list[int]) -> tuple[list[History], float]:
        runs = [authors_run(epochs, seed, draws[seed], device) for seed in seeds]
        start = time.perf_counter()
        return train(runs, authors_config()), time.perf_counter() - start

    alone, took = trained(epochs, seeds[:1])
    last = alone[0].epochs[-1]["accuracy"]["test"]
    report.say(f"One run alone, tests after every epoch included: {took:.1f} s, last {last:.2%}.\n")
    early, _ = trained(min(10, epochs), seeds)
    separated = [f"{separation(history, draws[seed][2]):.3f}" for seed, history in zip(seeds, early, strict=True)]
    histories, took = trained(epochs, seeds)
    rows, every = [], []
    for seed, history, auc in zip(seeds, histories, separated, strict=True):
        found = np.array([entry["accuracy"]["test"] for entry in history.epochs])
        every.append([*(found[min(k, epochs) - 1] for k in (10, 26)), found.max(), found[-1], found[-10:].mean()])
        rows.append([str(seed), *(f"{100 * a:.2f}" for a in every[-1]), auc])
    rows.append(["mean", *(f"{100 * a:.2f}" for a in np.mean(every, axis=0)), ""])
    report.say(f"{len(seeds)} runs side by side, {took:.1f} s:\n")
    head = ["seed", "after 10, %", "after 26", "best", "last", "mean of the last ten", "AUC of the weights after 10"]
    report.table(head, rows)


def authors_run(epochs: int, seed: int, made: Any, device: str) -> TrainingRun:
    torch.manual_seed(seed)
    method = methods.importance_weighting(LeNet5().to(device), epochs, preset="authors", warm_up=1)
    return TrainingRun(method, made[0], seed=seed, eval_sets={"test": made[1]})


def separation(history: History, wrong: np.ndarray) -> float:
    """Chance that an intact row outweighs a mislabeled one, validation rows left out."""
    weights = history.row_weights().numpy()
    kept = np.isfinite(weights) & np.isfinite(wrong)
    return float(roc_auc_score(wrong[kept] == 0, weights[kept]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=40, help="of the measurements on a CPU")
    parser.add_argument("--epochs", type=int, default=0, help="of a training as the authors do it, after the times")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="trained side by side; the first also alone")
    parser.add_argument("--out", type=Path, help="a Markdown file")
    chosen = parser.parse_args()
    report = Report()
    report.say(f"PyTorch {torch.__version__}, Python {platform.python_version()}\n")
    data, _, _, what = fashion(1000, chosen.device)
    report.say(f"Images: {what}.\n")
    if chosen.device == "cpu":
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        weight_estimation_on_cpu(report, data, chosen.repeats)
        torch.set_num_threads(threads)
        steps_on_cpu(report, data, chosen.repeats)
    else:
        steps_on_gpu(report, data)
    if chosen.epochs:
        as_the_authors_train(report, chosen.epochs, chosen.seeds, chosen.device)
    if chosen.out is not None:
        chosen.out.write_text("\n".join(["# Dynamic importance weighting: costs", "", *report.lines]) + "\n")


if __name__ == "__main__":
    main()
