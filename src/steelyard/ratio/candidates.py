"""Candidates for the density ratio, and the share of each in the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

EVEN, KERNEL, LINEAR, BOOSTED = "even weights", "uLSIF", "linear classifier", "boosted classifier"
# A candidate has no share in the weights from so many standard errors behind the best on.
FAR_BEHIND = 2.0


@dataclass(frozen=True)
class RatioCandidate:
    """How one way to estimate the density ratio did on held-out rows.

    Attributes
    ----------
    name : which one.
    score : least-squares score J' of the cross-fitted ratio (see `AutoRatio`); smaller is better, −½ is that of even
        weights.
    error : standard error of the difference to the best score, over the rows and the draws of the folds.
    effective_sample_size : of the cross-fitted weights.
    mean_difference : mean standardized difference of the columns that the cross-fitted weights leave.
    share : of this candidate in the weights; the shares of all candidates sum to one.
    """

    name: str
    score: float
    error: float
    effective_sample_size: float
    mean_difference: float
    share: float = 0.0


def share_out(candidates: Sequence[RatioCandidate]) -> tuple[RatioCandidate, ...]:
    """The candidates with their shares in the weights; see `AutoRatio`.

    Examples
    --------
    >>> best, even = RatioCandidate("uLSIF", -0.7, 0.0, 50, 0.1), RatioCandidate("even weights", -0.6, 0.1, 100, 0.2)
    >>> [round(candidate.share, 6) for candidate in share_out([best, even])]
    [0.5, 0.5]
    """
    nearness = {c.name: _nearness(c, candidates[0]) for c in candidates}
    even = nearness.pop(EVEN)
    total = sum(nearness.values()) or 1.0  # nothing else is near only where even weights are best, with all the share
    shares = {name: (1 - even) * near / total for name, near in nearness.items()}
    return tuple(replace(c, share=shares.get(c.name, even)) for c in candidates)


def _nearness(candidate: RatioCandidate, best: RatioCandidate) -> float:
    """One for the best, falling to zero at `FAR_BEHIND` standard errors behind it."""
    behind = candidate.score - best.score
    if not behind > 0:
        return 1.0
    return max(0.0, 1 - behind / (FAR_BEHIND * candidate.error)) if candidate.error > 0 else 0.0


def mixture_in_words(candidates: Sequence[RatioCandidate]) -> str:
    """What the weights are made of: a name, or names with their shares.

    Examples
    --------
    >>> even = RatioCandidate("even weights", -0.6, 0.1, 99, 0.2, share=0.3)
    >>> mixture_in_words([RatioCandidate("uLSIF", -0.7, 0.0, 50, 0.1, share=0.7), even])
    'uLSIF (70 %) and even weights (30 %)'
    """
    used = sorted((c for c in candidates if c.share >= 0.005), key=lambda c: -c.share)
    if len(used) == 1:
        return used[0].name
    named = [f"{c.name} ({c.share:.0%})".replace("%", " %") for c in used]
    return f"{', '.join(named[:-1])} and {named[-1]}"
