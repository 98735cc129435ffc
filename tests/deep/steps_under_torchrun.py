"""Fifty weighted steps: on whole batches in one process, or by torchrun on a part of every batch in each of two.

Run by test_distributed.py: ``python -m torch.distributed.run --nproc-per-node=2 steps_under_torchrun.py FOLDER``.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from steelyard.deep import DynamicWeights
from steelyard.errors import InputError

STEPS, ROWS, CLEAN = 50, 60, 30
# Of every batch and of every batch of clean rows: the first process has the rows up to here, the second the others.
CUT, CLEAN_CUT = 40, 12
CASES = {
    "whole batches": {},
    "accumulated": {"n_micro": 3},
    "authors": {"preset": "authors", "n_micro": 2},
    "features": {"transform": "features"},
    "bfloat16": {"bfloat16": True},
    "each alone": {"process_group": False},
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = nn.Sequential(nn.Linear(5, 16), nn.Tanh()), nn.Linear(16, 3)

    def forward(self, x, only_features=False):
        return self.features(x) if only_features else self.head(self.features(x))


def data():
    """Noisy rows and clean ones, of three classes."""
    generator = torch.Generator().manual_seed(0)
    X, clean_X = (torch.randn(n, 5, generator=generator) for n in (600, 100))
    y, clean_y = (rows[:, :3].argmax(dim=1) for rows in (X, clean_X))
    noisy = torch.randint(3, (600,), generator=generator)
    return X, torch.where(torch.rand(600, generator=generator) < 0.4, noisy, y), clean_X, clean_y


def learn(rank=None, *, transform="loss", preset="normalized", n_micro=1, bfloat16=False, process_group=None):
    """Parameters after fifty steps; `rank` says which part of every batch this process has, None that it has all."""
    X, y, clean_X, clean_y = data()
    torch.manual_seed(1)
    net = Net()
    if preset == "authors":  # their nearly singular problem makes 1e-5 of the rounding of float32
        net, X, clean_X = net.double(), X.double(), clean_X.double()
    model = net if rank is None else DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 if preset == "normalized" else 0.1 / ROWS, momentum=0.9)
    dynamic = DynamicWeights(transform, preset=preset, process_group=process_group)
    generator = torch.Generator().manual_seed(2)

    def part(n_rows, n_drawn, cut):
        drawn = torch.randperm(n_rows, generator=generator)[:n_drawn]
        return drawn if rank is None else drawn[:cut] if rank == 0 else drawn[cut:]

    def losses_of(rows):
        return F.cross_entropy(model(X[rows]), y[rows], reduction="none")

    def weigh(pieces, clean):
        rows = torch.cat(pieces)
        if transform == "features":
            return dynamic(*(model(x, True) for x in (X[rows], clean_X[clean])), y[rows], clean_y[clean])
        losses = torch.cat([losses_of(piece) for piece in pieces])
        return dynamic(losses, F.cross_entropy(model(clean_X[clean]), clean_y[clean], reduction="none"))

    for _ in range(STEPS):
        pieces, clean = part(600, ROWS, CUT).tensor_split(n_micro), part(100, CLEAN, CLEAN_CUT)
        autocast = torch.autocast("cpu", torch.bfloat16) if bfloat16 else contextlib.nullcontext()
        with torch.no_grad(), autocast:
            weights = weigh(pieces, clean)
        optimizer.zero_grad()
        for k, (piece, its_weights) in enumerate(
            zip(pieces, weights.split([len(piece) for piece in pieces]), strict=True)
        ):
            last = k == len(pieces) - 1
            with contextlib.nullcontext() if rank is None or last else model.no_sync(), autocast:
                dynamic.reduce(its_weights * losses_of(piece), n_rows=len(weights)).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def errors(rank):
    """What each process is told where the processes do not fit, by case; all of them get through all of these."""
    two, ones = torch.ones(2), torch.ones(3)
    features = (torch.ones(2, 2 + rank), torch.ones(3, 2 + rank), torch.zeros(2), torch.zeros(3))

    def uneven():
        dynamic = DynamicWeights()
        dynamic.n_calls = rank
        return dynamic(two, ones)

    cases = {
        "settings": lambda: DynamicWeights(w_max=50 - rank)(two, ones),
        "class ratio": lambda: DynamicWeights("features", class_ratio=torch.ones(2 + rank))(*features),
        "calls": uneven,
        "precision": lambda: DynamicWeights()(two.to((torch.float32, torch.float64)[rank]), ones),
        "features": lambda: DynamicWeights("features")(*features),
        "shape": lambda: DynamicWeights()(torch.ones(2, 1 + rank)[:, 0] if rank else torch.tensor(1.0), ones),
        "not a number": lambda: DynamicWeights()(two if rank else two * torch.nan, ones),
        "reduced before": lambda: DynamicWeights().reduce(two),
        "reduced rows": lambda: reduced_rows(two, ones),
        "other group": lambda: DynamicWeights(process_group=only_first)(two, ones),
    }
    only_first = dist.new_group([0])

    def reduced_rows(train, validation):
        dynamic = DynamicWeights()
        return dynamic.reduce(dynamic(train, validation)[:1])

    told = {}
    for name, case in cases.items():
        try:
            case()
            told[name] = ""
        except InputError as error:
            told[name] = str(error)
    return told


def parts(rank):
    """Weights of a batch of which the second process has no row, and where both have the same validation rows."""
    generator = torch.Generator().manual_seed(3)
    train, validation = torch.rand(12, generator=generator), torch.rand(7, generator=generator)
    empty = DynamicWeights()(train if rank == 0 else train[:0], validation[: 7 * (1 - rank)])
    same = DynamicWeights()(train[:5] if rank == 0 else train[5:], validation)
    return {"train": train, "validation": validation, "empty": empty, "same": same}


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = {name: learn(rank, **options) for name, options in CASES.items()}
    torch.save({"learned": found, "errors": errors(rank), "parts": parts(rank)}, Path(folder) / f"{rank}.pt")
    # A DistributedDataParallel that outlives its group makes gloo abort where the process ends, once in a while.
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
