"""Candidates for the density ratio, and the share of each in the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

UNIFORM, KERNEL, LINEAR, BOOSTED = "uniform weights", "uLSIF", "linear classifier", "boosted classifier"
# A candidate whose score is at least this many standard errors worse than the best has no share in the weights.
MOST_STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class RatioCandidate:
    """Cross-validated score and share of one candidate of `AutoRatio`.

    The score is J' = ½(1−η) mean_source w_η² + ½η mean_target w_η² − mean_target w_η of the candidate's cross-fitted
    relative density ratio w_η, η = 0.1 (survey, section 4.2).

    Parameters
    ----------
    name : str
        "uniform weights", "uLSIF", "linear classifier" or "boosted classifier".
    score : float
        The score J'; smaller is better, and uniform weights have −½.
    error : float
        Standard error of the difference to the best score, over the rows and the random folds.
    effective_sample_size : float
        Effective sample size of the cross-fitted weights.
    mean_difference : float
        Mean absolute standardized difference of the columns to the target under the cross-fitted weights.
    share : float, default=0.0
        Share of this candidate in the weights; the shares of all candidates sum to one.

    Examples
    --------
    >>> from steelyard import AutoRatio
    >>> from steelyard.datasets import gaussian_pair
    >>> pair = gaussian_pair(300, 300, 2, random_state=0)
    >>> best = AutoRatio(random_state=0).fit(pair.X, target=pair.X_target).candidates_[0]
    >>> best.name, best.score < -0.5
    ('uLSIF', True)
    """

    name: str
    score: float
    error: float
    effective_sample_size: float
    mean_difference: float
    share: float = 0.0


def assign_shares(candidates: Sequence[RatioCandidate]) -> tuple[RatioCandidate, ...]:
    """The candidates, the best score first, with their shares in the weights; see `AutoRatio` for the rule.

    Examples
    --------
    >>> best = RatioCandidate("uLSIF", -0.7, 0.0, 50, 0.1)
    >>> uniform = RatioCandidate("uniform weights", -0.6, 0.1, 100, 0.2)
    >>> [round(candidate.share, 6) for candidate in assign_shares([best, uniform])]
    [0.5, 0.5]
    """
    closeness: dict[str, float] = {}  # one for the best candidate, zero from MOST_STANDARD_ERRORS on
    for c in candidates:
        excess = c.score - candidates[0].score
        limit = MOST_STANDARD_ERRORS * c.error
        closeness[c.name] = 1.0 if not excess > 0 else max(0.0, 1 - excess / limit) if limit > 0 else 0.0
    uniform = closeness.pop(UNIFORM)
    total = sum(closeness.values()) or 1.0  # zero only where uniform weights are the best and have the whole share
    shares = {name: (1 - uniform) * close / total for name, close in closeness.items()}
    return tuple(replace(c, share=shares.get(c.name, uniform)) for c in candidates)


def mixture_in_words(candidates: Sequence[RatioCandidate]) -> str:
    """The candidates that the weights are averaged from, with their shares; the name alone where there is only one.

    Examples
    --------
    >>> uniform = RatioCandidate("uniform weights", -0.6, 0.1, 99, 0.2, share=0.3)
    >>> mixture_in_words([RatioCandidate("uLSIF", -0.7, 0.0, 50, 0.1, share=0.7), uniform])
    'uLSIF (70 %) and uniform weights (30 %)'
    """
    used = sorted((c for c in candidates if c.share >= 0.005), key=lambda c: -c.share)
    if len(used) == 1:
        return used[0].name
    named = [f"{c.name} ({c.share:.0%})".replace("%", " %") for c in used]
    return f"{', '.join(named[:-1])} and {named[-1]}"
