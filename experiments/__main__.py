"""The survey's tables and our own studies, each by one command: ``python -m experiments toy``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from experiments.engine.command import list_tables, reproduce_table
from steelyard.errors import SteelyardError

app = typer.Typer(pretty_exceptions_show_locals=False)


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="Which table; --list explains them.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Explain every table and its settings, and stop.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results. Cells that lie there are not computed again.")] = (
        Path("results")
    ),
    trials: Annotated[int | None, typer.Option(min=1, help="How many trials; 100, or 5 of deep tables.")] = None,
    first_trial: Annotated[int, typer.Option(min=0, help="Number of the first trial; develop on 1000 and above.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random streams.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at a time; all processors if not given.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Deep tables: stop after so many; the same command goes on. 0: show what is stored."),
    ] = None,
    device: Annotated[str, typer.Option(help="Deep tables: cpu or cuda.")] = "cpu",
    only: Annotated[
        list[str] | None,
        typer.Option(help='Deep tables: compute what has this in its "data: method"; may be given again.'),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="name=value, what the survey leaves open; may be given again.")
    ] = None,
) -> None:
    """Compute a table of the survey beside its printed numbers. A run that is cut short goes on where it was."""
    console = Console()
    if show_list or table is None:
        list_tables(console)
        raise typer.Exit
    try:
        reproduce_table(
            table,
            out,
            trials,
            first_trial,
            seed,
            jobs or os.cpu_count() or 1,
            settings or [],
            console,
            device=device,
            minutes=minutes,
            only=only or [],
        )
    except SteelyardError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app(prog_name="python -m experiments")
