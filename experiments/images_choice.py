"""What the survey leaves open of table 3, chosen without a label of the target."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.engine.cells import Condition, Experiment, Setting, Settings, stream
from experiments.engine.deep_runner import Job, classes, curves, pixels
from experiments.engine.page import Entry, Section
from experiments.engine.summary import Summary
from experiments.images import (
    EVERY_EPOCH,
    ONCE,
    OWN,
    REGS,
    Data,
    build,
    epochs_used,
    halves,
    network,
    training,
    turned,
    turning,
)
from experiments.images import EXPERIMENT as TABLE
from steelyard._typing import FloatArray, IntArray
from steelyard.target import Target

if TYPE_CHECKING:
    from steelyard.deep.training import TrainingRun

DATA = Data("fashion_mnist", 2, 4)
OPTIMIZERS = [("adam", 0.001), ("adam", 0.0003), ("sgd", 0.01), ("sgd", 0.03)]  # with their learning rates
FILTERS = ["32+64", "6+16"]
HIDDEN = ["128+84", "512+128", "1024+256"]
DROPOUTS = [0.0, 0.25, 0.5]
DECAYS = [0.0, 0.0001, 0.001]
# What one method alone has: the sign and the values of its own setting, and then λ of g.
SIGNS = {"EIWERM": "γ", "RIWERM": "η", "one-step": "G"}
VALUES = {
    "EIWERM": (0.2, 0.4, 0.6, 0.8, 1.0),
    "RIWERM": (0.1, 0.2, 0.3, 0.5, 0.7),
    "one-step": (1.5, 2.0, 3.0, 5.0, 0.0),
}
REG_VALUES = (0.0001, 0.001, 0.01)


@dataclass(frozen=True)
class Candidate(Condition):
    """A method with settings of table 3; `own` is the value of γ, η or G, and `reg` is λ of g."""

    name: str
    angles: str
    optimizer: str
    learning_rate: float
    filters: str
    hidden: str
    dropout: float
    decay: float
    own: float | None = None
    reg: float = 0.0

    @property
    def label(self) -> str:
        """Name of the row."""
        network = f"{self.filters} filters, {self.hidden} units, dropout {self.dropout}"
        parts = [self.name, f"{self.optimizer} {self.learning_rate}", network, f"decay {self.decay}"]
        if self.angles != ONCE:
            parts.append(f"angles {self.angles}")
        if self.own is not None:
            parts.append(f"{SIGNS[self.name]} = {self.own or '∞'}")
        if self.reg:
            parts.append(f"λ = {self.reg}")
        return ", ".join(parts)

    def settings(self) -> dict[str, Any]:
        """The settings of table 3 that the candidate replaces."""
        found = asdict(self)
        name, own, reg = (found.pop(key) for key in ("name", "own", "reg"))
        found |= dict.fromkeys(REGS.values(), 0.0)
        if own is not None:
            found |= {OWN[name]: own, REGS[name]: reg}
        return found


# What ERM was best with, which later choices are made with: of the table, and where each image keeps its angle.
TAKEN = Candidate(
    "ERM",
    **{
        name: TABLE.settings[name].default
        for name in ("angles", "optimizer", "learning_rate", "filters", "hidden", "dropout", "decay")
    },
)
TAKEN_ONCE = replace(TAKEN, angles=ONCE, dropout=0.5)


def _candidates() -> list[Candidate]:
    """Full layers, filters, optimizers and decay by ERM, then each method's own setting."""
    optimizer, rate = OPTIMIZERS[0]
    found = []
    for taken in (TAKEN_ONCE, TAKEN):
        start = replace(taken, optimizer=optimizer, learning_rate=rate, filters=FILTERS[0], decay=DECAYS[0])
        found += [replace(start, hidden=hidden, dropout=dropout) for hidden in HIDDEN for dropout in DROPOUTS]
        found += [replace(start, filters=filters) for filters in FILTERS[1:]]
        found += [replace(taken, optimizer=name, learning_rate=rate, decay=DECAYS[0]) for name, rate in OPTIMIZERS[1:]]
        found += [replace(taken, decay=decay) for decay in DECAYS[1:]]
        found += [replace(taken, name=name, own=value) for name, values in VALUES.items() for value in values]
    # λ with what the method was best with, where angles are drawn every epoch
    found += [
        replace(TAKEN, name=name, own=TABLE.settings[OWN[name]].default, reg=reg)
        for name in SIGNS
        for reg in REG_VALUES
    ]
    return list(dict.fromkeys(found))


