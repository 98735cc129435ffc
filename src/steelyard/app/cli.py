"""The command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from steelyard._progress import progress_bar

app = typer.Typer(
    help="Learning under distribution shift by importance weighting: diagnose, fit, predict, evaluate.",
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± shows a question mark, not a traceback


ROWS = "{task.fields[rows]}"  # what a progress bar shows beside its task
Source = Annotated[Path, typer.Argument(help="CSV or Parquet file of the data you have; - is standard input.")]
TargetFile = Annotated[
    Path, typer.Argument(help="CSV or Parquet file of the data you must predict; - is standard input.")
]
Model = Annotated[Path, typer.Argument(help="Folder that steelyard fit wrote.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of sampling, folds and permutations.")]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="A sign of a missing value in addition to NA, ? and the like, such as -999 or unknown; may be repeated.",
    ),
]
Label = Annotated[str | None, typer.Option(help="Name of the label column.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Write over what is there already. Inputs and files of other names always stay."),
]

Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Address of a running Dask scheduler, such as tcp://host:8786, that does the computing."
    ),
]


@app.command()
def diagnose(
    source: Source,
    target: TargetFile,
    label: Label = None,
    missing: Missing = None,
    out: Annotated[Path | None, typer.Option(help="Folder for findings.json and report.html.")] = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    cluster: Cluster = None,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Is there a shift between two tables, of which kind, and will weighting help?

    Columns are matched by name. With --label the label is left out of the comparison; where both files have it, its
    tests tell covariate shift from label shift and concept shift. Files larger than memory are sampled.
    """
    from steelyard.app import commands
    from steelyard.app.cluster import connected

    with _errors(), connected(cluster) as client:
        progress = progress_bar(ROWS, hidden=quiet or json_output)
        findings, notes = commands.diagnose_files(
            source, target, label, seed, progress, out, overwrite, missing or (), client
        )
        if json_output:
            typer.echo(json.dumps({**findings.to_dict(), "notes": notes}))
        elif not quiet:
            commands.show_findings(findings, Console())
            commands.show_notes(notes, Console(stderr=True))
        else:
            typer.echo(findings.recommendation)
        if out is not None and not (json_output or quiet):
            Console().print(f"Report: {escape(str(out / 'report.html'))}", highlight=False, soft_wrap=True)


