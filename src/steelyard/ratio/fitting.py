"""Any ratio that a user gives, fitted: one of this package, a frozen one, or one of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import has_fit_parameter

from steelyard._typing import FloatArray
from steelyard.errors import InputError, InputTypeError
from steelyard.ratio import default_ratio
from steelyard.target import Target


def fit_ratio(ratio: Any, X: Any, X_target: Any, counts: FloatArray | None = None) -> Any:
    """A fitted copy of a ratio with one weight for each source row; a frozen ratio is used as it is.

    Parameters
    ----------
    ratio : ratio estimator or None
        None is ``AutoRatio(random_state=0)``. Of a ratio of your own, ``fit`` takes `target`, and `sample_weight` where
        rows have weights, and sets ``weights_``.
    X : table of shape (n_source, n_columns)
        Source rows.
    X_target : table of shape (n_target, n_columns)
        Target rows.
    counts : array of shape (n_source,), default=None
        How often each source row counts.

    Returns
    -------
    ratio estimator
        The fitted ratio.
    """
    frozen = isinstance(ratio, FrozenEstimator)
    if frozen:
        fitted = ratio.estimator
    else:
        fitted = default_ratio() if ratio is None else clone(ratio)
        require_target_parameter(fitted)
        fitted.fit(X, target=Target(X_target), **({} if counts is None else {"sample_weight": counts}))
    weights: Any = getattr(fitted, "weights_", None)
    if np.shape(weights) == (len(X),):
        return fitted
    name, n_rows = type(fitted).__name__, len(X)
    if frozen:
        raise InputError(
            f"A frozen ratio must have been fitted on the {n_rows} source rows that the estimator is fitted on; {name} "
            "has no weight for each of them. Give the ratio itself, not frozen."
        )
    found = "has no weights_" if weights is None else f"has weights_ of shape {np.shape(weights)}"
    raise InputTypeError(
        f"After its fit a ratio has weights_, one importance weight for each of the {n_rows} source rows; {name} "
        f"{found}."
    )


def require_target_parameter(ratio: Any) -> None:
    """Raise an error for an estimator that is no ratio, as its `fit` has no parameter `target`."""
    if not has_fit_parameter(ratio, "target"):
        raise InputTypeError(
            f"ratio must be a ratio estimator such as ULSIF(), whose fit takes a target; got {type(ratio).__name__}."
        )
