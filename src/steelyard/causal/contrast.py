"""Generalized contrastive learning: components are recovered if each of them, alone, helps to classify the domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.causal.mechanism import Mechanisms

LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Start:
    """One network: the table it learns from, the number of hidden units of its classifiers, weight decay and seed."""

    table: int
    n_hidden: int
    weight_decay: float
    seed: int


class Classifiers:
    """The domain classifiers of N networks: for each component a score of each domain, by two hidden layers."""

    def __init__(self, starts: Sequence[Start], n_columns: int, n_domains: int, dtype: torch.dtype) -> None:
        # Narrow layers are padded with zeros, which remain zero: padding units are never active and pass no gradient.
        widest = max(start.n_hidden for start in starts)
        initial = [_initial_parameters(start, n_columns, n_domains, widest) for start in starts]
        self.parameters = [torch.stack(parts).to(dtype).requires_grad_() for parts in zip(*initial, strict=True)]

    def scores(self, S: Tensor) -> Tensor:
        """Σⱼφⱼ(sⱼ, k) for each domain k, shape (N, n, K), from components (N, n, D)."""
        w1, b1, w2, b2, w3, b3 = self.parameters
        hidden = S.transpose(1, 2)[..., None]  # (N, D, n, 1)
        hidden = F.relu(hidden * w1 + b1)
        hidden = F.relu(hidden @ w2 + b2)
        return (hidden @ w3 + b3).sum(dim=1)


def _initial_parameters(start: Start, n_columns: int, n_domains: int, widest: int) -> list[Tensor]:
    """Weights and biases of three layers, drawn as PyTorch draws those of its linear layers."""
    stream = torch.Generator().manual_seed(start.seed + 1)
    h = start.n_hidden

    def layer(fan_in: int, fan_out: int, wide_in: int, wide_out: int) -> list[Tensor]:
        weight, bias = torch.zeros(n_columns, wide_in, wide_out), torch.zeros(n_columns, 1, wide_out)
        for part, rows in ((weight, fan_in), (bias, 1)):
            drawn = torch.rand(n_columns, rows, fan_out, generator=stream) * 2 - 1
            part[:, :rows, :fan_out] = drawn * fan_in**-0.5
        return [weight, bias]

    return [*layer(1, h, 1, widest), *layer(h, h, widest, widest), *layer(h, n_domains, widest, n_domains)]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The networks after some epochs and the loss of each on its whole table."""

    epoch: int
    mechanisms: Mechanisms
    losses: Tensor


def contrast(scores: Tensor, labels: Tensor, weights: Tensor, wrong: Tensor | None = None) -> Tensor:
    """Contrastive loss: the logistic loss of the right domain and of a wrong one, a weighted mean for each network.

    `wrong` numbers one wrong domain for each row; None takes the mean over all wrong domains.
    """
    right = scores.gather(2, labels[..., None])[..., 0]
    if wrong is None:
        loss_of_wrong = (F.softplus(scores).sum(dim=2) - F.softplus(right)) / (scores.shape[2] - 1)
    else:
        loss_of_wrong = F.softplus(scores.gather(2, wrong[..., None])[..., 0])
    return (weights * (F.softplus(-right) + loss_of_wrong)).mean(dim=1)


def learn(
    Z: Tensor,
    domain: Tensor,
    starts: Sequence[Start],
    *,
    epochs: int = 300,
    every: int = 20,
    batch_size: int = 32,
    depth: int = 8,
    rotations: bool = True,
    linear: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> list[Checkpoint]:
    """Train networks by contrastive learning and return their checkpoints.

    The networks share no parameters: each is the same as if it were trained alone. For each row of each batch a wrong
    domain is drawn at random from all other domains.

    Parameters
    ----------
    Z : tensor of shape (T, n, D)
        Rows of T tables.
    domain : tensor of shape (T, n)
        Number of the domain of each row, from 0 to K − 1.
    starts : sequence of Start
        The networks.
    epochs : int, default=300
        Number of epochs; 0 returns the initial networks.
    every : int, default=20
        There is a checkpoint after each `every` epochs and after the last one.
    batch_size : int, default=32
        Number of rows in a batch.
    depth : int, default=8
        Number of layers of `Mechanisms`.
    rotations : bool, default=True
        Initial matrices of `Mechanisms`.
    linear : bool, default=False
        Whether `Mechanisms` have no couplings.
    advance : callable, default=lambda: None
        Called after each epoch, to show progress.

    Returns
    -------
    list of Checkpoint
        The networks after some epochs.
    """
    n_rows, n_columns = Z.shape[1:]
    n_domains = int(domain.max()) + 1
    batch_size = min(batch_size, n_rows)
    n_steps = n_rows // batch_size
    table = torch.tensor([start.table for start in starts])
    seeds = [start.seed for start in starts]
    mechanisms = Mechanisms(seeds, n_columns, depth=depth, rotations=rotations, linear=linear, dtype=Z.dtype)
    classifiers = Classifiers(starts, n_columns, n_domains, Z.dtype)
    parameters = [*mechanisms.parameters(), *classifiers.parameters]
    decay = torch.tensor([start.weight_decay for start in starts], dtype=Z.dtype)
    decays = [decay.reshape(-1, *[1] * (p.ndim - 1)) for p in parameters]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    streams = [torch.Generator().manual_seed(start.seed + 2) for start in starts]
    # Weights of rows (T, n), with mean one, that give each domain of a table the same total weight.
    counts = F.one_hot(domain, n_domains).sum(dim=1).to(Z.dtype)
    weights = n_rows / (n_domains * counts.gather(1, domain))
    first: Tensor | None = None
    checkpoints = []
    for epoch in range(max(epochs, 1)):
        order = torch.stack([torch.randperm(n_rows, generator=s)[: n_steps * batch_size] for s in streams])
        apart = torch.stack([torch.randint(1, n_domains, order.shape[1:], generator=s) for s in streams])
        rows, labels, row_weights = (values[table[:, None], order] for values in (Z, domain, weights))
        wrong = (labels + apart) % n_domains
        if not epoch:
            mechanisms.standardize(rows[:, :batch_size])
        for step in range(n_steps if epochs else 0):
            batch = slice(step * batch_size, (step + 1) * batch_size)
            scores = classifiers.scores(mechanisms.components(rows[:, batch]))
            loss = contrast(scores, labels[:, batch], row_weights[:, batch], wrong[:, batch])
            if first is None:
                first = loss.detach().clamp(min=1e-12)
            # The networks share no parameters, so the gradient of the sum has the gradient of each.
            gradients = torch.autograd.grad((loss / first).sum(), parameters, allow_unused=linear)
            for p, gradient, rate in zip(parameters, gradients, decays, strict=True):
                p.grad = None if gradient is None else torch.addcmul(gradient, p.detach(), rate.expand_as(p))
            optimizer.step()
        advance()
        if (epoch + 1) % every == 0 or epoch + 1 >= epochs:
            with torch.no_grad():
                scores = classifiers.scores(mechanisms.components(Z[table]))
                losses = contrast(scores, domain[table], weights[table])
            checkpoints.append(Checkpoint(min(epoch + 1, epochs), mechanisms.only(range(len(starts))), losses))
    return checkpoints
