"""Classification by one-step covariate shift adaptation (survey, section 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from steelyard._numerics.losses import Hinge, Logistic, Loss, Squared
from steelyard._typing import FloatArray, IntArray
from steelyard.errors import InputError
from steelyard.one_step._base import OneStepBase


def _is_logistic(self: Any) -> bool:
    if self.loss != "logistic":
        raise AttributeError(f'predict_proba needs loss="logistic"; this estimator has loss={self.loss!r}.')
    return True


class OneStepClassifier(ClassifierMixin, OneStepBase):
    """Classification under covariate shift in one step: weights and predictor minimize one bound on the target risk.

    The predictor f = αᵀφ and the density ratio g = βᵀψ are both sums of Gaussians centered at target rows. Algorithm 1
    of the survey's section 5 alternates between β and α to minimize

        (mean_source g·ℓ(f, y))² + m²·(mean_source g² − 2·mean_target g) + λ'‖β‖² + μ‖α‖²,

    where the first two terms bound half the squared risk on the target, up to a constant. The risk is the probability
    of a wrong class, which is at most m = 1; ℓ is a surrogate that is an upper bound of the zero-one loss: the squared
    loss, the hinge loss, or the cross-entropy with base-2 logarithm.

    Kernel widths come from the data. `fit` chooses the hyperparameters μ, λ and m by cross-validation on source rows
    with importance weights. No target label is used.

    Parameters
    ----------
    loss : {"squared", "hinge", "logistic"}, default="squared"
        ℓ. The squared loss has closed forms; with more than two classes each class has a column of −1 and 1, one
        against the rest. "logistic" is the softmax with more than two classes and offers ``predict_proba``. "hinge" is
        a support vector machine for two classes only, and by far the slowest (seconds where the squared loss takes a
        tenth of a second), because each setting is a separate quadratic program; fix `ratio_reg` and `loss_bound` to
        speed it up.
    loss_bound : positive number or list of them, default=None
        m. The smaller it is, the more the losses influence the weights. Infinity removes this coupling and leaves uLSIF
        followed by a weighted fit. One of a list is chosen; None chooses from 1 and 0.1. (The theorem requires m ≥ 1; a
        smaller m only assumes that the losses are smaller than their bound.)
    width : positive number or list of them, default=None
        σ, the kernel width (bandwidth) of the Gaussians of the predictor f, in units of the standardized columns. One
        of a list is chosen. None takes the median distance between rows of both domains.
    reg : positive number or list of them, default=None
        μ, the regularization strength of the predictor. One of a list is chosen; None chooses from a grid from 1e-4 to
        1.
    ratio_width : positive number or list of them, default=None
        The kernel width of the Gaussians of the density ratio g. None takes the median distance between target rows.
    ratio_reg : positive number or list of them, default=None
        λ = λ'/m², the regularization strength of the density ratio; it is the `reg` of `ULSIF`. One of a list is
        chosen; None chooses from a grid from 1e-3 to 10.
    n_centers : int, default=100
        Number of Gaussians. Their centers are target rows drawn without replacement.
    standardize : bool, default=True
        Whether each column is divided by its standard deviation over both domains.
    rule : {"one-standard-error", "best"}, default="one-standard-error"
        How the hyperparameters are chosen by their importance-weighted loss on held-out rows. "best" takes the setting
        with the smallest loss. "one-standard-error" takes, among the settings within one standard error of it, the one
        with the greatest `reg`.
    max_iter : int, default=5
        Largest number of rounds of the alternation.
    tol : float, default=1e-4
        The alternation ends when f changes by no more than this at any source row in a round.
    random_state : int, Generator or None, default=None
        Seed of the choice of centers and of the folds.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The class labels.
    weights_ : array of shape (n_source,)
        One importance weight for each source row, at least 0, with mean one.
    ratio_ : OneStepRatio
        The fitted density ratio g; ``ratio_.predict(X)`` returns its values at rows `X`, not normalized.
    effective_sample_size_ : float
        Effective sample size (ESS) of the weights, at most the number of source rows.
    width_ : float
        Chosen kernel width of the predictor.
    reg_ : float
        Chosen regularization strength of the predictor.
    ratio_width_ : float
        Chosen kernel width of the density ratio; absent without a target, as the next two.
    ratio_reg_ : float
        Chosen regularization strength of the density ratio.
    loss_bound_ : float
        Chosen m.
    coef_ : array of shape (n_centers, n_outputs)
        α, the coefficients of the predictor.
    centers_ : array of shape (n_centers, n_columns)
        Centers of the Gaussians, in units of the standardized columns.
    center_ : array of shape (n_columns,)
        Subtracted from the columns before the kernels are computed.
    scale_ : array of shape (n_columns,)
        The columns are divided by it before the kernels are computed.
    objective_ : array of shape (n_iter,)
        (Ĵ_UB + m²λ‖β‖² + μ‖α‖²)/m² of the two-step start and after each round. It may rise, because negative
        coefficients β are rounded up to zero between the steps. The round with the smallest value is kept.
    best_round_ : int
        Number of the round that was kept.
    ratio_steps_ : array of shape (n_rounds, 2)
        Objective of the g-step before and after the step (before rounding), for each round. The step never raises it.
    predictor_steps_ : array of shape (n_rounds, 2)
        Objective of the f-step before and after the step, for each round. The step never raises it.
    n_iter_ : int
        Number of fits of the predictor: the start and one for each round.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

    See Also
    --------
    WeightedClassifier : Two-step importance weighting of any classifier.
    iwcv_score : Comparison of methods by importance-weighted cross-validation.

    Notes
    -----
    The findings in the notes of `OneStepRegressor` apply: the coupling of losses and weights helps only where large
    losses coincide with large weights, and where the labels are mostly noise an unweighted fit can be better. Compare
    methods by `iwcv_score`.

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
                f"A classifier needs source rows of at least two classes; got only one class, {self.classes_[0]!r}."
            )
        if self.loss == "hinge" and len(self.classes_) > 2:
            raise InputError(
                f'loss="hinge" is for two classes; y has {len(self.classes_)}. Use loss="squared" or loss="logistic".'
            )
        # Rows of weight zero may have a class that no other row has.
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
        """The values of f, before they are turned into classes.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,) or (n_rows, n_classes)
            With two classes one value for each row, positive for the second class; with more, one column for each
            class.
        """
        values = self._decision(X)
        return values[:, 0] if len(self.classes_) == 2 else values

    def predict(self, X: Any) -> Any:
        """Predict the class of each row.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            Predicted classes.
        """
        values = self._decision(X)
        which = (values[:, 0] > 0).astype(np.intp) if len(self.classes_) == 2 else np.argmax(values, axis=1)
        return self.classes_[which]

    @available_if(_is_logistic)
    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities; only with loss="logistic".

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows, n_classes)
            Probabilities, with the classes in the order of ``classes_``.
        """
        values = self._decision(X)
        if len(self.classes_) > 2:
            return np.asarray(softmax(values, axis=1))
        return np.column_stack([expit(-values[:, 0]), expit(values[:, 0])])
