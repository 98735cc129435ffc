"""Table 6 and the figures of section 6.3: training with wrong labels and a thousand right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.deep_drawing import beside_printed, curves_by_epoch, denoising, embeddings, weights_of_labels
from experiments.deep_table import BASELINES, accuracies, course, lenet_training, tenth_each_quarter
from experiments.engine.cells import Arrays, Condition, Experiment, Setting, Settings, stream
from experiments.engine.deep_runner import Job, classes, curves, pixels, row_weights
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.summary import Summary
from steelyard._typing import FloatArray
from steelyard.datasets import Images, label_noise, load_images
from steelyard.target import Target

if TYPE_CHECKING:
    from torch import nn

    from steelyard.deep.training import History, TrainingConfig, TrainingMethod, TrainingRun

NOISES = (("symmetric", 0.4), ("pair", 0.3), ("symmetric", 0.5))
LABELS = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
KINDS = {"IW": ("IW",), "SIWs": ("SIW",), "DIWs": ("DIW1", "DIW2", "DIW3")}  # static and dynamic weighting
EVAL_ROWS, EMBEDDED_ROWS = 2000, 1000
LIGHT = 0.2  # a row of a smaller weight hardly counts
N_BINS = 59


@dataclass(frozen=True)
class Data(Condition):
    """Images with wrong labels: the kind of noise, and the share of labels that it changes."""

    images: str
    noise: str
    rate: float

    @property
    def label(self) -> str:
        """Name on the page."""
        return f"{LABELS[self.images]}, {self.noise_label}"

    @property
    def noise_label(self) -> str:
        """Name of the noise."""
        return f"{self.noise} {self.rate}"


@dataclass(frozen=True)
class Weighting(Condition):
    """A method; static and dynamic importance weighting match the features or the losses of the network."""

    name: str
    transform: str = ""

    @property
    def label(self) -> str:
        """Name of the row."""
        return f"{self.name}-{self.transform[0].upper()}" if self.transform else self.name


DIW2_L = Weighting("DIW2", "loss")
FIRST = [*(Weighting(name) for name in ("Clean", "Uniform", "Random", "IW", "Reweight")), DIW2_L]
METHODS = [
    *FIRST,
    *(Weighting("SIW", transform) for transform in ("features", "loss")),
    *(Weighting(name, "features") for name in KINDS["DIWs"]),
    *(Weighting(name, "loss") for name in ("DIW1", "DIW3")),
]
ABLATION = [
    Weighting("IW"),
    *(Weighting(name, seen) for seen in ("features", "loss") for name in ("SIW", *KINDS["DIWs"])),
]


def job(data: Data, method: Weighting, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """The trials of a method on one data set with one noise."""
    settings = {**settings, "epochs": _epochs(data, settings)}
    source, held_out = (load_images(data.images, part) for part in ("train", "test"))
    made = [
        _trial(
            source,
            held_out,
            stream(seed, "label-noise", data.stream_name, trial),
            data,
            method,
            trial,
            settings,
            device,
        )
        for trial in trials
    ]
    first, known = made[0]
    drawn = (data.noise, data.rate) == NOISES[0]  # whose embeddings are in a picture
    keeps = bool(settings.get("kept_share"))

    def keep(trained: list[History]) -> Arrays:
        """Curves of all trials; weights and embedded test rows of the first."""
        weights = weight_arrays(row_weights(trained[0]), known["wrong"], known["clean"])
        kept = {"kept_epochs": np.array([each.kept_epoch for each in trained])} if keeps else {}
        return {
            "curves": curves(trained),
            **kept,
            **weights,
            **(_embedded(first, known["test_labels"]) if drawn else {}),
        }

    per_trial = ("curves", "kept_epochs") if keeps else ("curves",)
    return Job([trial for trial, _ in made], _training(data, settings), keep, per_trial)


def _epochs(data: Data, settings: Settings) -> int:
    return int(settings["cifar_epochs" if data.images == "cifar10" else "epochs"])


def _trial(
    source: Images,
    held_out: Images,
    rng: np.random.Generator,  # the same for every method
    data: Data,
    method: Weighting,
    number: int,
    settings: Settings,
    device: str,
) -> tuple[TrainingRun, Arrays]:
    """A draw of the noise and of the clean rows, a network, and its eval sets."""
    import torch

    from steelyard.deep.nets import LeNet5
    from steelyard.deep.training import TrainingData, TrainingRun, set_aside

    rows = rng.permutation(len(source.y))[: settings["rows"] or len(source.y)]
    X, true = source.X[rows], source.y[rows].astype(np.int64)
    given = label_noise(true, data.rate, data.noise, n_classes=10, random_state=rng)
    clean = np.arange(min(settings["clean_rows"], len(rows) // 2))
    given[clean] = true[clean]
    wrong = given != true
    intact = rng.permutation(np.setdiff1d(np.flatnonzero(~wrong), clean))[:EVAL_ROWS]
    mislabeled = rng.permutation(np.flatnonzero(wrong))[:EVAL_ROWS]
    inputs, y = pixels(X, device), classes(given, device)
    tested = slice(0, settings["test_rows"] or len(held_out.y))
    watch = {
        "test": (pixels(held_out.X[tested], device), classes(held_out.y[tested], device)),
        "intact": (inputs[intact], y[intact]),
        "mislabeled, given label": (inputs[mislabeled], y[mislabeled]),
        "mislabeled, true label": (inputs[mislabeled], classes(true[mislabeled], device)),
    }
    torch.manual_seed(int(rng.integers(2**31)))
    model = (LeNet5() if X.shape[1] == 1 else _resnet(settings, device)).to(device)
    kept, others = set_aside(true[clean], settings.get("kept_share", 0.0), number)  # row numbers: clean rows are first
    used = np.setdiff1d(np.arange(len(rows)), kept)
    task = TrainingData(inputs[used], y[used], Target(inputs[others], y[others]))
    known = {
        "wrong": wrong[used],
        "clean": np.arange(len(others)),
        "test_labels": held_out.y[tested][:EMBEDDED_ROWS],
    }
    aside = (inputs[kept], y[kept]) if len(kept) else None
    return TrainingRun(_method(method, model, settings), task, seed=number, eval_sets=watch, kept_rows=aside), known


def _resnet(settings: Settings, device: str) -> nn.Module:
    from steelyard.deep.nets import ResNet32

    return ResNet32(dropout=settings.get("cifar_dropout", 0.0), bfloat16=device != "cpu")


def _method(method: Weighting, model: nn.Module, settings: Settings) -> TrainingMethod:
    from steelyard.deep.training import baseline, importance_weighting

    epochs = settings["epochs"]
    if method.name in BASELINES:
        return baseline(BASELINES[method.name], model, epochs)
    by_loss = method.transform == "loss"
    return importance_weighting(
        model,
        epochs,
        variant=method.name,
        transform=method.transform or "features",
        preset=settings["preset"] if by_loss else settings["preset_of_features"],
        pretrain=settings["pretrain"],
        warm_up=1 if method.name in KINDS["DIWs"] and epochs > 1 else 0,
        weight_mode=settings.get("weight_mode", "evaluation"),
    )


def _training(data: Data, settings: Settings) -> TrainingConfig:
    import torch

    from steelyard.deep.training import TrainingConfig

    if data.images == "fashion_mnist":
        return lenet_training(settings)
    return TrainingConfig(
        lambda parameters: torch.optim.Adam(parameters, lr=5e-4, weight_decay=settings["cifar_decay"]),
        lr_schedule=lambda epoch: tenth_each_quarter(epoch, settings),
    )


def _embedded(run: TrainingRun, labels: Any) -> Arrays:
    """Test rows in the last hidden layer, in two dimensions, and their classes."""
    import torch

    model = run.method.networks["f"].eval()
    with torch.no_grad():
        features = model.features(run.eval_sets["test"][0][:EMBEDDED_ROWS])  # type: ignore[operator]
    embedded = embed(features.cpu().numpy()).astype(np.float16)
    return {"embedded": embedded, "embedded_labels": labels.astype(np.uint8)}


def weight_arrays(weights: FloatArray, wrong: Any, clean: Any) -> Arrays:
    """Statistics of the weights of intact rows (first) and of mislabeled ones (second), known clean rows left out.

    `weight_quartiles` has lower whisker, quartiles and upper whisker of a box plot; `weight_light` the share of weights
    below 0.2; `weight_counts` the counts of even bins from 0 to `weight_top`, to which greater weights are cut.
    """
    weighted = np.isfinite(weights)
    weighted[clean] = False
    both = [weights[weighted & ~wrong], weights[weighted & wrong]]
    if not all(map(len, both)):  # Clean gives weight to none of them
        return {}
    top = max(float(np.quantile(np.concatenate(both), 0.995)), 1e-3)
    edges = np.linspace(0, top, N_BINS + 1)
    return {
        "weight_quartiles": np.array([_box(each) for each in both]),
        "weight_light": np.array([np.mean(each < LIGHT) for each in both]),
        "weight_counts": np.array([np.histogram(np.clip(each, 0, top), edges)[0] for each in both], dtype=np.uint32),
        "weight_top": np.array(top),
    }


def _box(values: FloatArray) -> list[float]:
    """Lower whisker, quartiles and upper whisker; whiskers end at the last value within 1.5 times the box."""
    low, median, high = np.percentile(values, [25, 50, 75])
    reach = 1.5 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    return [min(float(inside.min()), low), low, median, high, max(float(inside.max()), high)]


def embed(features: Any) -> Any:
    """Two coordinates for each row, by t-SNE."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features)


