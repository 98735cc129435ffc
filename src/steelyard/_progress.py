"""The one progress bar of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


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
