"""A run while it is trained: its rows, its optimizers, one step and one epoch of it."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from steelyard.deep._reduction import REDUCTIONS
from steelyard.deep.training import checkpoint
from steelyard.deep.training.config import History, TrainingConfig, TrainingRun
from steelyard.deep.training.data import Batch
from steelyard.deep.training.modes import evaluating
from steelyard.deep.training.phases import Phase, Step
from steelyard.errors import InputError, NotFiniteError


class Trainer:
    """A `TrainingRun` while it is trained: optimizers, buffers of one epoch, and the history so far."""

    def __init__(self, run: TrainingRun, config: TrainingConfig) -> None:
        data, method = run.data, run.method
        self.run, self.config, self.device = run, config, data.X.device
        for name, network in method.networks.items():
            elsewhere = {p.device for p in network.parameters()} - {self.device}
            if elsewhere:
                raise InputError(
                    f'Network "{name}" is on {elsewhere.pop()}, the data on {self.device}; move one with .to(device).'
                )
        self.history = History(len(data.y))
        self.batch_size = min(config.batch_size, len(data.y))
        self.target_batch_size = min(config.target_batch_size or config.batch_size, len(data.X_target))
        self.n_steps = len(data.y) // self.batch_size
        trained = [name for name in method.networks if any(phase.learns == name for phase in method.phases)]
        # Of all parameters: which ones are frozen may change between phases, and the optimizer's state must not.
        self.optimizers = {name: config.optimizer(list(method.networks[name].parameters())) for name in trained}
        self.rates = {name: [float(g["lr"]) for g in o.param_groups] for name, o in self.optimizers.items()}
        self._make_capturable()
        self.epochs_of = dict.fromkeys(trained, 0)
        self.phase: Phase | None = None
        self.has_weights = False
        self.step_of: Step | None = None
        # A step reads and writes these at fixed addresses, so that it can be captured in a CUDA graph.
        self.counter = torch.zeros(1, dtype=torch.long, device=self.device)
        self.rows = torch.zeros(self.n_steps, self.batch_size, dtype=torch.long, device=self.device)
        self.target_rows = torch.zeros(self.n_steps, self.target_batch_size, dtype=torch.long, device=self.device)
        self.weights = torch.zeros(self.n_steps, self.batch_size, device=self.device)
        self.losses = torch.zeros(self.n_steps, device=self.device)

    def _make_capturable(self) -> None:
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = self.device.type == "cuda"

    def begin_phase(self, phase: Phase) -> None:
        """Make the step function of this phase; only its network is in training mode."""
        self.phase = phase
        for name, network in self.run.method.networks.items():
            network.train(name == phase.learns)
            for p in network.parameters():
                p.grad = None  # a parameter frozen from now on must not be moved by an old gradient
        self.step_of = phase.begin(self.run.method.networks, self.run.data)

    def begin_epoch(self, epoch: int) -> bool:
        """Refresh the inputs, shuffle the rows and set the learning rate; returns whether the rate changed."""
        assert self.phase is not None
        data = self.run.data
        if self.run.refresh_inputs is not None:
            # In place: a captured step reads from the same memory every time.
            for inputs, refreshed in zip((data.X, data.X_target), self.run.refresh_inputs(epoch), strict=True):
                inputs.copy_(refreshed)
        seed = (int(self.run.seed) * 1_000_003 + epoch) % 2**62
        generator = torch.Generator(self.device).manual_seed(seed)
        order = torch.randperm(len(data.y), generator=generator, device=self.device)
        self.rows.copy_(order[: self.rows.numel()].reshape(self.rows.shape))
        self._draw_target_rows(generator)
        self.counter.zero_()
        torch.manual_seed(seed + 1)  # dropout and random weights
        name, factor = self.phase.learns, self.config.lr_schedule(self.epochs_of[self.phase.learns])
        changed = False
        for group, rate in zip(self.optimizers[name].param_groups, self.rates[name], strict=True):
            changed |= group["lr"] != rate * float(factor)
            group["lr"] = rate * float(factor)
        return changed

    def _draw_target_rows(self, generator: torch.Generator) -> None:
        """Target rows of every step: none twice in the epoch, or drawn anew for every step if there are too few."""
        n, drawn = len(self.run.data.X_target), self.target_rows
        if n >= drawn.numel():
            order = torch.randperm(n, generator=generator, device=self.device)
            drawn.copy_(order[: drawn.numel()].reshape(drawn.shape))
        else:
            uniform = torch.rand(self.n_steps, n, generator=generator, device=self.device, dtype=torch.float32)
            drawn.copy_(uniform.topk(self.target_batch_size, dim=1, sorted=False).indices)

    def step(self) -> None:
        """Gradients of one batch, and one step of the optimizer."""
        assert self.phase is not None
        assert self.step_of is not None
        losses, weights = self.step_of(self._batch())
        if weights is not None:
            if losses.shape != weights.shape or losses.ndim != 1:
                raise InputError(
                    f"The loss must give one number per row; got a tensor of shape {tuple(losses.shape)} for "
                    f'{self.batch_size} rows. Use the loss with reduction="none", and flatten it.'
                )
            losses = weights * losses
            self.weights.index_copy_(0, self.counter, weights[None].to(self.weights))
        self.has_weights = weights is not None
        objective = REDUCTIONS[self.config.reduction](losses)
        network = self.run.method.networks[self.phase.learns]
        trained = [p for p in network.parameters() if p.requires_grad]
        for p, gradient in zip(trained, torch.autograd.grad(objective, trained, allow_unused=True), strict=True):
            p.grad = gradient
        self.optimizers[self.phase.learns].step()
        self.losses.index_copy_(0, self.counter, objective.detach()[None].to(self.losses))
        self.counter += 1

    def _batch(self) -> Batch:
        data = self.run.data
        rows, target_rows = (r.index_select(0, self.counter)[0] for r in (self.rows, self.target_rows))
        return Batch(
            rows,
            data.X.index_select(0, rows),
            data.y.index_select(0, rows),
            data.X_target.index_select(0, target_rows),
            None if data.y_target is None else data.y_target.index_select(0, target_rows),
        )

    def finish_epoch(self, epoch: int, started: float) -> None:
        """Check the losses of the epoch and record it; the only time an epoch reads numbers from the device."""
        assert self.phase is not None
        name, run = self.phase.learns, self.run
        finite = torch.isfinite(self.losses)
        if not bool(finite.all()):
            raise NotFiniteError(
                f"The loss is NaN or infinite at step {int((~finite).int().argmax())} of epoch {epoch} (phase "
                f'"{self.phase.name}"). Lower the learning rate or check the data; the checkpoint, if any, is that of '
                "an earlier epoch."
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
            entry |= self._weight_statistics()
            self.history.rows, self.history.weights = self.rows.clone(), self.weights.clone()
        if run.eval_sets:
            entry["accuracy"] = {name: self._accuracy(*rows) for name, rows in run.eval_sets.items()}
        if run.kept_rows is not None:
            entry["kept_loss"] = self._kept_loss(epoch)
        entry["seconds"] = time.perf_counter() - started
        self.history.epochs.append(entry)

    def _kept_loss(self, epoch: int) -> float:
        """Mean loss of the kept rows in evaluation mode; the state of the classifier is kept where it is the least."""
        model, history = self.run.method.networks["f"], self.history
        X, y = self.run.kept_rows
        with evaluating(model), torch.no_grad():
            losses = [
                self.run.data.row_losses(model(rows), labels)
                for rows, labels in zip(torch.split(X, 2000), torch.split(y, 2000), strict=True)
            ]
        found = float(torch.cat(losses).double().mean())
        if found < min((entry["kept_loss"] for entry in history.epochs), default=float("inf")):
            history.kept_epoch = epoch
            history.kept_state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return found

    def _weight_statistics(self) -> dict[str, float]:
        """Statistics of all weights of the epoch.

        `effective_share` is the effective sample size over the number of rows, (Σw)²/(nΣw²); `zero_batches` is the
        share of steps in which every weight is zero.
        """
        w = self.weights.double()
        return {
            "weight_mean": float(w.mean()),
            "weight_sd": float(w.std(correction=0)),
            "weight_max": float(w.max()),
            "zero_share": float((w <= 1e-6).double().mean()),
            "effective_share": float(w.mean() ** 2 / w.square().mean().clamp(min=1e-300)),
            "zero_batches": float((w.amax(dim=1) <= 0).double().mean()),
        }

    def _accuracy(self, X: Tensor, y: Tensor) -> float:
        """Share of rows whose largest score is that of their class, in evaluation mode."""
        model = self.run.method.networks["f"]
        with evaluating(model), torch.no_grad():
            right = torch.stack(
                [
                    (model(rows).argmax(dim=1) == labels).sum()
                    for rows, labels in zip(torch.split(X, 2000), torch.split(y, 2000), strict=True)
                ]
            )
        return float(right.sum()) / len(y)

    def describe(self) -> dict[str, Any]:
        """What a checkpoint must agree with to be resumed."""
        data, method = self.run.data, self.run.method

        def plain(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
            """Settings of groups of parameters as numbers or text."""
            kept = ({key: v for key, v in group.items() if key not in ("params", "capturable")} for group in groups)
            return [{k: v if isinstance(v, bool | int | float | None) else str(v) for k, v in g.items()} for g in kept]

        epochs = {name: sum(p.epochs for p in method.phases if p.learns == name) for name in self.optimizers}
        return {
            "method": method.name,
            "options": method.options,
            "phases": [[phase.name, phase.learns, phase.epochs] for phase in method.phases],
            "parameters": {
                name: [[key, list(p.shape)] for key, p in network.state_dict().items()]
                for name, network in method.networks.items()
            },
            "optimizers": {name: [type(o).__name__, *plain(o.param_groups)] for name, o in self.optimizers.items()},
            "row_losses": getattr(data.row_losses, "__qualname__", type(data.row_losses).__name__),
            "seed": int(self.run.seed),
            "batch_sizes": [self.batch_size, self.target_batch_size],
            "reduction": self.config.reduction,
            "lr_schedules": {name: [float(self.config.lr_schedule(e)) for e in range(n)] for name, n in epochs.items()},
            "data": checkpoint.fingerprint(data.X, data.y, data.X_target, data.y_target),
            "refresh_inputs": self.run.refresh_inputs is not None,
            "kept_rows": None if self.run.kept_rows is None else checkpoint.fingerprint(*self.run.kept_rows),
        }

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        return {
            "networks": {name: network.state_dict() for name, network in self.run.method.networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "epochs_of": self.epochs_of,
            "history": self.history.epochs,
            "rows": self.history.rows,
            "weights": self.history.weights,
            "kept": (self.history.kept_epoch, self.history.kept_state),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        for name, network in self.run.method.networks.items():
            network.load_state_dict(state["networks"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self._make_capturable()
        self.epochs_of = state["epochs_of"]
        history = self.history
        history.epochs, history.rows, history.weights = state["history"], state["rows"], state["weights"]
        history.kept_epoch, history.kept_state = state.get("kept", (None, None))
