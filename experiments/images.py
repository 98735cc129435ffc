"""Table 3: images that are rotated further in the target, one-step by gradients and the two-step methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.deep_drawing import draw_beside_printed, draw_curves, draw_weights_by_angle
from experiments.deep_table import accuracies
from experiments.engine.cells import Experiment, Setting, Settings, stream
from experiments.engine.deep_runner import Arrays, Job, classes, curves, kept, pixels, row_weights
from experiments.engine.page import Entry, Section
from experiments.engine.summary import LEVEL, Summary, paired_p_value
from steelyard._typing import FloatArray
from steelyard.datasets import Images, load_images
from steelyard.errors import ParameterError
from steelyard.weights import effective_sample_size

if TYPE_CHECKING:
    from torch import Tensor, nn

    from steelyard.deep import Settings as Training
    from steelyard.deep import Trial
    from steelyard.deep.training.phases import Method

IMAGES = {"Fashion-MNIST": "fashion_mnist", "Kuzushiji-MNIST-10k": "kmnist"}  # 10k: a split of its test
LEVELS = {"(2, 4)": (2, 4), "(2, 5)": (2, 5), "(2, 6)": (2, 6)}
METHODS = ["ERM", "EIWERM", "RIWERM", "one-step"]
# The settings that only one method has: its own, and λ on the weights of its g.
OWN = {"EIWERM": "flattening", "RIWERM": "eta", "one-step": "g_bound"}
PENALTIES = {"EIWERM": "penalty_eiwerm", "RIWERM": "penalty_riwerm", "one-step": "penalty_one_step"}
ONCE, ANEW = "once", "every epoch"
KMNIST_TEST = 2000  # of its 10,000 images; the others are learnt from


def job(data: str, method: str, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """The trials of a method on images with one level of shift."""
    name, level = data.split(" ", 1)
    made = [
        _trial(name, level, stream(seed, "images", data, trial), method, trial, settings, device) for trial in trials
    ]
    return Job(
        [trial for trial, _ in made], training(settings), lambda trained: _keep(trained, made[0][1], LEVELS[level])
    )


def _trial(
    name: str,
    level: str,
    rng: np.random.Generator,  # the same for every method
    method: str,
    number: int,
    settings: Settings,
    device: str,
) -> tuple[Trial, FloatArray]:
    """Images turned by angles of the source and of the target, two networks, and the last angles of the source."""
    import torch

    from steelyard.deep import Task, Trial

    source, held_out = halves(name, rng)
    n, m = int(settings["rows"] or len(source.y)), int(settings["test_rows"] or len(held_out.y))
    a, b = LEVELS[level]
    angles, more_angles, test_angles = (180 * rng.beta(*p, size) for p, size in (((a, b), n), ((b, a), n), ((b, a), m)))
    upright = pixels(source.X[:n], device)
    task = Task(turned(upright, angles), classes(source.y[:n], device), turned(upright, more_angles))
    test = turned(pixels(held_out.X[:m], device), test_angles), classes(held_out.y[:m], device)
    torch.manual_seed(int(rng.integers(2**31)))
    f, g = (network(n_outputs, settings, device) for n_outputs in (10, 1))
    built = build(method, f, g, settings)
    renew = turning(upright, (a, b), rng, settings)
    if renew is not None:
        angles = renew.degrees(built.epochs - 1)[0].double().cpu().numpy()
    return Trial(built, task, seed=number, watch={"test": test}, renew=renew), angles


def turning(upright: Tensor, level: tuple[int, int], rng: np.random.Generator, settings: Settings) -> Turns | None:
    """How images are turned anew, or None where their angles stay."""
    if settings["angles"] not in (ONCE, ANEW):
        raise ParameterError(f'angles are drawn "{ONCE}" or "{ANEW}"; got "{settings["angles"]}".')
    return Turns(upright, level, int(rng.integers(2**31))) if settings["angles"] == ANEW else None


@dataclass(frozen=True, eq=False)
class Turns:
    """Upright images by the number of an epoch to images turned like the source and like the target."""

    upright: Tensor
    level: tuple[int, int]
    seed: int

    def __call__(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Images of the source and of the target in this epoch."""
        here, there = self.degrees(epoch)
        return turned(self.upright, here), turned(self.upright, there)

    def degrees(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Their angles, 180° · Beta(a, b) and 180° · Beta(b, a)."""
        import torch

        a, b = self.level
        device = self.upright.device
        draws = torch.Generator(device).manual_seed(self.seed * 1009 + epoch)

        def beta(k: int) -> Tensor:
            # The k-th smallest of k + l − 1 uniform numbers is Beta(k, l); drawn where the images are, every epoch.
            uniform = torch.rand((len(self.upright), a + b - 1), generator=draws, device=device)
            return uniform.kthvalue(k, dim=1).values

        return 180 * beta(a), 180 * beta(b)


def halves(name: str, rng: np.random.Generator) -> tuple[Images, Images]:
    """Images to learn from and to test on; those of Kuzushiji-MNIST are a split of its test images."""
    if name == "Fashion-MNIST":
        return load_images(IMAGES[name], "train"), load_images(IMAGES[name], "test")
    whole = load_images(IMAGES[name], "test")
    order = rng.permutation(len(whole.y))
    test = min(KMNIST_TEST, len(order) // 5)
    first, last = order[test:], order[:test]
    return Images(whole.X[first], whole.y[first]), Images(whole.X[last], whole.y[last])


def turned(images: Tensor, degrees: FloatArray | Tensor) -> Tensor:
    """Images (n, channels, side, side) turned by their own angle on their device, bilinear, zeros outside."""
    import torch
    import torch.nn.functional as F

    angle = torch.deg2rad(torch.as_tensor(degrees, device=images.device)).to(images.dtype)
    cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
    turns = torch.stack([torch.stack([cos, -sin, none], dim=1), torch.stack([sin, cos, none], dim=1)], dim=1)
    parts = [
        F.grid_sample(part, F.affine_grid(turn, list(part.shape), align_corners=True), align_corners=True)
        for part, turn in zip(torch.split(images, 5000), torch.split(turns, 5000), strict=True)
    ]
    return torch.cat(parts)


def network(n_outputs: int, settings: Settings, device: str) -> nn.Module:
    """The five-layer network; on a GPU bias, pooling and ReLU are compiled into one, as they take most of a step."""
    import torch

    from steelyard.deep.nets import FiveLayerCNN

    (few, many), (wide, features) = (map(int, settings[name].split("+")) for name in ("filters", "hidden"))
    on_gpu = device != "cpu"
    made = FiveLayerCNN(
        n_outputs, filters=(few, many), hidden=(wide, features), dropout=settings["dropout"], bfloat16=on_gpu
    ).to(device)
    if on_gpu:
        torch.set_float32_matmul_precision("high")  # as convolutions have it anyway
        torch._dynamo.config.recompile_limit = 64  # one for each size of batch, and with gradients or without
        made.compile(dynamic=False)
    return made


def build(name: str, f: nn.Module, g: nn.Module, settings: Settings) -> Method:
    """A method that trains f, and with the epochs of g, as long as the others."""
    from steelyard.deep.training.methods import baseline, flattened, one_step, relative

    epochs = settings["rounds"] * (settings["g_epochs"] + settings["f_epochs"])
    if name == "ERM":
        return baseline("uniform", f, epochs)
    pretrain, penalty = settings["pretrain"], settings[PENALTIES[name]]
    if name == "EIWERM":
        return flattened(f, g, epochs, flattening=settings["flattening"], pretrain=pretrain, g_penalty=penalty)
    if name == "RIWERM":
        return relative(f, g, epochs, eta=settings["eta"], pretrain=pretrain, g_penalty=penalty)
    return one_step(
        f,
        g,
        rounds=settings["rounds"],
        g_epochs=settings["g_epochs"],
        f_epochs=settings["f_epochs"],
        pretrain=pretrain,
        g_bound=settings["g_bound"] or None,
        g_penalty=penalty,
    )


def training(settings: Settings) -> Training:
    """The same optimizer for every network."""
    import torch

    from steelyard.deep import Settings as Training

    (name, rate), decay = settings["optimizer"].split(), settings["decay"]
    if name == "adam":
        return Training(lambda parameters: torch.optim.Adam(parameters, float(rate), weight_decay=decay, fused=True))
    return Training(lambda parameters: torch.optim.SGD(parameters, float(rate), momentum=0.9, weight_decay=decay))


def _keep(trained: list[Trial], angles: FloatArray, level: tuple[int, int]) -> Arrays:
    """Curves of all trials; angles and weights of the first."""
    return {
        "curves": curves(trained),
        "angles": angles.astype(np.float16),
        "weights": row_weights(trained[0]).astype(np.float16),
        "level": np.array(level),
    }


def sections(summary: Summary) -> list[Section]:
    """Accuracy at the last epoch, one table for each kind of images."""
    split = "From a split of its 10,000 test images, 8,000 to learn from and 2,000 to test; the survey had 70,000. "
    tables = [
        accuracies(
            EXPERIMENT,
            summary,
            f"Table 3, {name}",
            {level: f"{name} {level}" for level in LEVELS},
            METHODS,
            ("" if name == "Fashion-MNIST" else split) + used(summary.settings),
        )
        for name in IMAGES
    ]
    return [*tables, *comparisons(summary)]


def comparisons(summary: Summary) -> list[Section]:
    """One-step against the others: trial by trial, and after as many epochs of f."""
    return [_one_step_beside(summary), _like_for_like(summary)]


def _one_step_beside(summary: Summary) -> Section:
    """How far one-step is above each of the others, trial by trial."""
    lines = []
    for data in EXPERIMENT.data(summary.settings):
        line = [Entry(data)]
        for other in METHODS[:-1]:
            ours, theirs = (summary.errors.get((data, method)) for method in (METHODS[-1], other))
            if ours is None or theirs is None or not np.isfinite(theirs - ours).any():
                line.append(Entry("not run"))
                continue
            above, p = float(np.nanmean(theirs - ours)), paired_p_value(ours, theirs)
            line.append(Entry(f"{above:+.2f} (p = {p:.2g})", above > 0 or p >= LEVEL))
        lines.append(line)
    note = "Points of accuracy that it is above, paired t-test over the trials. Bold: not significantly below."
    return Section("Table 3: one-step against the others", ["images", *METHODS[:-1]], lines, note)


def _like_for_like(summary: Summary) -> Section:
    """Accuracies after as many epochs of f as one-step has, and how many rows the weights leave."""
    settings = summary.settings
    epochs = settings["rounds"] * settings["f_epochs"]
    lines = []
    for data in EXPERIMENT.data(settings):
        line = [Entry(data)]
        for method in METHODS:
            arrays = kept(summary.folder, EXPERIMENT, data, method)
            if arrays is None:
                line.append(Entry("not run"))
                continue
            # one-step has its last epoch of f at the end; the others go on
            last = {"ERM": epochs, "one-step": 0}.get(method, settings["pretrain"] + epochs)
            found = f"{100 * arrays['curves'][:, last - 1, 0].mean():.2f}"
            if method != "ERM":
                weights = arrays["weights"][np.isfinite(arrays["weights"])].astype(float)
                found += f", {100 * effective_sample_size(weights) / len(weights):.0f} %"
            line.append(Entry(found))
        lines.append(line)
    note = (
        "Accuracy in %; of weights, the effective sample size in % of the rows (first trial, last epoch). The others "
        "go on to as many epochs of f as one-step has of f and g."
    )
    return Section(f"Table 3: after {epochs} epochs of f", ["images", *METHODS], lines, note)


def used(settings: Settings) -> str:
    """What the survey leaves open, and what was used."""
    return (
        f"{epochs_used(settings)} Angles of the images to learn from are drawn {settings['angles']}. "
        f"Convolutions of {settings['filters']} filters, full layers of {settings['hidden']} "
        f"with dropout {settings['dropout']} before them, {settings['optimizer']} with weight decay "
        f"{settings['decay']}, γ = {settings['flattening']}, "
        f"η = {settings['eta']}, G = {settings['g_bound'] or '∞'} for one-step: chosen by images-choice, without a "
        "label of the target. λ on the weights of g: "
        f"{', '.join(f'{settings[name]} ({method})' for method, name in PENALTIES.items())}."
    )


def epochs_used(settings: Settings) -> str:
    """What is the same for every choice."""
    return (
        f"{settings['rounds']} rounds of {settings['g_epochs']} epochs of g and {settings['f_epochs']} of f for "
        f"one-step, as many epochs of f altogether for the others; {settings['pretrain']} epochs before in which g "
        "learns to tell source from target; filters of 3 × 3, batches of 256 with weights of mean one, on a GPU all "
        "but the last layer in bfloat16; bilinear interpolation, zeros outside."
    )


def figures(summary: Summary, folder: Path) -> list[Path]:
    """Accuracy beside the survey's, its curves, and the weights by the angle."""
    found = []
    for name in IMAGES:
        names = [f"{name} {level}" for level in LEVELS]
        short = IMAGES[name]
        found.append(draw_beside_printed(summary, names, METHODS, folder / f"images_{short}.png"))
        found.append(draw_curves(EXPERIMENT, names, METHODS, folder, f"images_{short}_curves.png"))
        found.append(draw_weights_by_angle(EXPERIMENT, names, METHODS[1:], folder, f"images_{short}_weights.png"))
    return [path for path in found if path is not None]


EXPERIMENT = Experiment(
    name="images",
    file="table3_images",
    title="Table 3: rotated images, one-step by gradients",
    explains=(
        "Training images are turned by 180° · Beta(a, b), test images by 180° · Beta(b, a); training images turned "
        "like the test are the unlabelled target. ERM, EIWERM and RIWERM with the ratio of a network, and one-step, "
        "equally many epochs each; accuracy on the test images at the last epoch."
    ),
    settings={
        "angles": Setting(ANEW, "of the images to learn from: drawn once, as the survey reads, or every epoch"),
        "rounds": Setting(20, "as in the survey"),
        "g_epochs": Setting(5, "of a round, as in the survey"),
        "f_epochs": Setting(10, "of a round, as in the survey"),
        "pretrain": Setting(10, "epochs in which g learns to tell source from target; the survey does not say"),
        "optimizer": Setting("adam 0.001", "adam or sgd (momentum 0.9) and a learning rate; the survey does not say"),
        "filters": Setting("32+64", "of the two convolutions; the survey does not say"),
        "hidden": Setting("1024+256", "units of the two full layers before the last; the survey does not say"),
        "dropout": Setting(0.25, "of the inputs of full layers; the survey does not say"),
        "decay": Setting(0.0, "of weights, by the optimizer; the survey does not say"),
        "flattening": Setting(0.4, "γ of EIWERM; the survey does not say"),
        "eta": Setting(0.3, "η of RIWERM; the survey does not say"),
        "g_bound": Setting(2.0, "of one-step: G, more than which g cannot be; 0 is no bound; the survey has no number"),
        "penalty_eiwerm": Setting(0.0, "λ on the squares of the weights of g; the survey does not say"),
        "penalty_riwerm": Setting(0.001, "the same of RIWERM"),
        "penalty_one_step": Setting(0.0, "the same of one-step"),
        "rows": Setting(0, "training images; 0 is all"),
        "test_rows": Setting(0, "test images; 0 is all"),
    },
    data=lambda settings: [f"{name} {level}" for name in IMAGES for level in LEVELS],
    methods=lambda data: METHODS,
    compute=None,
    sections=sections,
    figures=figures,
    trials=5,
    job=job,
)
