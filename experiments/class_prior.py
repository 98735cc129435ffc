"""Tables 4 and 5: class-prior shift on Fashion-MNIST, and how far weights are from the true ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.deep_drawing import curves_by_epoch
from experiments.deep_table import BASELINES, accuracies, course, lenet_training
from experiments.engine.cells import Arrays, Condition, Experiment, Named, Setting, Settings, stream
from experiments.engine.deep_runner import Job, classes, curves, pixels, row_weights
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.printed import number, read_printed
from experiments.engine.summary import Summary, best_and_comparable
from steelyard._typing import FloatArray
from steelyard.datasets import Images, class_prior_shift, load_images
from steelyard.target import Target

if TYPE_CHECKING:
    from torch import nn

    from steelyard.deep.training import History, TrainingMethod, TrainingRun

METHODS = [Named(name) for name in ("Clean", "Uniform", "Random", "IW", "Reweight", "DIW", "Truth")]
WEIGHTED = [Named(name) for name in ("IW", "Reweight", "DIW")]
MEASURES = {"mae": "MAE", "rmse": "RMSE"}  # of the distance of weights to the true ones


@dataclass(frozen=True)
class Data(Condition):
    """Fashion-MNIST with two rare classes: `ratio` is ρ, rows of a majority class over those of a rare one."""

    ratio: int

    @property
    def label(self) -> str:
        """Name on the page."""
        return f"ρ = {self.ratio}"


DATA = [Data(100), Data(200)]


def job(data: Data, method: Named, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """The trials of a method with one ratio of majority to minority."""
    source, held_out = (load_images("fashion_mnist", part) for part in ("train", "test"))
    made = [
        _trial(
            source,
            held_out,
            stream(seed, "class-prior", data.stream_name, trial),
            data.ratio,
            method.name,
            trial,
            settings,
            device,
        )
        for trial in trials
    ]
    training = lenet_training(settings, target_batch_size=10 * settings["clean_per_class"])
    return Job(
        [trial for trial, _ in made],
        training,
        lambda trained: _keep(trained, [truth for _, truth in made]),
        ("curves", *MEASURES, *(f"{measure}_of_ones" for measure in MEASURES)),
    )


def _trial(
    source: Images,
    held_out: Images,
    rng: np.random.Generator,  # the same for every method
    ratio: int,
    method: str,
    number: int,
    settings: Settings,
    device: str,
) -> tuple[TrainingRun, FloatArray]:
    """A draw of the rows, a network, and the true weights."""
    import torch

    from steelyard.deep.nets import LeNet5
    from steelyard.deep.training import TrainingData, TrainingRun

    every = source.y.astype(np.int64)
    rows, truth = class_prior_shift(every, ratio=ratio, largest=settings["majority"], random_state=rng)
    y = every[rows]
    clean = np.concatenate([np.flatnonzero(y == c)[: settings["clean_per_class"]] for c in range(10)])
    inputs, given = pixels(source.X[rows], device), classes(y, device)
    tested = slice(0, settings["test_rows"] or len(held_out.y))
    watch = {"test": (pixels(held_out.X[tested], device), classes(held_out.y[tested], device))}
    torch.manual_seed(int(rng.integers(2**31)))
    model = LeNet5().to(device)
    task = TrainingData(inputs, given, Target(inputs[clean], given[clean]))
    return TrainingRun(_method(method, model, truth, settings), task, seed=number, eval_sets=watch), truth


def _method(name: str, model: nn.Module, truth: FloatArray, settings: Settings) -> TrainingMethod:
    import torch

    from steelyard.deep.training import baseline, fixed_weights, importance_weighting

    epochs = settings["epochs"]
    if name in BASELINES:
        return baseline(BASELINES[name], model, epochs)
    if name == "Truth":
        return fixed_weights(model, torch.tensor(truth), epochs, normalized=True)
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


def _keep(trained: list[History], truths: list[FloatArray]) -> Arrays:
    """Curves, and how far the weights of the last epoch, and uniform ones, are from the true weights."""
    apart = [row_weights(trial) - truth for trial, truth in zip(trained, truths, strict=True)]
    ones = [1 - truth for truth in truths]
    # NaN marks rows that the last epoch left out: all of them where a method has no weights of source rows.
    return {
        "curves": curves(trained),
        "mae": np.array([_mean(np.abs(a)) for a in apart]),
        "rmse": np.array([np.sqrt(_mean(np.square(a))) for a in apart]),
        "mae_of_ones": np.array([np.abs(a).mean() for a in ones]),
        "rmse_of_ones": np.array([np.sqrt(np.square(a).mean()) for a in ones]),
    }


def _mean(values: FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else np.nan


def sections(summary: Summary[Data, Named]) -> list[Section]:
    """Accuracies, distances of the weights, and accuracies during training."""
    remark = "Truth does not compete. " + used(summary.settings)
    return [
        accuracies(summary, "Table 4", {data.label: data for data in DATA}, METHODS, remark),
        _distances(summary),
        course(summary, "Table 4", lambda data: int(summary.settings["epochs"])),
    ]


def _distances(summary: Summary[Data, Named]) -> Section:
    paper = {
        (Data(int(row["ratio"])), row["measure"], row["method"]): number(row)
        for row in read_printed("class_prior_weights.csv")
    }
    lines = []
    head = [(data, measure) for data in DATA for measure in MEASURES]
    arrays = {(data, m): summary.arrays[data, m] for data in DATA for m in WEIGHTED if (data, m) in summary.arrays}
    values = {
        (data, measure): {m: arrays[data, m][measure] for m in WEIGHTED if (data, m) in arrays}
        for data, measure in head
    }
    marks = {key: best_and_comparable(each) if each else {} for key, each in values.items()}
    for method in WEIGHTED:
        line = [Entry(method.label)]
        for key in head:
            each, printed = values[key].get(method), paper[*key, method.name]
            text = "not run" if each is None else f"{each.mean():.2f} ({each.std(ddof=1) if len(each) > 1 else 0:.2f})"
            line += [
                Entry(text, marks[key].get(method, (False, 1.0))[0]),
                Entry(f"{printed.mean:.2f} ({printed.sd:.2f})"),
            ]
        lines.append(line)
    reference = [Entry("w ≡ 1")]
    for data, measure in head:
        any_run = next((arrays[data, m] for m in WEIGHTED if (data, m) in arrays), None)
        reference += [Entry("" if any_run is None else f"{any_run[f'{measure}_of_ones'].mean():.2f}"), Entry("")]
    titles = [f"{data.label}, {MEASURES[measure]}" for data, measure in head]
    return Section(
        "Table 5: distance of the weights in the last epoch to the true ones, mean (sd)",
        ["method", *(text for title in titles for text in (title, "survey"))],
        [*lines, reference],
        "w ≡ 1 is not a method but a reference: the distance of uniform weights.",
    )


def used(settings: Settings) -> str:
    """The values used where the survey leaves the choice open."""
    return (
        f"{settings['majority']} rows of each majority class, 1/ρ as many of each of two minority classes, "
        f"{settings['clean_per_class']} clean rows of each class, which are trained on as well; {settings['epochs']} "
        f"epochs, batches of 256 and {10 * settings['clean_per_class']}, learning rate {settings['rate']} for summed "
        f"losses, a tenth after each quarter; DIW2 by {settings['transform']}; losses matched with the preset "
        f'"{settings["preset"]}", features and inputs with "{settings["preset_of_features"]}".'
    )


def pictures(summary: Summary[Data, Named]) -> list[Picture]:
    """Accuracy curves of what was run."""
    drawn = curves_by_epoch(summary, "curves", DATA, METHODS)
    return [] if drawn is None else [drawn]


EXPERIMENT = Experiment(
    name="class-prior",
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
        "preset": Setting("authors", "weights of losses, as in table 6; or normalized"),
        "preset_of_features": Setting("normalized", "kernel width of features and of IW's inputs; or authors"),
        "majority": Setting(4000, "rows of a majority class; the survey does not say"),
        "clean_per_class": Setting(10, "as in the survey"),
        "test_rows": Setting(0, "test images; 0 is all"),
    },
    data_class=Data,
    method_class=Named,
    data=lambda settings: DATA,
    methods=lambda data: METHODS,
    sections=sections,
    pictures=pictures,
    controls=frozenset({Named("Truth")}),
    trials=range(5),
    job=job,
)
