"""Is any data set made worse? The choice of `steelyard fit` on the nine data sets of table 2, against ERM."""

from __future__ import annotations

from functools import partial

import numpy as np

from experiments.benchmark import NATURAL, Data, names, read_protocol, split
from experiments.engine.cells import Cell, Experiment, Named, Setting, Settings, stream
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.summary import LEVEL, Summary, paired_p_value
from experiments.kernel_drawing import draw_changes
from steelyard._typing import FloatArray
from steelyard.app.fitting import fit_best
from steelyard.diagnostics import diagnose
from steelyard.target import Target

ERM, CHOSEN = Named("ERM"), Named("chosen")
WORST = 1.02


def compute(cell: Cell[Data, Named], settings: Settings, seed: int) -> float:
    """Mean squared error, or percentage of wrong classes, on target rows that were in no fit."""
    draw = split(cell.data, cell.trial, settings, seed)
    classify = cell.data.name not in NATURAL
    fit_seed = int(stream(seed, "choice", cell.data.name, cell.trial).integers(2**31))
    findings = diagnose(draw.X, target=Target(draw.X_target), random_state=fit_seed)
    fitted = fit_best(
        draw.X,
        draw.y,
        draw.X_target,
        classify=classify,
        shifted=findings.kind != "none",
        random_state=fit_seed,
    )
    model = fitted.plain_model if cell.method == ERM else fitted.model
    predicted = model.predict(draw.X_test)
    if classify:
        return float(100 * np.mean(predicted != draw.y_test))
    return float(np.mean(np.square(predicted - draw.y_test)))


def _pairs(summary: Summary[Data, Named]) -> dict[str, tuple[FloatArray, FloatArray]]:
    data = [Data(name) for name in names(summary.settings)]
    return {each.label: (summary.errors[each, CHOSEN], summary.errors[each, ERM]) for each in data}


def sections(summary: Summary[Data, Named]) -> list[Section]:
    """Error of the chosen fit over that of ERM for each data set, and how often ERM was kept."""
    lines, better, worse, kept = [], 0, [], []
    for name, (chosen, plain) in _pairs(summary).items():
        ratio, p = float(chosen.mean() / plain.mean()), paired_p_value(chosen, plain)
        lower = ratio < 1 and p < LEVEL
        better += lower
        if ratio > WORST:
            worse.append(name)
        kept.append(float(np.mean(np.isclose(chosen, plain, rtol=1e-9))))
        entries = [name, f"{plain.mean():.4g}", f"{chosen.mean():.4g}", f"{ratio:.3f}", f"{p:.2g}", f"{kept[-1]:.0%}"]
        lines.append([Entry(text, lower and i == 3) for i, text in enumerate(entries)])
    note = (
        f"Mean over {summary.rows[0].trials} trials: squared error (upper four), % wrong (lower five). Bold: "
        f"significantly below ERM (paired t-test, 5 %): {better} of {len(lines)}. Above {WORST} times ERM: "
        f"{', '.join(worse) or 'none'}. Kept: share of trials in which the two errors are equal, because the plain fit "
        f"stayed (or predicted the same); {np.mean(kept):.0%} over all sets. ERM is the learner of three that is best "
        "on the source without weights; part of the gain comes from choosing another learner for the target."
    )
    header = ["data", ERM.label, CHOSEN.label, "ratio", "p", "ERM kept"]
    return [Section("The choice of `steelyard fit` beside ERM", header, lines, note)]


def pictures(summary: Summary[Data, Named]) -> list[Picture]:
    """The change of the error on each data set."""
    label = "change of the mean target error against ERM, % (bars: 95 %)"
    title = "The choice of steelyard fit: left of zero is better"
    return [Picture("changes", partial(draw_changes, _pairs(summary), label, title))]


EXPERIMENT = Experiment(
    name="choice",
    title="The choice of `steelyard fit` beside ERM",
    explains=(
        "Not a table of the survey. `steelyard fit` on the nine data sets of table 2, drawn as there: its choice among "
        "plain, flattened, relative and one-step fits, by importance-weighted cross-validation with one standard error "
        "of the paired difference in favor of ERM, against ERM itself. No target label enters the choice."
    ),
    settings={"protocol": Setting("benchmark.toml", "file with sizes, sides and directions")},
    data_class=Data,
    method_class=Named,
    data=lambda settings: [Data(name) for name in names(settings)],
    methods=lambda data: [ERM, CHOSEN],
    compute=compute,
    sections=sections,
    pictures=pictures,
    prepare=read_protocol,
)
