"""Table 1: the toy regression problem (section 5.3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from experiments.engine.cells import Cell, Experiment, Setting, Settings, stream
from experiments.engine.drawing import draw_toy
from experiments.engine.page import Entry, Section
from experiments.engine.summary import LEVEL, Row, Summary, best_and_comparable, paired_p_value
from experiments.kernel_methods import OPEN_SETTINGS, EIWERMRegressor, ERMRegressor, RIWERMRegressor, estimator
from steelyard._typing import FloatArray
from steelyard.datasets import sinc_toy
from steelyard.one_step.estimators import OneStepRegressor
from steelyard.target import Target

NOISE = 0.01
CLASSES: dict[str, Any] = {
    "ERM": ERMRegressor,
    "EIWERM": EIWERMRegressor,
    "RIWERM": RIWERMRegressor,
    "one-step": OneStepRegressor,
}
LOSSES = {"squared": "squared", "Tukey": "tukey"}
OFF = "one-step, coupling off"
TWO_STEP = "uLSIF + IWERM at one-step's settings"
MAIN = [f"{method} ({loss})" for method in CLASSES for loss in LOSSES]
CONTROLS = [f"{method} ({loss})" for method in (OFF, TWO_STEP) for loss in LOSSES]
# How the order of the methods depends on what the survey leaves open: what each variant changes.
VARIANTS: dict[str, dict[str, Any]] = {
    "held-out rows weighted by the plain ratio": {"judge_eta": 0.0},
    "held-out rows not weighted": {"judge_eta": 1.0},
    "least held-out loss": {"rule": "best"},
    "least held-out loss, plain ratio": {"rule": "best", "judge_eta": 0.0},
    "μ up to 100": {"largest_reg": 100.0},
    "sin(x)/x": {"pi": False},
    "y not scaled": {"scale_y": False},
    "Tukey, residual scale 1": {"residual_scale": 1.0},
}


def methods(data: str) -> list[str]:
    """The rows of the table, and those of the tables of variants."""
    if data == "toy":
        return MAIN + CONTROLS
    loss = "Tukey" if data.startswith("Tukey") else "squared"
    return [f"{method} ({loss})" for method in CLASSES]


def compute(cell: Cell, settings: Settings, seed: int) -> float:
    """Mean squared error on the target, noise included."""
    change = VARIANTS.get(cell.data, {})
    pi = bool(change.get("pi", settings["pi"]))
    draw = stream(seed, "toy", cell.trial)  # every method and variant sees the same rows
    X, y, X_target, _ = sinc_toy(pi=pi, random_state=draw)
    fit_seed = int(stream(seed, "toy", cell.trial, "fit").integers(2**31))  # and draws the same centres and folds
    model = build(cell.method, {**settings, **change}, fit_seed).fit(X, y, target=Target(X_target))
    if cell.method.startswith(TWO_STEP):
        chosen = {name: getattr(model, f"{name}_") for name in ("reg", "ratio_reg", "width", "ratio_width")}
        model.set_params(**chosen, loss_bound=np.inf).fit(X, y, target=Target(X_target))
    return target_error(model, pi, int(settings["points"]))


def build(method: str, options: Settings, random_state: int) -> Any:
    """The estimator of a row, not yet fitted."""
    name, loss = method.removesuffix(")").split(" (")
    scale = options["residual_scale"]
    chosen = {"loss_bound": np.inf} if name == OFF else {}
    return estimator(
        CLASSES.get(name, OneStepRegressor),
        options,
        loss=LOSSES[loss],
        residual_scale=scale if scale == "robust" else float(scale),
        scale_y=bool(options["scale_y"]),
        random_state=random_state,
        **chosen,
    )


def target_error(model: Any, pi: bool, n_points: int) -> float:
    """∫ (f − f*)² p_target + noise, by the mean over evenly spread quantiles of the target."""
    x = norm.ppf((np.arange(n_points) + 0.5) / n_points, 2, 0.25)
    truth = np.sinc(x if pi else x / np.pi)
    return float(np.mean(np.square(model.predict(x[:, None]) - truth)) + NOISE)


def sections(summary: Summary) -> list[Section]:
    """The table beside the survey's, the controls, and how the order depends on what the survey leaves open."""
    header = ["method", "MSE (sd)", "median", "CPU s", "survey: MSE (sd)", "survey: s"]
    main = Section(
        "Table 1: mean squared error on the target",
        header,
        [_line(row) for row in summary.of("toy")],
        "Bold: best, or not significantly worse (paired t-test, 5 %); the noise alone is 0.0100. The last four rows "
        f"are controls and do not compete. {_verdict(summary)}",
    )
    others = Section(
        "The same under other choices, MSE (sd)",
        ["choice", *CLASSES],
        [_choice(summary, "toy", "as above"), *(_choice(summary, data, data) for data in VARIANTS)],
        "Squared loss unless said; bold: best of the row's four, or not significantly worse. As above: held-out rows "
        "weighted by RuLSIF at η = ½, one-standard-error rule, μ up to 1.",
    )
    return [main, others]


