"""The keyword under which the fit method of an estimator takes sample weights."""

from __future__ import annotations

from inspect import signature
from typing import Any

from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from steelyard.errors import NotWeightableError

PLAIN = "sample_weight"
# The base class of all searches of scikit-learn, which has no public name.
SearchCV: Any = GridSearchCV.__base__


def weight_parameter(estimator: Any) -> str | None:
    """The keyword of ``estimator.fit`` that takes sample weights, or None if weights would not be used.

    ``has_fit_parameter`` is not enough: a Pipeline needs ``step__sample_weight``, searches and target transformers
    pass their keywords on, voting and stacking take weights only if every member does, and the ``sample_weight`` of a
    wrapper has no effect if the wrapped estimator takes none.

    Parameters
    ----------
    estimator : scikit-learn estimator
        Any estimator, Pipeline, search or other meta-estimator.

    Returns
    -------
    str or None
        The keyword, for example ``"sample_weight"``.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> weight_parameter(make_pipeline(StandardScaler(), Ridge()))
    'ridge__sample_weight'
    >>> weight_parameter(KNeighborsRegressor()) is None
    True
    """
    # Imported here, because they would take much of the time of importing this library.
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import AdaBoostRegressor, BaggingClassifier, BaggingRegressor

    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    if isinstance(estimator, TransformedTargetRegressor):
        return PLAIN if estimator.regressor is None else weight_parameter(estimator.regressor)
    if isinstance(estimator, SearchCV):
        any_keyword = any(p.kind is p.VAR_KEYWORD for p in signature(estimator.fit).parameters.values())
        return weight_parameter(estimator.estimator) if any_keyword else None
    members = getattr(estimator, "estimators", None)
    if isinstance(members, list):
        fitted = [member for _, member in members if not isinstance(member, str)]
        if getattr(estimator, "final_estimator", None) is not None:
            fitted.append(estimator.final_estimator)
        return PLAIN if fitted and all(weight_parameter(member) == PLAIN for member in fitted) else None
    if not hasattr(estimator, "fit") or not has_fit_parameter(estimator, PLAIN):
        return None
    wrapped = getattr(estimator, "estimator", None)
    # These draw rows in proportion to their weights, so the inner estimator need not take weights.
    draws_rows = isinstance(estimator, (AdaBoostRegressor, BaggingClassifier, BaggingRegressor))
    if hasattr(wrapped, "fit") and not draws_rows:
        return PLAIN if weight_parameter(wrapped) == PLAIN else None
    return PLAIN


def require_weight_parameter(estimator: Any) -> str:
    """Like `weight_parameter`, but raises `NotWeightableError` for an estimator that takes no weights."""
    name = weight_parameter(estimator)
    if name is None:
        raise NotWeightableError(
            f"{type(estimator).__name__} takes no sample weights in fit, so importance weights cannot be used. "
            "Use an estimator whose fit has sample_weight (most linear models, trees, forests, boosting, SVMs), or "
            "wrap it in a BaggingRegressor or BaggingClassifier, which draws rows in proportion to their weights."
        )
    return name
