"""Importance-weighted cross-validation and a grid search that uses it."""

from __future__ import annotations

import numbers
import reprlib
import time
import warnings
from copy import deepcopy
from functools import partial
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import has_fit_parameter

from steelyard._numerics.duplicates import table_columns
from steelyard._numerics.weighted_means import simplest_within_one_standard_error, standard_error, weighted_mean
from steelyard._numerics.written import written
from steelyard._progress import track
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
from steelyard.model_selection._scoring import RowScores, mean_score, row_scores
from steelyard.model_selection._streams import in_memory
from steelyard.ratio.fitting import fit_ratio
from steelyard.ratio.table_rows import encode_tables, must_encode
from steelyard.report.notebook import ShowsFit
from steelyard.tables.rows import count_rows, take_rows
from steelyard.target import Target


def validation_weights(estimator: Any, X: Any, target: Any, ratio: Any) -> FloatArray:
    """The validation weight of each source row: one density ratio, fitted once on all rows, not flattened.

    Where the estimator has a `preprocess` step, the ratio is fitted on preprocessed tables; where it reads text or
    missing values, on encoded ones.
    """
    if target is None:
        warn_without_target("Cross-validation", "every row counts the same, as in ordinary cross-validation")
        return np.ones(count_rows(X))
    rows, target_rows = X, match_columns(target, X)
    preprocess = getattr(estimator, "preprocess", None)
    if preprocess is not None:
        fitted = clone(preprocess).fit(rows)
        rows, target_rows = preprocessed(fitted, rows), preprocessed(fitted, target_rows)
    if must_encode(estimator, rows, target_rows):
        rows, target_rows = encode_tables(rows, target_rows)
    return np.asarray(fit_ratio(ratio, rows, target_rows).weights_)


def _params_in_words(params: dict[str, Any]) -> str:
    """The parameters of a candidate in one line."""
    return ", ".join(f"{name}={reprlib.repr(value)}" for name, value in params.items()) or "the estimator as it is"


SHOWN = 10  # candidates that a fitted search shows of itself


def _splits(cv: Any, estimator: Any, X: Any, y: Any) -> list[tuple[Any, Any]]:
    """Numbers of the training rows and the held-out rows of each fold."""
    classify = is_classifier(estimator)
    if not isinstance(cv, numbers.Integral):
        return list(check_cv(cv, y, classifier=classify).split(X, y))
    n_folds = check_count("cv", cv, 2)
    if count_rows(X) < n_folds:
        raise InputError(
            f"n_samples={count_rows(X)} rows cannot be assigned to {n_folds} folds. Give more rows, or a smaller cv."
        )
    groups = np.unique(np.asarray(y), return_inverse=True)[1].ravel() if classify and np.ndim(y) == 1 else None
    fold = folds_of_table(table_columns(X, y), n_folds, np.random.default_rng(0), groups)
    return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]


