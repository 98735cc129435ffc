"""One-step covariate shift adaptation: weights and predictor from one objective (survey, section 5)."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from steelyard.alternate import Settings, Solution
from steelyard.arrays import FloatArray, IntArray, one_blas_thread
from steelyard.candidates import Alternating, Candidates, FixedWeights, Tables, held_out_predictions
from steelyard.check import (
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
from steelyard.empirical import Empirical, empirical
from steelyard.errors import FewEffectiveRowsWarning, InputError, NotFiniteError, ParameterError
from steelyard.folds import Judge, check_rule, choose, deal
from steelyard.kernels import blocks, gaussian
from steelyard.losses import (
    Hinge,
    Logistic,
    Loss,
    Squared,
    Tukey,
    require_squared_bounds_tukey,
    robust_scale,
    weighted_median,
)
from steelyard.ratio.base import GaussianRatio, median_distance, number_of_folds, pooled_scale
from steelyard.riskbound import RiskBound, risk_bound

REGS = 10.0 ** (np.arange(-8, 1) / 2)  # μ
RATIO_REGS = 10.0 ** np.arange(-3, 2)  # λ/m²
LOSS_BOUNDS = np.array([1.0, 0.1])  # m
# Settings are compared on at most so many rows; more would cost minutes and hardly move the choice.
SELECTION_ROWS = 2000
N_FOLDS = 5


class OneStepRatio(GaussianRatio):
    """The ratio that a one-step estimator fitted together with its predictor; `predict` gives it, not normalised."""

    def fit(self, X: Any, y: Any = None, *, target: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Refused: this ratio depends on the labels."""
        raise ParameterError("This ratio is fitted by OneStepRegressor or OneStepClassifier. Use ULSIF() by itself.")

    def _given(self, weights: FloatArray, source: Empirical, counts: FloatArray | None) -> None:
        """Weights that were there before the predictor, as those of the baselines; ones without a target."""
        if np.all(weights == 1):
            self._constant(len(source.position), counts)
        else:
            self.constant_, self.raw_mean_ = True, 1.0
            self._keep(weights, source, counts)

    def _warn(self) -> None:
        """Of few effective rows alone. The level of g, which rounding β up to zero can raise far above one, only
        multiplies μ, and μ is chosen."""
        n_rows, size = len(self.weights_), self.effective_sample_size_
        if size < min(max(5, 0.01 * n_rows), n_rows / 2):
            warnings.warn(
                f"One-step: the weights are worth {size:.1f} equally weighted rows out of {n_rows}; a fit on so few is "
                "unstable. Raise ratio_reg or ratio_width, or drop columns that differ by construction.",
                FewEffectiveRowsWarning,
                stacklevel=6,
            )


