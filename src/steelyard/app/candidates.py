"""The methods that `steelyard fit` compares: single learners and combinations, with their held-out predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard._typing import FloatArray, IntArray
from steelyard.stacking.held_out import Data, HeldOut, better_of_both, losses_of_rows
from steelyard.stacking.shares import fit_shares

EQUAL_SHARES, STACKING, WEIGHTED_STACKING = "equal shares", "stacking", "weighted stacking"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method: one learner, or a combination of several.

    Attributes
    ----------
    name : str
        What it is called.
    parts : tuple of HeldOut
        The learners in it.
    shares : array of shape (n_parts,)
        Their shares.
    predictions : array of shape (n_draws, n_rows, n_outputs)
        Its predictions of rows that neither learners nor shares were fitted on.
    weighted : bool
        Whether importance weights, or the target rows, enter a learner or the shares.
    """

    name: str
    parts: tuple[HeldOut, ...]
    shares: FloatArray
    predictions: FloatArray
    weighted: bool

    @property
    def is_combination(self) -> bool:
        """Whether it has more than one part."""
        return len(self.parts) > 1

    def scores(self, data: Data) -> FloatArray:
        """The score of each held-out row that people read: right or wrong, or the squared error."""
        if not len(data.classes):
            return losses_of_rows(self.predictions, data.truth)
        right = self.predictions.argmax(axis=2) == data.truth.argmax(axis=1)
        return np.asarray(right.mean(axis=0))

    @property
    def used(self) -> list[tuple[HeldOut, float]]:
        """The parts with a positive share, the largest first."""
        order = np.argsort(-self.shares, kind="stable")
        return [(self.parts[i], float(self.shares[i])) for i in order if self.shares[i] > 0]


def combinations(
    tried: Sequence[HeldOut], losses: Mapping[str, FloatArray], data: Data, folds: Sequence[IntArray]
) -> list[Candidate]:
    """Equal shares and stacking of the learners that know nothing of the target, and weighted stacking of all.

    Parameters
    ----------
    tried : sequence of HeldOut
        Learners without weights, followed by those with weights.
    losses : dict of arrays of shape (n_rows,)
        Held-out loss of each row, by the label of the learner.
    data : Data
        What the learners were fitted to.
    folds : sequence of arrays of shape (n_rows,)
        The fold of each row, for each draw.

    Returns
    -------
    list of Candidate
    """
    plain = [each for each in tried if not each.learner.adapts]
    found = []
    if len(plain) > 1:
        equal = np.full(len(plain), 1 / len(plain))
        mean = np.mean([each.predictions for each in plain], axis=0)
        found.append(Candidate(EQUAL_SHARES, tuple(plain), equal, mean, False))
        found.append(_stacked(STACKING, plain, np.ones(len(data.y)), data, folds, weighted=False))
    best = better_of_both(tried, losses, data.weights)
    if len(best) > 1 and len(plain) < len(tried):
        found.append(_stacked(WEIGHTED_STACKING, best, data.weights, data, folds, weighted=True))
    return found


def _stacked(
    name: str, parts: list[HeldOut], weights: FloatArray, data: Data, folds: Sequence[IntArray], *, weighted: bool
) -> Candidate:
    predictions = np.stack([each.predictions for each in parts], axis=1)
    shares = fit_shares(predictions - data.truth, weights, folds)
    return Candidate(name, tuple(parts), shares.values, shares.combine(predictions, folds), weighted)
