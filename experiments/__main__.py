"""The survey's tables and studies of our own, each by one command: ``python -m experiments toy``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from experiments.engine import command
from steelyard.app.cluster import connected
from steelyard.errors import SteelyardError

app = typer.Typer(pretty_exceptions_show_locals=False)


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="Which table or study; --list explains them.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Explain every table and its settings, and stop.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results. Cells stored there are not computed again.")] = (
        Path("results")
    ),
    trials: Annotated[int | None, typer.Option(min=1, help="Number of trials; by default those reported.")] = None,
    first_trial: Annotated[
        int | None,
        typer.Option(min=0, help="Number of the first trial; by default that reported. Develop on 1000 and above."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random streams.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at a time; by default all processors.")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Address of a running Dask scheduler whose workers can import experiments.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Deep tables: stop after this many minutes; the same command resumes. 0: only show what is stored.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Deep tables: cpu or cuda.")] = "cpu",
    only: Annotated[
        list[str] | None,
        typer.Option(help='Deep tables: compute cells with this in their "data: method"; may be given again.'),
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value, a choice that the survey leaves open; may be given again."),
    ] = None,
) -> None:
    """Compute a table of the survey beside its printed numbers; the same command resumes a run that was cut short."""
    console = Console()
    if show_list or table is None:
        command.list_tables(console)
        raise typer.Exit
    options = command.Options(
        out=out,
        trials=trials,
        first_trial=first_trial,
        seed=seed,
        jobs=jobs or os.cpu_count() or 1,
        changed=changed or [],
        device=device,
        minutes=minutes,
        only=only or [],
    )
    try:
        with connected(cluster):
            command.reproduce(table, options, console)
    except SteelyardError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app(prog_name="python -m experiments")
