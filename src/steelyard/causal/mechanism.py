"""Invertible networks from observed rows to independent components, many of them as one batch of tensors.

A network is small and its rows are few, so a step of one network is all overhead; N networks that are stacked cost
little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

N_HIDDEN = 10  # of a coupling


class Mechanisms(nn.Module):
    """N invertible maps of R^D, as the authors of causal mechanism transfer build theirs.

    A standardization by the first rows seen (ActNorm), then `depth` times an invertible matrix and an affine coupling:
    the first half of the columns scales and moves the rest by factors 1 + tanh(a) and shifts from a hidden layer.
    Components of the rows of network i are ``components(Z)[i]``; ``rows`` is the exact inverse.

    Parameters
    ----------
    seeds : one for each network
    n_columns : D, at least two
    depth : matrices and couplings
    rotations : matrices are random rotations plus W, which starts at zero; else I + W with W uniform within ±1/√D, as
        the authors have it. Those are at times nearly singular, and eight of them lose half the digits of float32.
        Weight decay pulls W to zero in either case
    linear : without the couplings
    dtype : of the parameters
    """

    def __init__(
        self,
        seeds: Sequence[int],
        n_columns: int,
        *,
        depth: int = 8,
        rotations: bool = True,
        linear: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.depth, self.linear = depth, linear
        self.fixed: int = n_columns // 2
        n, rest = len(seeds), n_columns - self.fixed
        # Each network draws from its own stream, so that it is the same alone and among others.
        drawn = [_drawn(seed, n_columns, self.fixed, rest, depth, rotations) for seed in seeds]
        stacked = {name: torch.stack([one[name] for one in drawn]).to(dtype) for name in drawn[0]}
        self.register_buffer("base", stacked["base"])
        self.base: Tensor
        self.change, self.bias1, self.bias2 = (nn.Parameter(stacked[name]) for name in ("change", "bias1", "bias2"))
        self.weight1 = nn.Parameter(torch.zeros(n, depth, self.fixed, N_HIDDEN, dtype=dtype))
        self.weight2 = nn.Parameter(torch.zeros(n, depth, N_HIDDEN, 2 * rest, dtype=dtype))
        self.center = nn.Parameter(torch.zeros(n, 1, n_columns, dtype=dtype))
        self.scale = nn.Parameter(torch.ones(n, 1, n_columns, dtype=dtype))

    def standardize(self, Z: Tensor) -> None:
        """Set the first layer by rows (N, n, D): mean zero and variance one."""
        with torch.no_grad():
            self.center.copy_(-Z.mean(dim=1, keepdim=True))
            spread = Z.std(dim=1, keepdim=True, correction=0)
            self.scale.copy_(1 / torch.where(spread > 0, spread, torch.ones_like(spread)))

    def components(self, Z: Tensor) -> Tensor:
        """Components (N, n, D) of rows (N, n, D)."""
        Z, matrices = (Z + self.center) * self.scale, self.base + self.change
        for layer in range(self.depth):
            Z = Z @ matrices[:, layer]
            if self.linear:
                continue
            first, rest = Z[..., : self.fixed], Z[..., self.fixed :]
            factor, shift = self._coupling(first, layer)
            Z = torch.cat([first, rest * factor + shift], dim=-1)
        return Z

    def rows(self, S: Tensor) -> Tensor:
        """Rows (N, n, D) of components (N, n, D)."""
        matrices = self.base + self.change
        for layer in reversed(range(self.depth)):
            if not self.linear:
                first, rest = S[..., : self.fixed], S[..., self.fixed :]
                factor, shift = self._coupling(first, layer)
                S = torch.cat([first, (rest - shift) / factor], dim=-1)
            S = torch.linalg.solve(matrices[:, layer], S, left=False)
        return S / self.scale - self.center

    def _coupling(self, first: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        hidden = F.relu(first @ self.weight1[:, layer] + self.bias1[:, layer, None])
        found = hidden @ self.weight2[:, layer] + self.bias2[:, layer, None]
        log_odds, shift = found.chunk(2, dim=-1)
        return 2 * torch.sigmoid(2 * log_odds), shift  # 1 + tanh(a), written so that it is never rounded to zero

    def only(self, numbers: Sequence[int]) -> Mechanisms:
        """Some of the networks, with copies of their parameters."""
        size, kind = self.center.shape[-1], self.center.dtype
        chosen = Mechanisms([0] * len(numbers), size, depth=self.depth, linear=self.linear, dtype=kind)
        chosen.load_state_dict({name: values[list(numbers)].clone() for name, values in self.state_dict().items()})
        return chosen


def _drawn(seed: int, n_columns: int, half: int, rest: int, depth: int, rotations: bool) -> dict[str, Tensor]:
    """What starts at random: the matrices, and the biases as PyTorch draws those of its layers."""
    stream = torch.Generator().manual_seed(seed)

    def uniform(size: float, *shape: int) -> Tensor:
        return (2 * torch.rand(*shape, generator=stream, dtype=torch.float64) - 1) * size

    shape = depth, n_columns, n_columns
    if rotations:
        base = torch.linalg.qr(torch.randn(*shape, generator=stream, dtype=torch.float64)).Q
        change = torch.zeros(shape, dtype=torch.float64)
    else:
        base, change = torch.eye(n_columns, dtype=torch.float64).expand(shape), uniform(n_columns**-0.5, *shape)
    return {
        "base": base,
        "change": change,
        "bias1": uniform(max(half, 1) ** -0.5, depth, N_HIDDEN),
        "bias2": uniform(N_HIDDEN**-0.5, depth, 2 * rest),
    }