def _data(settings: Settings) -> list[Data]:
    return [Data(images, *noise) for images in LABELS for noise in NOISES]


def _urgency(data: Data, method: Weighting) -> int:
    """The six methods of the figure first, under symmetric noise 0.4, then under the others; then the rest."""
    place = NOISES.index((data.noise, data.rate))
    return 100 * (data.images != "fashion_mnist") + 10 * (method not in FIRST) + place


def sections(summary: Summary[Data, Weighting]) -> list[Section]:
    """Accuracy at the last epoch for each kind of images; kinds of methods on average; accuracy during training."""
    tables = [
        accuracies(
            summary,
            f"Table 6, {label}",
            {data.noise_label: data for data in (Data(images, *noise) for noise in NOISES)},
            METHODS,
            used(summary.settings),
        )
        for images, label in LABELS.items()
    ]
    end = course(summary, "Table 6", lambda data: _epochs(data, summary.settings))
    return [*tables, _kinds(summary), end, _learned(summary)]


def _kinds(summary: Summary[Data, Weighting]) -> Section:
    """Static weights of inputs, of features or losses, and dynamic ones: the mean of all their cells in a table."""
    computed = {(row.data, row.method): 100 - row.mean for row in summary.rows}
    printed = {cell: 100 - found.mean for cell, found in summary.paper.items()}
    lines = []
    for name, members in KINDS.items():
        line = [Entry(name)]
        for images in LABELS:
            cells = [(Data(images, *noise), m) for noise in NOISES for m in METHODS if m.name in members]
            for found in (computed, printed):
                run = [found[cell] for cell in cells if cell in found]
                missing = "" if len(run) == len(cells) else f", {len(run)} of {len(cells)} cells"
                line.append(Entry(f"{np.mean(run):.2f}{missing}" if run else "not run"))
        lines.append(line)
    head = ["methods", *(text for label in LABELS.values() for text in (label, "survey"))]
    return Section("Table 6: kinds of methods", head, lines, "Mean of the accuracies in the tables above, in %.")


