"""Importance-weighted stacking: several learners combined by their held-out predictions, weighted for the target."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from steelyard._typing import FloatArray
from steelyard.stacking._base import StackedBase


class StackedRegressor(RegressorMixin, StackedBase):
    """Regression by a combination f = Σ_k β_k f_k of learners for the target: importance-weighted stacking.

    Every learner f_k predicts held-out rows (five folds; two draws of the folds on up to 500 rows). The shares β ≥ 0,
    Σβ = 1, minimize the squared error of the combined held-out predictions under the flattened importance weights
    w_i^γ, shrunk towards equal shares as far as held-out rows prefer. With γ = 1 their limit is the combination that is
    best on the target under covariate shift (survey, section 3.1; a super learner); smaller γ reduces the variance
    (section 4.1). Each learner is also fitted with these weights, and that fit takes its place where its own weighted
    held-out error is smaller.

    Parameters
    ----------
    estimators : list of (str, regressor), default=None
        The learners, of any kind. None takes a linear model, kernel ridge regression with Gaussians, boosted trees and
        a forest, each with its hyperparameters chosen by itself, and `OneStepRegressor`. A learner whose ``fit`` takes
        a `target` gets it; one that takes no sample weights is used without.
    ratio : ratio estimator, default=None
        Estimator of the importance weights; None is ``AutoRatio(random_state=0)``.
    flattening : float in [0, 1], default=0.5
        γ, the power of the weights: 0 is ordinary stacking.
    preprocess : transformer, default=None
        Fitted on the source rows and applied to source and target before ratio and learners, as in `WeightedRegressor`.
    random_state : int or Generator, default=0
        For the folds.
    n_jobs : int, default=None
        Learners that are fitted in parallel, as in joblib.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal and the fit takes more than two seconds.

    Attributes
    ----------
    estimators_ : list of (str, regressor)
        The fitted learners with a positive share.
    shares_ : dict of float
        Share of each learner, by its name; that of a learner with weights is followed by ", weighted".
    losses_ : dict of float
        Weighted mean of the squared held-out errors of each learner.
    failed_ : dict of str
        Learners that could not be fitted to one of the folds and were left out, and why.
    shrinkage_ : float
        Strength of the shrinkage towards equal shares; infinity means equal shares.
    weights_ : array of shape (n_source,)
        Flattened importance weight of each source row, with mean one.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of these weights.
    ratio_ : ratio estimator
        The fitted ratio estimator; absent with flattening=0 or without a target.
    preprocess_ : transformer
        The fitted transformer; absent without `preprocess`.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Notes
    -----
    ``sample_weight`` says how often a source row counts: weighting a row by two and repeating it are the same fit, also
    for trees and forests, because rows with whole weights are repeated. Other weights are passed on to the learners.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from steelyard import StackedRegressor, Target
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(200, 200, random_state=0)
    >>> learners = [("linear", Ridge()), ("tree", DecisionTreeRegressor(min_samples_leaf=5, random_state=0))]
    >>> model = StackedRegressor(learners).fit(X, y, target=Target(X_target))
    >>> round(sum(model.shares_.values()), 6), len(model.predict(X_target))
    (1.0, 200)
    """

    _classes: Any = np.zeros(0)

    def _encode(self, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        labels = column_or_1d(y, warn=True).astype(np.float64)
        assert_all_finite(labels, input_name="y")
        return labels, labels

    def predict(self, X: Any) -> FloatArray:
        """Predict by the combination.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            The prediction for each row.
        """
        return self._outputs(X)[:, 0]


class StackedClassifier(ClassifierMixin, StackedBase):
    """Classification by a combination p = Σ_k β_k p_k of the probabilities of learners: importance-weighted stacking.

    Every learner predicts the class probabilities p_k of held-out rows (up to five folds, stratified; two draws of
    the folds on up to 500 rows). The shares β ≥ 0, Σβ = 1, minimize the Brier score of the combined probabilities, a
    proper loss, under the flattened importance weights w_i^γ, shrunk towards equal shares as far as held-out rows
    prefer. With γ = 1 their limit is the combination that is best on the target under covariate shift (survey, section
    3.1; a super learner); smaller γ reduces the variance (section 4.1). Each learner is also fitted with these weights,
    and that fit takes its place where its own weighted held-out score is better.

    Parameters
    ----------
    estimators : list of (str, classifier), default=None
        The learners, of any kind; without probabilities, decision values between −1 and 1 or predictions serve. None
        takes logistic regression, kernel ridge regression with Gaussians, boosted trees and a forest, each with its
        hyperparameters chosen by itself, and `OneStepClassifier`. A learner whose ``fit`` takes a `target` gets it; one
        that takes no sample weights is used without.
    ratio : ratio estimator, default=None
        Estimator of the importance weights; None is ``AutoRatio(random_state=0)``.
    flattening : float in [0, 1], default=0.5
        γ, the power of the weights: 0 is ordinary stacking.
    preprocess : transformer, default=None
        Fitted on the source rows and applied to source and target before ratio and learners, as in
        `WeightedClassifier`.
    random_state : int or Generator, default=0
        For the folds.
    n_jobs : int, default=None
        Learners that are fitted in parallel, as in joblib.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal and the fit takes more than two seconds.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The class labels, in the order of the columns of ``predict_proba``.
    estimators_ : list of (str, classifier)
        The fitted learners with a positive share.
    shares_ : dict of float
        Share of each learner, by its name; that of a learner with weights is followed by ", weighted".
    losses_ : dict of float
        Weighted mean of the held-out Brier score of each learner.
    failed_ : dict of str
        Learners that could not be fitted to one of the folds and were left out, and why.
    shrinkage_ : float
        Strength of the shrinkage towards equal shares; infinity means equal shares.
    weights_ : array of shape (n_source,)
        Flattened importance weight of each source row, with mean one.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of these weights.
    ratio_ : ratio estimator
        The fitted ratio estimator; absent with flattening=0 or without a target.
    preprocess_ : transformer
        The fitted transformer; absent without `preprocess`.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Notes
    -----
    ``sample_weight`` says how often a source row counts: weighting a row by two and repeating it are the same fit, also
    for trees and forests, because rows with whole weights are repeated. Other weights are passed on to the learners.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from steelyard import StackedClassifier, Target
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (200, 2)), rng.normal(0.5, 0.8, (100, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] ** 2, "yes", "no")
    >>> learners = [("linear", LogisticRegression()), ("naive Bayes", GaussianNB())]
    >>> model = StackedClassifier(learners).fit(X, y, target=Target(X_target))
    >>> model.predict_proba(X_target).shape
    (100, 2)
    """

    @property
    def _classes(self) -> Any:
        return self.classes_

    def _encode(self, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return labels, codes

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities of the combination.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows, n_classes)
            The probability of each class, for each row.
        """
        return self._outputs(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            The class of each row.
        """
        found = self._outputs(X)
        return np.asarray(self.classes_[found.argmax(axis=1)])
