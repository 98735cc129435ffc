"""Does `steelyard fit` beat what a user would have picked? The nine data sets of table 2, and the promised scores."""

from __future__ import annotations

import csv
import json
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.benchmark import NATURAL, Data, Split, names, read_protocol, split
from experiments.engine.cells import Cell, Experiment, Named, Setting, Settings, stream
from experiments.engine.page import Entry, Section
from experiments.engine.pictures import Picture
from experiments.engine.summary import LEVEL, Summary, paired_p_value
from experiments.kernel_drawing import draw_changes
from steelyard._typing import FloatArray
from steelyard.app.candidates import EQUAL_SHARES, STACKING, WEIGHTED_STACKING, Candidate
from steelyard.app.fitting import Compared, compare_methods
from steelyard.diagnostics import diagnose
from steelyard.model_selection.bootstrap import Interval
from steelyard.stacking.held_out import outputs
from steelyard.stacking.learners import ONE_STEP
from steelyard.target import Target

PICK, FIT = Named("pick"), Named("fit")
PLAIN_MEAN = "plain mean"  # what the tables call the combination with equal shares
CONTROLS = [Named(name) for name in (PLAIN_MEAN, STACKING, WEIGHTED_STACKING, "weighted pick", ONE_STEP)]
ERRORS = [PICK, FIT, *CONTROLS]
GIVEN, COVERED = Named("interval given"), Named("interval covers")
BEFORE = Path(__file__).with_name("choice_before.csv")  # mean errors of `steelyard fit` before it combined learners


def compute(cell: Cell[Data, Named], settings: Settings, seed: int) -> float:
    """Mean squared error, or percentage of wrong classes, on target rows that were in no fit; or 1 for an interval."""
    return _figures(cell.data.name, cell.trial, seed, json.dumps(dict(settings), sort_keys=True))[cell.method.name]


@lru_cache(maxsize=4)
def _figures(name: str, trial: int, seed: int, settings: str) -> dict[str, float]:
    """All figures of a trial, from one comparison: its cells follow each other."""
    draw = split(Data(name), trial, json.loads(settings), seed)
    classify = name not in NATURAL
    fit_seed = int(stream(seed, "choice", name, trial).integers(2**31))
    findings = diagnose(draw.X, target=Target(draw.X_target), random_state=fit_seed)
    found = compare_methods(
        draw.X,
        draw.y,
        draw.X_target,
        classify=classify,
        shifted=findings.kind != "none",
        overlap=findings.kind != "disjoint",
        random_state=fit_seed,
    )
    errors, truth = _errors(found, draw), {}
    for method, index in ((PICK, found.comparison.plain), (FIT, found.comparison.chosen)):
        truth[method.name] = errors[found.candidates[index].name]
    single = [m for m in found.comparison.methods if not m.shares and m.name != ONE_STEP]
    truth["weighted pick"] = errors[min(single, key=lambda m: m.loss).name]
    truth[PLAIN_MEAN] = errors[EQUAL_SHARES]
    for name_, instead in ((STACKING, ""), (WEIGHTED_STACKING, STACKING), (ONE_STEP, STACKING)):
        truth[name_] = errors[name_ if name_ in errors else instead]
    promised = found.comparison.performance.get("chosen")
    given, covered = _promise(promised, truth[FIT.name], classify)
    return truth | {GIVEN.name: given, COVERED.name: covered}


def _errors(found: Compared, draw: Split) -> dict[str, float]:
    """Error of each method on the rows of the test; every learner is fitted once to all source rows."""
    data = found.data
    predictions = {
        part.learner.label: outputs(part.learner.fit(data), draw.X_test, data.classes)
        for candidate in found.candidates
        if not candidate.is_combination
        for part in candidate.parts
    }

    def error(candidate: Candidate) -> float:
        combined = np.asarray(sum(share * predictions[part.learner.label] for part, share in candidate.used))
        return _error(combined, draw.y_test, data.classes)

    return {candidate.name: error(candidate) for candidate in found.candidates}


def _error(predicted: FloatArray, truth: NDArray[Any], classes: NDArray[Any]) -> float:
    if len(classes):
        return float(100 * np.mean(classes[predicted.argmax(axis=1)] != truth))
    return float(np.mean(np.square(predicted[:, 0] - truth)))


def _promise(promised: Interval | None, error: float, classify: bool) -> tuple[float, float]:
    """Whether there is an interval, and whether it covers the error of the fit."""
    if promised is None or promised.low is None or promised.high is None:
        return 0.0, 0.0
    score = 1 - error / 100 if classify else error
    return 1.0, float(promised.low <= score <= promised.high)


