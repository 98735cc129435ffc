"""The base class of the one-step regressor and classifier: input tables, hyperparameters, selection, fitted results."""

from __future__ import annotations

from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from steelyard._numerics.empirical import Empirical, empirical
from steelyard._numerics.kernels import blocks, gaussian
from steelyard._numerics.written import written
from steelyard._splits.merged_rows import assign_folds, number_of_folds
from steelyard._threads import one_blas_thread
from steelyard._typing import FloatArray
from steelyard._validation import (
    check_count,
    check_grid,
    check_labels,
    check_new_rows,
    check_range,
    check_source,
    check_target,
    check_weights,
    forget_fit,
    generator,
    warn_without_target,
)
from steelyard.errors import InputError, ParameterError
from steelyard.one_step._alternating import Hyperparameters, Solution
from steelyard.one_step._candidates import Alternating, Candidates, FixedWeights, Tables
from steelyard.one_step._selection import RULES, ValidationWeights, choose
from steelyard.one_step.risk_bound import RiskBound
from steelyard.ratio._centers import covering_rows
from steelyard.ratio._gaussian import GaussianRatio
from steelyard.ratio._overlap import median_distance
from steelyard.ratio._scaling import pooled_scale
from steelyard.report.notebook import ShowsFit
from steelyard.weights import warn_of_small_sample

REG_GRID = 10.0 ** (np.arange(-8, 1) / 2)  # μ
RATIO_REG_GRID = 10.0 ** np.arange(-3, 2)  # λ/m²
LOSS_BOUND_GRID = np.array([1.0, 0.1])  # m
# Settings are compared on at most this many rows; more would cost minutes and rarely change the choice.
SELECTION_ROWS = 2000
N_FOLDS = 5


