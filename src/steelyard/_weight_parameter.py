"""Under which name does an estimator take row weights?"""

from __future__ import annotations

from inspect import signature
from typing import Any

from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from steelyard.errors import NotWeightableError

PLAIN = "sample_weight"


def weight_parameter(estimator: Any) -> str | None:
    """The keyword of ``estimator.fit`` that takes row weights, or None if the weights would not arrive.

    ``has_fit_parameter`` is not enough: a Pipeline wants ``step__sample_weight``, searches and target transformers
    hand their keywords on, votes and stacks take weights only if every member does, and a wrapper's own
    ``sample_weight`` is worth nothing when the wrapped estimator takes none.

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
    # Imported here, because they would be much of the time that importing this library takes.
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import AdaBoostRegressor, BaggingClassifier, BaggingRegressor

    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    if isinstance(estimator, TransformedTargetRegressor):
        return PLAIN if estimator.regressor is None else weight_parameter(estimator.regressor)
    if isinstance(estimator, BaseSearchCV):
        return weight_parameter(estimator.estimator) if _takes_any_keyword(estimator) else None
    members = getattr(estimator, "estimators", None)
    if isinstance(members, list):
        fitted = [member for _, member in members if not isinstance(member, str)]
        if getattr(estimator, "final_estimator", None) is not None:
            fitted.append(estimator.final_estimator)
        return PLAIN if fitted and all(weight_parameter(member) == PLAIN for member in fitted) else None
    if not hasattr(estimator, "fit") or not has_fit_parameter(estimator, PLAIN):
        return None
    wrapped = getattr(estimator, "estimator", None)
    # These draw rows by weight themselves, whatever the estimator inside can do.
    draws_rows = isinstance(estimator, (AdaBoostRegressor, BaggingClassifier, BaggingRegressor))
    if hasattr(wrapped, "fit") and not draws_rows:
        return PLAIN if weight_parameter(wrapped) == PLAIN else None
    return PLAIN


def _takes_any_keyword(estimator: Any) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in signature(estimator.fit).parameters.values())


def require_weight_parameter(estimator: Any) -> str:
    """Like `weight_parameter`, but an estimator that takes none is refused by name."""
    name = weight_parameter(estimator)
    if name is None:
        raise NotWeightableError(
            f"{type(estimator).__name__} takes no row weights in fit, so importance weighting cannot reach it. "
            "Use an estimator whose fit has sample_weight (most linear models, trees, forests, boosting, SVMs), or "
            "wrap it in a BaggingRegressor or BaggingClassifier, which draws rows by weight."
        )
    return name
