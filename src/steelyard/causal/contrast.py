"""Generalized contrastive learning: a mechanism is right when its components tell the domain of a row one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.causal.mechanism import Mechanisms

RATE = 1e-3


@dataclass(frozen=True)
class Start:
    """One network: which table it learns from, the width of its classifiers, its weight decay and its seed."""

    table: int
    n_hidden: int
    weight_decay: float
    seed: int


class Classifiers:
    """Of N networks: for each component a score for every domain, by two hidden layers of its own."""

    def __init__(self, starts: Sequence[Start], n_columns: int, n_domains: int, dtype: torch.dtype) -> None:
        # Narrow ones are filled up with zeros, which stay zero: their units are never active and pass no gradient on.
        widest = max(start.n_hidden for start in starts)
        drawn = [_drawn(start, n_columns, n_domains, widest) for start in starts]
        self.parameters = [torch.stack(parts).to(dtype).requires_grad_() for parts in zip(*drawn, strict=True)]

    def scores(self, S: Tensor) -> Tensor:
        """Σⱼφⱼ(sⱼ, k) for every domain k, (N, n, K), of components (N, n, D)."""
        w1, b1, w2, b2, w3, b3 = self.parameters
        found = S.transpose(1, 2)[..., None]  # (N, D, n, 1)
        found = F.relu(found * w1 + b1)
        found = F.relu(found @ w2 + b2)
        return (found @ w3 + b3).sum(dim=1)


def _drawn(start: Start, n_columns: int, n_domains: int, widest: int) -> list[Tensor]:
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
    """Networks after some epochs, and the loss of each on its whole table."""

    epoch: int
    mechanisms: Mechanisms
    losses: Tensor


def contrast(scores: Tensor, labels: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Logistic loss of the right domain and of a wrong one, a weighted mean for each network."""
    right = scores.gather(2, labels[..., None])[..., 0]
    wrong = scores.gather(2, others[..., None])[..., 0]
    return (weights * (F.softplus(-right) + F.softplus(wrong))).mean(dim=1)


def expected_contrast(scores: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """The same, with the mean over all wrong domains."""
    right = scores.gather(2, labels[..., None])[..., 0]
    wrong = (F.softplus(scores).sum(dim=2) - F.softplus(right)) / (scores.shape[2] - 1)
    return (weights * (F.softplus(-right) + wrong)).mean(dim=1)


def domain_weights(domain: Tensor, n_domains: int, dtype: torch.dtype) -> Tensor:
    """Weights of rows (T, n) that give every domain of a table the same say, mean one."""
    counts = torch.nn.functional.one_hot(domain, n_domains).sum(dim=1).to(dtype)
    return domain.shape[1] / (n_domains * counts.gather(1, domain))


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
    """Networks after every so many epochs; without an epoch, as they start.

    They share nothing: each is what it would be alone. A wrong domain is drawn anew for every row of every batch, from
    all the others.

    Parameters
    ----------
    Z : rows of T tables, (T, n, D)
    domain : numbers 0 to K − 1, (T, n)
    starts : the networks
    depth, rotations, linear : of `Mechanisms`
    advance : called after every epoch
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
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    streams = [torch.Generator().manual_seed(start.seed + 2) for start in starts]
    weights = domain_weights(domain, n_domains, Z.dtype)
    first: Tensor | None = None
    found = []
    for epoch in range(max(epochs, 1)):
        order = torch.stack([torch.randperm(n_rows, generator=s)[: n_steps * batch_size] for s in streams])
        apart = torch.stack([torch.randint(1, n_domains, order.shape[1:], generator=s) for s in streams])
        rows, labels, shares = (values[table[:, None], order] for values in (Z, domain, weights))
        others = (labels + apart) % n_domains
        if not epoch:
            mechanisms.standardize(rows[:, :batch_size])
        for step in range(n_steps if epochs else 0):
            here = slice(step * batch_size, (step + 1) * batch_size)
            scores = classifiers.scores(mechanisms.components(rows[:, here]))
            loss = contrast(scores, labels[:, here], others[:, here], shares[:, here])
            if first is None:
                first = loss.detach().clamp(min=1e-12)
            # The sum of what depends on nothing shared: each network has its own gradient.
            gradients = torch.autograd.grad((loss / first).sum(), parameters, allow_unused=linear)
            for p, gradient, rate in zip(parameters, gradients, decays, strict=True):
                p.grad = None if gradient is None else torch.addcmul(gradient, p.detach(), rate.expand_as(p))
            optimizer.step()
        advance()
        if (epoch + 1) % every == 0 or epoch + 1 >= epochs:
            with torch.no_grad():
                scores = classifiers.scores(mechanisms.components(Z[table]))
                losses = expected_contrast(scores, domain[table], weights[table])
            found.append(Checkpoint(min(epoch + 1, epochs), mechanisms.only(range(len(starts))), losses))
    return found
