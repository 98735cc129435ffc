"""The phrases of the report and the commands, made from the numbers: what was done, what was found, what to expect.

A fit has decided, so its page says what was done and why, and gives no advice; a diagnosis gives the advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steelyard._numerics.written import written, written_share

if TYPE_CHECKING:
    from steelyard.app.comparison import ComparedMethod, Comparison
    from steelyard.diagnostics.findings import Findings
    from steelyard.model_selection.bootstrap import Interval

ONE_STEP = "one-step"  # the learner that adapts to the target by itself
LEAST_SHARE = 0.005  # of a member of a combination that is worth a word
ENOUGH_VALIDATION_ROWS = 30.0  # effective sample size of the validation weights below which a comparison is rough
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ADVICE = {
    "no weighting": "fit without weights",
    "flattened": "use flattened weights",
    "relative": "use relative weights",
    "collect data": "collect labeled data near the target",
    "not by x": "weighting by x does not help",
}


def kind(findings: Findings) -> str:
    """What was found, in a few words; covariate shift only where target labels have been tested."""
    if findings.kind == "covariate":
        return "Covariate shift" if findings.labels else "The columns have shifted"
    named = {"none": "No shift was found", "disjoint": "Source and target hardly overlap"}
    return named.get(findings.kind, f"{findings.kind.capitalize()} shift")


def unseen(findings: Findings) -> str:
    """Which kinds of shift the tests cannot see or tell apart without target labels."""
    if findings.labels is not None:
        return ""
    concept = "a change of the label given the row (concept shift) cannot be seen at all."
    if findings.kind != "covariate":
        return f"Without target labels {concept}"
    return f"Without target labels, covariate shift and label shift cannot be told apart, and {concept}"


def headline(findings: Findings, comparison: Comparison | None) -> str:
    """The verdict in one line: of a fit what was done, of a diagnosis what was found and what to do."""
    if comparison is None:
        return f"{kind(findings)}: {ADVICE[findings.recommendation]}"
    chosen = comparison.methods[comparison.chosen]
    if comparison.kept_plain:
        return f"Keep the plain model ({chosen.learner})"
    weighted = "weighted for the target" if comparison.weights_used else "without weights"
    if not chosen.shares:
        return f"{chosen.learner[:1].upper()}{chosen.learner[1:]}, {weighted}"
    n_members, n_adapted = len(chosen.shares), len(comparison.adapted_members)
    if comparison.weights_used and n_adapted < n_members:
        weighted = f"{_count(n_adapted)} of them {weighted}" if n_adapted else "its shares chosen for the target"
    return f"A combination of {_count(n_members)} learners, {weighted}"


def _count(n: int) -> str:
    return COUNTS[n] if n < len(COUNTS) else str(n)


def error_name(comparison: Comparison) -> str:
    """What the errors of the methods are."""
    return "Brier score" if comparison.classes else "squared error"


def two_estimates(findings: Findings, comparison: Comparison) -> str:
    """Why the errors of the methods are not the expected scores: both are estimates for the target, made differently.

    Empty where there is only one of the two.
    """
    if compared_domain(findings, comparison) == "source" or "plain" not in comparison.performance:
        return ""
    return (
        f"Each {error_name(comparison)} is estimated by importance-weighted cross-validation; the expected "
        f"{score_name(comparison.measure)} is estimated in another way, which also allows for rows unlike the source."
    )


def weights_file(comparison: Comparison) -> str:
    """What weights.csv holds, and what of the chosen model is fitted with it."""
    power = comparison.flattening
    if power is None and not comparison.weights_used:
        return (
            "Source and target do not overlap, so there are no importance weights: in weights.csv every row weighs 1."
        )
    if power is None:
        return "weights.csv holds the weights that one-step found for itself; they are not flattened."
    if not comparison.weights_used:
        return (
            "weights.csv holds the estimated importance weights, not flattened; they are not used by the chosen model."
        )
    return (
        f"weights.csv holds the estimated importance weights, flattened (to the power {power:g}) and scaled to mean "
        f"one; steelyard weigh does not flatten them. {_fitted_with_weights(comparison)}"
    )


def _fitted_with_weights(comparison: Comparison) -> str:
    """Which parts of the chosen model are fitted with the weights of weights.csv."""
    members = comparison.methods[comparison.chosen].shares
    if not members:
        return "The chosen model is fitted with them."
    weighted = [name.removesuffix(", weighted") for name in comparison.adapted_members if name != ONE_STEP]
    alone = " One-step, a member, finds weights of its own." if ONE_STEP in comparison.adapted_members else ""
    if not weighted:
        return f"The shares of the combination are fitted with them, its members are not.{alone}"
    which = f"its members {', '.join(weighted)}"
    if len(weighted) < 2:
        which = f"its member {weighted[0]}"
    if len(weighted) == len(members):
        which = "all its members"
    return f"Fitted with them are the shares of the combination and {which}.{alone}"


def compared_domain(findings: Findings, comparison: Comparison) -> str:
    """The domain that the errors of the methods are estimated for; the source without a shift, or without overlap."""
    return "target" if comparison.validation_sample_size and findings.kind != "none" else "source"


def outcome(findings: Findings, comparison: Comparison) -> str:
    """Why a fit did what it did, and how much better that is expected to be."""
    no_overlap = findings.kind == "disjoint"
    said = []
    if no_overlap:
        said.append("No importance weights can represent the target, so the model is fitted without weights.")
        if "plain" in comparison.performance:
            said.append("The scores expected on the target are little more than a guess.")
        else:
            said.append("How good it is there cannot be known from these tables.")
    elif findings.kind == "none" and not comparison.weights_used:
        said.append("Weights would only add noise, so none are used.")
    chosen, plain = (comparison.methods[i] for i in (comparison.chosen, comparison.plain))
    if not comparison.kept_plain:
        said.append(_gain(chosen, plain, error_name(comparison), compared_domain(findings, comparison)))
    elif no_overlap or findings.kind == "none":
        said.append("The plain model is the learner with the least error on held-out source rows.")
    else:
        said.append("On held-out rows no other method was clearly better for the target, so the plain model is kept.")
    if no_overlap:
        said.append("Collect labeled data near the target, or drop columns that differ by construction.")
    return " ".join(said)


def _gain(chosen: ComparedMethod, plain: ComparedMethod, name: str, domain: str) -> str:
    share = chosen.gain / plain.loss if plain.loss > 0 else 0.0
    its = f"Its estimated {name} on the {domain} is"
    than = f"that of the plain model ({plain.learner}), the single learner that is best on source rows"
    if abs(share) < LEAST_SHARE:
        return f"{its} about {than}."
    by = f"{written_share(abs(share))} {'lower' if share > 0 else 'higher'}"
    said = f"{its} {by} than {than}"
    if abs(chosen.gain) <= 1.96 * chosen.gain_error:
        return f"{said}; chance could explain a difference of that size."
    return f"{said}."


def drift(findings: Findings) -> str:
    """How many of the columns drifted, and what that means."""
    n_drifted, n_columns = sum(column.drifted for column in findings.columns), len(findings.columns)
    if n_columns == 1:
        seen = "The only column drifted" if n_drifted else "The only column did not drift"
    else:
        seen = f"Drift is seen in {n_drifted or 'none'} of {n_columns} columns"
    if n_drifted or not findings.x_shifted:
        return f"{seen}."
    return f"{seen}: the difference that the tests find is small in each column, or lies in how columns go together."


def score(interval: Interval, measure: str) -> str:
    """Accuracy, or the root of the squared error, with its interval if it has one."""
    if interval.low is None or interval.high is None:
        return one_score(interval.mean, measure)
    mean, low, high = (one_score(value, measure) for value in (interval.mean, interval.low, interval.high))
    return f"{mean} ({low} to {high})"


def one_score(value: float, measure: str) -> str:
    """A mean of right and wrong as a percentage, a mean squared error as its root."""
    return f"{min(max(100 * value, 0), 100):.1f}%" if measure == "accuracy" else written(max(value, 0) ** 0.5)


def score_name(measure: str) -> str:
    """What `score` writes."""
    return "accuracy" if measure == "accuracy" else "root mean squared error"


def scores(findings: Findings, comparison: Comparison) -> list[tuple[str, str, str]]:
    """How good the models are expected to be: which model where, the score, and what to know about it."""
    shown = {"source": "the plain model on the source", "plain": "the plain model on the target"}
    if not comparison.kept_plain:
        shown["chosen"] = "the chosen model on the target"
    hardly = findings.kind == "disjoint" or not comparison.validation_sample_size
    found = []
    for key, name in shown.items():
        expected = comparison.performance.get(key)
        if expected is None:
            value, about = "unknown", "it cannot be estimated from these rows"
            if hardly and key != "source":
                about = "source and target hardly overlap"
        else:
            value, about = score(expected, comparison.measure), "without an interval: too few rows"
            if expected.low is not None and expected.high is not None:
                about = "95% interval" + (", allowing for rows unlike the source" if key != "source" else "")
            elif key != "source" and comparison.rough:
                about = "without an interval: few source rows are like the target, and the number is likely too good"
        found.append((name, value, about))
    return found


def shares(method: ComparedMethod) -> str:
    """The members of a combination with their shares."""
    return ", ".join(f"{name} {written_share(share)}" for name, share in method.shares if share >= LEAST_SHARE)


def promise(found: Interval, promised: Interval | None, measure: str) -> str:
    """Whether the score that a fit promised for the target held, and by how much it was off."""
    if promised is None:
        return "The fit promised no score on the target, because it could not be estimated."
    told, seen = one_score(promised.mean, measure), one_score(found.mean, measure)
    difference = found.mean - promised.mean
    if measure == "accuracy":
        off = f"{abs(100 * difference):.1f} points"
    else:
        off = written(abs(max(found.mean, 0) ** 0.5 - max(promised.mean, 0) ** 0.5))
    worse = (difference < 0) == (measure == "accuracy")
    off = "just as expected" if told == seen else f"{off} {'worse' if worse else 'better'} than the expected {told}"
    if promised.low is None or promised.high is None:
        return f"The fit promised {told} without an interval; {seen} is {off}."
    ends = f"{one_score(promised.low, measure)} to {one_score(promised.high, measure)}"
    if promised.low <= found.mean <= promised.high:
        return f"The promise held: {seen} lies within the promised {ends} and is {off}."
    said = f"{seen} lies outside the promised {ends} and is {off}"
    low, high = found.low, found.high
    if low is not None and high is not None and low <= promised.high and high >= promised.low:
        return f"Whether the promise held cannot be told: {said}, but these rows are too few to exclude chance."
    return f"The promise did not hold: {said}."
