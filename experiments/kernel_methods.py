"""The baselines of tables 1 and 2: ERM, EIWERM and RIWERM with one-step's own basis, grid, folds and rule.

They differ from one-step in where the weights come from, and in that these weights have mean one while one-step's g
has not (as in algorithm 1): the same μ smooths one-step less. A greater `largest_reg` gives every method room to
smooth more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.engine.cells import Setting
from steelyard._typing import FloatArray
from steelyard.errors import ParameterError
from steelyard.one_step._candidates import Candidates, FixedWeights, Tables
from steelyard.one_step._selection import ValidationWeights
from steelyard.one_step.estimators import OneStepClassifier, OneStepRegressor
from steelyard.ratio import RULSIF, ULSIF
from steelyard.weights import flatten

STEPS = np.linspace(0, 1, 11)  # of flattening and η


# What the survey leaves open and tables 1 and 2 share.
OPEN_SETTINGS = {
    "n_centers": Setting(50, "Gaussians of f and of g (the survey's 50)"),
    "smallest_reg": Setting(1e-4, "least μ of every method, in half decades from there"),
    "largest_reg": Setting(1.0, "greatest μ of every method"),
    "smallest_ratio_reg": Setting(1e-3, "least λ of one-step, in decades from there"),
    "largest_ratio_reg": Setting(10.0, "greatest λ of one-step"),
    "loss_bounds": Setting("1,0.1", "values of m to choose from"),
    "rule": Setting("one-standard-error", "selection rule of every method; or best"),
    "judge_eta": Setting(0.5, "η of the relative ratio that weighs held-out rows"),
    "max_iter": Setting(5, "rounds of one-step"),
}


def estimator(cls: Any, settings: Mapping[str, Any], **options: Any) -> Any:
    """An estimator with the settings' grids and rule, unless the options say otherwise."""
    try:
        bounds = [float(text) for text in settings["loss_bounds"].split(",")]
    except ValueError as error:
        raise ParameterError(
            f"loss_bounds={settings['loss_bounds']} cannot be read; numbers and commas are needed."
        ) from error
    model = cls(
        **{
            "reg": _powers(settings["smallest_reg"], settings["largest_reg"], 2),
            "ratio_reg": _powers(settings["smallest_ratio_reg"], settings["largest_ratio_reg"], 1),
            "loss_bound": bounds,
            "n_centers": int(settings["n_centers"]),
            "rule": settings["rule"],
            "max_iter": int(settings["max_iter"]),
            **options,
        }
    )
    model._validation_eta = settings["judge_eta"]
    return model


def _powers(low: float, high: float, per_decade: int) -> FloatArray:
    """From low to high in even steps of the logarithm."""
    steps = round(per_decade * np.log10(high / low))
    return np.asarray(low * 10.0 ** (np.arange(steps + 1) / per_decade))


class _FixedWeights:
    """Mixed into a one-step estimator: the weights are there before the predictor is fitted."""

    def _candidates(self: Any, tables: Tables, validation: ValidationWeights) -> list[Candidates]:
        weightings = self._weightings(validation)
        return [
            FixedWeights(self._make_loss, tables, width, weightings, self._regs()) for width in self._widths(tables)
        ]


class _ERM(_FixedWeights):
    def _weightings(self, validation: ValidationWeights) -> FloatArray:
        return np.ones((1, len(validation.source)))


class _EIWERM(_FixedWeights):
    def _weightings(self, validation: ValidationWeights) -> FloatArray:
        weights = validation.fit(ULSIF)
        return np.stack([flatten(weights, flattening, validation.source.mass) for flattening in STEPS])


class _RIWERM(_FixedWeights):
    def _weightings(self, validation: ValidationWeights) -> FloatArray:
        return np.stack([validation.fit(RULSIF, float(eta)) for eta in STEPS])


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