def _learned(summary: Summary[Data, Weighting]) -> Section:
    """How much of the intact and of the wrong labels was learned, and whether the weights separate them."""
    lines = []
    for row in summary.rows:
        arrays = summary.arrays.get((row.data, row.method))
        if arrays is None:
            continue
        end = 100 * arrays["curves"][:, -1].mean(axis=0)
        line = [f"{row.data.label}: {row.method.label}", f"{end[1]:.1f}", f"{end[2]:.1f}"]
        if "weight_light" in arrays:
            intact, mislabeled = 100 * arrays["weight_light"]
            line += [f"{mislabeled:.1f}", f"{intact:.1f}", f"{arrays['weight_quartiles'][0, 2]:.2f}"]
        lines.append([Entry(text) for text in line + [""] * (6 - len(line))])
    head = ["", "intact labels learned, %", "wrong labels learned, %"]
    head += [f"mislabeled rows below {LIGHT}, %", f"intact rows below {LIGHT}, %", "median weight of intact rows"]
    note = (
        f"At the end, of {EVAL_ROWS} intact and as many mislabeled training rows, mean over the trials; weights of the "
        "last epoch, first trial, without the rows that are known to be clean."
    )
    return Section("Table 6: labels learned, and weights", head, lines, note)


def used(settings: Settings) -> str:
    """The values used where the survey leaves the choice open."""
    sentences = {
        "kept_share": " A share of {} of the clean rows is kept aside.",
        "cifar_dropout": " Dropout of {} after each stage of ResNet-32.",
        "weight_mode": ' Dynamic weights are made in the mode "{}" of batch-norm.',
    }
    later = [sentence.format(settings[name]) for name, sentence in sentences.items() if name in settings]
    return (
        f"{settings['epochs']} epochs of Fashion-MNIST and {settings['cifar_epochs']} of CIFAR-10 (400 in the survey), "
        f"batches of 256 and 256, learning rate {settings['rate']} for summed losses (Fashion-MNIST) or Adam with 5e-4 "
        f"and weight decay {settings['cifar_decay']} (CIFAR-10; on a GPU with convolutions in bfloat16), a tenth after "
        f"each quarter; losses matched with the preset "
        f'"{settings["preset"]}", features and inputs with "{settings["preset_of_features"]}"; {settings["pretrain"]} '
        f"epochs of pretraining; {settings['clean_rows']} clean rows, which are trained on as well."
        f"{''.join(later)}"
    )


