"""Table 6 and the figures of section 6.4: learning with wrong labels and a thousand right ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.deep_drawing import (
    draw_beside_printed,
    draw_curves,
    draw_denoising,
    draw_embeddings,
    draw_weights,
    weights_of_intact_and_mislabelled,
)
from experiments.deep_table import BASELINES, accuracies, course, lenet_training, tenth_each_quarter
from experiments.engine.cells import Experiment, Setting, Settings, printed, stream
from experiments.engine.deep_runner import Arrays, Job, classes, curves, kept, pixels, row_weights
from experiments.engine.page import Entry, Section
from experiments.engine.summary import Summary
from steelyard.datasets import Images, label_noise, load_images

if TYPE_CHECKING:
    from torch import nn

    from steelyard.deep import Settings as Training
    from steelyard.deep import Trial
    from steelyard.deep.training.phases import Method

NOISES = ("symmetric 0.4", "pair 0.3", "symmetric 0.5")
IMAGES = {"Fashion-MNIST": "fashion_mnist", "CIFAR-10": "cifar10"}
FIRST = ["Clean", "Uniform", "Random", "IW", "Reweight", "DIW2-L"]
METHODS = [*FIRST, "SIW-F", "SIW-L", "DIW1-F", "DIW2-F", "DIW3-F", "DIW1-L", "DIW3-L"]
ABLATION = ["IW", *(f"{kind}-{seen}" for seen in "FL" for kind in ("SIW", "DIW1", "DIW2", "DIW3"))]
WATCHED = ("test", "intact", "mislabelled, given label", "mislabelled, true label")
WATCHED_ROWS, EMBEDDED_ROWS = 2000, 1000
LIGHT = 0.2  # below it a row hardly counts


def job(data: str, method: str, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """The trials of a method on one data set with one noise."""
    images, noise = data.split(", ")
    settings = {**settings, "epochs": _epochs(data, settings)}
    source, held_out = (load_images(IMAGES[images], part) for part in ("train", "test"))
    made = [
        _trial(source, held_out, stream(seed, "label-noise", data, trial), noise, method, trial, settings, device)
        for trial in trials
    ]
    return Job([trial for trial, _ in made], _training(images, settings), lambda trained: _keep(trained, made[0][1]))


def _epochs(data: str, settings: Settings) -> int:
    return int(settings["cifar_epochs" if data.startswith("CIFAR-10") else "epochs"])


def _trial(
    source: Images,
    held_out: Images,
    rng: np.random.Generator,  # the same for every method
    noise: str,
    method: str,
    number: int,
    settings: Settings,
    device: str,
) -> tuple[Trial, Arrays]:
    """A draw of the noise and of the clean rows, a network, and what it is watched on."""
    import torch

    from steelyard.deep import Task, Trial
    from steelyard.deep.nets import LeNet5, ResNet32

    rows = rng.permutation(len(source.y))[: settings["rows"] or len(source.y)]
    X, true = source.X[rows], source.y[rows].astype(np.int64)
    kind, rate = noise.split()
    given = label_noise(true, float(rate), kind, n_classes=10, random_state=rng)
    clean = np.arange(min(settings["clean_rows"], len(rows) // 2))
    given[clean] = true[clean]
    wrong = given != true
    intact = rng.permutation(np.setdiff1d(np.flatnonzero(~wrong), clean))[:WATCHED_ROWS]
    mislabelled = rng.permutation(np.flatnonzero(wrong))[:WATCHED_ROWS]
    inputs, y = pixels(X, device), classes(given, device)
    tested = slice(0, settings["test_rows"] or len(held_out.y))
    watch = {
        "test": (pixels(held_out.X[tested], device), classes(held_out.y[tested], device)),
        "intact": (inputs[intact], y[intact]),
        "mislabelled, given label": (inputs[mislabelled], y[mislabelled]),
        "mislabelled, true label": (inputs[mislabelled], classes(true[mislabelled], device)),
    }
    torch.manual_seed(int(rng.integers(2**31)))
    model = (LeNet5() if X.shape[1] == 1 else ResNet32(bfloat16=device != "cpu")).to(device)
    task = Task(inputs, y, inputs[clean], y[clean])
    known = {"wrong": wrong, "clean": clean, "test_labels": held_out.y[tested][:EMBEDDED_ROWS]}
    return Trial(_method(method, model, settings), task, seed=number, watch=watch), known


def _method(name: str, model: nn.Module, settings: Settings) -> Method:
    from steelyard.deep.training.methods import baseline, importance_weighting

    epochs = settings["epochs"]
    if name in BASELINES:
        return baseline(BASELINES[name], model, epochs)
    variant, _, transform = name.partition("-")
    by_loss = transform == "L"
    return importance_weighting(
        model,
        epochs,
        variant=variant,
        transform="loss" if by_loss else "features",
        preset=settings["preset"] if by_loss else settings["preset_of_features"],
        pretrain=settings["pretrain"],
        warm_up=1 if variant.startswith("DIW") and epochs > 1 else 0,
    )


def _training(images: str, settings: Settings) -> Training:
    import torch

    from steelyard.deep import Settings as Training

    if images == "Fashion-MNIST":
        return lenet_training(settings)
    return Training(
        lambda parameters: torch.optim.Adam(parameters, lr=5e-4, weight_decay=settings["cifar_decay"]),
        schedule=lambda epoch: tenth_each_quarter(epoch, settings),
    )


def _keep(trained: list[Trial], known: Arrays) -> Arrays:
    """Curves of all trials; weights and embedded test rows of the first."""
    import torch

    first = trained[0]
    model = first.method.networks["f"].eval()
    with torch.no_grad():
        features = model.features(first.watch["test"][0][:EMBEDDED_ROWS])  # type: ignore[operator]
    return {
        "curves": curves(trained),
        "weights": row_weights(first).astype(np.float16),
        "wrong": np.packbits(known["wrong"]),
        "clean": known["clean"].astype(np.int32),
        "embedded": embed(features.cpu().numpy()),
        "embedded_labels": known["test_labels"].astype(np.uint8),
    }


def embed(features: Any) -> Any:
    """Two coordinates a row, by t-SNE."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features).astype(np.float32)