def _before() -> dict[str, float]:
    with BEFORE.open(encoding="utf-8") as file:
        return {row["data"]: float(row["mean"]) for row in csv.DictReader(file)}


def sections(summary: Summary[Data, Named]) -> list[Section]:
    """Errors beside those of the pick, and how often the promised interval covered."""
    return [_beside_the_pick(summary), _promises(summary)]


def _beside_the_pick(summary: Summary[Data, Named]) -> Section:
    better: list[str] = []
    worse: list[str] = []
    lines, ratios, ahead, before = [], [], 0, _before()
    for each in [Data(name) for name in names(summary.settings)]:
        pick, fit = summary.errors[each, PICK], summary.errors[each, FIT]
        ratios.append(float(fit.mean() / pick.mean()))
        p = paired_p_value(fit, pick)
        (better if ratios[-1] < 1 else worse).extend([each.name] if p < LEVEL else [])
        ahead += fit.mean() < before[each.name]
        others = [summary.errors[each, method].mean() / pick.mean() for method in CONTROLS]
        figures = [f"{pick.mean():.4g}", f"{ratios[-1]:.3f}", f"{p:.2g}", *(f"{other:.3f}" for other in others)]
        figures.append(f"{fit.mean() / before[each.name]:.3f}")
        texts = [each.name, *figures]
        lines.append([Entry(text, i == 2 and p < LEVEL and ratios[-1] < 1) for i, text in enumerate(texts)])
    remark = (
        f"Mean over {summary.rows[0].trials} trials. Pick: the best of four learners (linear, RBF, boosted trees, "
        "forest) in cross-validation on the source; its squared error (upper four sets) or % wrong. All other columns "
        "are ratios of mean errors to the pick's; the last is that of the fit to `steelyard fit` as it was before it "
        "combined learners (trials 0 to 99). Weighted pick: the best single learner in importance-weighted "
        f"cross-validation. Geometric mean of the ratio of the fit: {np.exp(np.mean(np.log(ratios))):.3f}. "
        f"Significantly better than the pick (paired t-test, 5 %) on {len(better)} of {len(lines)} "
        f"({', '.join(better) or 'none'}), significantly worse on {len(worse)} ({', '.join(worse) or 'none'}); better "
        f"than before on {ahead}."
    )
    header = ["data", "pick", "fit", "p", *(method.label for method in CONTROLS), "fit / before"]
    return Section("`steelyard fit` beside the best learner in cross-validation", header, lines, remark)


def _promises(summary: Summary[Data, Named]) -> Section:
    data = [Data(name) for name in names(summary.settings)]
    lines = [_promise_line(summary, each.name, [each]) for each in data]
    lines.append(_promise_line(summary, "all", data))
    header = ["data", "interval given, %", "of these cover, %"]
    return Section("The promised score of the fit, 95 %", header, lines)


def _promise_line(summary: Summary[Data, Named], label: str, data: list[Data]) -> list[Entry]:
    given, covered = (
        float(np.mean(np.concatenate([summary.errors[each, method] for each in data]))) for method in (GIVEN, COVERED)
    )
    share = f"{100 * covered / given:.1f}" if given else "none given"
    return [Entry(label), Entry(f"{100 * given:.1f}"), Entry(share)]


def pictures(summary: Summary[Data, Named]) -> list[Picture]:
    """The change of the error on each data set."""
    data = [Data(name) for name in names(summary.settings)]
    pairs = {each.label: (summary.errors[each, FIT], summary.errors[each, PICK]) for each in data}
    label = "change of the mean target error against the pick, % (bars: 95 %)"
    title = "steelyard fit beside the best learner in cross-validation: left of zero is better"
    return [Picture("changes", partial(draw_changes, pairs, label, title))]


EXPERIMENT = Experiment(
    name="choice",
    title="`steelyard fit` beside what a user would have picked",
    explains=(
        "Not a table of the survey. `steelyard fit` on the nine data sets of table 2, drawn as there, beside the best "
        "of four learners in ordinary cross-validation, the combinations and one-step. No target label enters a fit, a "
        "choice or a promise. Where no shift was found or nothing overlaps, nothing is weighted, and the columns of "
        "weighted stacking and one-step are those of stacking."
    ),
    settings={"protocol": Setting("benchmark.toml", "file with sizes, sides and directions")},
    data_class=Data,
    method_class=Named,
    data=lambda settings: [Data(name) for name in names(settings)],
    methods=lambda data: [*ERRORS, GIVEN, COVERED],
    compute=compute,
    sections=sections,
    pictures=pictures,
    prepare=read_protocol,
)
