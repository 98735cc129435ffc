"""The ratio from the probabilities of a domain classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._numerics.empirical import Empirical
from steelyard._splits.merged_rows import FoldParts, assign_folds, number_of_folds
from steelyard._typing import FloatArray
from steelyard._validation import check_count
from steelyard._weight_parameter import require_weight_parameter
from steelyard.errors import InputTypeError
from steelyard.ratio._base import InductiveRatio

# Beyond so many columns the products of all pairs are more than the rows can bear; then the columns alone are used.
MOST_COLUMNS_SQUARED = 50
# e^±50 stands for infinity: no sample can tell such odds apart.
LARGEST_LOGIT = 50.0
# Rows that stand for several are listed up to so many rows of a domain.
MOST_REPEATED = 1_000_000


class ClassifierRatio(InductiveRatio):
    """The ratio by telling the domains apart: w(x) = p(target | x) / p(source | x), both domains given equal prior.

    Every source row is judged by a classifier that has not seen it (`n_folds` folds), and the scores are calibrated
    by a logistic curve, so ``weights_`` do not carry the overconfidence of a classifier on its own training rows.
    ``predict`` uses the classifier fitted on all rows, with the same calibration. A classifier that does no better
    than chance on rows it has not seen gives a ratio of one everywhere.

    (A classical alternative to the direct estimators of the survey's section 3.2.)

    Parameters
    ----------
    estimator : classifier with predict_proba or decision_function, default=None
        None takes standardized columns, their squares and products (up to 50 columns), and logistic regression.
    n_folds : int, default=5
        Number of folds.
    random_state : int, Generator or None, default=None
        For the folds.

    Attributes
    ----------
    weights_, raw_mean_, effective_sample_size_ : as in `RULSIF`.
    classifier_ : the classifier fitted on all rows.
    slope_, intercept_ : calibration of its log-odds.

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
            classifier = self._classifier([training_rows(sample, part, f) for sample, part, _ in both])
            for sample, part, found in both:
                held = part.fold == f
                found[held] = _log_odds(classifier, sample.rows[part.cell[held]])
        self.classifier_ = self._classifier([training_rows(sample, part, None) for sample, part, _ in both])
        # Each domain has mass one, so the calibrated odds are the ratio itself, whatever the lengths of the tables.
        domain = np.repeat([0, 1], [len(found) for found in log_odds])
        mass = np.concatenate([part.mass for part in parts])
        size = (source.n_rows + target.n_rows) / 2
        self.slope_, self.intercept_ = calibration_line(np.concatenate(log_odds), domain, mass * size)
        # Equal rows of different folds are seen by different classifiers; they share the mean of their ratios.
        return parts[0].mean_of_cells(self._calibrated(log_odds[0]), source)

    def _scale_rows(self, rows: FloatArray) -> FloatArray:
        return rows  # the classifier sees the columns as they are

    def _classifier(self, domains: Sequence[tuple[FloatArray, FloatArray]]) -> Any:
        """A classifier fitted to source and target rows, each with the number of rows that it stands for."""
        rows = np.concatenate([rows for rows, _ in domains])
        weights = np.concatenate([weights for _, weights in domains])
        domain = np.repeat([0, 1], [len(rows) for rows, _ in domains])
        classifier = _default(rows.shape[1]) if self.estimator is None else clone(self.estimator)
        keywords = {} if np.all(weights == 1) else {require_weight_parameter(classifier): weights}
        return classifier.fit(rows, domain, **keywords)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        logits = self.slope_ * scores + self.intercept_
        return np.asarray(np.exp(np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)))

    def _ratio(self, rows: FloatArray) -> FloatArray:
        return self._calibrated(_log_odds(self.classifier_, rows))


def training_rows(sample: Empirical, parts: FoldParts, without: int | None) -> tuple[FloatArray, FloatArray]:
    """Rows of a domain to learn from, one fold left out (None: all), and the weight of each, one on average.

    A row that stands for several is repeated, because weights are not the same to every learner: a tree with at least
    20 rows in a leaf cannot divide ten merged rows, however much they weigh. Only where counts are so large that the
    list would not fit are the weights left to stand for them.
    """
    kept = np.ones(len(parts.cell), dtype=bool) if without is None else parts.fold != without
    cell, mass = parts.cell[kept], parts.mass[kept]
    counts = np.maximum(1, np.rint(mass / sample.mass[cell] * sample.counts[cell])).astype(np.intp)
    if counts.sum() > MOST_REPEATED:
        counts = np.ones_like(counts)
    weights = (mass / counts).repeat(counts)
    weights = weights / weights.mean()
    # Counts of a plain table give weights of one up to rounding; then the learner is called without any.
    even = np.ptp(weights) < 1e-9
    return sample.rows[cell.repeat(counts)], np.ones_like(weights) if even else weights


def calibration_line(scores: FloatArray, domain: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Slope and intercept of the log-odds as a line in the scores.

    A slope below zero means that on rows it has not seen the classifier does worse than chance: then nothing is known
    of the ratio, and both are zero.
    """
    from sklearn.linear_model import LogisticRegression  # here, for a quick import of the library

    curve = LogisticRegression(C=1e6, max_iter=1000).fit(scores[:, None], domain, sample_weight=weights)
    slope = float(curve.coef_[0, 0])
    return (slope, float(curve.intercept_[0])) if slope > 0 else (0.0, 0.0)


def _default(n_columns: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    degree = 2 if n_columns <= MOST_COLUMNS_SQUARED else 1
    return make_pipeline(
        StandardScaler(),
        PolynomialFeatures(degree, include_bias=False),
        LogisticRegression(max_iter=1000),
    )


def _log_odds(classifier: Any, rows: FloatArray) -> FloatArray:
    if hasattr(classifier, "decision_function"):
        return np.asarray(classifier.decision_function(rows), dtype=np.float64)
    probability = np.clip(classifier.predict_proba(rows)[:, 1].astype(np.float64), 1e-12, 1 - 1e-12)
    return np.asarray(np.log(probability) - np.log1p(-probability))
