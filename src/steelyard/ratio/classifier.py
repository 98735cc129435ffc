"""The density ratio from the probabilities of a domain classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._numerics.empirical import Empirical
from steelyard._progress import LOG
from steelyard._splits.merged_rows import FoldParts, assign_folds, number_of_folds
from steelyard._typing import FloatArray
from steelyard._validation import check_count
from steelyard._weight_parameter import require_weight_parameter
from steelyard.errors import InputTypeError
from steelyard.ratio._base import InductiveRatio
from steelyard.ratio._logistic import Features, HeldOutOdds, fit_calibration, fit_logistic
from steelyard.ratio._sums import Summary
from steelyard.tables.row_stream import RowStream

# With more columns, squares and products of all pairs would be too many for the rows; the columns alone are used.
MOST_COLUMNS_SQUARED = 50
# Log-odds are clipped to ±50: no sample is large enough to estimate larger ones.
LARGEST_LOGIT = 50.0
# A classifier other than the default one is fitted to a sample of this many rows of each table in a stream.
SAMPLE_ROWS = 20_000
# Merged rows are repeated up to this many rows of a domain.
MOST_REPEATED = 1_000_000


class ClassifierRatio(InductiveRatio):
    """Density ratio w(x) = p(target | x) / p(source | x) from a domain classifier, both domains with equal prior.

    The classifier learns to tell target rows from source rows: a classical alternative to the direct estimators of the
    survey's section 3.2. The weight of each source row comes from a classifier that was fitted without the row's fold,
    calibrated by a logistic curve in the held-out log-odds, so ``weights_`` do not inherit the overconfidence of a
    classifier on its training rows. ``predict`` uses the classifier fitted on all rows, with the same calibration. A
    classifier that is no better than chance on held-out rows gives a ratio of one everywhere.

    Parameters
    ----------
    estimator : classifier with predict_proba or decision_function, default=None
        The domain classifier. None takes logistic regression on the standardized columns and (up to 50 columns) their
        squares and products.
    n_folds : int, default=5
        Number of folds; with fewer rows than folds, the number of rows.
    random_state : int, Generator or None, default=None
        For the folds.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One weight per source row, non-negative with mean one, cross-fitted.
    classifier_ : classifier
        The domain classifier fitted on all rows.
    slope_, intercept_ : float
        Calibration of its log-odds.
    sample_size_ : int
        At most how many rows of each table a classifier of your own was fitted to; absent where it was fitted to all
        rows. In blocks, files and tables of more than 100,000 rows that is an even sample, and only the default
        classifier is fitted to all rows.
    balance_ : Balance
        Standardized differences of the columns to the target, before and after weighting.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    raw_mean_, source_mean_ : float
        Mean of the ratio over the source before normalization; one in theory.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ClassifierRatio, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> ratio = ClassifierRatio(random_state=0).fit(source, target=Target(target))
    >>> bool(ratio.predict([[1.0]])[0] > ratio.predict([[-1.0]])[0])
    True
    """

    standardize = False

    def __init__(self, estimator: Any = None, *, n_folds: int = 5, random_state: Any = None) -> None:
        self.estimator = estimator
        self.n_folds = n_folds
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count("n_folds", self.n_folds, low=2)
        if self.estimator is not None and not (
            hasattr(self.estimator, "predict_proba") or hasattr(self.estimator, "decision_function")
        ):
            raise InputTypeError(
                f"ClassifierRatio needs a classifier with predict_proba or decision_function; "
                f"{type(self.estimator).__name__} has neither."
            )

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        n_folds = number_of_folds(source, target, at_most=self.n_folds)
        parts = [assign_folds(sample, n_folds, rng) for sample in (source, target)]
        log_odds = [np.empty(len(part.cell)) for part in parts]
        both = list(zip((source, target), parts, log_odds, strict=True))
        for f in range(n_folds):
            classifier = self._fit_classifier([training_rows(sample, part, f) for sample, part, _ in both])
            for sample, part, found in both:
                held = part.fold == f
                found[held] = _log_odds(classifier, sample.rows[part.cell[held]])
        self.classifier_ = self._fit_classifier([training_rows(sample, part, None) for sample, part, _ in both])
        # Each domain has mass one, so the calibrated odds are the ratio itself, whatever the sizes of the tables.
        domain = np.repeat([0, 1], [len(found) for found in log_odds])
        mass = np.concatenate([part.mass for part in parts])
        size = (source.n_rows + target.n_rows) / 2
        self.slope_, self.intercept_ = calibration_line(np.concatenate(log_odds), domain, mass * size)
        # Equal rows in different folds have ratios from different classifiers; each gets their mean.
        return parts[0].mean_of_cells(self._calibrated(log_odds[0]), source)

    def _n_sample(self) -> int:
        return SAMPLE_ROWS

    def _fit_tables(
        self,
        tables: tuple[RowStream, RowStream],
        summaries: list[Summary],
        samples: list[Empirical],
        rng: np.random.Generator,
    ) -> None:
        """The default classifier is fitted to all rows, one of your own to the samples."""
        self._fit(samples[0], samples[1], rng)
        if self.estimator is not None:
            self.sample_size_ = max(sample.n_rows for sample in samples)
            LOG.info("ClassifierRatio: fitted to %s sampled rows of each table", f"{self.sample_size_:,}")
            return
        scaler, polynomial, model = (step for _, step in self.classifier_.steps)
        standardize_by_summaries(scaler, summaries)
        features = Features(scaler.mean_, scaler.scale_, squared=polynomial.degree == 2)
        start = np.append(model.coef_[0], model.intercept_)
        found = fit_logistic(tables, features, (1.0, 1.0), model.C, start, folds=True)
        model.coef_, model.intercept_ = found[:-1, :1].T.copy(), found[-1, :1].copy()
        self._held_out = HeldOutOdds(features, found[:, 1:])
        self.slope_, self.intercept_ = fit_calibration(tables, self._held_out, (self.slope_, self.intercept_))

    def _numbered_ratio(self, start: int, rows: FloatArray) -> FloatArray:
        if self.constant_ or self.estimator is not None:
            return self._plain_ratio(start, rows)
        return self._calibrated(self._held_out(start, rows))

    def _scale_rows(self, rows: FloatArray) -> FloatArray:
        return rows  # the classifier is given the columns unscaled

    def _fit_classifier(self, domains: Sequence[tuple[FloatArray, FloatArray]]) -> Any:
        """A classifier fitted to source and target, each given as rows and their weights."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import PolynomialFeatures, StandardScaler

        rows = np.concatenate([rows for rows, _ in domains])
        weights = np.concatenate([weights for _, weights in domains])
        domain = np.repeat([0, 1], [len(rows) for rows, _ in domains])
        if self.estimator is None:
            polynomial = PolynomialFeatures(2 if rows.shape[1] <= MOST_COLUMNS_SQUARED else 1, include_bias=False)
            classifier = make_pipeline(StandardScaler(), polynomial, LogisticRegression(max_iter=1000))
        else:
            classifier = clone(self.estimator)
        keywords = {} if np.all(weights == 1) else {require_weight_parameter(classifier): weights}
        return classifier.fit(rows, domain, **keywords)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        logits = self.slope_ * scores + self.intercept_
        return np.asarray(np.exp(np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)))

    def _ratio(self, rows: FloatArray) -> FloatArray:
        return self._calibrated(_log_odds(self.classifier_, rows))