@app.command()
def weigh(
    source: Source,
    target: TargetFile,
    out: Annotated[Path, typer.Option(help="Where to write the weights, one per source row.")] = Path("weights.csv"),
    overwrite: Overwrite = False,
    label: Label = None,
    missing: Missing = None,
    eta: Annotated[
        float,
        typer.Option(min=0, max=1, help="0: the estimator that fits the table (AutoRatio); above: RuLSIF of this eta."),
    ] = 0.0,
    seed: Seed = 0,
    cluster: Cluster = None,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate one importance weight per source row; the weights go into a CSV file.

    Files of more than 100,000 rows are read block by block, in bounded memory; their encoded rows wait in a temporary
    file (8 bytes for each row and column of numbers).
    """
    from steelyard.app import commands, weighing
    from steelyard.app.cluster import connected

    with _errors(), connected(cluster) as client:
        progress = progress_bar(ROWS, hidden=quiet or json_output)
        summary = weighing.weigh_files(
            source, target, label, eta, seed, out, progress, overwrite, missing or (), client
        )
        if json_output:
            typer.echo(json.dumps(summary))
        elif not quiet:
            Console().print(
                f"{summary['rows']:,} weights by {summary['ratio']} in {escape(str(out))}: effective sample size "
                f"{summary['effective_sample_size']:,.0f}, largest weight {summary['largest']:.2f}. Mean difference of "
                f"the columns to the target {summary['mean_difference']['before']:.3f} standard deviations, weighted "
                f"{summary['mean_difference']['after']:.3f}.",
                highlight=False,
                soft_wrap=True,
            )
            commands.show_notes(summary["notes"], Console(stderr=True))


@app.command()
def fit(
    source: Source,
    target: TargetFile,
    label: Annotated[str, typer.Option(help="Name of the label column in the source.")],
    out: Annotated[Path, typer.Option(help="Folder for the model, the weights, the predictions and the report.")],
    task: Annotated[
        str, typer.Option(help="auto, regression or classification; auto takes text and few whole numbers as classes.")
    ] = "auto",
    learner: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A learner to try: linear, RBF, boosted-trees, forest or one-step; may be repeated. Default: all.",
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Try linear and boosted trees alone.")] = False,
    missing: Missing = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    cluster: Cluster = None,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Diagnose the shift, combine learners for the target, and write a report.

    Five learners (linear, RBF, boosted trees, forest, one-step) predict held-out rows, without and with importance
    weights. Their combination, whose shares are fitted for the target, is kept unless a single learner is better by
    more than two standard errors in importance-weighted cross-validation. The learner that is best on the source
    stays beside it for comparison. Labels in the target file are never used here: see steelyard evaluate.

    Writes model.skops, model.json, weights.csv, predictions.csv, findings.json and report.html, and run.json, by which
    a later fit knows the folder as its own and may replace them.
    """
    from steelyard.app import commands, workflow
    from steelyard.app.cluster import connected
    from steelyard.errors import ParameterError
    from steelyard.stacking.learners import FAST

    with _errors(), connected(cluster):
        progress = progress_bar(ROWS, hidden=quiet or json_output)
        if fast and learner:
            raise ParameterError("--fast chooses the learners; give either --fast or --learner.")
        learners = FAST if fast else learner or ()
        run = commands.fit_files(source, target, label, task, seed, out, progress, overwrite, missing or (), learners)
        if json_output:
            typer.echo(json.dumps({**workflow.run_dict(run.findings, run.comparison), "notes": run.notes}))
        elif quiet:
            typer.echo(run.model.about["method"])
        else:
            commands.show_run(run, out, Console())


@app.command()
def predict(
    model: Model,
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the columns of the source.")],
    out: Annotated[Path, typer.Option(help="Where to write the predictions.")] = Path("predictions.csv"),
    missing: Missing = None,
    overwrite: Overwrite = False,
    cluster: Cluster = None,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict new rows with a model that steelyard fit saved."""
    from steelyard.app import commands
    from steelyard.app.cluster import connected

    with _errors(), connected(cluster) as client:
        progress = progress_bar(ROWS, hidden=quiet or json_output)
        summary = commands.predict_file(model, table, out, progress, overwrite, missing or (), client)
        if json_output:
            typer.echo(json.dumps(summary))
        elif not quiet:
            Console().print(
                f"{summary['rows']:,} predictions of {summary['method']} in {escape(str(out))}.",
                highlight=False,
                soft_wrap=True,
            )
            commands.show_notes(summary["notes"], Console(stderr=True))


@app.command()
def evaluate(
    model: Model,
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the label column.")],
    missing: Missing = None,
    seed: Seed = 0,
    json_output: Json = False,
    quiet: Quiet = False,
) -> None:
    """Target labels have arrived: how good is the model, was weighting worth it, was the estimate right?"""
    from steelyard.app import commands

    with _errors():
        progress = progress_bar(ROWS, hidden=quiet or json_output)
        found = commands.evaluate_file(model, table, seed, progress, missing or ())
        if json_output:
            typer.echo(json.dumps(found))
        else:
            commands.show_evaluation(found, Console())
            if not quiet:
                commands.show_notes(found["notes"], Console(stderr=True))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the two tables and everything steelyard fit writes.")] = (
        Path("steelyard-demo")
    ),
    overwrite: Overwrite = False,
    seed: Seed = 0,
) -> None:
    """`steelyard fit` on embedded data: a courier's deliveries in town to learn from, the suburbs to predict."""
    from steelyard.app import demo as show

    with _errors():
        show.run(out, seed, Console(), progress_bar(ROWS), overwrite)


@contextmanager
def _errors() -> Iterator[None]:
    """One line and exit code 2 for what the user can mend."""
    from steelyard.errors import SteelyardError

    try:
        yield
    except SteelyardError as error:
        # A column name may have line ends; an error is one line all the same.
        line = " ".join(str(error).split())
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(line)}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app()
