"""The baselines of table 2 for classification."""

from __future__ import annotations

from experiments.kernel_methods import EIWERMWeights, ERMWeights, RIWERMWeights
from steelyard.one_step import OneStepClassifier


class ERMClassifier(ERMWeights, OneStepClassifier):
    """Empirical risk minimization without weights, a baseline of tables 1 and 2.

    It minimizes mean_source ℓ(f, y) + μ‖α‖² with f = αᵀφ, a sum of Gaussians; the target enters the choice of μ and
    the centers alone. Basis, grid of μ, folds and selection rule are those of `steelyard.OneStepClassifier`, so that a
    row of the table differs from one-step in its weights alone.

    Parameters
    ----------
    loss : {"squared", "hinge", "logistic"}, default="squared"
        ℓ, an upper bound of the zero-one loss. "hinge" is for two classes only; "logistic" offers ``predict_proba``.
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
    classes_ : array of shape (n_classes,)
        The class labels.
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
    >>> import numpy as np
    >>> from experiments import ERMClassifier
    >>> from steelyard import Target
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (80, 1)), rng.normal(1, 0.5, (80, 1))
    >>> y = (X[:, 0] > 1).astype(int)
    >>> model = ERMClassifier(n_centers=20, random_state=0).fit(X, y, target=Target(X_target))
    >>> bool(np.mean(model.predict(X_target) == (X_target[:, 0] > 1)) > 0.8)
    True
    """


class EIWERMClassifier(EIWERMWeights, OneStepClassifier):
    """Exponentially flattened importance weighting, a baseline of tables 1 and 2.

    It minimizes mean_source w^γ·ℓ(f, y) + μ‖α‖², where w are the weights of `steelyard.ULSIF` and the flattening γ is
    chosen from 0, 0.1, …, 1 together with μ, with f = αᵀφ, a sum of Gaussians. Basis, grid of μ, folds and selection
    rule are those of `steelyard.OneStepClassifier`, so that a row of the table differs from one-step in its weights
    alone.

    Parameters
    ----------
    loss : {"squared", "hinge", "logistic"}, default="squared"
        ℓ, an upper bound of the zero-one loss. "hinge" is for two classes only; "logistic" offers ``predict_proba``.
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
    classes_ : array of shape (n_classes,)
        The class labels.
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
    >>> import numpy as np
    >>> from experiments import EIWERMClassifier
    >>> from steelyard import Target
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (80, 1)), rng.normal(1, 0.5, (80, 1))
    >>> y = (X[:, 0] > 1).astype(int)
    >>> model = EIWERMClassifier(n_centers=20, random_state=0).fit(X, y, target=Target(X_target))
    >>> bool(np.mean(model.predict(X_target) == (X_target[:, 0] > 1)) > 0.8)
    True
    """


class RIWERMClassifier(RIWERMWeights, OneStepClassifier):
    """Relative importance weighting, a baseline of tables 1 and 2.

    It minimizes mean_source w·ℓ(f, y) + μ‖α‖², where w are the weights of `steelyard.RULSIF` and its η is chosen from
    0, 0.1, …, 1 together with μ, with f = αᵀφ, a sum of Gaussians. Basis, grid of μ, folds and selection rule are those
    of `steelyard.OneStepClassifier`, so that a row of the table differs from one-step in its weights alone.

    Parameters
    ----------
    loss : {"squared", "hinge", "logistic"}, default="squared"
        ℓ, an upper bound of the zero-one loss. "hinge" is for two classes only; "logistic" offers ``predict_proba``.
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
    classes_ : array of shape (n_classes,)
        The class labels.
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
    >>> import numpy as np
    >>> from experiments import RIWERMClassifier
    >>> from steelyard import Target
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (80, 1)), rng.normal(1, 0.5, (80, 1))
    >>> y = (X[:, 0] > 1).astype(int)
    >>> model = RIWERMClassifier(n_centers=20, random_state=0).fit(X, y, target=Target(X_target))
    >>> bool(np.mean(model.predict(X_target) == (X_target[:, 0] > 1)) > 0.8)
    True
    """