def standardize_by_summaries(scaler: Any, summaries: Sequence[Summary]) -> None:
    """Give a fitted StandardScaler the means and variances of all rows of both tables."""
    pooled = Summary(0, 0)
    for summary in summaries:
        pooled.merge(summary)
    scaler.mean_, scaler.var_, scaler.n_samples_seen_ = pooled.mean, pooled.variance, pooled.count
    scaler.scale_ = np.sqrt(np.where(pooled.variance > 0, pooled.variance, 1.0))


def training_rows(sample: Empirical, parts: FoldParts, without: int | None) -> tuple[FloatArray, FloatArray]:
    """Training rows of a domain, without one fold (None: all rows), and a weight for each row, one on average.

    A merged row is repeated as often as it counts, because weights are not equivalent for every learner: a tree with
    at least 20 rows per leaf cannot split ten merged rows, whatever their weights. Weights replace repetition only
    where the repeated rows would not fit in memory.
    """
    kept = np.ones(len(parts.cell), dtype=bool) if without is None else parts.fold != without
    cell, mass = parts.cell[kept], parts.mass[kept]
    counts = np.maximum(1, np.rint(mass / sample.mass[cell] * sample.counts[cell])).astype(np.intp)
    if counts.sum() > MOST_REPEATED:
        counts = np.ones_like(counts)
    weights = (mass / counts).repeat(counts)
    weights = weights / weights.mean()
    # Without sample weights all weights are one up to rounding; then the learner is called without weights.
    even = np.ptp(weights) < 1e-9
    return sample.rows[cell.repeat(counts)], np.ones_like(weights) if even else weights


def calibration_line(scores: FloatArray, domain: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Slope and intercept of the log-odds as a linear function of the scores.

    A negative slope means that the classifier is worse than chance on held-out rows. Then the ratio cannot be
    estimated, and both are zero.
    """
    from sklearn.linear_model import LogisticRegression  # imported here to keep the import of the library fast

    curve = LogisticRegression(C=1e6, max_iter=1000).fit(scores[:, None], domain, sample_weight=weights)
    slope = float(curve.coef_[0, 0])
    return (slope, float(curve.intercept_[0])) if slope > 0 else (0.0, 0.0)


def _log_odds(classifier: Any, rows: FloatArray) -> FloatArray:
    if hasattr(classifier, "decision_function"):
        return np.asarray(classifier.decision_function(rows), dtype=np.float64)
    probability = np.clip(classifier.predict_proba(rows)[:, 1].astype(np.float64), 1e-12, 1 - 1e-12)
    return np.asarray(np.log(probability) - np.log1p(-probability))
