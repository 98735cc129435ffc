"""Networks of table 7: trained once, as one batch, for all cells that share them, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.engine.cells import Settings, stream
from steelyard._few_shot.domains import Scale, scale_of
from steelyard._typing import FloatArray
from steelyard.datasets import load_gasoline

if TYPE_CHECKING:
    from steelyard.causal.mechanism import Mechanisms

CONFIGURATIONS = [(h, decay) for h in (10, 20) for decay in (0.01, 0.1)]
SPLITS = 10
RECIPE = 1  # to be raised when `steelyard.causal.contrast` trains differently, so that older networks are not used


@dataclass(frozen=True)
class Kind:
    """How the networks of a column are trained.

    `stream_name` seeds them. `per_split`: one for every configuration and split, as in the authors' records; otherwise
    some seeds of every configuration, shared by all splits, as training never uses the target. `leak`: columns are
    standardized over all rows, those of the test included, as the authors did; otherwise over the source rows.
    """

    stream_name: str
    per_split: bool
    leak: bool
    trained: bool = True
    linear: bool = False


KINDS = {
    "authors": Kind("authors", per_split=True, leak=True),
    # The same starts with and without the leak, so that it alone makes the difference.
    "authors_no_leak": Kind("authors", per_split=True, leak=False),
    "ours": Kind("ours", per_split=False, leak=False),
    "untrained": Kind("untrained", per_split=False, leak=False, trained=False),
    "linear": Kind("linear", per_split=False, leak=False, linear=True),
}


load_panel = lru_cache(load_gasoline)


def standardized(country: str, leak: bool) -> tuple[FloatArray, FloatArray, Scale]:
    """Source rows, rows of the country, and the scale of both."""
    panel = load_panel()
    target = panel.country == country
    scale = scale_of(panel.Z if leak else panel.Z[~target])
    return scale.standardize(panel.Z[~target]), scale.standardize(panel.Z[target]), scale


def countries() -> list[str]:
    """By their codes, in the order of the survey."""
    return list(dict.fromkeys(load_panel().country.tolist()))


def networks(kind: str, repetition: int, country: str, split: int, settings: Settings, seed: int) -> list[Mechanisms]:
    """The networks of a cell, one batch for each checkpoint."""
    from steelyard.causal.mechanism import Mechanisms

    folder = train(kind, repetition, settings, seed)
    what = json.loads((folder / "what.json").read_text())
    place, each = countries().index(country), what["networks_of_a_country"]
    chosen = slice(place * each, (place + 1) * each)
    if KINDS[kind].per_split:
        first = place * each + (split % SPLITS) * len(CONFIGURATIONS)
        chosen = slice(first, first + len(CONFIGURATIONS))
    import torch

    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r")[:, chosen] for name in what["names"]}
    found = []
    for checkpoint in range(what["checkpoints"]):
        state = {name: torch.tensor(np.array(values[checkpoint])) for name, values in arrays.items()}
        made = Mechanisms([0] * len(state["center"]), 4, linear=KINDS[kind].linear)
        made.load_state_dict(state)
        found.append(made)
    return found


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Restrict PyTorch to one thread: the networks are small and there are many processes."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train_all(wanted: Iterable[tuple[str, int]], settings: Settings, seed: int, jobs: int) -> None:
    """Networks of several kinds and repetitions, side by side."""
    missing = [pair for pair in dict.fromkeys(wanted) if not _folder(*pair, settings, seed).exists()]
    if len(missing) <= 1 or jobs == 1:
        for kind, repetition in missing:
            train(kind, repetition, settings, seed)
        return
    with ProcessPoolExecutor(min(jobs, len(missing)), mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(train, kind, repetition, dict(settings), seed) for kind, repetition in missing]:
            done.result()


def train(kind: str, repetition: int, settings: Settings, seed: int) -> Path:
    """The folder of the networks of a kind; they are trained if it does not exist."""
    folder = _folder(kind, repetition, settings, seed)
    if folder.exists():
        return folder
    import torch

    from steelyard.causal.contrast import Start, learn

    what, names = KINDS[kind], countries()
    panel = load_panel()
    Z = torch.tensor(np.array([standardized(name, what.leak)[0] for name in names]), dtype=torch.float32)
    sources = [panel.country[panel.country != name].tolist() for name in names]
    domain = torch.tensor([[list(dict.fromkeys(each)).index(name) for name in each] for each in sources])
    every = settings["every"] if what.per_split else settings["every_of_ours"]
    n_seeds = SPLITS if what.per_split else settings["seeds"]
    if not what.trained:  # as many candidates as trained networks have
        n_seeds *= -(-settings["epochs"] // every)
    starts = []
    for place, name in enumerate(names):
        drawn = stream(seed, "gasoline", what.stream_name, repetition, name).integers(
            2**40, size=(n_seeds, len(CONFIGURATIONS))
        )
        starts += [
            Start(place, h, decay, int(start_seed))
            for row in drawn
            for (h, decay), start_seed in zip(CONFIGURATIONS, row, strict=True)
        ]
    with one_torch_thread():
        found = learn(
            Z,
            domain,
            starts,
            epochs=settings["epochs"] if what.trained else 0,
            every=every,
            rotations=not what.per_split,
            linear=what.linear,
        )
    states = [checkpoint.mechanisms.state_dict() for checkpoint in found]
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    for name in states[0]:
        np.save(unfinished / f"{name}.npy", np.array([state[name].numpy() for state in states]))
    about = {"names": list(states[0]), "checkpoints": len(states), "networks_of_a_country": len(starts) // len(names)}
    (unfinished / "what.json").write_text(json.dumps(about))
    try:
        unfinished.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(unfinished)
    return folder


def _folder(kind: str, repetition: int, settings: Settings, seed: int) -> Path:
    keys = ("epochs", "every", "every_of_ours", "seeds")
    identity: dict[str, Any] = {key: settings[key] for key in keys} | {
        "seed": seed,
        "countries": countries(),
        "recipe": RECIPE,
        "configurations": CONFIGURATIONS,
        "splits": SPLITS,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "steelyard" / "gasoline" / f"{kind}_{repetition}_{digest}"
