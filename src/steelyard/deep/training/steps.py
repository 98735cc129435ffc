"""Step functions that train a classifier: a batch to one loss per row and one weight per source row.

Each function takes the networks and the data and returns the step function of a phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.training.data import Batch, TrainingData
from steelyard.deep.training.phases import Networks, Step
from steelyard.deep.training.reweight import learned_weights, mean_one
from steelyard.errors import InputError, WeightError


def uniform(networks: Networks, data: TrainingData, network: str = "f") -> Step:
    """Every weight is one."""
    model = networks[network]

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        losses = data.row_losses(model(batch.X), batch.y)
        return losses, torch.ones_like(losses)

    return step


def random(networks: Networks, data: TrainingData) -> Step:
    """Weights max(0, N(0, 1)) with mean one: the effect of weights without information."""
    model = networks["f"]

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        losses = data.row_losses(model(batch.X), batch.y)
        return losses, mean_one(torch.randn_like(losses).clamp(min=0))

    return step


def clean_only(networks: Networks, data: TrainingData) -> Step:
    """The labeled target rows alone."""
    model = networks["f"]
    data.target_labels()

    def step(batch: Batch) -> tuple[Tensor, None]:
        assert batch.y_target is not None
        return data.row_losses(model(batch.X_target), batch.y_target), None

    return step


def fixed(networks: Networks, data: TrainingData, weights: Tensor, normalized: bool = False) -> Step:
    """Fixed weights, one per source row; `normalized` to mean one in every batch."""
    model = networks["f"]
    weights = torch.as_tensor(weights).detach()
    if weights.shape != data.y.shape:
        raise WeightError(f"{len(data.y)} rows need {len(data.y)} weights; got {tuple(weights.shape)}.")
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()) or not bool((weights > 0).any()):
        raise WeightError("Weights must be finite and non-negative, and at least one must be positive.")
    weights = weights.to(data.X.device, torch.float32)

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        chosen = weights.index_select(0, batch.rows)
        return data.row_losses(model(batch.X), batch.y), mean_one(chosen) if normalized else chosen

    return step


def learned(networks: Networks, data: TrainingData) -> Step:
    """Learning to reweight: the weight of a row is how much a step on it would lower the loss on the target."""
    model = networks["f"]
    data.target_labels()

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.y_target is not None
        weights = learned_weights(model, data.row_losses, (batch.X, batch.y), (batch.X_target, batch.y_target))
        return data.row_losses(model(batch.X), batch.y), weights

    return step


def dynamic(networks: Networks, data: TrainingData, weigher: DynamicWeights, extractor: str = "f") -> Step:
    """Weights that match the losses or features of the batch to those of a target batch, in evaluation mode.

    Where the network gives the same output in both modes, one forward pass over the source rows serves the weights and
    the gradient.
    """
    model, extracting = networks["f"], networks[extractor]
    data.target_labels()
    by_loss = weigher.transform == "loss"
    shared = extracting is model and not depends_on_mode(model, data.X[:8])
    features, head = (None, None) if by_loss else split_at_features(extracting, data.X[:8])

    def transform(X: Tensor, y: Tensor) -> Tensor:
        return data.row_losses(extracting(X), y) if features is None else features(X)

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.y_target is not None
        with evaluating(extracting), torch.no_grad():
            target = transform(batch.X_target, batch.y_target)
            # Before the pass with gradients, which changes the running means of batch-norm.
            source = None if shared else transform(batch.X, batch.y)
        if source is not None:
            losses = data.row_losses(model(batch.X), batch.y)
        elif features is None or head is None:
            losses = source = data.row_losses(model(batch.X), batch.y)
        else:
            source = features(batch.X)
            losses = data.row_losses(head(source), batch.y)
        labels = () if by_loss else (batch.y, batch.y_target)
        return losses, weigher(source.detach(), target, *labels)

    return step


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout, batch-norm by its running means) inside the block; then the previous mode."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def depends_on_mode(model: nn.Module, X: Tensor) -> bool:
    """Whether training and evaluation mode differ on these rows, as with dropout or batch-norm; changes nothing."""
    devices = [X.device] if X.is_cuda else []

    def in_training_mode(seed: int) -> Tensor:
        torch.manual_seed(seed)
        buffers: dict[str, Tensor] = {k: b.clone() for k, b in model.named_buffers()}
        return functional_call(model, dict(model.named_parameters()) | buffers, (X,))

    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        first, second = in_training_mode(0), in_training_mode(1)
        with evaluating(model):
            return not (torch.equal(first, second) and torch.equal(first, model(X)))


def split_at_features(model: nn.Module, X: Tensor) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The functions `features` and `head` of a network whose forward is head(features(x))."""
    features, head = getattr(model, "features", None), getattr(model, "head", None)
    if not (callable(features) and callable(head)):
        raise InputError(
            f'transform="features" needs a network whose forward is head(features(x)); {type(model).__name__} lacks '
            'features or head. Add them, or use transform="loss".'
        )
    with evaluating(model), torch.no_grad():
        if not torch.allclose(head(features(X)), model(X), rtol=1e-3, atol=1e-4):
            raise InputError(
                f"head(features(x)) and forward(x) of {type(model).__name__} differ, so its scores are not computed "
                'from its features. Make forward head(features(x)), or use transform="loss".'
            )
    return features, head
