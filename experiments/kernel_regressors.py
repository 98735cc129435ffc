"""The baselines of tables 1 and 2 for regression."""

from __future__ import annotations

from experiments.kernel_methods import EIWERMWeights, ERMWeights, RIWERMWeights
from steelyard.one_step import OneStepRegressor


class ERMRegressor(ERMWeights, OneStepRegressor):
    """Empirical risk minimization without weights, a baseline of tables 1 and 2.

    It minimizes mean_source ℓ(f, y) + μ‖α‖² with f = αᵀφ, a sum of Gaussians; the target enters the choice of μ and
    the centers alone. Basis, grid of μ, folds and selection rule are those of `steelyard.OneStepRegressor`, so that a
    row of the table differs from one-step in its weights alone.

    Parameters
    ----------
    loss : {"squared", "tukey"}, default="squared"
        ℓ. Tukey's loss bounds the influence of outliers.
    tukey_scale : float, default=4.685
        ρ, the residual, in units of the residual scale, beyond which Tukey's loss is constant.
    residual_scale : "robust" or positive number, default="robust"
        The unit in which Tukey's loss measures residuals: the median absolute residual of the initial fit divided by
        0.6745, or a number in units of the scaled y.
    scale_y : bool, default=True
        Whether y is centered and scaled by the source before the fit.
    width : positive number or list of them, default=None
        σ, the kernel width (bandwidth) of the Gaussians of f, in units of the standardized columns. One of a list is
        chosen. None takes the median distance between rows of both domains.
    reg : positive number or list of them, default=None
        μ, the regularization strength. One of a list is chosen; None chooses from a grid from 1e-4 to 1.
    n_centers : int, default=100
        Number of Gaussians of f; their centers are target rows.
    standardize : bool, default=True
        Whether each column is divided by its standard deviation over both domains.
    rule : {"one-standard-error", "best"}, default="one-standard-error"
        How hyperparameters are chosen by their importance-weighted loss on held-out rows: the smallest loss ("best"),
        or the greatest `reg` within one standard error of it.
    random_state : int, Generator or None, default=None
        Seed of the centers, of the folds and of the density ratios.
    loss_bound, ratio_width, ratio_reg, max_iter, tol : any
        Not used, as no weights are learned; accepted so that all rows of a table have the same settings.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        Uniform weights, one for each source row.
    effective_sample_size_ : float
        Effective sample size (ESS) of the weights, at most the number of source rows.
    width_ : float
        Chosen kernel width.
    reg_ : float
        Chosen regularization strength.
    coef_ : array of shape (n_centers, n_outputs)
        α, the coefficients of f.
    centers_ : array of shape (n_centers, n_columns)
        Centers of the Gaussians, in units of the standardized columns.

    Examples
    --------
    >>> from experiments import ERMRegressor
    >>> from steelyard import Target
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(random_state=0)
    >>> model = ERMRegressor(n_centers=20, random_state=0).fit(X, y, target=Target(X_target))
    >>> bool(((model.predict(X_target) - y_target) ** 2).mean() < 0.5)
    True
    """