CANDIDATES = _candidates()
KEPT_ROWS, VIEWS = 10000, 10  # images that are kept from training, and the angles of each that are drawn from


def job(data: Data, candidate: Candidate, trials: list[int], settings: Settings, seed: int, device: str) -> Job:
    """Trials of a candidate."""
    made = [
        _trial(stream(seed, "images choice", data.stream_name, trial), candidate, trial, settings, device)
        for trial in trials
    ]
    chosen = {**settings, **candidate.settings()}
    return Job(made, training(chosen), lambda trained: {"curves": curves(trained)}, epochs_averaged=10)


def _trial(rng: np.random.Generator, candidate: Candidate, number: int, settings: Settings, device: str) -> TrainingRun:
    """As in the table, but the first rows are kept for validation."""
    import torch

    from steelyard.deep.training import TrainingData, TrainingRun

    source, _ = halves(DATA.images, rng)
    n = settings["rows"] or len(source.y)
    kept = min(KEPT_ROWS, n // 5)
    a, b = DATA.a, DATA.b
    upright, y = pixels(source.X[:n], device), classes(source.y[:n], device)
    rows, degrees = drawn_like_the_target(kept, a, b, rng)
    validation = turned(upright[rows], degrees), y[rows]
    X, target = (turned(upright[kept:], 180 * rng.beta(*level, n - kept)) for level in ((a, b), (b, a)))
    torch.manual_seed(int(rng.integers(2**31)))
    chosen = {**settings, **candidate.settings()}
    f, g = (network(n_outputs, chosen, device) for n_outputs in (10, 1))
    task = TrainingData(X, y[kept:], Target(target))
    refresh = turning(upright[kept:], (a, b), rng, chosen)
    return TrainingRun(
        build(candidate.name, f, g, chosen), task, seed=number, eval_sets={"test": validation}, refresh_inputs=refresh
    )


def drawn_like_the_target(kept: int, a: float, b: float, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Numbers of `kept` rows and their angles: of the source, drawn with the ratio of the densities for probability.

    That ratio, Beta(b, a) over Beta(a, b), is known because the shift was made; no label of the target is used.
    """
    angles = rng.beta(a, b, (VIEWS, kept))
    ratio = (angles / (1 - angles)) ** (b - a)
    drawn = rng.choice(angles.size, kept, p=ratio.ravel() / ratio.sum())
    return drawn % kept, 180 * angles.ravel()[drawn]


def sections(summary: Summary[Data, Candidate]) -> list[Section]:
    """The accuracy of each candidate, one table for angles drawn once and one for every epoch.

    Candidates of ERM are compared first; those of the others have what ERM was best with.
    """
    errors = {row.method: row.mean for row in summary.rows}
    note = (
        f"{DATA.label}, validated on {KEPT_ROWS:,} training images that are kept from training: of {VIEWS} angles of "
        "the source's distribution each, drawn by the density ratio, which is known because the shift was made. No "
        "label of the target is used. Mean of the last ten epochs. Bold: the best candidate of a method. "
    )
    found = []
    for angles in (ONCE, EVERY_EPOCH):
        lines = []
        candidates = [candidate for candidate in CANDIDATES if candidate.angles == angles]
        for candidate in candidates:
            rivals = [errors[each] for each in candidates if each in errors and each.name == candidate.name]
            error = errors.get(candidate)
            result = Entry("not run") if error is None else Entry(f"{100 - error:.2f}", error == min(rivals))
            lines.append([Entry(candidate.label), result])
        head = ["candidate", "accuracy in %"]
        found.append(Section(f"Table 3: angles drawn {angles}", head, lines, note + epochs_used(summary.settings)))
    return found


EXPERIMENT = Experiment(
    name="images-choice",
    title="Table 3: the choice of network, optimizer and each method's own setting",
    explains=(
        "Angles drawn once or every epoch, full layers, filters, optimizer and weight decay by ERM, then γ of EIWERM, "
        "η of RIWERM and G of one-step, and λ of their g. "
        "Validated on training images that were kept apart, turned like the source and drawn like the target, as the "
        "target's labels are not to be used. Half the rounds of the table."
    ),
    settings={
        **{name: TABLE.settings[name] for name in ("g_epochs", "f_epochs", "pretrain", "rows")},
        "rounds": Setting(10, "half of the table's"),
    },
    data_class=Data,
    method_class=Candidate,
    data=lambda settings: [DATA],
    methods=lambda data: CANDIDATES,
    sections=sections,
    pictures=lambda summary: [],
    trials=range(1000, 1001),
    job=job,
)
