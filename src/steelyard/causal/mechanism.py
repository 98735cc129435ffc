"""Invertible neural networks that map rows to independent components, many networks as one batch of tensors.

A network is small and its rows are few, so that the time of a step is mostly overhead. N stacked networks take little
longer than one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

N_HIDDEN = 10  # hidden units of a coupling


class Mechanisms(nn.Module):
    """N invertible maps of R^D, with the architecture of the authors of causal mechanism transfer.

    First a standardization by the rows of the first batch (ActNorm), then `depth` layers of an invertible matrix and an
    affine coupling: the first half of the columns determines, by a hidden layer, factors 1 + tanh(a) and shifts for the
    other half. The components of the rows of network i are ``components(Z)[i]``; ``rows`` is the exact inverse.

    Parameters
    ----------
    seeds : sequence of int
        One seed for each network.
    n_columns : int
        D, at least two.
    depth : int, default=8
        Number of layers of a matrix and a coupling.
    rotations : bool, default=True
        True: a matrix is a random rotation plus W, where W starts at zero. False: a matrix is I + W, where W starts
        uniform within ±1/√D, as in the authors' code. These matrices are sometimes nearly singular, and eight of them
        lose half the digits of float32. Weight decay shrinks W toward zero in both cases.
    linear : bool, default=False
        Whether the couplings are left out.
    dtype : torch.dtype, default=torch.float32
        Data type of the parameters.
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
        # Each network has its own random generator, so that it does not depend on the other networks.
        initial = [_initial_parameters(seed, n_columns, self.fixed, rest, depth, rotations) for seed in seeds]
        stacked = {name: torch.stack([each[name] for each in initial]).to(dtype) for name in initial[0]}
        self.register_buffer("base", stacked["base"])
        self.base: Tensor
        self.change, self.bias1, self.bias2 = (nn.Parameter(stacked[name]) for name in ("change", "bias1", "bias2"))
        self.weight1 = nn.Parameter(torch.zeros(n, depth, self.fixed, N_HIDDEN, dtype=dtype))
        self.weight2 = nn.Parameter(torch.zeros(n, depth, N_HIDDEN, 2 * rest, dtype=dtype))
        self.center = nn.Parameter(torch.zeros(n, 1, n_columns, dtype=dtype))
        self.scale = nn.Parameter(torch.ones(n, 1, n_columns, dtype=dtype))

    def standardize(self, Z: Tensor) -> None:
        """Set the first layer so that it gives the rows (N, n, D) mean zero and variance one."""
        with torch.no_grad():
            self.center.copy_(-Z.mean(dim=1, keepdim=True))
            spread = Z.std(dim=1, keepdim=True, correction=0)
            self.scale.copy_(1 / torch.where(spread > 0, spread, torch.ones_like(spread)))

    def components(self, Z: Tensor) -> Tensor:
        """Map rows (N, n, D) to components (N, n, D)."""
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
        """Map components (N, n, D) to rows (N, n, D)."""
        matrices = self.base + self.change
        for layer in reversed(range(self.depth)):
            if not self.linear:
                first, rest = S[..., : self.fixed], S[..., self.fixed :]
                factor, shift = self._coupling(first, layer)
                S = torch.cat([first, (rest - shift) / factor], dim=-1)
            S = torch.linalg.solve(matrices[:, layer], S, left=False)
        return S / self.scale - self.center

    def _coupling(self, first: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Factors and shifts of the second half of the columns."""
        hidden = F.relu(first @ self.weight1[:, layer] + self.bias1[:, layer, None])
        output = hidden @ self.weight2[:, layer] + self.bias2[:, layer, None]
        log_odds, shift = output.chunk(2, dim=-1)
        return 2 * torch.sigmoid(2 * log_odds), shift  # equal to 1 + tanh(a), in a form that does not round to zero

    def only(self, numbers: Sequence[int]) -> Mechanisms:
        """A subset of the networks, with cloned parameters."""
        size, kind = self.center.shape[-1], self.center.dtype
        chosen = Mechanisms([0] * len(numbers), size, depth=self.depth, linear=self.linear, dtype=kind)
        chosen.load_state_dict({name: values[list(numbers)].clone() for name, values in self.state_dict().items()})
        return chosen


def _initial_parameters(
    seed: int, n_columns: int, half: int, rest: int, depth: int, rotations: bool
) -> dict[str, Tensor]:
    """Random initial values of the matrices and of the biases, which are drawn as PyTorch draws those of its layers."""
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
