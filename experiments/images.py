"""Table 3: images that are rotated further in the target, one-step by gradients and the two-step methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.deep_drawing import beside_printed, curves_by_epoch, weights_by_angle
from experiments.deep_table import accuracies
from experiments.engine.cells import Arrays, Condition, Experiment, Named, Setting, Settings, stream
from experiments.engine.deep_runner import Job, classes, curves, pixels, row_weights
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.summary import LEVEL, Summary, paired_p_value
from steelyard._typing import FloatArray
from steelyard.datasets import Images, load_images
from steelyard.errors import ParameterError
from steelyard.target import Target
from steelyard.weights import effective_sample_size

if TYPE_CHECKING:
    from torch import Tensor, nn

    from steelyard.deep.training import History, TrainingConfig, TrainingMethod, TrainingRun

LABELS = {"fashion_mnist": "Fashion-MNIST", "kmnist": "Kuzushiji-MNIST-10k"}  # 10k: a split of its test images
LEVELS = ((2, 4), (2, 5), (2, 6))  # a and b of the angles 180° · Beta(a, b)
METHODS = [Named(name) for name in ("ERM", "EIWERM", "RIWERM", "one-step")]
ERM, ONE_STEP = METHODS[0], METHODS[-1]
# The settings that only one method has: its own, and λ, the regularization strength of its g.
OWN = {"EIWERM": "flattening", "RIWERM": "eta", "one-step": "g_bound"}
REGS = {"EIWERM": "reg_eiwerm", "RIWERM": "reg_riwerm", "one-step": "reg_one_step"}
ONCE, EVERY_EPOCH = "once", "every epoch"
KMNIST_TEST = 2000  # of its 10,000 images; the others are for training
ANGLE_EDGES = np.linspace(0, 180, 37)  # the weights are averaged in bins of five degrees


@dataclass(frozen=True)
class Data(Condition):
    """Images, and the level of the shift: source angles are 180° · Beta(a, b), target angles 180° · Beta(b, a)."""

    images: str
    a: int
    b: int

    @property
    def label(self) -> str:
        """Name on the page."""
        return f"{LABELS[self.images]} ({self.a}, {self.b})"


def job(data: Data, method: Named, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """The trials of a method on images with one level of shift."""
    made = [
        _trial(data, stream(seed, "images", data.stream_name, trial), method, trial, settings, device)
        for trial in trials
    ]
    return Job([trial for trial, _ in made], training(settings), lambda trained: _keep(trained, made[0][1]))


def _trial(
    data: Data,
    rng: np.random.Generator,  # the same for every method
    method: Named,
    number: int,
    settings: Settings,
    device: str,
) -> tuple[TrainingRun, FloatArray]:
    """Images turned by angles of the source and of the target, two networks, and the last angles of the source."""
    import torch

    from steelyard.deep.training import TrainingData, TrainingRun

    source, held_out = halves(data.images, rng)
    n, m = int(settings["rows"] or len(source.y)), int(settings["test_rows"] or len(held_out.y))
    a, b = data.a, data.b
    angles, more_angles, test_angles = (180 * rng.beta(*p, size) for p, size in (((a, b), n), ((b, a), n), ((b, a), m)))
    upright = pixels(source.X[:n], device)
    task = TrainingData(turned(upright, angles), classes(source.y[:n], device), Target(turned(upright, more_angles)))
    test = turned(pixels(held_out.X[:m], device), test_angles), classes(held_out.y[:m], device)
    torch.manual_seed(int(rng.integers(2**31)))
    f, g = (network(n_outputs, settings, device) for n_outputs in (10, 1))
    built = build(method.name, f, g, settings)
    refresh = turning(upright, (a, b), rng, settings)
    if refresh is not None:
        angles = refresh.degrees(built.epochs - 1)[0].double().cpu().numpy()
    return TrainingRun(built, task, seed=number, eval_sets={"test": test}, refresh_inputs=refresh), angles


def turning(upright: Tensor, level: tuple[int, int], rng: np.random.Generator, settings: Settings) -> Turns | None:
    """How images are turned again in each epoch, or None where their angles stay."""
    if settings["angles"] not in (ONCE, EVERY_EPOCH):
        raise ParameterError(f'angles are drawn "{ONCE}" or "{EVERY_EPOCH}"; got "{settings["angles"]}".')
    return Turns(upright, level, int(rng.integers(2**31))) if settings["angles"] == EVERY_EPOCH else None


@dataclass(frozen=True, eq=False)
class Turns:
    """Upright images by the number of an epoch to images turned like the source and like the target."""

    upright: Tensor
    level: tuple[int, int]
    seed: int

    def __call__(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Images of the source and of the target in this epoch."""
        source, target = self.degrees(epoch)
        return turned(self.upright, source), turned(self.upright, target)

    def degrees(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Their angles, 180° · Beta(a, b) and 180° · Beta(b, a)."""
        import torch

        a, b = self.level
        device = self.upright.device
        draws = torch.Generator(device).manual_seed(self.seed * 1009 + epoch)

        def beta(k: int) -> Tensor:
            # The k-th smallest of k + l − 1 uniform numbers is Beta(k, l); drawn on the device of the images.
            uniform = torch.rand((len(self.upright), a + b - 1), generator=draws, device=device)
            return uniform.kthvalue(k, dim=1).values

        return 180 * beta(a), 180 * beta(b)


def halves(name: str, rng: np.random.Generator) -> tuple[Images, Images]:
    """Images for training and for the test; those of Kuzushiji-MNIST are a split of its test images."""
    if name == "fashion_mnist":
        return load_images(name, "train"), load_images(name, "test")
    whole = load_images(name, "test")
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


def build(name: str, f: nn.Module, g: nn.Module, settings: Settings) -> TrainingMethod:
    """A method that trains f, and with the epochs of g, as long as the others."""
    from steelyard.deep.training import baseline, flattened_weighting, one_step, relative_weighting

    epochs = settings["rounds"] * (settings["g_epochs"] + settings["f_epochs"])
    if name == "ERM":
        return baseline("uniform", f, epochs)
    pretrain, reg = settings["pretrain"], settings[REGS[name]]
    if name == "EIWERM":
        return flattened_weighting(f, g, epochs, flattening=settings["flattening"], pretrain=pretrain, g_reg=reg)
    if name == "RIWERM":
        return relative_weighting(f, g, epochs, eta=settings["eta"], pretrain=pretrain, g_reg=reg)
    return one_step(
        f,
        g,
        rounds=settings["rounds"],
        g_epochs=settings["g_epochs"],
        f_epochs=settings["f_epochs"],
        pretrain=pretrain,
        g_bound=settings["g_bound"] or None,
        g_reg=reg,
    )


def training(settings: Settings) -> TrainingConfig:
    """The same optimizer for every network."""
    import torch

    from steelyard.deep.training import TrainingConfig

    rate, decay = settings["learning_rate"], settings["decay"]
    if settings["optimizer"] == "adam":
        return TrainingConfig(lambda parameters: torch.optim.Adam(parameters, rate, weight_decay=decay, fused=True))
    return TrainingConfig(lambda parameters: torch.optim.SGD(parameters, rate, momentum=0.9, weight_decay=decay))


def _keep(trained: list[History], angles: FloatArray) -> Arrays:
    """Curves of all trials; weights of the first."""
    return {"curves": curves(trained), **weight_arrays(row_weights(trained[0]), angles)}


def weight_arrays(weights: FloatArray, angles: FloatArray) -> Arrays:
    """Sums of weights and numbers of rows by angle, and the effective sample size as a share of the rows."""
    weighted = np.isfinite(weights)  # rows that the last epoch did not leave out
    weights = weights[weighted]
    place = np.clip(np.digitize(angles[weighted], ANGLE_EDGES) - 1, 0, len(ANGLE_EDGES) - 2)
    sums, counts = (np.bincount(place, w, len(ANGLE_EDGES) - 1) for w in (weights, None))
    return {
        "weights_by_angle": np.array([sums, counts]),
        "effective_share": np.array(effective_sample_size(weights) / len(weights) if len(weights) else np.nan),
    }


def sections(summary: Summary[Data, Named]) -> list[Section]:
    """Accuracy at the last epoch, one table for each kind of images."""
    split = "From a split of its 10,000 test images, 8,000 for training and 2,000 for the test; the survey had 70,000. "
    tables = [
        accuracies(
            summary,
            f"Table 3, {label}",
            {f"({a}, {b})": Data(name, a, b) for a, b in LEVELS},
            METHODS,
            ("" if name == "fashion_mnist" else split) + used(summary.settings),
        )
        for name, label in LABELS.items()
    ]
    return [*tables, *comparisons(summary)]


def comparisons(summary: Summary[Data, Named]) -> list[Section]:
    """One-step against the others: trial by trial, and after the same number of epochs of f."""
    return [_one_step_beside(summary), _like_for_like(summary)]


def _one_step_beside(summary: Summary[Data, Named]) -> Section:
    """How far one-step is above each of the others, trial by trial."""
    lines = []
    for data in EXPERIMENT.data(summary.settings):
        line = [Entry(data.label)]
        for baseline in METHODS[:-1]:
            own, errors = (summary.errors.get((data, method)) for method in (ONE_STEP, baseline))
            if own is None or errors is None or not np.isfinite(errors - own).any():
                line.append(Entry("not run"))
                continue
            above, p = float(np.nanmean(errors - own)), paired_p_value(own, errors)
            line.append(Entry(f"{above:+.2f} (p = {p:.2g})", above > 0 or p >= LEVEL))
        lines.append(line)
    note = "Points of accuracy that it is above, paired t-test over the trials. Bold: not significantly below."
    header = ["images", *(method.label for method in METHODS[:-1])]
    return Section("Table 3: one-step against the others", header, lines, note)


def _like_for_like(summary: Summary[Data, Named]) -> Section:
    """Accuracies after as many epochs of f as one-step has, and the effective sample size of the weights."""
    settings = summary.settings
    epochs = settings["rounds"] * settings["f_epochs"]
    lines = []
    for data in EXPERIMENT.data(settings):
        line = [Entry(data.label)]
        for method in METHODS:
            arrays = summary.arrays.get((data, method))
            if arrays is None:
                line.append(Entry("not run"))
                continue
            # one-step has its last epoch of f at the end; the others train longer
            last = {ERM: epochs, ONE_STEP: 0}.get(method, settings["pretrain"] + epochs)
            found = f"{100 * arrays['curves'][:, last - 1, 0].mean():.2f}"
            if method != ERM:
                found += f", {100 * float(arrays['effective_share']):.0f} %"
            line.append(Entry(found))
        lines.append(line)
    note = (
        "Accuracy in %; for weights, the effective sample size in % of the rows (first trial, last epoch). The others "
        "train on, to as many epochs of f as one-step has of f and g."
    )
    header = ["images", *(method.label for method in METHODS)]
    return Section(f"Table 3: after {epochs} epochs of f", header, lines, note)


def used(settings: Settings) -> str:
    """The values used where the survey leaves the choice open."""
    return (
        f"{epochs_used(settings)} Angles of the training images are drawn {settings['angles']}. "
        f"Convolutions of {settings['filters']} filters, full layers of {settings['hidden']} "
        f"with dropout {settings['dropout']} before them, {settings['optimizer']} {settings['learning_rate']} with "
        f"weight decay {settings['decay']}, γ = {settings['flattening']}, "
        f"η = {settings['eta']}, G = {settings['g_bound'] or '∞'} for one-step: chosen by images-choice, without a "
        "label of the target. λ, the regularization strength of g: "
        f"{', '.join(f'{settings[name]} ({method})' for method, name in REGS.items())}."
    )


def epochs_used(settings: Settings) -> str:
    """What is the same for every choice."""
    return (
        f"{settings['rounds']} rounds of {settings['g_epochs']} epochs of g and {settings['f_epochs']} of f for "
        f"one-step, as many epochs of f altogether for the others; before, {settings['pretrain']} epochs in which g "
        "learns to tell source from target; filters of 3 × 3, batches of 256 with weights of mean one, on a GPU all "
        "but the last layer in bfloat16; bilinear interpolation, zeros outside."
    )


def pictures(summary: Summary[Data, Named]) -> list[Picture]:
    """Accuracy beside the survey's, its curves, and the weights by the angle."""
    found = []
    for name in LABELS:
        data = [Data(name, a, b) for a, b in LEVELS]
        found.append(beside_printed(summary, name, data, METHODS))
        found.append(curves_by_epoch(summary, f"{name}_curves", data, METHODS))
        found.append(weights_by_angle(summary, f"{name}_weights", data, METHODS[1:], ANGLE_EDGES))
    return [picture for picture in found if picture is not None]


EXPERIMENT = Experiment(
    name="images",
    title="Table 3: rotated images, one-step by gradients",
    explains=(
        "Training images are turned by 180° · Beta(a, b), test images by 180° · Beta(b, a); training images turned "
        "like the test are the unlabeled target. ERM, EIWERM and RIWERM with the density ratio of a network, and "
        "one-step, equally many epochs each; accuracy on the test images at the last epoch."
    ),
    settings={
        "angles": Setting(EVERY_EPOCH, "of the training images: drawn once, as the survey reads, or every epoch"),
        "rounds": Setting(20, "as in the survey"),
        "g_epochs": Setting(5, "of a round, as in the survey"),
        "f_epochs": Setting(10, "of a round, as in the survey"),
        "pretrain": Setting(10, "epochs in which g learns to tell source from target; the survey does not say"),
        "optimizer": Setting("adam", "or sgd (momentum 0.9); the survey does not say"),
        "learning_rate": Setting(0.001, "the survey does not say"),
        "filters": Setting("32+64", "of the two convolutions; the survey does not say"),
        "hidden": Setting("1024+256", "units of the two full layers before the last; the survey does not say"),
        "dropout": Setting(0.25, "of the inputs of full layers; the survey does not say"),
        "decay": Setting(0.0, "of weights, by the optimizer; the survey does not say"),
        "flattening": Setting(0.4, "γ of EIWERM; the survey does not say"),
        "eta": Setting(0.3, "η of RIWERM; the survey does not say"),
        "g_bound": Setting(2.0, "of one-step: G, the upper bound of g; 0 is no bound; the survey has no number"),
        "reg_eiwerm": Setting(0.0, "λ on the squared weights of g; the survey does not say"),
        "reg_riwerm": Setting(0.001, "the same of RIWERM"),
        "reg_one_step": Setting(0.0, "the same of one-step"),
        "rows": Setting(0, "training images; 0 is all"),
        "test_rows": Setting(0, "test images; 0 is all"),
    },
    variants={
        "angles_once": {
            "angles": ONCE,
            "dropout": "0.5",
            "flattening": "0.8",
            "eta": "0.2",
            "g_bound": "5",
            "reg_riwerm": "0",
        }
    },
    data_class=Data,
    method_class=Named,
    data=lambda settings: [Data(name, a, b) for name in LABELS for a, b in LEVELS],
    methods=lambda data: METHODS,
    sections=sections,
    pictures=pictures,
    trials=range(15, 20),  # earlier trials were used while the settings were chosen
    job=job,
)