def _verdict(summary: Summary) -> str:
    """Whether the coupling is what sets one-step apart."""
    on, off = (summary.errors["toy", f"{name} (squared)"] for name in ("one-step", OFF))
    p, change = paired_p_value(on, off), on.mean() - off.mean()
    said = f"With the coupling switched off, one-step (squared) changes by {-change:+.5f} (p = {p:.2g})"
    if p < LEVEL:
        return said + ": the coupling acts."
    return said + ": what sets it apart from EIWERM and RIWERM here is how λ and μ are chosen, not the coupling."


def _line(row: Row) -> list[Entry]:
    paper = row.paper
    theirs = ["", ""] if paper is None else [f"{paper.mean:.4f} ({paper.sd:.4f})", f"{paper.seconds:.2f}"]
    ours = Entry(f"{row.mean:.4f} ({row.sd:.4f})", row.best)
    return [Entry(row.method), ours, Entry(f"{row.median:.4f}"), Entry(f"{row.seconds:.2f}"), *map(Entry, theirs)]


def _choice(summary: Summary, data: str, name: str) -> list[Entry]:
    loss = "Tukey" if name.startswith("Tukey") else "squared"
    wanted = [f"{method} ({loss})" for method in CLASSES]
    if data == "toy":  # best of the four, not of the eight
        marks = best_and_comparable({m: summary.errors["toy", m] for m in wanted})
        best = {m: marks[m][0] for m in wanted}
    else:
        best = {m: summary.row(data, m).best for m in wanted}
    rows = [summary.row(data, m) for m in wanted]
    return [Entry(name), *(Entry(f"{row.mean:.4f} ({row.sd:.4f})", best[row.method]) for row in rows)]


def figures(summary: Summary, folder: Path) -> list[Path]:
    """The table as a picture; Tukey's loss, the two densities and the fitted curves of one trial."""
    return draw_toy(summary, folder, curves(summary.settings))


def curves(settings: Settings) -> dict[str, FloatArray]:
    """True and fitted functions of trial 0 at seed 0, and its rows."""
    pi = bool(settings["pi"])
    X, y, X_target, _ = sinc_toy(pi=pi, random_state=stream(0, "toy", 0))
    x = np.linspace(-0.3, 3.0, 300)
    found = {"x": x, "X": X[:, 0], "y": y, "truth": np.sinc(x if pi else x / np.pi)}
    seed = int(stream(0, "toy", 0, "fit").integers(2**31))
    for method in MAIN:
        if "squared" in method or "one-step" in method:
            model = build(method, settings, seed).fit(X, y, target=Target(X_target))
            found[method] = model.predict(x[:, None])
    return found


EXPERIMENT = Experiment(
    name="toy",
    file="table1_toy",
    title="Table 1: toy regression under covariate shift",
    explains=(
        "Section 5.3.1: 150 labelled source rows N(1, ½²), 150 unlabelled target rows N(2, ¼²), y = sinc(x) + noise of "
        "standard deviation 0.1; ERM, EIWERM, RIWERM and one-step, each with squared and with Tukey's loss. All rows "
        "have the same basis (50 Gaussians around target rows), μ grid, folds and selection: 5 folds, held-out rows "
        "weighted by RuLSIF, one-standard-error rule toward the greater μ."
    ),
    settings={
        **OPEN_SETTINGS,
        "pi": Setting(True, "sinc is sin(πx)/(πx); no: sin(x)/x"),
        "points": Setting(2000, "target points at which the error is taken"),
        "scale_y": Setting(True, "whether y is centred and scaled by the source"),
        "residual_scale": Setting("robust", "what Tukey's loss measures residuals in; or a number"),
    },
    data=lambda settings: ["toy", *VARIANTS],
    methods=methods,
    compute=compute,
    sections=sections,
    figures=figures,
    controls=frozenset(CONTROLS),
)
