"""The generalization bound of the one-step method with a fitted model's own numbers (survey, lemma 2, theorem 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._numerics.losses import Loss


@dataclass(frozen=True)
class RiskBound:
    """Every term of ½R²(f) ≤ Ĵ_UB + complexity + deviation, which holds with probability 1 − δ.

    Read it as the anatomy of the theorem, not as a forecast: **the number is loose by orders of magnitude**. The loss
    of the risk never exceeds `m`, so a `risk` above `m` says nothing at all (`vacuous`), and at the sample sizes
    people have it always is: `complexity` and `deviation` carry M·G·(M + G) and M²G², and fall only with the square
    root of the number of rows. To judge a model on the target use `iwcv_score`.

    Beyond that it is an estimate of a bound, not a bound, for three reasons. The sets of functions are the smallest
    balls that hold the fitted coefficients, which were not chosen before the data. The largest label seen stands for
    the largest there is. And Ĵ_UB contains m²·mean_source w², unknown, for which m²·mean_target g is put in (the two
    means are equal for the true ratio).

    Attributes
    ----------
    risk : √(2 · total), the limit on the risk R(f), in units of the loss.
    total : max(0, objective + constant) + complexity + deviation, the limit on ½R² (the first sum estimates
        something that cannot be negative).
    objective : Ĵ_UB without its unknown constant, at the fitted f and g.
    constant : the plug-in for m²·mean_source w² (an estimate).
    complexity : 8MG(M+G)(L·R_f + R_g) + 4M²·R_g,target.
    deviation : 5M²G²·√(log(1/δ)/2)·(1/√n_source + 1/√n_target).
    loss_bound, largest_loss, largest_ratio, lipschitz : m, M, G and L.
    predictor_norm, ratio_norm : ‖α‖ and ‖β‖, the radii of the two balls.
    predictor_complexity, ratio_complexity, ratio_complexity_target : Rademacher complexities, ‖α‖·√(mean‖φ‖²/n).
    delta : δ.
    """

    risk: float
    total: float
    objective: float
    constant: float
    complexity: float
    deviation: float
    loss_bound: float
    largest_loss: float
    largest_ratio: float
    lipschitz: float
    predictor_norm: float
    ratio_norm: float
    predictor_complexity: float
    ratio_complexity: float
    ratio_complexity_target: float
    delta: float

    @property
    def vacuous(self) -> bool:
        """Whether the limit exceeds what the loss can reach anyway."""
        return self.risk >= self.loss_bound


@dataclass(frozen=True)
class FittedNumbers:
    """What a fit leaves behind for the bound: norms, means and counts."""

    weighted_risk: float  # mean_source g·ℓ_UB
    ratio_error: float  # mean_source g² − 2·mean_target g
    target_mean: float  # mean_target g
    predictor_norm: float
    ratio_norm: float
    predictor_square: float  # mean_source ‖φ‖²
    ratio_square: float  # mean_source ‖ψ‖²
    ratio_square_target: float  # mean_target ‖ψ‖²
    n_centers: int
    largest_label: float
    n_source: int
    n_target: int


def risk_bound(fitted: FittedNumbers, loss: Loss, delta: float) -> RiskBound:
    """Theorem 3 at m = 1, which bounds the zero-one loss and Tukey's (whatever m the fit used)."""
    m = 1.0
    reach = np.sqrt(fitted.n_centers)  # no basis function exceeds one
    label = fitted.largest_label
    largest_loss = max(m, loss.largest(fitted.predictor_norm * reach, label))
    lipschitz = loss.lipschitz(fitted.predictor_norm * reach, label)
    largest_ratio = max(1.0, fitted.ratio_norm * reach)
    predictor = fitted.predictor_norm * np.sqrt(fitted.predictor_square / fitted.n_source)
    ratio = fitted.ratio_norm * np.sqrt(fitted.ratio_square / fitted.n_source)
    ratio_target = fitted.ratio_norm * np.sqrt(fitted.ratio_square_target / fitted.n_target)
    objective = fitted.weighted_risk**2 + m**2 * fitted.ratio_error
    constant = m**2 * fitted.target_mean
    product = largest_loss * largest_ratio
    complexity = 8 * product * (largest_loss + largest_ratio) * (lipschitz * predictor + ratio)
    complexity += 4 * largest_loss**2 * ratio_target
    chance = np.sqrt(np.log(1 / delta) / 2) * (fitted.n_source**-0.5 + fitted.n_target**-0.5)
    total = max(0.0, objective + constant) + complexity + 5 * product**2 * chance
    return RiskBound(
        risk=float(np.sqrt(2 * total)),
        total=float(total),
        objective=float(objective),
        constant=float(constant),
        complexity=float(complexity),
        deviation=float(5 * product**2 * chance),
        loss_bound=m,
        largest_loss=float(largest_loss),
        largest_ratio=float(largest_ratio),
        lipschitz=float(lipschitz),
        predictor_norm=fitted.predictor_norm,
        ratio_norm=fitted.ratio_norm,
        predictor_complexity=float(predictor),
        ratio_complexity=float(ratio),
        ratio_complexity_target=float(ratio_target),
        delta=delta,
    )
