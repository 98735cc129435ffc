"""Validation of inputs and parameters, on top of scikit-learn's own."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from steelyard._typing import FloatArray
from steelyard.errors import (
    ColumnMismatchError,
    InputError,
    InputTypeError,
    NoTargetWarning,
    NotFiniteError,
    ParameterError,
    WeightError,
    warn_user,
)
from steelyard.target import Target

HOW_TO_CLEAN = (
    "Clean or impute the rows first, or let the estimator do so: WeightedRegressor(..., preprocess=SimpleImputer()) "
    "treats source and target alike, and so does WeightedClassifier."
)
HOW_TO_ENCODE = (
    "Encode text columns first, or let the estimator do so: WeightedRegressor(make_pipeline(ColumnTransformer(...), "
    "model)) takes a data frame as it is."
)


def forget_fit(estimator: BaseEstimator) -> None:
    """Delete the attributes of an earlier fit, so that they cannot be mistaken for results of the next one."""
    for name in [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]:
        delattr(estimator, name)


def check_source(estimator: BaseEstimator, X: Any) -> FloatArray:
    """Numeric, finite source rows; stores the number and names of the columns on the estimator."""
    return check_rows(estimator, X, table="source", reset=True, least=2)


def check_new_rows(estimator: BaseEstimator, X: Any, table: str = "table to predict") -> FloatArray:
    """Numeric, finite rows with the columns that the estimator was fitted on."""
    return check_rows(estimator, X, table=table, reset=False, least=1)


def check_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> None:
    """Names and number of the columns of a table whose values the estimator reads itself."""
    table = "source" if reset else "table to predict"
    check_plain(X, table)
    try:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    except (ValueError, TypeError) as error:
        raise _input_error(error)(f"{table}: {error}") from error


def check_target(estimator: BaseEstimator, target: Any, source: Any) -> FloatArray:
    """Target rows with the columns of the source, in the order of the source."""
    return check_rows(estimator, match_columns(target, source), table="target", reset=False, least=2)


def check_centers(centers: Any, estimator: BaseEstimator) -> FloatArray:
    """Centers with the columns of the source; those of a data frame are put in the order of the source."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and hasattr(centers, "columns"):
        missing = [name for name in names if name not in list(centers.columns)]
        if missing:
            raise ColumnMismatchError(f"centers lack the columns {missing} of the source; add them.")
        centers = centers[list(names)]
    centers = check_plain(centers, "centers")
    try:
        rows: FloatArray = check_array(centers, dtype=[np.float64, np.float32], ensure_all_finite=False)
    except (ValueError, TypeError) as error:
        raise _input_error(error)(f"centers: {error}{_remedy(error)}") from error
    if rows.shape[1] != estimator.n_features_in_:
        raise ColumnMismatchError(
            f"centers have {rows.shape[1]} columns, the source has {estimator.n_features_in_}; both need the same."
        )
    _check_finite(rows, "centers", None)
    return rows


def check_plain(values: Any, what: str) -> Any:
    """The values as they are, or dense; an error where some are masked or complex, which arrays would forget.

    Parameters
    ----------
    values : array or data frame
        Rows, labels or weights. Sparse columns of pandas become dense.
    what : str
        What they are called in errors.

    Returns
    -------
    array or data frame
    """
    if np.ma.is_masked(values):
        n_masked = int(np.ma.getmaskarray(values).sum())
        raise InputError(
            f"{what}: {n_masked:,} {'value is' if n_masked == 1 else 'values are'} masked, and numbers are needed. "
            "Drop these rows, or replace the masked values by numbers (.filled)."
        )
    types: Any = getattr(values, "dtypes", None)  # of the columns of a data frame
    kinds = [getattr(kind, "kind", "") for kind in types] if hasattr(types, "__iter__") else []
    if "c" in (*kinds, getattr(getattr(values, "dtype", None), "kind", "")):
        column = f", column {list(values.columns)[kinds.index('c')]!r}" if "c" in kinds else ""
        raise InputError(
            f"{what}{column}: Complex data not supported. Give the real and the imaginary part as columns of their own."
        )
    return values.sparse.to_dense() if kinds and hasattr(values, "sparse") else values


def match_columns(target: Any, source: Any) -> Any:
    """The target rows, with columns in the order of the source where both have column names."""
    rows = target.X if isinstance(target, Target) else target
    source_names, target_names = _column_names(source), _column_names(rows)
    if (target_names is None) != (source_names is None):
        named, plain = ("source", "target") if target_names is None else ("target", "source")
        raise ColumnMismatchError(
            f"The {named} is a table with column names, the {plain} has none, so the columns cannot be matched. "
            f"Give both as data frames, or both as arrays whose columns are in the same order."
        )
    if source_names is None or target_names is None or target_names == source_names:
        return rows
    missing = [name for name in source_names if name not in target_names]
    extra = [name for name in target_names if name not in source_names]
    if missing or extra or len(target_names) != len(source_names):
        raise ColumnMismatchError(
            f"Source and target have different columns. Missing from the target: {missing or 'none'}; "
            f"only in the target: {extra or 'none'}. Drop or add columns until both have the same."
        )
    return rows[source_names]


def _column_names(table: Any) -> list[Any] | None:
    columns = getattr(table, "columns", None)
    return None if columns is None else list(columns)