class OneStepRatio(GaussianRatio):
    """The density ratio that a one-step estimator fitted together with its predictor.

    ``predict`` returns the ratio g at new rows, not normalized.
    """

    def fit(self, X: Any, y: Any = None, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Raise an error: this ratio depends on the labels and cannot be fitted without the predictor."""
        raise ParameterError(
            "This ratio is fitted by OneStepRegressor or OneStepClassifier. Use ULSIF() to fit a density ratio alone."
        )

    def _given(self, weights: FloatArray, source: Empirical, counts: FloatArray | None) -> None:
        """Keep fixed weights, such as those of the baselines, or weights of one where there is no target."""
        if np.all(weights == 1):
            self._keep_ones(len(source.position), counts)
        else:
            self.constant_, self.raw_mean_ = True, 1.0
            self._keep(weights, source, counts)

    def _warn(self, n_rows: int) -> None:
        """Warn of a small effective sample size alone.

        The mean of g, which rounding β up to zero can raise far above one, only rescales μ, and μ is chosen.
        """
        advice = "Raise ratio_reg or ratio_width, or drop columns that differ by construction."
        warn_of_small_sample("One-step", self.effective_sample_size_, len(self.weights_), advice)


class OneStepBase(ShowsFit, BaseEstimator):
    """One-step covariate shift adaptation without the parts that depend on the kind of label."""

    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name scikit-learn looks for)

    _validation_eta = 0.5  # η of the relative density ratio that gives the validation weights
    _losses: tuple[str, ...]

    def __init__(
        self,
        loss: str = "squared",
        *,
        loss_bound: Any = None,
        width: Any = None,
        reg: Any = None,
        ratio_width: Any = None,
        ratio_reg: Any = None,
        n_centers: int = 100,
        standardize: bool = True,
        rule: str = "one-standard-error",
        max_iter: int = 5,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.loss_bound = loss_bound
        self.width = width
        self.reg = reg
        self.ratio_width = ratio_width
        self.ratio_reg = ratio_reg
        self.n_centers = n_centers
        self.standardize = standardize
        self.rule = rule
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit predictor and importance weights on labeled source rows and unlabeled target rows.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Labels of the source rows.
        target : Target or table of shape (n_target, n_columns), default=None
            Target rows. Their labels are not needed and not used. Data frames are matched by column name. Without a
            target every weight is one, and a warning says that no shift is corrected.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts: a row of weight two gives the same fit as the row repeated twice.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        self._check_parameters()
        forget_fit(self)
        check_labels(self, X, y)
        rows = check_source(self, X).astype(np.float64)
        counts = check_weights(sample_weight, len(rows))
        labels = self._encode(y, counts)
        shifted = target is not None
        if not shifted:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected")
        target_rows = check_target(self, target, X).astype(np.float64) if shifted else rows
        rng = generator(self.random_state)
        # Rows are merged together with their labels: equal inputs with different labels stay separate rows.
        joint = empirical(np.column_stack([rows, labels]), counts, rng)
        source = joint.with_rows(joint.rows[:, :-1])
        target_sample = empirical(target_rows, None if shifted else counts, rng)
        with one_blas_thread():
            tables = self._tables(source, joint.rows[:, -1], target_sample, (len(rows), len(target_rows)))
            validation = ValidationWeights(
                rows,
                counts,
                source,
                target_rows if shifted else None,
                self._validation_eta,
                self.n_centers,
                self.standardize,
                rng,
            )
            self._fit(tables, source, validation, counts, rng)
        return self

    def _tables(self, source: Empirical, labels: FloatArray, target: Empirical, sizes: tuple[int, int]) -> Tables:
        self.center_, self.scale_, varies = pooled_scale(source, target, self.standardize)
        source, target = (part.with_rows((part.rows - self.center_) / self.scale_) for part in (source, target))
        pooled = (median_distance(source, target) if varies else 0.0) or 1.0
        self.centers_ = target.rows[covering_rows(target, self.n_centers, pooled)].copy()
        within = median_distance(target, target) or pooled
        return Tables(
            source.rows,
            source.mass,
            self._columns(labels),
            target.rows,
            target.mass,
            self.centers_,
            pooled,
            within,
            *sizes,
        )

    def _fit(
        self,
        tables: Tables,
        source: Empirical,
        validation: ValidationWeights,
        counts: FloatArray | None,
        rng: np.random.Generator,
    ) -> None:
        shifted = validation.target_rows is not None
        candidates = self._candidates(tables, validation) if shifted else self._unweighted(tables)
        sizes = [len(candidate.reg) for candidate in candidates]
        which = self._select(candidates, tables, validation, rng) if sum(sizes) > 1 else 0
        place = int(np.searchsorted(np.cumsum(sizes), which, side="right"))
        self._keep(candidates[place], which - sum(sizes[:place]), source, counts)

    def _unweighted(self, tables: Tables) -> list[Candidates]:
        uniform, reg = np.ones((1, len(tables.rows))), self._reg_grid()
        return [FixedWeights(self._make_loss, tables, width, uniform, reg) for width in self._width_grid(tables)]

    def _candidates(self, tables: Tables, validation: ValidationWeights) -> list[Candidates]:
        """Every combination of widths, λ, μ and m."""
        ratio_reg = RATIO_REG_GRID if self.ratio_reg is None else check_grid("ratio_reg", self.ratio_reg)
        bounds = LOSS_BOUND_GRID if self.loss_bound is None else check_bounds(self.loss_bound)
        axes = np.meshgrid(self._reg_grid(), ratio_reg, bounds, indexing="ij")
        settings = Hyperparameters(*(axis.ravel() for axis in axes))
        ratio_widths = (
            [tables.target_median] if self.ratio_width is None else check_grid("ratio_width", self.ratio_width)
        )
        return [
            Alternating(self._make_loss, tables, pair, settings, self.max_iter, self.tol)
            for pair in product(self._width_grid(tables), ratio_widths)
        ]

    def _reg_grid(self) -> FloatArray:
        return REG_GRID if self.reg is None else check_grid("reg", self.reg)

    def _width_grid(self, tables: Tables) -> FloatArray:
        return np.array([tables.pooled_median]) if self.width is None else check_grid("width", self.width)

    def _select(
        self, candidates: list[Candidates], tables: Tables, validation: ValidationWeights, rng: np.random.Generator
    ) -> int:
        source = validation.source.first(SELECTION_ROWS)
        n_folds = number_of_folds(source, at_most=N_FOLDS, chosen="width, reg, ratio_width and ratio_reg")
        parts = assign_folds(source, n_folds, rng, self._groups(tables.y[: len(source)]))
        y = tables.y[parts.cell]
        importance = validation.importance[parts.cell] * (parts.mass / source.mass[parts.cell])
        predictions = np.concatenate([candidate.held_out_predictions(parts) for candidate in candidates])
        losses = self._common_loss(predictions, y, importance).values(predictions, y)
        reg = np.concatenate([candidate.reg for candidate in candidates])
        return choose(losses, importance, reg, self.rule)

    def _keep(self, chosen: Candidates, setting: int, source: Empirical, counts: FloatArray | None) -> None:
        fitted = chosen.solve(setting)
        self.coef_, self.width_, self.reg_ = fitted.coef, float(chosen.width), float(chosen.reg[setting])
        self.ratio_ = ratio = OneStepRatio()
        for name in ("n_features_in_", "feature_names_in_", "center_", "scale_", "centers_"):
            if hasattr(self, name):
                setattr(ratio, name, getattr(self, name))
        if isinstance(chosen, Alternating) and fitted.solution is not None and fitted.numbers is not None:
            settings = chosen.settings.part(slice(setting, setting + 1))
            self.ratio_reg_, self.loss_bound_ = float(settings.ratio_reg[0]), float(settings.loss_bound[0])
            self.ratio_width_ = ratio.width_ = float(chosen.ratio_width)
            ratio.coef_, ratio.constant_ = fitted.solution.ratio_coef[0], False
            ratio._keep(fitted.ratio, source, counts)
            ratio.raw_mean_ = ratio.source_mean_
            self._keep_history(fitted.solution)
            self._for_bound = fitted.numbers, fitted.solution.loss
        else:
            ratio._given(fitted.ratio, source, counts)
            self.n_iter_ = 1
        self.weights_ = ratio.weights_
        self.effective_sample_size_ = ratio.effective_sample_size_

    def _found(self) -> dict[str, str]:
        """The chosen parameters, the objective before and after, and the bound where there is one."""
        chosen = {"kernel width": "width_", "regularization strength": "reg_", "loss bound m": "loss_bound_"}
        found = {name: written(getattr(self, key)) for name, key in chosen.items() if hasattr(self, key)}
        if "objective_" in vars(self):
            start, end = (written(float(self.objective_[i])) for i in (0, self.best_round_))
            found["objective"] = f"{start} at the start, {end} in round {self.best_round_}, which was kept"
            if self.coef_.shape[1] == 1:
                found["bound of the risk"] = self.risk_bound().in_words
        return found | {"effective sample size": written(self.effective_sample_size_)}

    def _keep_history(self, solution: Solution) -> None:
        rounds = solution.rounds
        self.objective_ = np.array([solution.start_total[0], *(r.total[0] for r in rounds)])
        self.ratio_steps_ = np.array([[s[0] for s in r.ratio_step] for r in rounds]).reshape(-1, 2)
        self.predictor_steps_ = np.array([[s[0] for s in r.predictor_step] for r in rounds]).reshape(-1, 2)
        self.best_round_ = int(solution.best_round[0])
        self.n_iter_ = 1 + len(rounds)

    def risk_bound(self, delta: float = 0.05) -> RiskBound:
        """The terms of the generalization bound of the survey's theorem 3 for this fit.

        The bound is loose by orders of magnitude; `RiskBound` explains why. For regression the terms are in units of
        the scaled labels.

        Parameters
        ----------
        delta : float, default=0.05
            The bound holds with probability 1 − δ.

        Returns
        -------
        RiskBound
            The bound and its terms.
        """
        check_is_fitted(self, "coef_")
        check_range("delta", delta, 0, 1, open_low=True)
        if not hasattr(self, "ratio_reg_"):
            raise InputError(
                "The bound relates source and target, and this model was fitted without a target. Use "
                "fit(X, y, target=...)."
            )
        if self.coef_.shape[1] > 1:
            raise InputError("The bound exists for regression and two classes; this model has more classes.")
        numbers, loss = self._for_bound
        return numbers.bound(loss, delta)

    def _decision(self, X: Any) -> FloatArray:
        check_is_fitted(self, "coef_")
        rows = (check_new_rows(self, X).astype(np.float64) - self.center_) / self.scale_
        values = np.empty((len(rows), self.coef_.shape[1]))
        with one_blas_thread():
            for block in blocks(len(rows)):
                values[block] = gaussian(rows[block], self.centers_, self.width_) @ self.coef_
        return values

    def _check_parameters(self) -> None:
        check_count("n_centers", self.n_centers)
        check_count("max_iter", self.max_iter)
        check_range("tol", self.tol, 0)
        if self.rule not in RULES:
            raise ParameterError(f"rule must be one of {RULES}; got {self.rule!r}.")
        for name in ("width", "reg", "ratio_width", "ratio_reg"):
            if getattr(self, name) is not None:
                check_grid(name, getattr(self, name))
        if self.loss_bound is not None:
            check_bounds(self.loss_bound)
        if self.loss not in self._losses:
            raise ParameterError(f"loss must be one of {self._losses}; got {self.loss!r}.")


def check_bounds(value: Any) -> FloatArray:
    """The grid of loss bounds: positive numbers, of which one may be infinite."""
    entries = np.atleast_1d(np.asarray(value, dtype=object))
    infinite = np.array([isinstance(v, float) and v == np.inf for v in entries.ravel()]).reshape(entries.shape)
    if entries.ndim == 1 and infinite.all() and len(entries):
        return np.array([np.inf])
    finite = check_grid("loss_bound", list(entries[~infinite]) if entries.ndim == 1 else value)
    return np.append(np.inf, finite) if infinite.any() else finite
