"""Every warning points at the user's line, whichever way led to it."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score

from steelyard import (
    KMM,
    ULSIF,
    AutoRatio,
    ClassifierRatio,
    ImportanceWeightedSearchCV,
    OneStepRegressor,
    Target,
    WeightedRegressor,
    iwcv_score,
    target_performance,
)
from steelyard.errors import (
    NoShiftWarning,
    NoTargetWarning,
    RawMeanWarning,
    SmallEffectiveSampleWarning,
    SteelyardWarning,
    UnseenCellsWarning,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 1))
Y = X[:, 0]
EDGE = RNG.normal(3.0, 0.05, size=(60, 1))
CELLS, MORE_CELLS = np.repeat([[0.0], [1.0]], 30, axis=0), np.repeat([[0.0], [1.0], [2.0]], 20, axis=0)
ULSIF_1 = ULSIF(width=0.3, reg=0.1, random_state=0)
FAR = RNG.normal(4.0, 0.05, size=(60, 1))

# Each is one line of this file, so that the line of a warning can be compared with that of the call.
CALLS = {
    "ratio without a target": (NoTargetWarning, lambda: ULSIF_1.fit(X)),
    "score without a target": (NoTargetWarning, lambda: ULSIF_1.fit(X, target=X + 0.1).score(X)),
    "estimator without a target": (NoTargetWarning, lambda: WeightedRegressor(Ridge()).fit(X, Y)),
    "one-step without a target": (NoTargetWarning, lambda: OneStepRegressor(random_state=0).fit(X, Y)),
    "scores without a target": (NoTargetWarning, lambda: iwcv_score(Ridge(), X, Y, target=None)),
    "search without a target": (NoTargetWarning, lambda: ImportanceWeightedSearchCV(Ridge(), {}).fit(X, Y)),
    "performance without a target": (NoTargetWarning, lambda: target_performance(Ridge().fit(X, Y), X, Y, target=None)),
    "scikit-learn without a target": (NoTargetWarning, lambda: cross_val_score(WeightedRegressor(Ridge()), X, Y, cv=2)),
    "small sample, KMM": (SmallEffectiveSampleWarning, lambda: KMM(random_state=0).fit(X, target=EDGE)),
    "small sample, uLSIF": (SmallEffectiveSampleWarning, lambda: ULSIF_1.fit(X, target=EDGE)),
    "small sample, estimator": (
        SmallEffectiveSampleWarning,
        lambda: WeightedRegressor(Ridge(), ULSIF_1).fit(X, Y, target=Target(EDGE)),
    ),
    "small sample, scores": (
        SmallEffectiveSampleWarning,
        lambda: iwcv_score(Ridge(), X, Y, target=EDGE, ratio=ULSIF_1, cv=[(np.arange(59), np.arange(60))]),
    ),
    "mean of the ratio": (RawMeanWarning, lambda: ULSIF(width=0.3, reg=10).fit(X, target=X + 0.1)),
    "separation": (RawMeanWarning, lambda: AutoRatio(random_state=0).fit(X, target=FAR)),
    "separation, estimator": (RawMeanWarning, lambda: WeightedRegressor(Ridge()).fit(X, Y, target=FAR)),
    "no shift": (NoShiftWarning, lambda: ULSIF_1.fit(np.ones((9, 1)), target=np.ones((9, 1)))),
    "unseen cells": (UnseenCellsWarning, lambda: ClassifierRatio(random_state=0).fit(CELLS, target=MORE_CELLS)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_points_at_the_line_of_the_call(name):
    category, call = CALLS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SteelyardWarning)
        call()
    lines, first = inspect.getsourcelines(call)
    ours = [w for w in caught if issubclass(w.category, SteelyardWarning)]
    assert category in {w.category for w in ours}
    for warning in ours:
        assert warning.filename == __file__, str(warning.message)
        assert first <= warning.lineno < first + len(lines), str(warning.message)