def _data(settings: Settings) -> list[str]:
    return [f"{images}, {noise}" for images in IMAGES for noise in NOISES]


def _urgency(data: str, method: str) -> int:
    """The six methods of the figure first, under symmetric noise 0.4, then under the others; then the rest."""
    images, noise = data.split(", ")
    return 100 * (images != "Fashion-MNIST") + 10 * (method not in FIRST) + NOISES.index(noise)


def sections(summary: Summary) -> list[Section]:
    """Accuracy at the last epoch, of each kind of images; kinds of methods on average; training on the way."""
    tables = [
        accuracies(
            EXPERIMENT,
            summary,
            f"Table 6, {images}",
            {noise: f"{images}, {noise}" for noise in NOISES},
            METHODS,
            used(summary.settings),
        )
        for images in IMAGES
    ]
    epochs = {data: _epochs(data, summary.settings) for data in _data(summary.settings)}
    return [*tables, _kinds(summary), course(EXPERIMENT, summary, "Table 6", epochs), _learnt(summary)]


def _kinds(summary: Summary) -> Section:
    """Static weights of inputs, of features or losses, and dynamic ones: the mean of all their cells in a table."""
    ours = {(row.data, row.method): 100 - row.mean for row in summary.rows}
    theirs = {cell: 100 - found.mean for cell, found in printed(f"{EXPERIMENT.file}.csv").items()}
    lines = []
    for name, kind in {"IW": "IW", "SIWs": "SIW", "DIWs": "DIW"}.items():
        line = [Entry(name)]
        for images in IMAGES:
            cells = [(f"{images}, {noise}", m) for noise in NOISES for m in METHODS if m.startswith(kind)]
            for found in (ours, theirs):
                run = [found[cell] for cell in cells if cell in found]
                missing = "" if len(run) == len(cells) else f", {len(run)} of {len(cells)} cells"
                line.append(Entry(f"{np.mean(run):.2f}{missing}" if run else "not run"))
        lines.append(line)
    head = ["methods", *(text for images in IMAGES for text in (images, "survey"))]
    return Section("Table 6: kinds of methods", head, lines, "Mean of the accuracies in the tables above, in %.")


