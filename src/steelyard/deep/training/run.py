"""A trial while it is trained: its settings, its rows, its optimizers, one step and one epoch of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steelyard._validation import check_count
from steelyard.deep.training import checkpoint
from steelyard.deep.training.phases import Batch, Method, Phase, Step, Task
from steelyard.deep.training.steps import evaluating
from steelyard.errors import InputError, NotFiniteError, ParameterError

Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def constant(epoch: int) -> float:
    """A learning rate that stays."""
    return 1.0


@dataclass(frozen=True)
class Settings:
    """How a network learns, whatever the method.

    Parameters
    ----------
    optimizer : parameters to an optimizer; each network has its own
    schedule : epoch of a network to a factor of its learning rate
    batch_size : rows of the source in a step; the last rows of an epoch that fill no batch are left out
    target_batch_size : rows of the target in a step, drawn without replacement; None is `batch_size`. Where there are
        enough of them for an epoch none comes twice in it, else every step draws anew
    summed : the weighted losses of a batch are summed, as in the authors' code; else averaged
    """

    optimizer: Optimizer
    schedule: Callable[[int], float] = constant
    batch_size: int = 256
    target_batch_size: int | None = None
    summed: bool = False

    def __post_init__(self) -> None:
        if not callable(self.optimizer):
            raise ParameterError(
                f"optimizer must be a function from parameters to an optimizer, as each network has its own; got "
                f"{type(self.optimizer).__name__}. Try lambda parameters: torch.optim.SGD(parameters, lr=0.1)."
            )
        check_count("batch_size", self.batch_size)
        if self.target_batch_size is not None:
            check_count("target_batch_size", self.target_batch_size)


@dataclass(eq=False)
class Trial:
    """A method on a task with a seed, and afterwards what came of it.

    `watch` are named rows and labels whose accuracy is logged after every epoch, such as those of a test. `renew` goes
    from the number of an epoch to its inputs of source and target, such as images turned anew; they are written over
    those of the task, and the labels stay. It is not for methods whose weights are found once. `log` has one entry an
    epoch; `rows` and `weights` are those of the last epoch that had weights, step by step.
    """

    method: Method
    task: Task
    seed: int = 0
    watch: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    renew: Callable[[int], tuple[Tensor, Tensor]] | None = None
    log: list[dict[str, Any]] = field(default_factory=list)
    rows: Tensor | None = None
    weights: Tensor | None = None


class Run:
    """A trial while it is trained."""

    def __init__(self, trial: Trial, settings: Settings) -> None:
        task, method = trial.task, trial.method
        self.trial, self.settings, self.device = trial, settings, task.X.device
        for name, network in method.networks.items():
            away = {p.device for p in network.parameters()} - {self.device}
            if away:
                raise InputError(
                    f'Network "{name}" lies on {away.pop()}, the data on {self.device}; move one with .to(device).'
                )
        self.batch_size = min(settings.batch_size, len(task.y))
        self.target_batch_size = min(settings.target_batch_size or settings.batch_size, len(task.target_X))
        self.n_steps = len(task.y) // self.batch_size
        learners = [name for name in method.networks if any(phase.learns == name for phase in method.phases)]
        # Of all parameters: which are frozen may change from phase to phase, and the optimizer's state must not.
        self.optimizers = {name: settings.optimizer(list(method.networks[name].parameters())) for name in learners}
        self.rates = {name: [float(g["lr"]) for g in o.param_groups] for name, o in self.optimizers.items()}
        self._make_capturable()
        self.epochs_of = dict.fromkeys(learners, 0)
        self.phase: Phase | None = None
        self.has_weights = False
        self.step_of: Step | None = None
        # What a step reads and writes, at places that stay, so that it can be captured.
        self.counter = torch.zeros(1, dtype=torch.long, device=self.device)
        self.rows = torch.zeros(self.n_steps, self.batch_size, dtype=torch.long, device=self.device)
        self.target_rows = torch.zeros(self.n_steps, self.target_batch_size, dtype=torch.long, device=self.device)
        self.seen = torch.zeros(self.n_steps, self.batch_size, device=self.device)
        self.losses = torch.zeros(self.n_steps, device=self.device)

    def _make_capturable(self) -> None:
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = self.device.type == "cuda"

    def begin_phase(self, phase: Phase) -> None:
        """Make the step of this phase; its network alone is in training mode."""
        self.phase = phase
        for name, network in self.trial.method.networks.items():
            network.train(name == phase.learns)
            for p in network.parameters():
                p.grad = None  # what is frozen from now on must not be moved by a gradient of before
        self.step_of = phase.begin(self.trial.method.networks, self.trial.task)

    def begin_epoch(self, epoch: int) -> bool:
        """Renew and deal the rows and set the learning rate; whether that has changed."""
        assert self.phase is not None
        task = self.trial.task
        if self.trial.renew is not None:
            # In place: a captured step reads from the same memory every time.
            for rows, renewed in zip((task.X, task.target_X), self.trial.renew(epoch), strict=True):
                rows.copy_(renewed)
        seed = (int(self.trial.seed) * 1_000_003 + epoch) % 2**62
        dealer = torch.Generator(self.device).manual_seed(seed)
        order = torch.randperm(len(task.y), generator=dealer, device=self.device)
        self.rows.copy_(order[: self.rows.numel()].reshape(self.rows.shape))
        self._deal_target(dealer)
        self.counter.zero_()
        torch.manual_seed(seed + 1)  # dropout and random weights
        name, factor = self.phase.learns, self.settings.schedule(self.epochs_of[self.phase.learns])
        changed = False
        for group, rate in zip(self.optimizers[name].param_groups, self.rates[name], strict=True):
            changed |= group["lr"] != rate * float(factor)
            group["lr"] = rate * float(factor)
        return changed

    def _deal_target(self, dealer: torch.Generator) -> None:
        """Target rows of every step: each once at most, or where there are too few for that, anew for every step."""
        n, wanted = len(self.trial.task.target_X), self.target_rows
        if n >= wanted.numel():
            order = torch.randperm(n, generator=dealer, device=self.device)
            wanted.copy_(order[: wanted.numel()].reshape(wanted.shape))
        else:
            chance = torch.rand(self.n_steps, n, generator=dealer, device=self.device, dtype=torch.float32)
            wanted.copy_(chance.topk(self.target_batch_size, dim=1, sorted=False).indices)

    def step(self) -> None:
        """Gradients of one batch, and a move of the optimizer."""
        assert self.phase is not None
        assert self.step_of is not None
        losses, weights = self.step_of(self._batch())
        if weights is not None:
            if losses.shape != weights.shape or losses.ndim != 1:
                raise InputError(
                    f"Losses must be one a row; got a tensor of shape {tuple(losses.shape)} for {self.batch_size} "
                    'rows. Use the loss with reduction="none", and flatten it.'
                )
            losses = weights * losses
            self.seen.index_copy_(0, self.counter, weights[None].to(self.seen))
        self.has_weights = weights is not None
        objective = losses.sum() if self.settings.summed or losses.ndim == 0 else losses.mean()
        network = self.trial.method.networks[self.phase.learns]
        learns = [p for p in network.parameters() if p.requires_grad]
        for p, gradient in zip(learns, torch.autograd.grad(objective, learns, allow_unused=True), strict=True):
            p.grad = gradient
        self.optimizers[self.phase.learns].step()
        self.losses.index_copy_(0, self.counter, objective.detach()[None].to(self.losses))
        self.counter += 1

    def _batch(self) -> Batch:
        task = self.trial.task
        rows, target_rows = (r.index_select(0, self.counter)[0] for r in (self.rows, self.target_rows))
        return Batch(
            rows,
            task.X.index_select(0, rows),
            task.y.index_select(0, rows),
            task.target_X.index_select(0, target_rows),
            None if task.target_y is None else task.target_y.index_select(0, target_rows),
        )

    def finish_epoch(self, epoch: int, started: float) -> None:
        """Look at what the steps left behind, once an epoch."""
        assert self.phase is not None
        name, trial = self.phase.learns, self.trial
        finite = torch.isfinite(self.losses)
        if not bool(finite.all()):
            raise NotFiniteError(
                f"The loss is NaN or infinite at step {int((~finite).int().argmax())} of epoch {epoch} (phase "
                f'"{self.phase.name}"). Lower the learning rate or look at the data; a checkpoint is as of the epoch '
                "before."
            )
        self.epochs_of[name] += 1
        entry: dict[str, Any] = {
            "epoch": epoch,
            "phase": self.phase.name,
            "learns": name,
            "loss": float(self.losses.mean()),
            "learning_rate": float(self.optimizers[name].param_groups[0]["lr"]),
        }
        if self.has_weights:
            entry |= weight_statistics(self.seen)
            trial.rows, trial.weights = self.rows.clone(), self.seen.clone()
        if trial.watch:
            model = trial.method.networks["f"]
            entry["accuracy"] = {name: accuracy(model, *rows) for name, rows in trial.watch.items()}
        entry["seconds"] = time.perf_counter() - started
        trial.log.append(entry)

    def describe(self) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        task, method = self.trial.task, self.trial.method
        return {
            "method": method.name,
            "options": method.options,
            "phases": [[phase.name, phase.learns, phase.epochs] for phase in method.phases],
            "parameters": {
                name: [[key, list(p.shape)] for key, p in network.state_dict().items()]
                for name, network in method.networks.items()
            },
            "optimizers": {
                name: [type(o).__name__, *map(_plain, o.param_groups)] for name, o in self.optimizers.items()
            },
            "row_losses": getattr(task.row_losses, "__qualname__", type(task.row_losses).__name__),
            "seed": int(self.trial.seed),
            "batches": [self.batch_size, self.target_batch_size],
            "summed": self.settings.summed,
            "schedules": {
                name: [
                    float(self.settings.schedule(epoch))
                    for epoch in range(sum(phase.epochs for phase in method.phases if phase.learns == name))
                ]
                for name in self.optimizers
            },
            "data": checkpoint.fingerprint(task.X, task.y, task.target_X, task.target_y),
            "renewed": self.trial.renew is not None,
        }

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        trial = self.trial
        return {
            "networks": {name: network.state_dict() for name, network in trial.method.networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "epochs_of": self.epochs_of,
            "log": trial.log,
            "rows": trial.rows,
            "weights": trial.weights,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """As it was when `state` was taken."""
        for name, network in self.trial.method.networks.items():
            network.load_state_dict(state["networks"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self._make_capturable()
        self.epochs_of = state["epochs_of"]
        self.trial.log[:] = state["log"]
        self.trial.rows, self.trial.weights = state["rows"], state["weights"]


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    """Settings of a group of parameters, as text or numbers."""
    kept = {key: value for key, value in group.items() if key not in ("params", "capturable")}
    return {key: value if isinstance(value, bool | int | float | None) else str(value) for key, value in kept.items()}


def weight_statistics(weights: Tensor) -> dict[str, float]:
    """Of all the weights of an epoch: mean, spread, the largest, the share of zeros, and how many rows they are worth.

    `effective_share` is (Σw)²/(nΣw²); `zero_batches` the share of steps with every weight zero.
    """
    w = weights.double()
    return {
        "weight_mean": float(w.mean()),
        "weight_sd": float(w.std(correction=0)),
        "weight_max": float(w.max()),
        "zero_share": float((w <= 1e-6).double().mean()),
        "effective_share": float(w.mean() ** 2 / w.square().mean().clamp(min=1e-300)),
        "zero_batches": float((w.amax(dim=1) <= 0).double().mean()),
    }


def accuracy(model: nn.Module, X: Tensor, y: Tensor) -> float:
    """Share of rows whose largest score is that of their class, in evaluation mode."""
    with evaluating(model), torch.no_grad():
        right = torch.stack(
            [
                (model(rows).argmax(dim=1) == labels).sum()
                for rows, labels in zip(torch.split(X, 2000), torch.split(y, 2000), strict=True)
            ]
        )
    return float(right.sum()) / len(y)
