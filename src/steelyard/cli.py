"""The command line."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
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


Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of sampling, folds and permutations.")]
Label = Annotated[str | None, typer.Option(help="Name of the label column.")]


@app.command()
def diagnose(
    source: Annotated[Path, typer.Argument(help="CSV or Parquet file of the data you have.")],
    target: Annotated[Path, typer.Argument(help="CSV or Parquet file of the data you must predict.")],
    label: Label = None,
    out: Annotated[Path | None, typer.Option(help="Folder for findings.json.")] = None,
    seed: Seed = 0,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Is there a shift between two tables, of which kind, and will weighting help?

    Columns are matched by name. With --label the label is left out of the comparison; where both files have it, its
    tests tell covariate shift from label shift and concept shift. Files larger than memory are sampled.
    """
    from steelyard import commands

    with _errors():
        findings = commands.diagnose_files(source, target, label, seed, _progress(quiet or json_output))
        if out is not None:
            commands.write_findings(findings, out)
        if json_output:
            typer.echo(findings.to_json())
        else:
            commands.show_findings(findings, Console())


@app.command()
def weigh(
    source: Annotated[Path, typer.Argument(help="CSV or Parquet file of the data you have.")],
    target: Annotated[Path, typer.Argument(help="CSV or Parquet file of the data you must predict.")],
    out: Annotated[Path, typer.Option(help="Where to write the weights, one a source row.")] = Path("weights.csv"),
    label: Label = None,
    eta: Annotated[float, typer.Option(min=0, max=1, help="0 the plain ratio (uLSIF), above the relative one.")] = 0.0,
    seed: Seed = 0,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Weigh every source row so that the source looks like the target; the weights go into a CSV file."""
    from steelyard import commands

    with _errors():
        summary = commands.weigh_files(source, target, label, eta, seed, out, _progress(quiet or json_output))
        if json_output:
            typer.echo(json.dumps(summary))
        elif not quiet:
            Console().print(
                f"{summary['rows']} weights in {out}, worth {summary['effective_rows']:.0f} equally weighted rows; the "
                f"largest is {summary['largest']:.2f}.",
                highlight=False,
            )


@contextmanager
def _errors() -> Iterator[None]:
    """One line and exit code 2 for what the user can mend."""
    from steelyard.errors import SteelyardError

    try:
        yield
    except SteelyardError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error


def _progress(quiet: bool) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]}"), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet)


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
