"""The kind of shift and the recommendation, from the numbers that the tests gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steelyard._numerics.written import written_p, written_share

if TYPE_CHECKING:
    from steelyard.diagnostics.columns import ColumnShift
    from steelyard.diagnostics.findings import LabelFindings

LEVEL = 0.05
MOSTLY_UNCOVERED = 0.5  # share of target rows outside the source's support above which no weighting helps
ALL_UNCOVERED = 0.9  # share above which nothing is known about the score on the target
STRONG_SHIFT = 0.6  # effective sample size as a share of n below which a shift counts as strong
UNIFORM = 0.99  # effective sample size as a share of n above which weights correct next to nothing
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
) -> tuple[str, str, str]:
    """The recommendation, what was found, and what to do about it.

    What was found holds for every reader; what to do is for the reader of a diagnosis, because a fit has decided.
    """
    moved = [c.name for c in columns if c.p_value < LEVEL][:3]
    where = f" Most shifted: {', '.join(moved)}." if moved else ""
    outside = f"{written_share(uncovered)} of the target rows lie outside the source's support: no source row is near."
    if kind == "disjoint":
        found = outside if uncovered > MOSTLY_UNCOVERED else "No source row is enough like the target rows."
        advice = "No importance weights can represent the target. Collect labeled rows near it"
        return "collect data", f"{found}{where}", f"{advice}, or drop columns that differ by construction."
    if kind == "label" and labels is not None:
        found = f"The labels are distributed differently ({written_p(labels.label_p)}), while rows of the same label"
        advice = "Weighting by x does not help; weight by the ratio of the label shares."
        return "not by x", f"{found} look alike ({written_p(labels.class_conditional_p)}).", advice
    if kind == "concept" and labels is not None:
        found = f"The same x has other labels in the target ({written_p(labels.concept_p)})."
        if shift_p < LEVEL:
            found += f" The distribution of x differs as well ({written_p(shift_p)}).{where}"
        return "not by x", found, "Weighting by x does not help; learn from labeled target rows."
    if kind == "none":
        found = f"The tests find no difference between source and target ({written_p(shift_p)})."
        return "no weighting", found, "Fit without weights: they would only add noise."
    found = f"Source and target differ ({written_p(shift_p)}).{where}"
    if effective_share > UNIFORM and uncovered <= OUTSIDE_SUPPORT:
        advice = "Fit without weights: those that can be estimated from these rows are all but uniform."
        return "no weighting", found, advice
    bounded = "relative weights, which are bounded"
    if uncovered > OUTSIDE_SUPPORT:
        advice = f"No weights can represent those rows; for the others use {bounded}, or one-step."
        return "relative", f"{found} {outside}", advice
    if tail > HEAVY_TAIL:
        return "relative", found, f"A few rows carry most of the weight: use {bounded}."
    if effective_share < STRONG_SHIFT:
        return "relative", found, f"The shift is strong: use {bounded}, or one-step."
    return "flattened", found, "The shift is mild: flattened weights correct it at little cost."
