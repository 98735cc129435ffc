"""One step of each method that learns a classifier: a batch to one loss a row and a weight for each.

Each function takes the networks and the task and returns the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.reweight import learned_weights, mean_one
from steelyard.deep.training.phases import Batch, Networks, Step, Task
from steelyard.errors import InputError, WeightError


def uniform(networks: Networks, task: Task) -> Step:
    """Every weight one."""
    model = networks["f"]

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        losses = task.row_losses(model(batch.X), batch.y)
        return losses, torch.ones_like(losses)

    return step


def random(networks: Networks, task: Task) -> Step:
    """max(0, N(0, 1)), with mean one: what weights do that know nothing."""
    model = networks["f"]

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        losses = task.row_losses(model(batch.X), batch.y)
        return losses, mean_one(torch.randn_like(losses).clamp(min=0))

    return step


def clean_only(networks: Networks, task: Task) -> Step:
    """The labeled target rows and nothing else."""
    model = networks["f"]
    task.target_labels()

    def step(batch: Batch) -> tuple[Tensor, None]:
        assert batch.target_y is not None
        return task.row_losses(model(batch.target_X), batch.target_y), None

    return step


def known(networks: Networks, task: Task, weights: Tensor, normalized: bool = False) -> Step:
    """Weights that stay, one for each source row; `normalized` to mean one in every batch, or as they are."""
    model = networks["f"]
    weights = torch.as_tensor(weights).detach()
    if weights.shape != task.y.shape:
        raise WeightError(f"{len(task.y)} rows need {len(task.y)} weights; got {tuple(weights.shape)}.")
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()) or not bool((weights > 0).any()):
        raise WeightError("Weights must be finite, none negative and not all zero.")
    weights = weights.to(task.X.device, torch.float32)

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        chosen = weights.index_select(0, batch.rows)
        return task.row_losses(model(batch.X), batch.y), mean_one(chosen) if normalized else chosen

    return step


def learned(networks: Networks, task: Task) -> Step:
    """Learning to reweight: rows count as much as a step on them would lower the loss on the target."""
    model = networks["f"]
    task.target_labels()

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.target_y is not None
        weights = learned_weights(model, task.row_losses, (batch.X, batch.y), (batch.target_X, batch.target_y))
        return task.row_losses(model(batch.X), batch.y), weights

    return step


def dynamic(networks: Networks, task: Task, weigher: DynamicWeights, extractor: str = "f") -> Step:
    """Weights by matching the batch's losses or features with those of a target batch, in evaluation mode.

    Where the network does the same in both modes, one pass over the training rows serves the weights and the step.
    """
    model, seen_by = networks["f"], networks[extractor]
    task.target_labels()
    by_loss = weigher.transform == "loss"
    shared = seen_by is model and not depends_on_mode(model, task.X[:8])
    features, head = (None, None) if by_loss else halves(seen_by, task.X[:8])

    def view(X: Tensor, y: Tensor) -> Tensor:
        return task.row_losses(seen_by(X), y) if features is None else features(X)

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.target_y is not None
        with evaluating(seen_by), torch.no_grad():
            goal = view(batch.target_X, batch.target_y)
            # Before the pass that learns, which moves the running means of batch-norm.
            seen = None if shared else view(batch.X, batch.y)
        if seen is not None:
            losses = task.row_losses(model(batch.X), batch.y)
        elif features is None or head is None:
            losses = seen = task.row_losses(model(batch.X), batch.y)
        else:
            seen = features(batch.X)
            losses = task.row_losses(head(seen), batch.y)
        labels = () if by_loss else (batch.y, batch.target_y)
        return losses, weigher(seen.detach(), goal, *labels)

    return step


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while: no dropout, batch-norm by its running means; then each module as it was."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def depends_on_mode(model: nn.Module, X: Tensor) -> bool:
    """Whether training and evaluation mode differ on these rows, as with dropout or batch-norm; nothing is changed."""
    devices = [X.device] if X.is_cuda else []

    def learning(seed: int) -> Tensor:
        torch.manual_seed(seed)
        copies: dict[str, Tensor] = {k: b.clone() for k, b in model.named_buffers()}
        return functional_call(model, dict(model.named_parameters()) | copies, (X,))

    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        one, two = learning(0), learning(1)
        with evaluating(model):
            return not (torch.equal(one, two) and torch.equal(one, model(X)))


def halves(model: nn.Module, X: Tensor) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The functions of a network whose forward is head(features(x))."""
    features, head = getattr(model, "features", None), getattr(model, "head", None)
    if not (callable(features) and callable(head)):
        raise InputError(
            f'transform="features" needs a network whose forward is head(features(x)); {type(model).__name__} lacks '
            'features or head. Add them, or use transform="loss".'
        )
    with evaluating(model), torch.no_grad():
        if not torch.allclose(head(features(X)), model(X), rtol=1e-3, atol=1e-4):
            raise InputError(
                f"head(features(x)) and forward(x) of {type(model).__name__} differ, so its features are not what its "
                'scores are made of. Make forward head(features(x)), or use transform="loss".'
            )
    return features, head
