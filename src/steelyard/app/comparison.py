"""Which method? Single learners and combinations of them, with and without weights, compared for the target.

Losses of held-out rows are weighted to represent the target (importance-weighted cross-validation). The combination is
chosen unless a single learner is better by more than two standard errors of the paired difference. The plain method is
what a user would have picked: the single learner that is best on the source without weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._numerics.weighted_means import paired_gain
from steelyard._numerics.written import written_share
from steelyard._typing import FloatArray
from steelyard.app.candidates import STACKING, WEIGHTED_STACKING, Candidate
from steelyard.model_selection.bootstrap import Interval
from steelyard.stacking.held_out import Data, losses_of_rows
from steelyard.weights import effective_sample_size

COMBINATION = "combination"
# A single learner takes the place of the combination if it is better by more than so many standard errors: the best of
# ten is better by one where all are alike. Where only one learner was given, its weighted fit needs one.
LEAD_OVER_COMBINATION, LEAD_OVER_PLAIN = 2.0, 1.0
NOTHING_SHARED = (
    "Source and target hardly overlap, so no method can be evaluated for the target: methods are compared on the "
    "source, without weights."
)
NO_SHIFT = "The tests find no shift, so methods are compared on the source, without weights."


@dataclass(frozen=True)
class ComparedMethod:
    """A learner, with or without importance weights, or a combination of learners, evaluated on held-out rows.

    Attributes
    ----------
    name : str
        What it is called.
    learner : str
        Name of the learner; "combination" for several.
    weighted : bool
        Whether the target enters its fit, by importance weights or otherwise.
    loss : float
        Importance-weighted mean of the held-out losses: squared error, or Brier score.
    source_loss : float
        Their unweighted mean.
    gain : float
        The plain method's loss minus this one, importance-weighted row by row.
    gain_error : float
        Standard error of the gain.
    effective_sample_size : float
        Of the method's own weights of the compared rows.
    shares : tuple of (str, float)
        Of a combination of methods: the share of each, the largest first. Empty for a single method.
    """

    name: str
    learner: str
    weighted: bool
    loss: float
    source_loss: float
    gain: float
    gain_error: float
    effective_sample_size: float
    shares: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What the comparison of methods found, as plain numbers.

    Attributes
    ----------
    methods : tuple of ComparedMethod
        Every method that was tried.
    chosen, plain : int
        Positions of the chosen method and of the plain one: the single learner without weights that is best in ordinary
        cross-validation on the source.
    validation_sample_size : float
        Effective sample size of the validation weights; 0 without any.
    compared_rows : int
        Number of source rows that were compared.
    reason : str
        Why the method was chosen.
    classes : tuple
        The classes; empty for regression.
    performance : dict of Interval
        "source": the plain method's score on the source; "plain" and "chosen": the scores expected on the target, if
        known.
    measure : str
        "accuracy" or "squared error".
    rough : bool
        Whether the scores expected on the target have no interval.
    weights_used : bool
        Whether importance weights enter the chosen method, or the shares of its parts.
    flattening : float or None
        Power of the importance weights in weights.csv, before they are scaled to mean one; None where weights.csv has
        one-step's own weights, or every row weighs 1 because source and target do not overlap.
    failed : tuple of str
        Learners that could not be fitted and were left out, each with the reason.
    """

    methods: tuple[ComparedMethod, ...]
    chosen: int
    plain: int
    validation_sample_size: float
    compared_rows: int
    reason: str
    classes: tuple[Any, ...]
    performance: dict[str, Interval]
    measure: str
    rough: bool = True
    weights_used: bool = False
    flattening: float | None = None
    failed: tuple[str, ...] = ()

    @property
    def kept_plain(self) -> bool:
        """Whether the plain method was kept."""
        return self.chosen == self.plain

    @property
    def adapted_members(self) -> tuple[str, ...]:
        """Those members of the chosen combination that are fitted with importance weights, or adapt by themselves."""
        adapted = {method.name for method in self.methods if method.weighted}
        return tuple(name for name, _ in self.methods[self.chosen].shares if name in adapted)


