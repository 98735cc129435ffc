"""The phrases of the report and the commands, made from the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.app.comparison import Comparison
    from steelyard.diagnostics.findings import Findings
    from steelyard.model_selection.bootstrap import Interval


HEADLINES = {
    "no weighting": "No shift was found",
    "flattened": "A mild shift: flattened weights correct it",
    "relative": "A strong shift: use relative (bounded) weights",
    "collect data": "Source and target hardly overlap: collect source data near the target",
    "not by x": "Weighting by x does not help",
}


def headline(findings: Findings, comparison: Comparison | None) -> str:
    """The verdict in one line."""
    if comparison is None:
        return HEADLINES[findings.recommendation]
    chosen = comparison.methods[comparison.chosen]
    if comparison.kept_plain:
        return f"Keep the plain model ({chosen.learner})"
    return f"Use {chosen.name}"


def kind(findings: Findings) -> str:
    """What was diagnosed, in a few words."""
    named = {"none": "No shift", "disjoint": "Source and target do not overlap"}
    advice = {
        "no weighting": "weighting would only add noise",
        "flattened": "flattened weights are advised",
        "relative": "relative (bounded) weights or one-step are advised",
        "collect data": "labeled data near the target are needed",
        "not by x": "weighting by x does not help",
    }
    return f"{named.get(findings.kind, findings.kind.capitalize() + ' shift')}: {advice[findings.recommendation]}."


def score(interval: Interval, measure: str) -> str:
    """Accuracy, or the root of the squared error, with its interval if it has one."""

    def shown(value: float) -> str:
        return f"{min(max(100 * value, 0), 100):.1f}" if measure == "accuracy" else f"{max(value, 0) ** 0.5:.3g}"

    unit = "%" if measure == "accuracy" else ""
    if interval.low is None or interval.high is None:
        return f"{shown(interval.mean)}{unit}"
    return f"{shown(interval.mean)}{unit} ({shown(interval.low)} to {shown(interval.high)})"


def score_name(measure: str) -> str:
    """What `score` writes."""
    return "accuracy" if measure == "accuracy" else "root mean squared error"


def scores(comparison: Comparison) -> list[tuple[str, str]]:
    """How good the models are expected to be, where."""
    found = comparison.performance
    shown = [("source", "the plain model on the source"), ("plain", "the plain model on the target")]
    if not comparison.kept_plain:
        shown.append(("chosen", "the chosen model on the target"))
    rough = ", roughly" if comparison.rough else " (95 %, within the source's support)"
    return [
        (name + (" (95 %)" if key == "source" else rough), score(found[key], comparison.measure))
        for key, name in shown
        if key in found
    ]
