"""Selection under shift: importance-weighted cross-validation and the search that uses it."""

from __future__ import annotations

import numbers
import time
import warnings
from copy import deepcopy
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import has_fit_parameter

from steelyard._numerics.duplicates import table_columns
from steelyard._numerics.weighted_means import standard_error, weighted_mean
from steelyard._splits.rows import folds_of_table
from steelyard._typing import FloatArray
from steelyard._validation import (
    check_count,
    check_labels,
    forget_fit,
    match_columns,
    preprocessed,
    warn_without_target,
)
from steelyard.errors import InputError, NoTargetWarning, ParameterError, RawMeanWarning, SmallEffectiveSampleWarning
from steelyard.model_selection._scoring import RowScores, row_scores
from steelyard.ratio import default_ratio
from steelyard.target import Target


def validation_weights(estimator: Any, X: Any, target: Any, ratio: Any) -> FloatArray:
    """Importance of every source row for judging: one ratio, fitted once on all rows, unflattened.

    Where the estimator preprocesses its tables, the ratio sees them preprocessed in the same way.
    """
    if target is None:
        warn_without_target("Cross-validation", "every row counts the same and it is the plain one", 3)
        return np.ones(_safe_length(X))
    rows, goal = X, match_columns(target, X)
    preprocess = getattr(estimator, "preprocess", None)
    if preprocess is not None:
        fitted = clone(preprocess).fit(rows)
        rows, goal = preprocessed(fitted, rows), preprocessed(fitted, goal)
    judge = clone(default_ratio() if ratio is None else ratio).fit(rows, target=Target(goal))
    return np.asarray(judge.weights_)


def _safe_length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _splits(cv: Any, estimator: Any, X: Any, y: Any) -> list[tuple[Any, Any]]:
    """Training and held-out rows of each fold."""
    classify = is_classifier(estimator)
    if not isinstance(cv, numbers.Integral):
        return list(check_cv(cv, y, classifier=classify).split(X, y))
    n_folds = check_count("cv", cv, 2)
    if _safe_length(X) < n_folds:
        raise InputError(
            f"n_samples={_safe_length(X)} rows cannot be assigned to {n_folds} folds. Give more rows, or a smaller cv."
        )
    groups = np.unique(np.asarray(y), return_inverse=True)[1].ravel() if classify and np.ndim(y) == 1 else None
    fold = folds_of_table(table_columns(X, y), n_folds, np.random.default_rng(0), groups)
    return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]


def _fit_keywords(estimator: Any, target: Any) -> dict[str, Target]:
    """The target, whole, for estimators that ask for one."""
    if target is None or not has_fit_parameter(estimator, "target"):
        return {}
    return {"target": target if isinstance(target, Target) else Target(target)}


def iwcv_score(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    target: Any,
    ratio: Any = None,
    scoring: Any = None,
    cv: Any = 5,
) -> FloatArray:
    """Importance-weighted cross-validation: what the score would be on the target, without its labels.

    Each fold's value is Σ w s / Σ w over its held-out rows, s a row's score and w its importance; greater is
    better, as in ``cross_val_score``. One judging `ratio` is fitted on all source rows and the target and judges
    every fold, while the estimator fits its own weights inside each training fold.

    Parameters
    ----------
    estimator : scikit-learn estimator
        `WeightedRegressor` and the like are given the target; others are fitted without.
    X, y : labeled source rows
    target : Target or table
        The rows to predict.
    ratio : ratio estimator, default=None
        The judge; None is ``AutoRatio(random_state=0)``.
    scoring : str or callable, default=None
        "neg_mean_squared_error" (default for regressors), "neg_mean_absolute_error", "accuracy" (default for
        classifiers), "neg_log_loss", "neg_brier_score", or a function (estimator, X, y) giving one score a row.
    cv : int or splitter, default=5
        With a number, rows are assigned to so many folds at random (always in the same way), classes in equal shares,
        and duplicates together where the table is as good as continuous.

    Returns
    -------
    array of one value a fold

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from steelyard import Target, ULSIF, WeightedRegressor, iwcv_score
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, _ = sinc_toy(500, 500, random_state=0)
    >>> model = WeightedRegressor(Ridge(), ratio=ULSIF(random_state=0))
    >>> iwcv_score(model, X, y, target=Target(X_target), ratio=ULSIF(random_state=0)).shape
    (5,)
    """
    check_labels(estimator, X, y)
    X, y = indexable(X, y)
    weights = validation_weights(estimator, X, target, ratio)
    score = row_scores(scoring, estimator)
    splits = _splits(cv, estimator, X, y)
    return np.array(
        [
            weighted_mean(_evaluate(estimator, {}, X, y, split, target, score).scores, weights[split[1]])
            for split in splits
        ]
    )


