"""The learners that are combined where none are given, each with its hyperparameters chosen by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from steelyard._numerics.duplicates import table_columns
from steelyard._splits.rows import folds_of_table
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_weights
from steelyard.errors import ParameterError
from steelyard.one_step import OneStepClassifier, OneStepRegressor
from steelyard.stacking.rbf import ROWS_OF_CHOICE, RBFClassifier, RBFRegressor

LINEAR, RBF, BOOSTED, FOREST, ONE_STEP = "linear", "RBF", "boosted trees", "forest", "one-step"
INVERSE_REGS = (0.01, 0.1, 1.0, 10.0)
# The learners of a fast fit.
FAST = (LINEAR, BOOSTED)
N_FOLDS = 3
N_TREES = 64
# With fewer rows, those that early stopping would set aside are missed more than they help.
LEAST_STOPPED = 1000
# Each tree of a forest sees at most so many rows, which bounds time and memory on large tables.
ROWS_OF_A_TREE = 20_000


def default_learners(classify: bool, n_rows: int) -> list[tuple[str, Any]]:
    """A linear model, kernel ridge regression with Gaussians, boosted trees, a forest of extra trees, and one-step.

    Parameters
    ----------
    classify : bool
        Whether labels are classes.
    n_rows : int
        Number of rows that the learners are fitted on.

    Returns
    -------
    list of (str, estimator)
    """
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    forest: dict[str, Any] = {"n_estimators": N_TREES, "min_samples_leaf": 2, "random_state": 0}
    if n_rows > ROWS_OF_A_TREE:
        forest |= {"bootstrap": True, "max_samples": ROWS_OF_A_TREE}
    boosting: dict[str, Any] = {"random_state": 0, "early_stopping": n_rows >= LEAST_STOPPED}
    if boosting["early_stopping"]:
        boosting |= {"max_iter": 300, "validation_fraction": 0.15}
    if classify:
        return [
            (LINEAR, LogisticLearner()),
            (RBF, RBFClassifier()),
            (BOOSTED, HistGradientBoostingClassifier(**boosting)),
            (FOREST, ExtraTreesClassifier(**forest)),
            (ONE_STEP, OneStepClassifier(random_state=0)),
        ]
    return [
        (LINEAR, make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))),
        (RBF, RBFRegressor()),
        (BOOSTED, HistGradientBoostingRegressor(**boosting)),
        (FOREST, ExtraTreesRegressor(max_features=0.5, **forest)),
        (ONE_STEP, OneStepRegressor(random_state=0)),
    ]


def choose_learners(names: Sequence[str], learners: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The learners of these names, in any case and with hyphens for blanks; all of them where no name is given.

    Parameters
    ----------
    names : sequence of str
        What the user wrote.
    learners : list of (str, estimator)
        The learners that there are.

    Returns
    -------
    list of (str, estimator)
    """
    wanted = {_plain(name) for name in names}
    unknown = [name for name in names if _plain(name) not in {_plain(known) for known, _ in learners}]
    if unknown:
        raise ParameterError(
            f"There is no learner {unknown[0]!r}; the learners are {', '.join(name for name, _ in learners)}."
        )
    return [(name, learner) for name, learner in learners if not wanted or _plain(name) in wanted]


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", " ")


class LogisticLearner(ClassifierMixin, BaseEstimator):
    """Logistic regression on standardized columns; its regularization strength has the least held-out log loss.

    (scikit-learn's LogisticRegressionCV cannot keep duplicates in one fold, nor use fewer folds for rare classes.)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose the regularization strength, and fit."""
        X, y = validate_data(self, X, y, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        weights = check_weights(sample_weight, len(X))
        self.scaler_ = StandardScaler().fit(X)
        rows = self.scaler_.transform(X)
        self.C_ = self._choose(rows, codes, np.ones(len(X)) if weights is None else weights)
        self.model_ = LogisticRegression(C=self.C_, max_iter=2000).fit(rows, y, sample_weight=weights)
        return self

    def _choose(self, rows: FloatArray, codes: IntArray, weights: FloatArray) -> float:
        rng = np.random.default_rng(0)
        some = rng.permutation(len(rows))[:ROWS_OF_CHOICE]
        rows, codes, weights = rows[some], codes[some], weights[some]
        n_folds = min(N_FOLDS, int(np.bincount(codes).min()))
        losses = np.zeros(len(INVERSE_REGS))
        if n_folds < 2:
            return 1.0
        fold = folds_of_table(table_columns(rows, codes.astype(np.float64)), n_folds, rng, codes)
        for f in range(n_folds):
            train, test = fold != f, fold == f
            if len(np.unique(codes[train])) < len(self.classes_) or not weights[train].any():
                continue
            for i, C in enumerate(INVERSE_REGS):
                model = LogisticRegression(C=C, max_iter=2000).fit(rows[train], codes[train], weights[train])
                logs = model.predict_log_proba(rows[test])[np.arange(test.sum()), codes[test]]
                losses[i] -= weights[test] @ np.maximum(logs, -30)
        return float(INVERSE_REGS[int(np.argmin(losses))])

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class, for each row."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.predict_proba(self.scaler_.transform(validate_data(self, X, reset=False))))

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