class _OneStep(BaseEstimator):
    __metadata_request__fit = {"target": True}  # noqa: RUF012 (the name scikit-learn looks for)

    _judge_eta = 0.5  # of the relative ratio that weighs held-out rows
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
        """Fit predictor and weights on labelled source rows and unlabelled target rows.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Their labels.
        target : Target or table of shape (n_target, n_columns), default=None
            Rows to predict; labels are not needed and not looked at. Data frames are matched by column name.
        sample_weight : array of shape (n_source,), default=None
            How often each source row counts: weighting a row by two and repeating it are the same.
        """
        self._check_parameters()
        forget_fit(self)
        check_labels(self, X, y)
        rows = check_source(self, X).astype(np.float64)
        counts = check_weights(sample_weight, len(rows))
        labels = self._encode(y, counts)
        shifted = target is not None
        if not shifted:
            warn_without_target(f"{type(self).__name__}.fit", "every weight is 1 and no shift is corrected", 2)
        goal_rows = check_target(self, target, X).astype(np.float64) if shifted else rows
        rng = generator(self.random_state)
        # Rows are merged with their labels: equal inputs with other labels are other rows.
        joint = empirical(np.column_stack([rows, labels]), counts, rng)
        source = Empirical(joint.rows[:, :-1], joint.mass, joint.position)
        goal = empirical(goal_rows, None if shifted else counts, rng)
        with one_blas_thread():
            tables = self._tables(source, joint.rows[:, -1], goal, (len(rows), len(goal_rows)))
            self._fit(tables, source, goal_rows if shifted else None, counts, rng)
        return self

    def _tables(self, source: Empirical, labels: FloatArray, goal: Empirical, sizes: tuple[int, int]) -> Tables:
        self.center_, self.scale_, varies = pooled_scale(source, goal, self.standardize)
        near, far = (
            Empirical((part.rows - self.center_) / self.scale_, part.mass, part.position) for part in (source, goal)
        )
        # The rows of an `Empirical` are shuffled already: the first ones are a draw without replacement.
        self.centers_ = far.rows[: self.n_centers].copy()
        pooled = (median_distance(near, far) if varies else 0.0) or 1.0
        within = median_distance(far, far) or pooled
        return Tables(
            near.rows,
            near.mass,
            self._columns(labels),
            far.rows,
            far.mass,
            self.centers_,
            pooled,
            within,
            *sizes,
        )

    def _fit(
        self,
        tables: Tables,
        source: Empirical,
        goal_rows: FloatArray | None,
        counts: FloatArray | None,
        rng: np.random.Generator,
    ) -> None:
        judge = Judge(source, goal_rows, self._judge_eta, self.n_centers, self.standardize, rng)
        candidates = self._unweighted(tables) if goal_rows is None else self._candidates(tables, judge)
        sizes = [len(candidate.penalty) for candidate in candidates]
        which = self._select(candidates, tables, judge) if sum(sizes) > 1 else 0
        place = int(np.searchsorted(np.cumsum(sizes), which, side="right"))
        self._keep(candidates[place], which - sum(sizes[:place]), source, counts)

    def _unweighted(self, tables: Tables) -> list[Candidates]:
        even = np.ones((1, len(tables.rows)))
        return [FixedWeights(self._make_loss, tables, width, even, self._regs()) for width in self._widths(tables)]

    def _candidates(self, tables: Tables, judge: Judge) -> list[Candidates]:
        """Every combination of widths, λ, μ and m."""
        ratio_regs = RATIO_REGS if self.ratio_reg is None else check_grid("ratio_reg", self.ratio_reg)
        bounds = LOSS_BOUNDS if self.loss_bound is None else check_bounds(self.loss_bound)
        axes = np.meshgrid(self._regs(), ratio_regs, bounds, indexing="ij")
        settings = Settings(*(axis.ravel() for axis in axes))
        ratio_widths = (
            [tables.target_median] if self.ratio_width is None else check_grid("ratio_width", self.ratio_width)
        )
        return [
            Alternating(self._make_loss, tables, pair, settings, self.max_iter, self.tol)
            for pair in product(self._widths(tables), ratio_widths)
        ]

    def _regs(self) -> FloatArray:
        return REGS if self.reg is None else check_grid("reg", self.reg)

    def _widths(self, tables: Tables) -> FloatArray:
        return np.array([tables.pooled_median]) if self.width is None else check_grid("width", self.width)

    def _select(self, candidates: list[Candidates], tables: Tables, judge: Judge) -> int:
        n_rows = min(len(tables.rows), SELECTION_ROWS)
        y, importance = tables.y[:n_rows], judge.importance[:n_rows]
        fold = deal(n_rows, number_of_folds(judge.source, at_most=N_FOLDS), self._groups(y))
        predictions = np.concatenate([held_out_predictions(candidate, fold) for candidate in candidates])
        losses = self._common_loss(predictions, y, importance).values(predictions, y)
        penalty = np.concatenate([candidate.penalty for candidate in candidates])
        return choose(losses, importance, penalty, self.rule)

    def _keep(self, chosen: Candidates, setting: int, source: Empirical, counts: FloatArray | None) -> None:
        fitted = chosen.solve(setting)
        self.coef_, self.width_, self.reg_ = fitted.coef, float(chosen.width), float(chosen.penalty[setting])
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

    def _keep_history(self, solution: Solution) -> None:
        rounds = solution.rounds
        self.objective_ = np.array([solution.start_total[0], *(r.total[0] for r in rounds)])
        self.ratio_steps_ = np.array([[s[0] for s in r.ratio_step] for r in rounds]).reshape(-1, 2)
        self.predictor_steps_ = np.array([[s[0] for s in r.predictor_step] for r in rounds]).reshape(-1, 2)
        self.best_round_ = int(solution.best_round[0])
        self.n_iter_ = 1 + len(rounds)

    def risk_bound(self, delta: float = 0.05) -> RiskBound:
        """The terms of the survey's theorem 3 for this fit; read `RiskBound` for how loose they are.

        For regression they are in units of the scaled labels.
        """
        check_is_fitted(self, "coef_")
        check_range("delta", delta, 0, 1, open_low=True)
        if not hasattr(self, "ratio_reg_"):
            raise InputError("The bound is about source and target; this model was fitted without a target.")
        if self.coef_.shape[1] > 1:
            raise InputError("The bound is for regression and two classes; this model has more classes.")
        return risk_bound(*self._for_bound, delta)

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
        check_rule(self.rule)
        for name in ("width", "reg", "ratio_width", "ratio_reg"):
            if getattr(self, name) is not None:
                check_grid(name, getattr(self, name))
        if self.loss_bound is not None:
            check_bounds(self.loss_bound)
        if self.loss not in self._losses:
            raise ParameterError(f"loss must be one of {self._losses}; got {self.loss!r}.")


