"""The command line."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

app = typer.Typer(
    help="Learning under distribution shift: weigh the data you have so that it looks like the data you must predict.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from steelyard import __version__

        typer.echo(f"steelyard {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """What every command shares: `--version`."""


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the random splits.")] = 0,
    splits: Annotated[int, typer.Option(min=1, help="How many random splits to average over.")] = 10,
    picture: Annotated[Path, typer.Option(help="Where to save the picture.")] = Path("steelyard-demo.png"),
) -> None:
    """Real data, a shift, and what weighting does about it: a table and a picture in a few seconds."""
    from steelyard import demo as show

    console = Console()
    console.print(show.STORY, style="dim")
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("fitting on random splits", total=splits)
        found = show.run(seed, splits, lambda: progress.advance(task))
    table = Table(title=f"Mean over {splits} random splits, about {found.n_source} source rows")
    table.add_column("method")
    table.add_column("target error (RMSE)", justify="right")
    table.add_column("effective rows", justify="right")
    table.add_column("chosen by IWCV", justify="right")
    counts = Counter(found.chosen)
    for name, errors in found.errors.items():
        last = name == show.CHOSEN
        table.add_row(
            name,
            f"{errors.mean():.1f}",
            f"{found.effective[name].mean():.0f}",
            "" if last else f"{counts[name]} of {splits}",
            style="bold" if last else "",
        )
    console.print(table)
    console.print(
        "Effective rows: what the weights leave of the sample. IWCV chooses without looking at a single target label."
    )
    show.draw(found, picture)
    console.print(f"Picture: {picture}")


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="Which table; --list explains them.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Explain every table and its settings, and stop.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results. Cells that lie there are not computed again.")] = (
        Path("results")
    ),
    trials: Annotated[int, typer.Option(min=1, help="How many trials.")] = 100,
    first_trial: Annotated[int, typer.Option(min=0, help="Number of the first trial; develop on 1000 and above.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random streams.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at a time; all processors if not given.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="name=value, what the survey leaves open; may be given again.")
    ] = None,
) -> None:
    """Compute a table of the survey beside its printed numbers. A run that is cut short goes on where it was."""
    from steelyard.errors import SteelyardError
    from steelyard.reproduce.command import list_tables, reproduce_table

    console = Console()
    if show_list or table is None:
        list_tables(console)
        raise typer.Exit
    try:
        reproduce_table(
            table,
            out,
            range(first_trial, first_trial + trials),
            seed,
            jobs or os.cpu_count() or 1,
            settings or [],
            console,
        )
    except SteelyardError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {error}", highlight=False)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app()
