"""The one progress bar of the package, and its log.

Long calls say what they do to the logger "steelyard", at the level INFO; no handler is set, so by default nothing is
written. ``logging.basicConfig(level=logging.INFO)`` shows these lines.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Item = TypeVar("Item")

LOG = logging.getLogger("steelyard")
LEAST_SECONDS = 2.0  # shorter calls show no bar


def track(items: Iterable[Item], total: int, description: str, *, shown: bool = True) -> Iterator[Item]:
    """Pass items on as they are computed; after two seconds a bar shows how many, if standard error is a terminal.

    Parameters
    ----------
    items : iterable
        Results, such as those of ``joblib.Parallel(return_as="generator")``.
    total : int
        Their number.
    description : str
        What is computed.
    shown : bool, default=True
        False shows no bar.

    Yields
    ------
    item
        Each item.

    Examples
    --------
    >>> list(track(iter([1, 4]), 2, "squaring"))
    [1, 4]
    """
    start, done = time.perf_counter(), 0
    with progress_bar("{task.completed}/{task.total}", hidden=not (shown and sys.stderr.isatty())) as bar:
        task = bar.add_task(description, total=total, visible=False)
        for item in items:
            done += 1
            bar.update(task, completed=done, visible=time.perf_counter() - start > LEAST_SECONDS)
            yield item
    LOG.info("%s: %s of %s in %.1f seconds", description, f"{done:,}", f"{total:,}", time.perf_counter() - start)


def progress_bar(details: str = "", *, hidden: bool = False, console: Console | None = None) -> Progress:
    """A bar with a description, elapsed and remaining time, that disappears when it is done.

    Parameters
    ----------
    details : str, default=""
        A format such as ``"{task.completed}/{task.total}"`` or ``"{task.fields[rows]}"``, shown after the bar.
    hidden : bool, default=False
        Show nothing.
    console : rich.console.Console, default=None
        Where to draw; None is standard error.

    Returns
    -------
    rich.progress.Progress

    Examples
    --------
    >>> with progress_bar(hidden=True) as progress:
    ...     task = progress.add_task("fitting", total=2)
    ...     progress.advance(task)
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), *([TextColumn(details)] if details else [])]
    return Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console or Console(stderr=True),
        transient=True,
        disable=hidden,
    )
