"""The generalization bound of the one-step method, evaluated at a fitted model (survey, lemma 2 and theorem 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._numerics.losses import Loss
from steelyard._numerics.written import written


@dataclass(frozen=True)
class RiskBound:
    """The terms of the bound ½R²(f) ≤ Ĵ_UB + complexity + deviation, which holds with probability 1 − δ.

    It shows which terms the theorem has and how large they are. It does not predict the risk: **the bound is loose by
    orders of magnitude**. The loss in the definition of the risk never exceeds `m`, so a `risk` above `m` carries no
    information (`vacuous`), and at common sample sizes it always is above: `complexity` and `deviation` contain the
    factors M·G·(M + G) and M²G² and decrease only with the square root of the number of rows. Use `iwcv_score` to
    estimate the performance of a model on the target.

    Moreover the numbers are an estimate of the bound, for three reasons. The function classes are the smallest balls
    that contain the fitted coefficients, and these were not chosen before the data were seen. The largest observed
    label is taken for the largest possible one. And Ĵ_UB contains the unknown constant m²·mean_source w², for which
    m²·mean_target g is substituted (the two means are equal for the true density ratio).

    It is returned by ``OneStepRegressor.risk_bound`` and ``OneStepClassifier.risk_bound``.

    Parameters
    ----------
    risk : float
        √(2 · total), the bound on the risk R(f), in units of the loss.
    total : float
        max(0, objective + constant) + complexity + deviation, the bound on ½R². (The first sum estimates a quantity
        that cannot be negative.)
    objective : float
        Ĵ_UB at the fitted f and g, without its unknown constant.
    constant : float
        The estimate of m²·mean_source w².
    complexity : float
        8MG(M+G)(L·R_f + R_g) + 4M²·R_g,target.
    deviation : float
        5M²G²·√(log(1/δ)/2)·(1/√n_source + 1/√n_target).
    loss_bound : float
        m, the largest value of the loss in the definition of the risk.
    largest_loss : float
        M, the largest value of the surrogate loss.
    largest_ratio : float
        G, the largest value of the density ratio.
    lipschitz : float
        L, the Lipschitz constant of the surrogate loss.
    predictor_norm : float
        ‖α‖, the radius of the ball of predictors.
    ratio_norm : float
        ‖β‖, the radius of the ball of density ratios.
    predictor_complexity : float
        R_f, the Rademacher complexity ‖α‖·√(mean ‖φ‖²/n) of the predictors on the source.
    ratio_complexity : float
        R_g, the Rademacher complexity ‖β‖·√(mean ‖ψ‖²/n) of the density ratios on the source.
    ratio_complexity_target : float
        R_g,target, the Rademacher complexity of the density ratios on the target.
    delta : float
        δ.

    Examples
    --------
    >>> from steelyard import OneStepRegressor, Target
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, _ = sinc_toy(random_state=0)
    >>> bound = OneStepRegressor(random_state=0).fit(X, y, target=Target(X_target)).risk_bound(delta=0.05)
    >>> bound.vacuous
    True
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
        """Whether the bound is at least the largest value of the loss, and so carries no information.

        Returns
        -------
        bool
            True if ``risk`` is at least ``loss_bound``.
        """
        return self.risk >= self.loss_bound

    @property
    def in_words(self) -> str:
        """The bound, and whether it says anything.

        Returns
        -------
        str
            A few words.
        """
        says = " (it says nothing: no loss is as large)" if self.vacuous else ""
        return f"at most {written(self.risk)} with probability {1 - self.delta:g}{says}"

    def __repr__(self) -> str:
        terms = ("objective", "constant", "complexity", "deviation")
        return f"RiskBound(risk {self.in_words}; " + ", ".join(f"{t} {written(getattr(self, t))}" for t in terms) + ")"


@dataclass(frozen=True)
class FittedNumbers:
    """The numbers of a fit that enter the bound: norms, means and counts."""

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

    def bound(self, loss: Loss, delta: float) -> RiskBound:
        """Theorem 3 at m = 1, which bounds the zero-one loss and Tukey's loss, whatever m the fit used."""
        m = 1.0
        reach = np.sqrt(self.n_centers)  # no basis function exceeds one
        label = self.largest_label
        largest_loss = max(m, loss.largest(self.predictor_norm * reach, label))
        lipschitz = loss.lipschitz(self.predictor_norm * reach, label)
        largest_ratio = max(1.0, self.ratio_norm * reach)
        predictor = self.predictor_norm * np.sqrt(self.predictor_square / self.n_source)
        ratio = self.ratio_norm * np.sqrt(self.ratio_square / self.n_source)
        ratio_target = self.ratio_norm * np.sqrt(self.ratio_square_target / self.n_target)
        objective = self.weighted_risk**2 + m**2 * self.ratio_error
        constant = m**2 * self.target_mean
        product = largest_loss * largest_ratio
        complexity = 8 * product * (largest_loss + largest_ratio) * (lipschitz * predictor + ratio)
        complexity += 4 * largest_loss**2 * ratio_target
        chance = np.sqrt(np.log(1 / delta) / 2) * (self.n_source**-0.5 + self.n_target**-0.5)
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
            predictor_norm=self.predictor_norm,
            ratio_norm=self.ratio_norm,
            predictor_complexity=float(predictor),
            ratio_complexity=float(ratio),
            ratio_complexity_target=float(ratio_target),
            delta=delta,
        )
