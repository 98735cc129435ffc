"""What the baselines of tables 1 and 2 share: ERM, EIWERM and RIWERM with the basis, grid, folds and rule of one-step.

They differ from one-step in the origin of the weights, and in that their weights have mean one while the g of
one-step is not normalized (as in algorithm 1): the same μ smooths one-step less. A greater `largest_reg` lets every
method smooth more.
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
from steelyard.ratio import RULSIF, ULSIF
from steelyard.weights import flatten

STEPS = np.linspace(0, 1, 11)  # of the flattening and of η


# Settings that the survey leaves open and that tables 1 and 2 share.
OPEN_SETTINGS = {
    "n_centers": Setting(50, "Gaussians of f and of g (the survey's 50)"),
    "smallest_reg": Setting(1e-4, "smallest μ of every method; the grid has two values in a decade"),
    "largest_reg": Setting(1.0, "greatest μ of every method"),
    "smallest_ratio_reg": Setting(1e-3, "smallest λ of one-step; the grid has one value in a decade"),
    "largest_ratio_reg": Setting(10.0, "greatest λ of one-step"),
    "loss_bounds": Setting("1,0.1", "values of m to choose from"),
    "rule": Setting("one-standard-error", "selection rule of every method; or best"),
    "validation_eta": Setting(0.5, "η of the relative density ratio that gives the validation weights"),
    "max_iter": Setting(5, "rounds of one-step"),
}

# For the pages of tables 1 and 2.
DIFFERENCE = (
    "The rows ERM, EIWERM and RIWERM are classes of `experiments` (`ERMRegressor`, `EIWERMClassifier` and so on) that "
    "take basis, grids, folds and rule from one-step and choose the flattening γ, or η, together with μ, so that they "
    "differ from one-step in their weights alone. `steelyard.WeightedRegressor` and `steelyard.WeightedClassifier` "
    "wrap any scikit-learn estimator instead: they weight it once, by a density ratio and a flattening that the user "
    "gives, and leave its hyperparameters as they are."
)


def estimator(cls: Any, settings: Mapping[str, Any], **options: Any) -> Any:
    """An estimator with the grids and the rule of the settings, unless the options say otherwise."""
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
    model._validation_eta = settings["validation_eta"]
    return model


def _powers(low: float, high: float, per_decade: int) -> FloatArray:
    """From low to high in even steps of the logarithm."""
    steps = round(per_decade * np.log10(high / low))
    return np.asarray(low * 10.0 ** (np.arange(steps + 1) / per_decade))


class WithFixedWeights:
    """Mixed into a one-step estimator: the weights are fixed before the predictor is fitted."""

    def _weightings(self, validation: ValidationWeights) -> FloatArray:
        """Vectors of weights to choose from, (V, n)."""
        raise NotImplementedError

    def _candidates(self: Any, tables: Tables, validation: ValidationWeights) -> list[Candidates]:
        weightings = self._weightings(validation)
        return [
            FixedWeights(self._make_loss, tables, width, weightings, self._reg_grid())
            for width in self._width_grid(tables)
        ]


class ERMWeights(WithFixedWeights):
    """Uniform weights."""

    def _weightings(self, validation: ValidationWeights) -> FloatArray:
        return np.ones((1, len(validation.source)))


class EIWERMWeights(WithFixedWeights):
    """Weights of uLSIF, raised to several powers."""

    def _weightings(self, validation: ValidationWeights) -> FloatArray:
        weights = validation.fit(ULSIF)
        return np.stack([flatten(weights, flattening, validation.source.mass) for flattening in STEPS])


class RIWERMWeights(WithFixedWeights):
    """Weights of RuLSIF with several η."""

    def _weightings(self, validation: ValidationWeights) -> FloatArray:
        return np.stack([validation.fit(RULSIF, float(eta)) for eta in STEPS])