def check_bounds(value: Any) -> FloatArray:
    """Positive numbers, infinity among them."""
    entries = np.atleast_1d(np.asarray(value, dtype=object))
    infinite = np.array([isinstance(v, float) and v == np.inf for v in entries.ravel()]).reshape(entries.shape)
    if entries.ndim == 1 and infinite.all() and len(entries):
        return np.array([np.inf])
    finite = check_grid("loss_bound", list(entries[~infinite]) if entries.ndim == 1 else value)
    return np.append(np.inf, finite) if infinite.any() else finite


def _unit(labels: FloatArray, mass: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation."""
    mean = float(np.average(labels, weights=mass))
    return mean, float(np.sqrt(np.average(np.square(labels - mean), weights=mass)))


def _robust_unit(labels: FloatArray, mass: FloatArray) -> tuple[float, float]:
    """Median, and median distance from it over 0.6745; the standard deviation where more than half are equal."""
    middle = weighted_median(labels[None], mass)[0]
    spread = weighted_median(np.abs(labels - middle)[None], mass)[0] / 0.6745
    return float(middle), float(spread) or _unit(labels, mass)[1]


class OneStepRegressor(RegressorMixin, _OneStep):
    """Regression under covariate shift in one step: weights and predictor minimise one bound of the target risk.

    With f = αᵀφ and g = βᵀψ, both sums of Gaussians around target rows, algorithm 1 of the survey's section 5
    alternates between β and α to minimise

        (mean_source g·ℓ(f, y))² + m²·(mean_source g² − 2·mean_target g) + λ'‖β‖² + μ‖α‖²,

    which bounds half the squared risk on the target, up to a constant. Tukey's loss never exceeds m = 1 and defines
    the risk; ℓ is that loss itself or the square, which lies above it. Two-step methods minimise the second term
    first and the first one later.

    Widths come from the data, μ, λ and m are chosen within `fit` by held-out rows weighted to look like the target;
    no target label is looked at. Predictions are in the units of y.

    Parameters
    ----------
    loss : {"squared", "tukey"}, default="squared"
        Squared has closed forms. Tukey's bounds the influence of outliers; fitted by reweighted least squares.
    loss_bound : positive number or list of them, default=None
        m. The smaller, the more the losses pull on the weights; infinity switches that off and leaves uLSIF followed
        by weighted ridge regression. None chooses from 1 and 0.1. (The theorem is for m ≥ 1; a smaller m only says
        that losses are smaller than they could be.)
    tukey_scale : float, default=4.685
        ρ, in residual scales, beyond which Tukey's loss is constant. The square bounds it for ρ² ≥ 3 only.
    residual_scale : "robust" or positive number, default="robust"
        What Tukey's loss measures residuals in: the median absolute residual (over 0.6745) of the first fit, or a
        number in units of the scaled y. The survey's figure has 1.
    scale_y : bool, default=True
        Whether y is centred and scaled by the source: by mean and standard deviation, with Tukey's loss by median and
        median deviation. Without it the result depends on the unit of y, because m does not, and f shrinks toward
        zero instead of the middle of y.
    width, ratio_width : positive number or list of them, default=None
        σ of f and of g, in units of the standardised columns. None takes the median distance between rows of both
        domains, and between target rows.
    reg, ratio_reg : positive number or list of them, default=None
        μ, and λ = λ'/m², which is the `reg` of `ULSIF`. None chooses from 1e-4 to 1 and from 1e-3 to 10.
    n_centers : int, default=100
        How many Gaussians, around target rows drawn without replacement.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    rule : {"one-standard-error", "best"}, default="one-standard-error"
        Take the setting with the least held-out loss, or, among those within one standard error of it, the one with
        the greatest μ.
    max_iter : int, default=5
        Rounds at most.
    tol : float, default=1e-4
        Rounds end when no prediction on a source row moves by more, in units of the scaled y.
    random_state : int, Generator or None, default=None
        For the draw of the centres and the folds.

    Attributes
    ----------
    weights_ : one weight a source row, ≥ 0, mean one.
    ratio_ : the fitted g; ``ratio_.predict(X)`` gives it as it is, not normalised.
    objective_ : (Ĵ_UB + m²λ‖β‖² + μ‖α‖²)/m² of the two-step start and after each round. Rounding β to zero comes
        between, so it may rise; the round with the least one is kept (``best_round_``).
    ratio_steps_, predictor_steps_ : each round's own objective of the g-step (before rounding) and of the f-step,
        before and after. No half-step raises its own.
    n_iter_ : fits of the predictor: the start and one a round.
    width_, reg_, ratio_width_, ratio_reg_, loss_bound_ : what was chosen.
    coef_, centers_ : α and the (scaled) centres.
    effective_sample_size_ : what the weights are worth in equally weighted rows.

    Notes
    -----
    When to prefer it (``results/`` has the tables behind every sentence):

    * For its convenience: one quick call with sound defaults. On the survey's toy its rows are the best.
      That lead is selection: switching the coupling off changes nothing that can be measured, because losses are small
      beside m. What is left is uLSIF followed by weighted ridge regression with λ and μ chosen together, whose g is not
      normalised, so that a grid of μ reaches less smoothing than for normalised weights.
    * The coupling acts where large losses fall on rows of large weight: outlying labels, or noise that is larger where
      the target lies. It then took 8 to 23 % off one-step's own mean error (with outliers in a few trials only: the
      medians are equal), which makes it level with the two-step methods there, not better. Against outliers
      ``loss="tukey"`` is worth far more.
    * Where f cannot follow the curve, residuals are no sign of noise, and trusting them costs about 5 %: set
      ``loss_bound=numpy.inf`` there.
    * Where labels are mostly noise plain fits were better, and on auto, parkinsons and wine of table 2 too. Compare by
      `iwcv_score`.

    The half-steps do not descend on one objective: rounding β up to zero comes between them, and at small λ it raises
    the level of g, and ``objective_``, far above what the unrounded step had reached.

    Examples
    --------
    >>> from steelyard import OneStepRegressor, Target
    >>> from steelyard.data import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(random_state=0)
    >>> model = OneStepRegressor(random_state=0).fit(X, y, target=Target(X_target))
    >>> bool(((model.predict(X_target) - y_target) ** 2).mean() < 0.02)  # the noise alone is 0.01
    True
    """

    _losses = ("squared", "tukey")

    def __init__(
        self,
        loss: str = "squared",
        *,
        loss_bound: Any = None,
        tukey_scale: float = 4.685,
        residual_scale: Any = "robust",
        scale_y: bool = True,
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
        super().__init__(
            loss,
            loss_bound=loss_bound,
            width=width,
            reg=reg,
            ratio_width=ratio_width,
            ratio_reg=ratio_reg,
            n_centers=n_centers,
            standardize=standardize,
            rule=rule,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
        )
        self.tukey_scale = tukey_scale
        self.residual_scale = residual_scale
        self.scale_y = scale_y

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_range("tukey_scale", self.tukey_scale, 0, open_low=True)
        if self.loss == "squared":
            require_squared_bounds_tukey(self.tukey_scale)
        if self.residual_scale != "robust":
            check_range("residual_scale", self.residual_scale, 0, open_low=True)

    def _encode(self, y: Any, counts: FloatArray | None) -> FloatArray:
        labels = column_or_1d(y, warn=True, dtype=np.float64)
        if not np.isfinite(labels).all():
            raise NotFiniteError("y contains NaN or infinity; every label must be a finite number.")
        if np.max(np.abs(labels)) > 1e150:
            raise InputError("y has values whose squares are out of range. Rescale it.")
        self.y_mean_, self.y_scale_ = 0.0, 1.0
        if self.scale_y:
            mass = np.ones(len(labels)) if counts is None else counts
            # With Tukey's loss the unit must not follow the outliers that the loss is there to ignore.
            center, spread = (_robust_unit if self.loss == "tukey" else _unit)(labels, mass)
            self.y_mean_, self.y_scale_ = center, spread if spread > 1e-12 * abs(center) else 1.0
        return labels

    def _columns(self, labels: FloatArray) -> FloatArray:
        return ((labels - self.y_mean_) / self.y_scale_)[:, None]

    def _groups(self, y: FloatArray) -> None:
        return None

    def _make_loss(self, predictions: FloatArray, y: FloatArray, weights: FloatArray) -> Loss:
        if self.loss == "squared":
            return Squared()
        if self.residual_scale != "robust":
            return Tukey(np.full(len(predictions), self.tukey_scale * float(self.residual_scale)))
        return Tukey(self.tukey_scale * robust_scale(predictions[..., 0] - y[:, 0], weights))

    def _common_loss(self, predictions: FloatArray, y: FloatArray, weights: FloatArray) -> Loss:
        """One loss for all settings: Tukey's with the least of their residual scales."""
        loss = self._make_loss(predictions, y, np.broadcast_to(weights, predictions.shape[:2]))
        return Tukey(float(np.min(loss.scale))) if isinstance(loss, Tukey) else loss

    def predict(self, X: Any) -> FloatArray:
        """Predictions, in the units of y."""
        return np.asarray(self._decision(X)[:, 0] * self.y_scale_ + self.y_mean_)


