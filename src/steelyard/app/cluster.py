"""A running Dask cluster for the commands: where their sums, fits and predictions are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from steelyard.errors import ClusterError, DependencyError, OutputError, SteelyardError

# Blocks that wait on the cluster for each of its threads.
WAITING = 2


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of the cluster at an address, which Dask and joblib use inside the context; None for no address.

    Whatever fails inside because the cluster is gone is a `ClusterError`.
    """
    if address is None:
        yield None
        return
    try:
        import joblib
        from distributed import Client
    except ImportError as error:
        raise DependencyError("--cluster needs Dask: pip install 'steelyard[distributed]'.") from error
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"There is no Dask scheduler at {address} ({error}). Start one with `dask scheduler` and workers with "
            "`dask worker`, and give the address that the scheduler prints."
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise ClusterError(f"The cluster at {address} has no workers. Start some with `dask worker {address}`.")
        try:
            with joblib.parallel_config(backend="dask", n_jobs=-1):
                yield client
        except Exception as error:
            # Where the lost connection is an OSError, writing the output has said that the file cannot be written.
            of_cluster = type(error).__module__.partition(".")[0] == "distributed" or client.status != "running"
            if not of_cluster or (isinstance(error, SteelyardError) and not isinstance(error, OutputError)):
                raise
            raise ClusterError(
                f"The cluster went away ({type(error).__name__}: {error}). Nothing was written: connect to a running "
                "cluster and start again."
            ) from error


def mapped(client: Any, function: Callable[..., Any], shared: Any, items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """``function(shared, *item)`` for every item, in order: on the cluster a few at a time, without one here."""
    if client is None:
        yield from (function(shared, *item) for item in items)
        return
    scattered = client.scatter(shared, broadcast=True)
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(client.submit(function, scattered, *item, pure=False))
        if len(waiting) >= WAITING * sum(client.nthreads().values()):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
