"""A batch whose rows lie on several processes of `torch.distributed`, such as those that torchrun starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from steelyard.errors import InputError

ProcessGroup = Any  # a torch.distributed.ProcessGroup, a class that some builds of PyTorch lack
# What all processes must agree on before their rows are gathered; the order is that of the numbers they exchange.
AGREE = {
    "call": ("the number of batches weighted so far", "Call it equally often on every process"),
    "settings": ("the settings of DynamicWeights (a checksum)", "Make it with the same arguments on every process"),
    "type": ("the type of the losses or features (a checksum)", "Take the same precision on every process"),
    "width": ("the number of features", "Take them from the same network on every process"),
}


@dataclass(frozen=True)
class Share:
    """The rows of this process, `start` to `start + n_rows`, in a batch of `total` rows on `processes` processes."""

    start: int
    n_rows: int
    total: int
    processes: int


@dataclass(frozen=True)
class BatchPair:
    """Losses or features of a training and a validation batch, and their labels where the matching needs them."""

    train: Tensor
    validation: Tensor
    labels: tuple[Tensor, Tensor] | None = None


def shared_group(process_group: ProcessGroup | Literal[False] | None) -> ProcessGroup | None:
    """The group whose processes share a batch; None where this process holds all of it."""
    if process_group is False or not (dist.is_available() and dist.is_initialized()):
        return None
    group = dist.group.WORLD if process_group is None else process_group
    if dist.get_rank(group) < 0:
        raise InputError(
            f"Process {dist.get_rank()} is not in the process group of DynamicWeights; give the group that it shares "
            "a batch with, or process_group=False to weight its rows alone."
        )
    return group if dist.get_world_size(group) > 1 else None


def gather(
    batch: BatchPair, problem: InputError | None, agree: dict[str, int], group: ProcessGroup
) -> tuple[BatchPair, Share]:
    """The batch of all processes, in the order of their ranks, and the share of this one.

    `problem` is what is wrong with the rows of this process, if anything: then every process raises an error, none is
    left waiting. `agree` are the numbers of `AGREE`.
    """
    # NCCL wants tensors on the GPU, gloo on the CPU.
    device = torch.device("cpu") if dist.get_backend(group) == "gloo" else batch.train.device
    counts = [0, 0] if problem else [len(batch.train), len(batch.validation)]
    header = torch.tensor([int(problem is not None), *counts, *(agree[name] for name in AGREE)], device=device)
    headers = [part.tolist() for part in _all_gather(header, group)]
    if problem is not None:
        raise problem
    broken = [rank for rank, numbers in enumerate(headers) if numbers[0]]
    if broken:
        raise InputError(f"The batch of process {broken[0]} cannot be weighted; the error of that process says why.")
    for k, (what, advice) in enumerate(AGREE.values(), start=3):
        found = [numbers[k] for numbers in headers]
        if len(set(found)) > 1:
            raise InputError(f"The processes disagree on {what}: {found}, in the order of their ranks. {advice}.")
    sizes = [(numbers[1], numbers[2]) for numbers in headers]
    # Half precision is exact in float32, and gloo cannot send all of its types.
    sent = torch.promote_types(batch.train.dtype, torch.float32)
    train, validation = _gather_rows(batch.train.to(sent), batch.validation.to(sent), sizes, group, device)
    labels = batch.labels and _gather_rows(batch.labels[0].long(), batch.labels[1].long(), sizes, group, device)
    rank, rows = dist.get_rank(group), [n for n, _ in sizes]
    return BatchPair(train, validation, labels), Share(sum(rows[:rank]), rows[rank], sum(rows), len(rows))


def _gather_rows(
    train: Tensor, validation: Tensor, sizes: list[tuple[int, int]], group: ProcessGroup, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Training and validation rows of all processes, sent at once and padded to the longest, on their old device."""
    rows = torch.cat([train, validation]).to(device)
    padded = rows.new_zeros((max(n + m for n, m in sizes), *rows.shape[1:]))
    padded[: len(rows)] = rows
    parts = [part.to(train.device) for part in _all_gather(padded, group)]
    pairs = list(zip(parts, sizes, strict=True))
    return torch.cat([part[:n] for part, (n, _) in pairs]), torch.cat([part[n : n + m] for part, (n, m) in pairs])


def _all_gather(values: Tensor, group: ProcessGroup) -> list[Tensor]:
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, values, group=group)
    return parts
