"""The candidates of `AutoRatio` that can be fitted to all rows of a stream, after the choice on a sample."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard.ratio._domain_classifiers import LinearOdds
from steelyard.ratio._logistic import Features, fit_logistic
from steelyard.ratio._scaling import mixture_scale, rounded
from steelyard.ratio._sums import Summary
from steelyard.ratio.classifier import standardize_by_summaries
from steelyard.ratio.ulsif import ULSIF
from steelyard.tables.row_stream import RowStream


def refit_ulsif(
    ratio: ULSIF, tables: tuple[RowStream, RowStream], summaries: Sequence[Summary], samples: list[Empirical]
) -> None:
    """Fit uLSIF with its whole grid to all rows."""
    means, variances = [s.mean for s in summaries], [s.variance for s in summaries]
    center, scale, _ = mixture_scale(means, variances, standardize=True)
    ratio.center_, ratio.scale_, ratio.constant_ = rounded(center), rounded(scale), False
    ratio._fit_tables(tables, list(summaries), samples, np.random.default_rng(0))


def refitted_linear(
    sampled: LinearOdds, tables: tuple[RowStream, RowStream], summaries: Sequence[Summary]
) -> LinearOdds:
    """The linear classifier fitted to all rows, by the objective of the sample: both domains count alike.

    It is a copy: the log-odds of the one of the sample are a column of the boosted classifier.
    """
    odds = deepcopy(sampled)
    standardize_by_summaries(odds.scaler_, summaries)
    features = Features(odds.scaler_.mean_, odds.scaler_.scale_, squared=False)
    n_rows = [summary.count for summary in summaries]
    weights = [sum(n_rows) / 2 / n for n in n_rows]
    model = odds.classifier_
    start = np.append(model.coef_[0], model.intercept_)
    found = fit_logistic(tables, features, weights, model.C, start, folds=False)
    model.coef_, model.intercept_ = found[:-1, :1].T.copy(), found[-1, :1].copy()
    return odds
