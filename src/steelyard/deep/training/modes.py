"""How a network computes the losses or features that weights are made from: its mode, and its last hidden layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from steelyard.errors import InputError, ParameterError

EVALUATION, BATCH, REFRESHED = "evaluation", "batch", "refreshed"
WEIGHT_MODES = (EVALUATION, BATCH, REFRESHED)


def check_weight_mode(mode: str) -> str:
    """The mode, if it is one of `WEIGHT_MODES`."""
    if mode not in WEIGHT_MODES:
        raise ParameterError(f"weight_mode must be one of {WEIGHT_MODES}; got {mode!r}.")
    return mode


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


def transform_pair(
    model: nn.Module, source: Callable[[], Tensor], target: Callable[[], Tensor], mode: str
) -> tuple[Tensor, Tensor]:
    """What represents the source and the target batch, in a mode without dropout; the network stays as it was.

    Running means of batch-norm lag behind the parameters while the learning rate is high. "evaluation" uses them as
    they are; "batch" uses the statistics of each of the two batches instead; "refreshed" uses those of the source
    batch, with the parameters as they are now, for both batches.
    """
    if mode == EVALUATION:
        with evaluating(model), torch.no_grad():
            return source(), target()
    if mode == BATCH:
        with evaluating(model), _batch_statistics(model), torch.no_grad():
            return source(), target()
    norms = [norm for norm in _norms(model) if norm.track_running_stats]
    before = [[buffer.clone() for buffer in norm.buffers()] for norm in norms]
    with evaluating(model), torch.no_grad():
        with _overwriting(norms):
            found = source()
        others = target()
        for norm, buffers in zip(norms, before, strict=True):
            for buffer, value in zip(norm.buffers(), buffers, strict=True):
                buffer.copy_(value)  # in place: a captured step reads from the same memory every time
    return found, others


def _norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


@contextmanager
def _batch_statistics(model: nn.Module) -> Iterator[None]:
    """Batch-norm by the statistics of the batch; the running means are neither used nor changed."""
    norms = _norms(model)
    before = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.training, norm.track_running_stats = True, False
    try:
        yield
    finally:
        for norm, tracked in zip(norms, before, strict=True):
            norm.training, norm.track_running_stats = False, tracked


@contextmanager
def _overwriting(norms: list[_BatchNorm]) -> Iterator[None]:
    """Batch-norm by the statistics of the batch, which become the running means."""
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.training, norm.momentum = True, 1.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.training, norm.momentum = False, momentum


def scores_and_features(model: nn.Module, X: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of a network, and the input of its last linear layer, in one pass.

    Parameters
    ----------
    model : torch.nn.Module
        Any network that calls a `torch.nn.Linear`; of several, the one that is called last counts.
    X : tensor of shape (n, ...)
        Inputs.

    Returns
    -------
    scores : tensor of shape (n, ...)
        Output of the network.
    features : tensor of shape (n, n_features)
        Input of the last linear layer, flattened to one row per input.

    Raises
    ------
    InputError
        If the network calls no linear layer, or that layer does not see one row per input.

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep import scores_and_features
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    >>> scores, features = scores_and_features(net, torch.zeros(5, 2))
    >>> scores.shape, features.shape
    (torch.Size([5, 3]), torch.Size([5, 32]))
    """
    seen: list[Tensor] = []

    def see(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen[:] = inputs[:1]

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(see) for layer in layers]
    try:
        scores = model(X)
    finally:
        for hook in hooks:
            hook.remove()
    if not seen:
        raise InputError(
            f'transform="features" takes the input of the last linear layer (torch.nn.Linear), and '
            f'{type(model).__name__} calls none. End the network with one, or use transform="loss".'
        )
    if len(seen[0]) != len(X):
        raise InputError(
            f"The last linear layer of {type(model).__name__} sees a tensor of shape {tuple(seen[0].shape)} for "
            f'{len(X)} rows; transform="features" needs one row for each. Use transform="loss".'
        )
    return scores, seen[0].flatten(1)
