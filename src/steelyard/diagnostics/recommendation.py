"""The kind of shift and the recommendation, from the numbers that the tests gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.diagnostics.columns import ColumnShift
    from steelyard.diagnostics.findings import LabelFindings

LEVEL = 0.05
MOSTLY_UNCOVERED = 0.5  # share of target rows outside the source's support above which no weighting helps
STRONG_SHIFT = 0.6  # effective sample size as a share of n below which a shift counts as strong
HEAVY_TAIL = 0.7  # Pareto k above which the mean of the weights is unreliable
OUTSIDE_SUPPORT = 0.05  # share of target rows outside the source's support above which the density ratio is unbounded


def kind_of_shift(shift_p: float, uncovered: float, no_overlap: bool, labels: LabelFindings | None) -> str:
    """The name of the shift, by what the tests reject at 5 %."""
    if no_overlap or uncovered > MOSTLY_UNCOVERED:
        return "disjoint"
    if labels is not None:
        # Label shift shows in x as well; concept shift need not.
        both = max(labels.label_p, labels.concept_p, shift_p) < LEVEL
        if both and labels.class_conditional_p >= LEVEL:
            return "label"
        if labels.concept_p < LEVEL:
            return "concept"
    return "covariate" if shift_p < LEVEL else "none"


def recommend(
    kind: str,
    shift_p: float,
    columns: tuple[ColumnShift, ...],
    uncovered: float,
    effective_share: float,
    tail: float,
    labels: LabelFindings | None,
) -> tuple[str, str]:
    """What to do, and why."""
    moved = [c.name for c in columns if c.p_value < LEVEL][:3]
    where = f" Most shifted: {', '.join(moved)}." if moved else ""
    if kind == "disjoint":
        return "collect data", (
            f"{uncovered:.0%} of the target rows lie outside the source's support, so no importance weights can "
            "represent the target. Collect labeled rows nearer to the target, or drop columns that differ by "
            f"construction.{where}"
        )
    if kind == "label" and labels is not None:
        return "not by x", (
            f"The labels are distributed differently (p = {labels.label_p:.2g}) while rows of the same label look "
            f"alike (p = {labels.class_conditional_p:.2g}): label shift. Weighting by x does not help; weight by the "
            "ratio of the label shares."
        )
    if kind == "concept" and labels is not None:
        return "not by x", (
            f"The same x has other labels in the target (p = {labels.concept_p:.2g}): concept shift. Weighting by x "
            "does not help; learn from labeled target rows."
        )
    if kind == "none":
        return "no weighting", (
            f"The tests find no difference between source and target (p = {shift_p:.2g}). Weighting would only add "
            "noise."
        )
    said = f"Source and target differ (p = {shift_p:.2g}); the effective sample size is {effective_share:.0%} of n."
    if tail > HEAVY_TAIL or uncovered > OUTSIDE_SUPPORT:
        return "relative", (
            f"{said} {uncovered:.0%} of the target rows lie outside the source's support (Pareto k = {tail:.2f}), "
            f"where the density ratio has no bound: use the relative density ratio.{where}"
        )
    if effective_share < STRONG_SHIFT:
        return "relative", f"{said} That is a strong shift: use the relative density ratio, or one-step.{where}"
    return "flattened", f"{said} That is a mild shift: flattened weights correct it at little cost.{where}"
