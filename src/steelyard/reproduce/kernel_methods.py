"""The baselines of tables 1 and 2: ERM, EIWERM and RIWERM with one-step's own basis, grid, folds and rule.

They differ from one-step in nothing but where the weights come from, so that the tables compare methods and not
basis functions or grids.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.arrays import FloatArray
from steelyard.candidates import Candidates, FixedWeights, Tables
from steelyard.folds import Judge
from steelyard.onestep import REGS, OneStepClassifier, OneStepRegressor
from steelyard.ratio import RULSIF, ULSIF
from steelyard.weights import flatten

STEPS = np.linspace(0, 1, 11)  # of flattening and η


def regs_up_to(largest: float) -> FloatArray:
    """The grid of μ, continued in half decades."""
    more = np.arange(1, 1 + round(2 * np.log10(largest / REGS[-1])))
    return np.concatenate([REGS, REGS[-1] * 10.0 ** (more / 2)])


class _FixedWeights:
    """Mixed into a one-step estimator: the weights are there before the predictor is fitted."""

    def _candidates(self: Any, tables: Tables, judge: Judge) -> list[Candidates]:
        weightings = self._weightings(judge)
        return [
            FixedWeights(self._make_loss, tables, width, weightings, self._regs()) for width in self._widths(tables)
        ]


class _ERM(_FixedWeights):
    def _weightings(self, judge: Judge) -> FloatArray:
        return np.ones((1, len(judge.source)))


class _EIWERM(_FixedWeights):
    def _weightings(self, judge: Judge) -> FloatArray:
        weights = judge.fit(ULSIF)
        return np.stack([flatten(weights, flattening, judge.source.mass) for flattening in STEPS])


class _RIWERM(_FixedWeights):
    def _weightings(self, judge: Judge) -> FloatArray:
        return np.stack([judge.fit(RULSIF, float(eta)) for eta in STEPS])


class ERMRegressor(_ERM, OneStepRegressor):
    """Plain empirical risk minimisation."""


class EIWERMRegressor(_EIWERM, OneStepRegressor):
    """uLSIF's weights to the power of a flattening that is chosen."""


class RIWERMRegressor(_RIWERM, OneStepRegressor):
    """RuLSIF's weights with an η that is chosen."""


class ERMClassifier(_ERM, OneStepClassifier):
    """Plain empirical risk minimisation."""


class EIWERMClassifier(_EIWERM, OneStepClassifier):
    """uLSIF's weights to the power of a flattening that is chosen."""


class RIWERMClassifier(_RIWERM, OneStepClassifier):
    """RuLSIF's weights with an η that is chosen."""