def _is_logistic(self: Any) -> bool:
    if self.loss != "logistic":
        raise AttributeError(f'predict_proba needs loss="logistic"; this one has loss={self.loss!r}.')
    return True


class OneStepClassifier(ClassifierMixin, _OneStep):
    """Classification under covariate shift in one step: weights and predictor minimise one bound of the target risk.

    The risk is the share of wrong classes, at most m = 1; ℓ is a surrogate that lies above the zero-one loss: the
    square, the hinge, or the cross-entropy in bits. The objective and the algorithm are those of `OneStepRegressor`
    (survey, section 5).

    Parameters
    ----------
    loss : {"squared", "hinge", "logistic"}, default="squared"
        Squared has closed forms; more than two classes are columns of −1 and 1, one against the rest. Logistic is the
        softmax for more than two classes and has ``predict_proba``. Hinge is a support vector machine, for two
        classes only, and the slowest by far (seconds where the square takes a tenth): every setting is a quadratic
        program of its own. Fix ratio_reg and loss_bound to speed it up.
    loss_bound, width, ratio_width, reg, ratio_reg, n_centers, standardize, rule, max_iter, tol, random_state
        As in `OneStepRegressor`.

    Attributes
    ----------
    classes_ : the labels.
    weights_, ratio_, objective_, ratio_steps_, predictor_steps_, best_round_, width_, reg_, ratio_width_,
    ratio_reg_, loss_bound_, coef_, centers_, effective_sample_size_
        As in `OneStepRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import OneStepClassifier, Target
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (200, 2)), rng.normal(0.5, 0.8, (100, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] ** 2, "yes", "no")
    >>> model = OneStepClassifier(random_state=0).fit(X, y, target=Target(X_target))
    >>> model.predict(X_target).shape
    (100,)
    """

    _losses = ("squared", "hinge", "logistic")

    def _encode(self, y: Any, counts: FloatArray | None) -> FloatArray:
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        present = labels if counts is None else labels[counts > 0]
        self.classes_ = np.unique(present)
        if len(self.classes_) < 2:
            raise InputError(
                f"A classifier needs rows of at least two classes; got only one class, {self.classes_[0]!r}."
            )
        if self.loss == "hinge" and len(self.classes_) > 2:
            raise InputError(
                f'loss="hinge" is for two classes; y has {len(self.classes_)}. Use loss="squared" or loss="logistic".'
            )
        # Rows that do not count may have a class that no other row has.
        return np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1).astype(np.float64)

    def _columns(self, labels: FloatArray) -> FloatArray:
        if len(self.classes_) == 2:
            return 2 * labels[:, None] - 1
        return np.where(labels[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)

    def _groups(self, y: FloatArray) -> IntArray:
        return np.argmax(y, axis=1) if y.shape[1] > 1 else (y[:, 0] > 0).astype(np.intp)

    def _make_loss(self, predictions: FloatArray, y: FloatArray, weights: FloatArray) -> Loss:
        losses: dict[str, Loss] = {"squared": Squared(), "hinge": Hinge(), "logistic": Logistic()}
        return losses[self.loss]

    def _common_loss(self, predictions: FloatArray, y: FloatArray, weights: FloatArray) -> Loss:
        return self._make_loss(predictions, y, weights)

    def decision_function(self, X: Any) -> FloatArray:
        """f at rows `X`: positive for the second of two classes, or one column a class."""
        values = self._decision(X)
        return values[:, 0] if len(self.classes_) == 2 else values

    def predict(self, X: Any) -> Any:
        """The class of each row."""
        values = self._decision(X)
        which = (values[:, 0] > 0).astype(np.intp) if len(self.classes_) == 2 else np.argmax(values, axis=1)
        return self.classes_[which]

    @available_if(_is_logistic)
    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities, with loss="logistic" alone."""
        values = self._decision(X)
        if len(self.classes_) > 2:
            return np.asarray(softmax(values, axis=1))
        return np.column_stack([expit(-values[:, 0]), expit(values[:, 0])])
