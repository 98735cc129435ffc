"""Tables 4 and 5: class-prior shift on Fashion-MNIST, and how far weights are from the true ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.deep_drawing import draw_curves
from experiments.deep_table import BASELINES, accuracies, course, lenet_training
from experiments.engine.cells import Experiment, Setting, Settings, printed, stream
from experiments.engine.deep_runner import Arrays, Job, classes, curves, kept, pixels, row_weights
from experiments.engine.page import Entry, Section
from experiments.engine.summary import Summary, best_and_comparable
from steelyard._typing import FloatArray
from steelyard.datasets import Images, class_prior_shift, load_images

if TYPE_CHECKING:
    from torch import nn

    from steelyard.deep import Trial
    from steelyard.deep.training.phases import Method

RATIOS = {"ρ = 100": 100, "ρ = 200": 200}
METHODS = ["Clean", "Uniform", "Random", "IW", "Reweight", "DIW", "Truth"]
WEIGHED = ["IW", "Reweight", "DIW"]
ONES = "w ≡ 1"


def job(data: str, method: str, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """The trials of a method with one ratio of majority to minority."""
    source, held_out = (load_images("fashion_mnist", part) for part in ("train", "test"))
    made = [
        _trial(source, held_out, stream(seed, "class-prior", data, trial), data, method, trial, settings, device)
        for trial in trials
    ]
    training = lenet_training(settings, target_batch_size=10 * settings["clean_per_class"])
    return Job(
        [trial for trial, _ in made],
        training,
        lambda trained: _keep(trained, [truth for _, truth in made]),
        ("curves", *(f"{kind}{of}" for kind in ("MAE", "RMSE") for of in ("", f" of {ONES}"))),
    )


def _trial(
    source: Images,
    held_out: Images,
    rng: np.random.Generator,  # the same for every method
    data: str,
    method: str,
    number: int,
    settings: Settings,
    device: str,
) -> tuple[Trial, FloatArray]:
    """A draw of the rows, a network, and the true weights."""
    import torch

    from steelyard.deep import Task, Trial
    from steelyard.deep.nets import LeNet5

    every = source.y.astype(np.int64)
    rows, truth = class_prior_shift(every, ratio=RATIOS[data], largest=settings["majority"], random_state=rng)
    y = every[rows]
    clean = np.concatenate([np.flatnonzero(y == c)[: settings["clean_per_class"]] for c in range(10)])
    inputs, given = pixels(source.X[rows], device), classes(y, device)
    tested = slice(0, settings["test_rows"] or len(held_out.y))
    watch = {"test": (pixels(held_out.X[tested], device), classes(held_out.y[tested], device))}
    torch.manual_seed(int(rng.integers(2**31)))
    model = LeNet5().to(device)
    task = Task(inputs, given, inputs[clean], given[clean])
    return Trial(_method(method, model, truth, settings), task, seed=number, watch=watch), truth


def _method(name: str, model: nn.Module, truth: FloatArray, settings: Settings) -> Method:
    import torch

    from steelyard.deep.training.methods import baseline, importance_weighting, known_weights

    epochs = settings["epochs"]
    if name in BASELINES:
        return baseline(BASELINES[name], model, epochs)
    if name == "Truth":
        return known_weights(model, torch.tensor(truth), epochs, normalized=True)
    is_dynamic = name == "DIW"
    by_loss = is_dynamic and settings["transform"] == "loss"
    return importance_weighting(
        model,
        epochs,
        variant="DIW2" if is_dynamic else "IW",
        transform="loss" if by_loss else "features",
        preset=settings["preset"] if by_loss else settings["preset_of_features"],
        warm_up=1 if is_dynamic and epochs > 1 else 0,
    )


def _keep(trained: list[Trial], truths: list[FloatArray]) -> Arrays:
    """Curves, and how far the weights of the last epoch are from the true ones."""
    apart = [row_weights(trial) - truth for trial, truth in zip(trained, truths, strict=True)]
    ones = [1 - truth for truth in truths]
    # NaN: of rows that the last epoch left out; all of them where a method has no weights of source rows.
    return {
        "curves": curves(trained),
        "MAE": np.array([_mean(np.abs(a)) for a in apart]),
        "RMSE": np.array([np.sqrt(_mean(np.square(a))) for a in apart]),
        f"MAE of {ONES}": np.array([np.abs(a).mean() for a in ones]),
        f"RMSE of {ONES}": np.array([np.sqrt(np.square(a).mean()) for a in ones]),
    }


def _mean(values: FloatArray) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else np.nan


def sections(summary: Summary) -> list[Section]:
    """Accuracies, distances of the weights, and accuracies on the way."""
    remark = "Truth stands aside. " + used(summary.settings)
    names = {data: data for data in RATIOS}
    return [
        accuracies(EXPERIMENT, summary, "Table 4", names, METHODS, remark),
        _distances(summary),
        course(EXPERIMENT, summary, "Table 4", dict.fromkeys(RATIOS, int(summary.settings["epochs"]))),
    ]


def _distances(summary: Summary) -> Section:
    paper = printed("table5_class_prior_weights.csv")
    lines = []
    head = [(data, kind) for data in RATIOS for kind in ("MAE", "RMSE")]
    found = {(data, m): kept(summary.folder, EXPERIMENT, data, m) for data in RATIOS for m in WEIGHED}
    values = {
        (data, kind): {m: found[data, m][kind] for m in WEIGHED if found[data, m] is not None}  # type: ignore[index]
        for data, kind in head
    }
    marks = {key: best_and_comparable(each) if each else {} for key, each in values.items()}
    for method in WEIGHED:
        line = [Entry(method)]
        for key in head:
            each, theirs = values[key].get(method), paper[f"{key[0]}, {key[1]}", method]
            ours = "not run" if each is None else f"{each.mean():.2f} ({each.std(ddof=1) if len(each) > 1 else 0:.2f})"
            line += [
                Entry(ours, marks[key].get(method, (False, 1.0))[0]),
                Entry(f"{theirs.mean:.2f} ({theirs.sd:.2f})"),
            ]
        lines.append(line)
    reference = [Entry(ONES)]
    for data, kind in head:
        any_run = next((found[data, m] for m in WEIGHED if found[data, m] is not None), None)
        reference += [Entry("" if any_run is None else f"{any_run[f'{kind} of {ONES}'].mean():.2f}"), Entry("")]
    return Section(
        "Table 5: distance of the weights in the last epoch to the true ones, mean (sd)",
        ["method", *(text for data, kind in head for text in (f"{data}, {kind}", "survey"))],
        [*lines, reference],
        f"{ONES} is no method: it says how far weights of one are, which know nothing.",
    )


def used(settings: Settings) -> str:
    """What the survey leaves open, and what was used."""
    return (
        f"{settings['majority']} rows of each majority class, 1/ρ as many of each of two minority classes, "
        f"{settings['clean_per_class']} clean rows of each class, which are also learnt from; {settings['epochs']} "
        f"epochs, batches of 256 and {10 * settings['clean_per_class']}, learning rate {settings['rate']} for summed "
        f"losses, a tenth after each quarter; DIW2 by {settings['transform']}; losses matched with the preset "
        f'"{settings["preset"]}", features and inputs with "{settings["preset_of_features"]}".'
    )


def figures(summary: Summary, folder: Path) -> list[Path]:
    """Accuracy curves of what was run."""
    drawn = draw_curves(EXPERIMENT, list(RATIOS), METHODS, folder, "class_prior_curves.png")
    return [] if drawn is None else [drawn]


EXPERIMENT = Experiment(
    name="class-prior",
    file="table4_class_prior",
    title="Tables 4 and 5: class-prior shift, dynamic importance weighting",
    explains=(
        "Two of ten classes of Fashion-MNIST are ρ times rarer in training than the others; the test is balanced, and "
        "ten rows of each class are known to come from it. Accuracy of LeNet-5 at the last epoch, and the distance of "
        "the weights to the true ones."
    ),
    settings={
        "epochs": Setting(400, "as in the survey"),
        "rate": Setting(3e-4, "learning rate of the summed loss, as in the authors' code for label noise"),
        "transform": Setting("loss", "what DIW matches: loss or features"),
        "preset": Setting("authors", "weights of losses, as in table 6; or normalised"),
        "preset_of_features": Setting("normalised", "kernel width of features and of IW's inputs; or authors"),
        "majority": Setting(4000, "rows of a majority class; the survey does not say"),
        "clean_per_class": Setting(10, "as in the survey"),
        "test_rows": Setting(0, "test images; 0 is all"),
    },
    data=lambda settings: list(RATIOS),
    methods=lambda data: METHODS,
    compute=None,
    sections=sections,
    figures=figures,
    controls=frozenset({"Truth"}),
    trials=5,
    job=job,
)