class _Evaluation:
    """What one candidate did on one split."""

    def __init__(self, scores: FloatArray, effective_share: float, fit_time: float) -> None:
        self.scores, self.effective_share, self.fit_time = scores, effective_share, fit_time


def _evaluate(
    estimator: Any,
    params: dict[str, Any],
    X: Any,
    y: Any,
    split: tuple[Any, Any],
    target: Any,
    score: RowScores,
) -> _Evaluation:
    train, test = split
    model = clone(estimator).set_params(**clone(params, safe=False))
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Rough weights in a training fold show in the score, and that there is no target was said; the judge and the
        # final fit still warn of the rest.
        for said in (SmallEffectiveSampleWarning, RawMeanWarning, NoTargetWarning):
            warnings.simplefilter("ignore", said)
        model.fit(_safe_indexing(X, train), _safe_indexing(y, train), **_fit_keywords(model, target))
    seconds = time.perf_counter() - start
    share = getattr(model, "effective_sample_size_", len(train)) / len(train)
    return _Evaluation(score(model, _safe_indexing(X, test), _safe_indexing(y, test)), share, seconds)


class ImportanceWeightedSearchCV(BaseSearchCV):
    """Grid search that judges candidates by their importance-weighted score, an estimate of the score on the target.

    Any parameter can be searched, the flattening, the ratio and its eta included. One judging ratio is fitted on
    all source rows and the target and judges every candidate, so candidates cannot flatter themselves by their own
    weights; each candidate fits its own weights inside the training folds.

    (Plain ``GridSearchCV`` scores on the source, where no weighting can look better than none: it answers
    flattening=0 however large the shift.)

    Parameters
    ----------
    estimator : scikit-learn estimator, usually a `WeightedRegressor` or `WeightedClassifier`
    param_grid : dict or list of dicts
        As in ``GridSearchCV``.
    ratio : ratio estimator, default=None
        The judge; None is ``AutoRatio(random_state=0)``.
    scoring, cv
        As in `iwcv_score`.
    rule : {"best", "one-standard-error"}, default="best"
        The best pooled score, or the plainest candidate whose score is within one standard error of the best:
        plainest is the one whose weights are worth most rows (ERM before IWERM), ties go to the better score.
    n_jobs : int, default=None
        Candidates and folds to fit side by side, as in joblib.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_ : as in ``GridSearchCV``. ``score`` is that of the chosen
        estimator where `scoring` is None (R² for a regressor), the unweighted mean of the row scores otherwise.
    validation_weights_ : importance of each source row for judging.
    cv_results_ : as in ``GridSearchCV``; ``mean_test_score`` is the weighted mean over all held-out rows,
        ``se_test_score`` its standard error, ``mean_effective_share`` the effective sample size of the candidate's
        own weights as a share of the rows.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from steelyard import ImportanceWeightedSearchCV, Target, ULSIF, WeightedRegressor
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, _ = sinc_toy(500, 500, random_state=0)
    >>> search = ImportanceWeightedSearchCV(
    ...     WeightedRegressor(Ridge(), ratio=ULSIF(random_state=0)),
    ...     {"flattening": [0, 0.5, 1]},
    ...     ratio=ULSIF(random_state=0),
    ... )
    >>> search.fit(X, y, target=Target(X_target)).best_params_["flattening"] > 0
    True
    """

    refit = True  # always: the methods inherited from BaseSearchCV ask

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        ratio: Any = None,
        scoring: Any = None,
        cv: Any = 5,
        rule: str = "best",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.ratio = ratio
        self.scoring = scoring
        self.cv = cv
        self.rule = rule
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, *, target: Any = None) -> Self:
        """Search on labeled source rows, judged for the target, and refit the chosen candidate on all of them."""
        if self.rule not in ("best", "one-standard-error"):
            raise ParameterError(f'rule must be "best" or "one-standard-error"; got {self.rule!r}.')
        forget_fit(self)
        check_labels(self, X, y)
        X, y = indexable(X, y)
        score = row_scores(self.scoring, self.estimator)
        self.validation_weights_ = validation_weights(self.estimator, X, target, self.ratio)
        splits = _splits(self.cv, self.estimator, X, y)
        candidates = list(ParameterGrid(self.param_grid))
        evaluations = Parallel(n_jobs=self.n_jobs)(
            delayed(_evaluate)(self.estimator, params, X, y, split, target, score)
            for params in candidates
            for split in splits
        )
        per_candidate = [evaluations[i : i + len(splits)] for i in range(0, len(evaluations), len(splits))]
        self.n_splits_ = len(splits)
        self.cv_results_ = _results(candidates, per_candidate, splits, self.validation_weights_)
        self.best_index_ = _choose(self.cv_results_, self.rule)
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self._refit(X, y, target)
        return self

    def _refit(self, X: Any, y: Any, target: Any) -> None:
        start = time.perf_counter()
        self.best_estimator_ = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoTargetWarning)  # said once, by the judge
            self.best_estimator_.fit(X, y, **_fit_keywords(self.best_estimator_, target))
        self.refit_time_ = time.perf_counter() - start
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
        self.multimetric_ = False
        self.scorer_ = _own_score if self.scoring is None else self._mean_row_score

    def _mean_row_score(self, model: Any, X: Any, y: Any) -> float:
        return float(np.mean(row_scores(self.scoring, model)(model, X, y)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags = deepcopy(get_tags(self.estimator).target_tags)
        return tags

    def _run_search(self, evaluate_candidates: Any) -> None:
        raise AssertionError("fit does not go through the search loop of BaseSearchCV")


def _own_score(model: Any, X: Any, y: Any) -> float:
    return float(model.score(X, y))


def _results(
    candidates: list[dict[str, Any]],
    evaluations: list[list[_Evaluation]],
    splits: list[tuple[Any, Any]],
    weights: FloatArray,
) -> dict[str, Any]:
    held_out = np.concatenate([weights[test] for _, test in splits])
    pooled = [np.concatenate([e.scores for e in row]) for row in evaluations]
    means = np.array([weighted_mean(scores, held_out) for scores in pooled])
    # A fold without any weight has no score of its own, but does no harm to the pooled one.
    per_split = np.array(
        [
            [
                weighted_mean(e.scores, weights[test]) if weights[test].any() else np.nan
                for e, (_, test) in zip(row, splits, strict=True)
            ]
            for row in evaluations
        ]
    )
    results: dict[str, Any] = {"params": candidates}
    for name in sorted({name for params in candidates for name in params}):
        values = np.ma.array(np.empty(len(candidates), dtype=object), mask=True)
        for i, params in enumerate(candidates):
            if name in params:
                values[i] = params[name]
        results[f"param_{name}"] = values
    for s in range(len(splits)):
        results[f"split{s}_test_score"] = per_split[:, s]
    results["mean_test_score"] = means
    results["std_test_score"] = np.ma.masked_invalid(per_split).std(axis=1).filled(np.nan)
    results["se_test_score"] = np.array([standard_error(scores, held_out) for scores in pooled])
    results["rank_test_score"] = (1 + (means[:, None] < means).sum(axis=1)).astype(np.int32)
    results["mean_effective_share"] = np.array([np.mean([e.effective_share for e in row]) for row in evaluations])
    results["mean_fit_time"] = np.array([np.mean([e.fit_time for e in row]) for row in evaluations])
    return results


def _choose(results: dict[str, Any], rule: str) -> int:
    means = np.where(np.isnan(results["mean_test_score"]), -np.inf, results["mean_test_score"])
    if not np.isfinite(means).any():
        raise InputError("Every candidate has a score of NaN: look at the scoring function and at the predictions.")
    best = int(np.argmax(means))
    if rule == "best":
        return best
    near = np.flatnonzero(means >= means[best] - results["se_test_score"][best])
    # Rounded, so that equal shares of effectively equal weights count as ties.
    plainness = np.round(results["mean_effective_share"][near], 6)
    return int(near[np.lexsort((means[near], plainness))[-1]])