def compare(candidates: Sequence[Candidate], data: Data, validation: FloatArray | None, shifted: bool) -> Comparison:
    """Held-out losses of every method, the gain over the plain one, and the choice.

    Parameters
    ----------
    candidates : sequence of Candidate
        Every method, with its held-out predictions.
    data : Data
        What they were fitted to.
    validation : array or None
        Validation weights of the rows; None where no evaluation for the target is possible.
    shifted : bool
        Whether there is a shift.

    Returns
    -------
    Comparison
    """
    losses = [losses_of_rows(each.predictions, data.truth) for each in candidates]
    unweighted = [i for i, each in enumerate(candidates) if not each.weighted and not each.is_combination]
    plain = min(unweighted, key=lambda i: float(losses[i].mean()))
    used = np.ones(len(data.y)) if validation is None or not shifted else validation
    methods = tuple(
        ComparedMethod(
            each.name,
            COMBINATION if each.is_combination else each.parts[0].learner.name,
            each.weighted,
            float(loss @ used / used.sum()),
            float(loss.mean()),
            *paired_gain(losses[plain], loss, used),
            effective_sample_size(data.weights) if each.weighted else float(len(data.y)),
            tuple((part.learner.label, share) for part, share in each.used) if each.is_combination else (),
        )
        for each, loss in zip(candidates, losses, strict=True)
    )
    incumbent = next(
        (i for name in (WEIGHTED_STACKING, STACKING) for i, m in enumerate(methods) if m.name == name), plain
    )
    lead = LEAD_OVER_PLAIN if incumbent == plain else LEAD_OVER_COMBINATION
    ahead = [paired_gain(losses[incumbent], loss, used) for loss in losses]
    rivals = [i for i, each in enumerate(candidates) if i != incumbent and not each.is_combination]
    better = [i for i in rivals if ahead[i][0] > lead * ahead[i][1]]
    chosen = max(better, key=lambda i: ahead[i][0], default=incumbent)
    reason = _reason(methods, chosen, plain, incumbent, ahead[chosen])
    members = [part.learner.label for part, _ in candidates[chosen].used]
    if candidates[chosen].is_combination and len(members) == 1:
        chosen = next(i for i, each in enumerate(candidates) if each.name == members[0])
        reason = f"On held-out rows the best combination consists of {methods[chosen].name} alone."
    setting = NOTHING_SHARED if validation is None else "" if shifted else NO_SHIFT
    return Comparison(
        methods,
        chosen,
        plain,
        0.0 if validation is None else effective_sample_size(used),
        len(data.y),
        f"{setting} {reason}".strip(),
        tuple(data.classes.tolist()),
        {},
        "accuracy" if len(data.classes) else "squared error",
        weights_used=candidates[chosen].weighted,
    )


def _reason(
    methods: tuple[ComparedMethod, ...], chosen: int, plain: int, incumbent: int, lead: tuple[float, float]
) -> str:
    """Why the method was chosen, in words."""
    name, best = methods[chosen].name, methods[plain].name
    if chosen != incumbent:
        times = lead[0] / max(lead[1], 1e-300)
        beaten = "the combination of learners" if incumbent != plain else best
        return f"On held-out rows {name} has less loss than {beaten}, by {times:.1f} standard errors."
    if chosen == plain:
        return f"On held-out rows no method is better than {best} by more than a standard error."
    loss = methods[plain].loss
    change = methods[chosen].gain / loss if loss > 0 else 0.0
    compared = "the loss of"
    if abs(change) >= 0.005:
        compared = f"{written_share(abs(change))} {'less' if change > 0 else 'more'} loss than"
    return (
        f"On held-out rows {name} has {compared} {best}, the single learner that is best on the source. No single "
        "learner is better than the combination by more than two standard errors."
    )