class EIWERMRegressor(EIWERMWeights, OneStepRegressor):
    """Exponentially flattened importance weighting, a baseline of tables 1 and 2.

    It minimizes mean_source w^γ·ℓ(f, y) + μ‖α‖², where w are the weights of `steelyard.ULSIF` and the flattening γ is
    chosen from 0, 0.1, …, 1 together with μ, with f = αᵀφ, a sum of Gaussians. Basis, grid of μ, folds and selection
    rule are those of `steelyard.OneStepRegressor`, so that a row of the table differs from one-step in its weights
    alone.

    Parameters
    ----------
    loss : {"squared", "tukey"}, default="squared"
        ℓ. Tukey's loss bounds the influence of outliers.
    tukey_scale : float, default=4.685
        ρ, the residual, in units of the residual scale, beyond which Tukey's loss is constant.
    residual_scale : "robust" or positive number, default="robust"
        The unit in which Tukey's loss measures residuals: the median absolute residual of the initial fit divided by
        0.6745, or a number in units of the scaled y.
    scale_y : bool, default=True
        Whether y is centered and scaled by the source before the fit.
    width : positive number or list of them, default=None
        σ, the kernel width (bandwidth) of the Gaussians of f, in units of the standardized columns. One of a list is
        chosen. None takes the median distance between rows of both domains.
    reg : positive number or list of them, default=None
        μ, the regularization strength. One of a list is chosen; None chooses from a grid from 1e-4 to 1.
    n_centers : int, default=100
        Number of Gaussians of f; their centers are target rows.
    standardize : bool, default=True
        Whether each column is divided by its standard deviation over both domains.
    rule : {"one-standard-error", "best"}, default="one-standard-error"
        How hyperparameters are chosen by their importance-weighted loss on held-out rows: the smallest loss ("best"),
        or the greatest `reg` within one standard error of it.
    random_state : int, Generator or None, default=None
        Seed of the centers, of the folds and of the density ratios.
    loss_bound, ratio_width, ratio_reg, max_iter, tol : any
        Not used, as no weights are learned; accepted so that all rows of a table have the same settings.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        The chosen flattened weights, one for each source row, with mean one.
    effective_sample_size_ : float
        Effective sample size (ESS) of the weights, at most the number of source rows.
    width_ : float
        Chosen kernel width.
    reg_ : float
        Chosen regularization strength.
    coef_ : array of shape (n_centers, n_outputs)
        α, the coefficients of f.
    centers_ : array of shape (n_centers, n_columns)
        Centers of the Gaussians, in units of the standardized columns.

    Examples
    --------
    >>> from experiments import EIWERMRegressor
    >>> from steelyard import Target
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(random_state=0)
    >>> model = EIWERMRegressor(n_centers=20, random_state=0).fit(X, y, target=Target(X_target))
    >>> bool(((model.predict(X_target) - y_target) ** 2).mean() < 0.03)
    True
    """


class RIWERMRegressor(RIWERMWeights, OneStepRegressor):
    """Relative importance weighting, a baseline of tables 1 and 2.

    It minimizes mean_source w·ℓ(f, y) + μ‖α‖², where w are the weights of `steelyard.RULSIF` and its η is chosen from
    0, 0.1, …, 1 together with μ, with f = αᵀφ, a sum of Gaussians. Basis, grid of μ, folds and selection rule are those
    of `steelyard.OneStepRegressor`, so that a row of the table differs from one-step in its weights alone.

    Parameters
    ----------
    loss : {"squared", "tukey"}, default="squared"
        ℓ. Tukey's loss bounds the influence of outliers.
    tukey_scale : float, default=4.685
        ρ, the residual, in units of the residual scale, beyond which Tukey's loss is constant.
    residual_scale : "robust" or positive number, default="robust"
        The unit in which Tukey's loss measures residuals: the median absolute residual of the initial fit divided by
        0.6745, or a number in units of the scaled y.
    scale_y : bool, default=True
        Whether y is centered and scaled by the source before the fit.
    width : positive number or list of them, default=None
        σ, the kernel width (bandwidth) of the Gaussians of f, in units of the standardized columns. One of a list is
        chosen. None takes the median distance between rows of both domains.
    reg : positive number or list of them, default=None
        μ, the regularization strength. One of a list is chosen; None chooses from a grid from 1e-4 to 1.
    n_centers : int, default=100
        Number of Gaussians of f; their centers are target rows.
    standardize : bool, default=True
        Whether each column is divided by its standard deviation over both domains.
    rule : {"one-standard-error", "best"}, default="one-standard-error"
        How hyperparameters are chosen by their importance-weighted loss on held-out rows: the smallest loss ("best"),
        or the greatest `reg` within one standard error of it.
    random_state : int, Generator or None, default=None
        Seed of the centers, of the folds and of the density ratios.
    loss_bound, ratio_width, ratio_reg, max_iter, tol : any
        Not used, as no weights are learned; accepted so that all rows of a table have the same settings.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        The chosen relative weights, one for each source row, with mean one.
    effective_sample_size_ : float
        Effective sample size (ESS) of the weights, at most the number of source rows.
    width_ : float
        Chosen kernel width.
    reg_ : float
        Chosen regularization strength.
    coef_ : array of shape (n_centers, n_outputs)
        α, the coefficients of f.
    centers_ : array of shape (n_centers, n_columns)
        Centers of the Gaussians, in units of the standardized columns.

    Examples
    --------
    >>> from experiments import RIWERMRegressor
    >>> from steelyard import Target
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(random_state=0)
    >>> model = RIWERMRegressor(n_centers=20, random_state=0).fit(X, y, target=Target(X_target))
    >>> bool(((model.predict(X_target) - y_target) ** 2).mean() < 0.03)
    True
    """