def pictures(summary: Summary[Data, Weighting]) -> list[Picture]:
    """The ablation beside the survey's; accuracy curves, weights, embeddings and denoising curves of what was run."""
    found = [beside_printed(summary, "ablation", [Data("fashion_mnist", *noise) for noise in NOISES], ABLATION)]
    weighting = [Weighting("IW"), Weighting("Reweight"), DIW2_L]
    for images in LABELS:
        start = "" if images == "fashion_mnist" else "cifar_"
        data = [Data(images, *noise) for noise in NOISES]
        with_weights = [method for method in weighting if "weight_top" in summary.arrays.get((data[0], method), {})]
        found += [
            curves_by_epoch(summary, f"{start}curves", data, METHODS),
            weights_of_labels(summary, f"{start}weights", data[0], with_weights),
            embeddings(summary, f"{start}embeddings", data[0], METHODS),
            denoising(summary, f"{start}denoising", data[0], [Weighting("Uniform"), *weighting]),
        ]
    return [picture for picture in found if picture is not None]


EXPERIMENT = Experiment(
    name="label-noise",
    title="Table 6: label noise, dynamic importance weighting",
    explains=(
        "Labels of the training images are flipped, to any other class (symmetric) or to the next (pair); a thousand "
        "clean rows are known. Static and dynamic importance weighting and their baselines, LeNet-5 on Fashion-MNIST "
        "and ResNet-32 on CIFAR-10, accuracy on the clean test images at the last epoch."
    ),
    settings={
        "epochs": Setting(400, "of Fashion-MNIST, as in the survey"),
        "cifar_epochs": Setting(100, "of CIFAR-10, a quarter of the survey's"),
        "cifar_decay": Setting(
            0.002, "weight decay for CIFAR-10, as in later code of the authors; the survey does not say"
        ),
        "rate": Setting(3e-4, "learning rate of the summed loss for LeNet-5, as in the authors' code"),
        "preset": Setting("authors", "weights of losses, as in the authors' code; or normalized"),
        "preset_of_features": Setting("normalized", "kernel width of features and inputs; the authors' is unknown"),
        "pretrain": Setting(10, "epochs of pretraining of SIW, DIW1 and DIW3; the survey does not say"),
        "clean_rows": Setting(1000, "as in the survey"),
        "rows": Setting(0, "training images; 0 is all"),
        "test_rows": Setting(0, "test images; 0 is all"),
        "kept_share": Setting(
            0.0, 'of the clean rows, kept aside to choose an epoch; gives the column "kept epoch"', added_later=True
        ),
        "cifar_dropout": Setting(0.0, "dropout rate after each stage of ResNet-32", added_later=True),
        "weight_mode": Setting(
            "evaluation",
            "statistics of batch-norm by which dynamic weights are made; or batch, refreshed",
            added_later=True,
        ),
    },
    variants={"losses_normalized": {"preset": "normalized"}, "kept_epoch": {"kept_share": "0.25"}},
    data_class=Data,
    method_class=Weighting,
    data=_data,
    methods=lambda data: METHODS,
    sections=sections,
    pictures=pictures,
    trials=range(5),
    job=job,
    urgency=_urgency,
)
