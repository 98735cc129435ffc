"""Compute the missing cells of a table, in parallel, and store every cell as soon as it is computed."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from joblib.parallel import LokyBackend, get_active_backend

from experiments.engine.cells import Cell, D, Experiment, M, Settings
from experiments.engine.errors import CellError
from experiments.engine.store import Outcome, TrialStore
from steelyard._threads import one_blas_thread
from steelyard.errors import SteelyardWarning


def run_missing(
    experiment: Experiment[D, M],
    cells: list[Cell[D, M]],
    settings: Settings,
    seed: int,
    store: TrialStore[D, M],
    *,
    jobs: int,
    advance: Callable[[], None] = lambda: None,
) -> None:
    """Compute the given cells and store each as soon as it is computed; `advance` is called after each."""
    for cell, outcome in _outcomes(experiment, cells, settings, seed, jobs):
        store.put(cell, outcome)
        advance()


def _outcomes(
    experiment: Experiment[D, M], cells: list[Cell[D, M]], settings: Settings, seed: int, jobs: int
) -> Iterator[tuple[Cell[D, M], Outcome]]:
    # Cells of one draw go to one worker, which can share what they have in common.
    draws = [list(cells_of_draw) for _, cells_of_draw in groupby(cells, key=lambda cell: (cell.data, cell.trial))]
    if not isinstance(get_active_backend()[0], LokyBackend):
        # Inside joblib.parallel_config(backend=...), such as that of a Dask cluster, the cells go there.
        work = (delayed(_draw_with_outcomes)(experiment.name, draw, settings, seed) for draw in draws)
        for draw, outcomes in Parallel(return_as="generator_unordered", batch_size=1)(work):
            yield from zip(draw, outcomes, strict=True)
        return
    if jobs == 1 or len(cells) == 1:
        for cell in cells:
            yield cell, compute(experiment.name, cell, settings, seed)
        return
    # Spawned, not forked: a fork copies locks that threads of this process may hold.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            waiting = {pool.submit(_compute_draw, experiment.name, draw, settings, seed): draw for draw in draws}
            for done in as_completed(waiting):
                yield from zip(waiting[done], done.result(), strict=True)
        except BrokenProcessPool as error:
            raise CellError(
                "A worker was ended from outside, perhaps for memory. The cells computed so far are stored; try fewer "
                "--jobs."
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _compute_draw(name: str, cells: list[Cell[Any, Any]], settings: Settings, seed: int) -> list[Outcome]:
    return [compute(name, cell, settings, seed) for cell in cells]


def _draw_with_outcomes(
    name: str, cells: list[Cell[Any, Any]], settings: Settings, seed: int
) -> tuple[list[Cell[Any, Any]], list[Outcome]]:
    return cells, _compute_draw(name, cells, settings, seed)


def compute(name: str, cell: Cell[Any, Any], settings: Settings, seed: int) -> Outcome:
    """One cell, on one BLAS thread, with its CPU seconds."""
    from experiments import EXPERIMENTS

    start = time.process_time()  # CPU time, so that other load on the machine does not count
    identity = f"{name}, {cell.data.label}, {cell.method.label}, trial {cell.trial}"
    try:
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", SteelyardWarning)  # rough weights are part of the tables
            found = EXPERIMENTS[name].compute
            assert found is not None
            error = found(cell, settings, seed)
    except Exception as problem:
        raise CellError(f"{identity}: {problem}") from problem
    if not np.isfinite(error):
        raise CellError(f"{identity}: the error is {error}.")
    return Outcome.now(error, time.process_time() - start)


def _end_with_parent() -> None:
    """End this worker with its parent: after a kill of the parent it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