def _learnt(summary: Summary) -> Section:
    """What was learnt of intact and of wrong labels at the end, and whether the weights tell them apart."""
    lines = []
    for row in summary.rows:
        arrays = kept(summary.folder, EXPERIMENT, row.data, row.method)
        if arrays is None:
            continue
        end = 100 * arrays["curves"][:, -1].mean(axis=0)
        line = [f"{row.data}: {row.method}", f"{end[1]:.1f}", f"{end[2]:.1f}"]
        intact, mislabelled = weights_of_intact_and_mislabelled(arrays)
        if len(intact) and len(mislabelled):  # Clean weighs none of them
            line += [f"{100 * np.mean(weights < LIGHT):.1f}" for weights in (mislabelled, intact)]
            line.append(f"{np.median(intact):.2f}")
        lines.append([Entry(text) for text in line + [""] * (6 - len(line))])
    head = ["", "intact labels learnt, %", "wrong labels learnt, %"]
    head += [f"mislabelled rows below {LIGHT}, %", f"intact rows below {LIGHT}, %", "median weight of intact rows"]
    note = (
        f"At the end, of {WATCHED_ROWS} intact and as many mislabelled rows to learn from, mean over the trials; "
        "weights of the last epoch, first trial, without the rows that are known to be clean."
    )
    return Section("Table 6: labels learnt, and weights", head, lines, note)


def used(settings: Settings) -> str:
    """What the survey leaves open, and what was used."""
    return (
        f"{settings['epochs']} epochs of Fashion-MNIST and {settings['cifar_epochs']} of CIFAR-10 (400 in the survey), "
        f"batches of 256 and 256, learning rate {settings['rate']} for summed losses (Fashion-MNIST) or Adam with 5e-4 "
        f"and weight decay {settings['cifar_decay']} (CIFAR-10; on a GPU with convolutions in bfloat16), a tenth after "
        f"each quarter; losses matched with the preset "
        f'"{settings["preset"]}", features and inputs with "{settings["preset_of_features"]}"; {settings["pretrain"]} '
        f"epochs of pretraining; {settings['clean_rows']} clean rows, which are also learnt from."
    )


def figures(summary: Summary, folder: Path) -> list[Path]:
    """The ablation beside the survey's; accuracy curves, weights, embeddings and denoising curves of what was run."""
    names = [f"Fashion-MNIST, {noise}" for noise in NOISES]
    found = [draw_beside_printed(summary, names, ABLATION, folder / "label_noise_ablation.png")]
    weighing, denoising = ["IW", "Reweight", "DIW2-L"], ["Uniform", "IW", "Reweight", "DIW2-L"]
    for images in IMAGES:
        start = "label_noise" if images == "Fashion-MNIST" else "label_noise_cifar"
        names = [f"{images}, {noise}" for noise in NOISES]
        first = names[0]
        found += [
            draw_curves(EXPERIMENT, names, METHODS, folder, f"{start}_curves.png"),
            draw_weights(EXPERIMENT, first, weighing, folder, f"{start}_weights.png"),
            draw_embeddings(EXPERIMENT, first, METHODS, folder, f"{start}_embeddings.png"),
            draw_denoising(EXPERIMENT, first, denoising, folder, f"{start}_denoising.png"),
        ]
    return [path for path in found if path is not None]


EXPERIMENT = Experiment(
    name="label-noise",
    file="table6_label_noise",
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
        "preset": Setting("authors", "weights of losses, as in the authors' code; or normalised"),
        "preset_of_features": Setting("normalised", "kernel width of features and inputs; the authors' is unknown"),
        "pretrain": Setting(10, "epochs of pretraining of SIW, DIW1 and DIW3; the survey does not say"),
        "clean_rows": Setting(1000, "as in the survey"),
        "rows": Setting(0, "training images; 0 is all"),
        "test_rows": Setting(0, "test images; 0 is all"),
    },
    data=_data,
    methods=lambda data: METHODS,
    compute=None,
    sections=sections,
    figures=figures,
    trials=5,
    job=job,
    urgency=_urgency,
)