def _fit_keywords(estimator: Any, target: Any) -> dict[str, Target]:
    """The whole target, for estimators whose `fit` has the parameter `target`."""
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
    """Importance-weighted cross-validation (IWCV): estimate the score on the target without target labels.

    The value of a fold is Σ w s / Σ w over its held-out rows, where s is the score of a row and w its validation
    weight; greater is better, as in ``cross_val_score``. The validation weights come from one density ratio, which is
    fitted once on all source rows and the target and used in every fold. The estimator fits its own importance weights
    in each training fold.

    Parameters
    ----------
    estimator : scikit-learn estimator
        Estimators whose ``fit`` has the parameter `target`, such as `WeightedRegressor`, are fitted with the target;
        other estimators are fitted without it.
    X : table of shape (n_source, n_columns)
        Source rows. Of a path, of blocks and of a Dask collection (see ``ULSIF.fit``), an even sample of at most
        100,000 rows is taken.
    y : array of shape (n_source,)
        Labels of the source rows; where these are a stream, an array, or a stream
        of one column or of one array for each block.
    target : Target or table of shape (n_target, n_columns)
        Target rows, likewise.
    ratio : ratio estimator, default=None
        Estimates the validation weights; None is ``AutoRatio(random_state=0)``.
    scoring : str or callable, default=None
        "neg_mean_squared_error" (default for regressors), "neg_mean_absolute_error", "accuracy" (default for
        classifiers), "neg_log_loss", "neg_brier_score", or a function (estimator, X, y) that returns one score for each
        row.
    cv : int or splitter, default=5
        Number of folds, or a cross-validation splitter. With a number, rows are assigned to folds at random with a
        fixed seed, stratified by class. Duplicates share a fold unless the table is discrete.

    Returns
    -------
    array of shape (n_folds,)
        One value for each fold.

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
    X, y, target = in_memory(X, y, target)
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
    """The result of one candidate on one split."""

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
    """Fit a candidate on the training rows of a split and score its held-out rows."""
    train, test = split
    model = clone(estimator).set_params(**clone(params, safe=False))
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Poor weights in a training fold lower the score, and the warning of a missing target was given before. The
        # validation weights and the final fit still warn.
        for category in (SmallEffectiveSampleWarning, RawMeanWarning, NoTargetWarning):
            warnings.simplefilter("ignore", category)
        model.fit(take_rows(X, train), take_rows(y, train), **_fit_keywords(model, target))
    seconds = time.perf_counter() - start
    share = getattr(model, "effective_sample_size_", len(train)) / len(train)
    return _Evaluation(score(model, take_rows(X, test), take_rows(y, test)), share, seconds)


class ImportanceWeightedSearchCV(ShowsFit, GridSearchCV):
    """Grid search by importance-weighted cross-validation, which estimates the score of a candidate on the target.

    Any parameter can be searched, including the flattening, the ratio and its eta. The validation weights come from one
    density ratio, which is fitted once on all source rows and the target and used for every candidate. A candidate
    therefore cannot improve its score by its own weights, which it fits in each training fold.

    (An ordinary ``GridSearchCV`` scores on the source, where an unweighted fit is best: it chooses flattening=0 however
    large the shift is.)

    Parameters
    ----------
    estimator : scikit-learn estimator
        Usually a `WeightedRegressor` or `WeightedClassifier`. Estimators whose ``fit`` has no parameter `target` are
        fitted without the target.
    param_grid : dict or list of dicts
        Names of parameters and the values to try, as in ``GridSearchCV``.
    ratio : ratio estimator, default=None
        Estimates the validation weights; None is ``AutoRatio(random_state=0)``.
    scoring : str or callable, default=None
        "neg_mean_squared_error" (default for regressors), "neg_mean_absolute_error", "accuracy" (default for
        classifiers), "neg_log_loss", "neg_brier_score", or a function (estimator, X, y) that returns one score for each
        row.
    cv : int or splitter, default=5
        Number of folds, or a cross-validation splitter. With a number, rows are assigned to folds at random with a
        fixed seed, stratified by class. Duplicates share a fold unless the table is discrete.
    rule : {"one-standard-error", "best"}, default="one-standard-error"
        "one-standard-error" chooses, among the candidates that the best score exceeds by at most one standard error of
        the difference, the one whose weights have the greatest effective sample size (ERM before EIWERM before IWERM).
        Candidates of equal weights, such as those that differ in parameters of the inner estimator alone, are chosen by
        their score. "best" chooses the best score over all held-out rows.
    n_jobs : int, default=None
        Number of fits that run in parallel, as in joblib.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal and the search takes more than two seconds.

    Attributes
    ----------
    best_estimator_ : estimator
        The chosen candidate, refitted on all source rows.
    best_params_ : dict
        Its parameters.
    best_score_ : float
        Its importance-weighted score over all held-out rows.
    best_index_ : int
        Its number in ``cv_results_``.
    validation_weights_ : array of shape (n_source,)
        One validation weight for each source row.
    cv_results_ : dict of arrays
        The results of each candidate, as in ``GridSearchCV``: ``mean_test_score`` is the importance-weighted mean over
        all held-out rows, ``se_test_score`` its standard error, ``se_of_difference`` the standard error of its
        difference to the best one (over the same rows, so it is smaller), and ``mean_effective_share`` the effective
        sample size of the candidate's own weights divided by the number of rows.
    n_splits_ : int
        Number of folds.
    refit_time_ : float
        Seconds of the final fit.
    scorer_ : callable
        The score of ``score(X, y)``: that of the chosen estimator where `scoring` is None (R² for a regressor), and the
        unweighted mean of the row scores otherwise.
    multimetric_ : bool
        Always False: there is one score.
    classes_ : array of shape (n_classes,)
        The class labels, of classifiers.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

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

    refit = True  # read by the methods inherited from GridSearchCV

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        ratio: Any = None,
        scoring: Any = None,
        cv: Any = 5,
        rule: str = "one-standard-error",
        n_jobs: int | None = None,
        progress: bool = True,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.ratio = ratio
        self.scoring = scoring
        self.cv = cv
        self.rule = rule
        self.n_jobs = n_jobs
        self.progress = progress

    def fit(self, X: Any, y: Any = None, *, target: Any = None) -> Self:
        """Compare the candidates on the source rows and refit the chosen one on all of them.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Labels of the source rows.
        target : Target or table of shape (n_target, n_columns), default=None
            Target rows. Without a target this is an ordinary cross-validation, and a warning says so.

        Returns
        -------
        self : ImportanceWeightedSearchCV
            The fitted search.
        """
        if self.rule not in ("one-standard-error", "best"):
            raise ParameterError(f'rule must be "one-standard-error" or "best"; got {self.rule!r}.')
        forget_fit(self)
        check_labels(self, X, y)
        X, y = indexable(X, y)
        score = row_scores(self.scoring, self.estimator)
        self.validation_weights_ = validation_weights(self.estimator, X, target, self.ratio)
        splits = _splits(self.cv, self.estimator, X, y)
        candidates = list(ParameterGrid(self.param_grid))
        fits = Parallel(n_jobs=self.n_jobs, return_as="generator")(
            delayed(_evaluate)(self.estimator, params, X, y, split, target, score)
            for params in candidates
            for split in splits
        )
        evaluations = list(track(fits, len(candidates) * len(splits), "comparing candidates", shown=self.progress))
        per_candidate = [evaluations[i : i + len(splits)] for i in range(0, len(evaluations), len(splits))]
        self.n_splits_ = len(splits)
        self.cv_results_ = _results(candidates, per_candidate, splits, self.validation_weights_)
        self.best_index_ = _choose(self.cv_results_, self.rule)
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self._refit(X, y, target)
        return self

    _found_after = "best_estimator_"

    def _found(self) -> dict[str, str]:
        """The chosen candidate, and the best ones by their scores."""
        results = self.cv_results_
        found = {"chosen": _params_in_words(self.best_params_), "its score": written(self.best_score_)}
        for i in np.argsort(results["rank_test_score"], kind="stable")[:SHOWN]:
            score, error = (written(float(results[key][i])) for key in ("mean_test_score", "se_test_score"))
            found[f"candidate {i}: {_params_in_words(results['params'][i])}"] = f"{score} ± {error}"
        return found

    def _refit(self, X: Any, y: Any, target: Any) -> None:
        start = time.perf_counter()
        self.best_estimator_ = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoTargetWarning)  # given once, for the validation weights
            self.best_estimator_.fit(X, y, **_fit_keywords(self.best_estimator_, target))
        self.refit_time_ = time.perf_counter() - start
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
        self.multimetric_ = False
        self.scorer_ = partial(mean_score, self.scoring)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.target_tags = deepcopy(inner.target_tags)
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags


def _results(
    candidates: list[dict[str, Any]],
    evaluations: list[list[_Evaluation]],
    splits: list[tuple[Any, Any]],
    weights: FloatArray,
) -> dict[str, Any]:
    """The table of results, with one row for each candidate."""
    held_out = np.concatenate([weights[test] for _, test in splits])
    pooled = [np.concatenate([e.scores for e in row]) for row in evaluations]
    means = np.array([weighted_mean(scores, held_out) for scores in pooled])
    # A fold whose weights are all zero has no score; the mean over all held-out rows exists nevertheless.
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
    best = pooled[int(np.argmax(np.where(np.isnan(means), -np.inf, means)))]
    results["se_test_score"] = np.array([standard_error(scores, held_out) for scores in pooled])
    results["se_of_difference"] = np.array([standard_error(scores - best, held_out) for scores in pooled])
    results["rank_test_score"] = (1 + (means[:, None] < means).sum(axis=1)).astype(np.int32)
    results["mean_effective_share"] = np.array([np.mean([e.effective_share for e in row]) for row in evaluations])
    results["mean_fit_time"] = np.array([np.mean([e.fit_time for e in row]) for row in evaluations])
    return results


def _choose(results: dict[str, Any], rule: str) -> int:
    """The number of the chosen candidate."""
    means = np.where(np.isnan(results["mean_test_score"]), -np.inf, results["mean_test_score"])
    if not np.isfinite(means).any():
        raise InputError("Every candidate has a score of NaN. Check the scoring function and the predictions.")
    if rule == "best":
        return int(np.argmax(means))
    # Shares are rounded, so that those of equal weights are ties despite rounding errors.
    share = np.round(results["mean_effective_share"], 6)
    error = np.nan_to_num(results["se_of_difference"])
    return int(simplest_within_one_standard_error(-means, error, share)[0])