def check_rows(estimator: BaseEstimator, X: Any, *, table: str, reset: bool, least: int) -> FloatArray:
    X = check_plain(X, table)
    try:
        rows: FloatArray = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=least,
        )
    except (ValueError, TypeError) as error:
        raise _input_error(error)(f"{table}: {error}{_remedy(error)}") from error
    _check_finite(rows, table, _column_names(X))
    return rows


def _input_error(error: Exception) -> type[InputError]:
    return InputTypeError if isinstance(error, TypeError) else InputError


def _remedy(error: Exception) -> str:
    text = str(error).lower()
    if "sparse" in text:
        return " Sparse input is not supported; give a dense array (X.toarray())."
    if "complex" in text:
        return " Give the real and the imaginary part as columns of their own."
    if "convert" in text or "string" in text:
        return f" Every column must be numeric. {HOW_TO_ENCODE}"
    return ""


def _check_finite(rows: FloatArray, table: str, names: Sequence[Any] | None) -> None:
    # One cheap pass: the sum is finite if every entry is, unless it overflows, which the exact test below clears up.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(rows)
    if not bad.any():
        return
    column = int(np.flatnonzero(bad.any(axis=0))[0])
    where = [int(row) for row in np.flatnonzero(bad[:, column])[:3]]
    kind = "NaN" if np.isnan(rows[:, column]).any() else "infinity"
    name = repr(names[column]) if names is not None else str(column)
    raise NotFiniteError(
        f"The {table} contains {kind} in {int(bad.any(axis=1).sum())} of {len(rows)} rows "
        f"(column {name}, first at rows {where}). Finite numbers are needed: input X contains NaN or infinity. "
        f"{HOW_TO_CLEAN}"
    )


def check_weights(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray | None:
    """One finite, non-negative weight per row, not all of them zero."""
    if sample_weight is None:
        return None
    check_plain(sample_weight, "sample_weight")
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(n_rows, float(sample_weight))
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise WeightError(f"sample_weight must hold one number per row: {error}") from error
    if weights.shape != (n_rows,):
        raise WeightError(
            f"sample_weight must be 1D, one weight per row: expected shape ({n_rows},), got {weights.shape}."
        )
    if not np.isfinite(weights).all():
        raise WeightError("sample_weight contains NaN or infinity; every weight must be a finite number.")
    if (weights < 0).any():
        row = int(np.argmin(weights))
        raise WeightError(
            f"Negative values in data passed to sample_weight: {weights[row]} at row {row}. "
            "Weights must be 0 or more; give weight 0 to rows that should not count."
        )
    if not (weights > 0).any():
        raise WeightError("Every sample_weight is zero, so no row counts. Give at least one positive weight.")
    return weights


def check_labels(estimator: BaseEstimator, X: Any, y: Any) -> None:
    """Require one label per row."""
    if y is None:
        raise InputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Give one label per row."
        )
    check_plain(y, "labels")
    try:
        check_consistent_length(X, y)
    except (ValueError, TypeError) as error:
        raise _input_error(error)(f"source: {error}") from error


def warn_without_target(method: str, consequence: str) -> None:
    """Warn that no target was given, and say how to give one."""
    warn_user(f"{method} got no target, so {consequence}. Pass target=Target(rows_to_predict).", NoTargetWarning)


def preprocessed(transformer: Any, X: Any) -> Any:
    """Rows transformed by a fitted transformer; an error where some are masked, or where the result is sparse."""
    check_plain(X, "rows")
    rows = transformer.transform(X)
    if issparse(rows):
        raise InputTypeError(
            f"preprocess ({type(transformer).__name__}) gives sparse rows; dense ones are needed. Set "
            "sparse_output=False on the encoder, or sparse_threshold=0 on the ColumnTransformer."
        )
    return rows


def check_range(name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False) -> float:
    """A finite number between two limits (the lower one excluded if `open_low`)."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or not low <= float(value) <= high or (open_low and float(value) == low):
        sign = ">" if open_low else "≥"
        limit = f"{sign} {low:g}" + (f" and ≤ {high:g}" if np.isfinite(high) else "")
        raise ParameterError(f"{name} must be a finite number {limit}; got {value!r}.")
    return float(value)


def check_count(name: str, value: Any, low: int = 1) -> int:
    """A whole number of at least `low`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
        raise ParameterError(f"{name} must be a whole number ≥ {low}; got {value!r}.")
    return int(value)


def check_grid(name: str, value: Any) -> FloatArray:
    """A positive number or a list of them, as a decreasing array."""
    grid = np.atleast_1d(np.asarray(value, dtype=object))
    if grid.ndim != 1 or not len(grid):
        raise ParameterError(f"{name} must be a positive number or a list of them; got {value!r}.")
    numbers_ = [check_range(name, entry, 0, open_low=True) for entry in grid]
    return np.unique(np.array(numbers_, dtype=np.float64))[::-1]


def generator(random_state: Any) -> np.random.Generator:
    """A random generator from None, a seed, a ``Generator`` or a ``RandomState``."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, numbers.Integral) and int(random_state) >= 0:
        return np.random.default_rng(int(random_state))
    raise ParameterError(f"random_state must be None, a whole number ≥ 0 or a random generator; got {random_state!r}.")
