"""Step functions that train a classifier: a batch to one loss per row and one weight per source row.

Each function takes the networks and the data and returns the step function of a phase.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.training.data import Batch, TrainingData
from steelyard.deep.training.modes import (
    EVALUATION,
    depends_on_mode,
    evaluating,
    scores_and_features,
    transform_pair,
)
from steelyard.deep.training.phases import Networks, Step
from steelyard.deep.training.reweight import learned_weights, mean_one
from steelyard.errors import WeightError


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


def dynamic(
    networks: Networks,
    data: TrainingData,
    weigher: DynamicWeights,
    extractor: str = "f",
    weight_mode: str = EVALUATION,
) -> Step:
    """Weights that match the losses or features of the batch to those of a target batch, without dropout.

    `weight_mode` says by which statistics batch-norm computes them, see `transform_pair`. Where the network gives the
    same output in both modes, one forward pass over the source rows serves the weights and the gradient. A network
    named "class shares" scales the weights class by class.
    """
    model, extracting = networks["f"], networks[extractor]
    data.target_labels()
    by_loss = weigher.transform == "loss"
    shares = networks.get("class shares")
    shared = extracting is model and not depends_on_mode(model, data.X[:8])

    def scored(network: nn.Module, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Losses of the rows, and what represents them."""
        scores, features = (network(X), None) if by_loss else scores_and_features(network, X)
        losses = data.row_losses(scores, y)
        return losses, losses if features is None else features

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.y_target is not None
        labels = () if by_loss else (batch.y, batch.y_target)

        def of_target() -> Tensor:
            return scored(extracting, batch.X_target, batch.y_target)[1]  # type: ignore[arg-type]

        if shared:
            with evaluating(extracting), torch.no_grad():
                target = of_target()
            losses, source = scored(model, batch.X, batch.y)
        else:
            # Before the pass with gradients, which changes the running means of batch-norm.
            source, target = transform_pair(
                extracting, lambda: scored(extracting, batch.X, batch.y)[1], of_target, weight_mode
            )
            losses = data.row_losses(model(batch.X), batch.y)
        weights = weigher(source.detach(), target, *labels)
        return losses, weights if shares is None else shares(weights, batch.y)

    return step
