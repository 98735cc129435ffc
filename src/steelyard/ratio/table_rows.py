"""Tables with text or missing values: the estimator reads them as they are, the ratio has an encoding of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, get_tags

from steelyard._validation import (
    check_new_rows,
    check_source,
    check_table,
    check_target,
    match_columns,
    preprocessed,
)
from steelyard.errors import NotFiniteError
from steelyard.tables import Frame, as_frame, encode_pair, match_frames


def reads(estimator: Any, *, text: bool) -> bool:
    """Whether an estimator can be given text (or categories), or only missing values, as far as it says so.

    A Pipeline may transform anything, so it is given anything. A wrapper reads what the wrapped estimator reads.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> reads(make_pipeline(Ridge()), text=True), reads(Ridge(), text=False)
    (True, False)
    >>> reads(RandomForestRegressor(), text=False), reads(RandomForestRegressor(), text=True)
    (True, False)
    """
    if isinstance(estimator, Pipeline):
        return True
    members = getattr(estimator, "estimators", None)
    if isinstance(members, list):  # voting and stacking
        return all(reads(member, text=text) for _, member in members if hasattr(member, "fit"))
    for name in ("estimator", "regressor"):
        if hasattr(getattr(estimator, name, None), "fit"):
            return reads(getattr(estimator, name), text=text)
    tags = get_tags(estimator).input_tags
    if text:  # histogram gradient boosting takes columns of pandas' type category, and has no tag for it
        return bool(tags.string or tags.categorical or hasattr(estimator, "categorical_features"))
    return bool(tags.allow_nan)


def must_encode(estimator: Any, *tables: Any) -> bool:
    """Whether a table has text or missing values, which the estimator reads and a ratio does not."""
    if not (reads(estimator, text=False) or reads(estimator, text=True)):
        return False  # before a look at every value
    contents = {_content(table) for table in tables}
    return contents != {"numbers"} and "other" not in contents and reads(estimator, text="text" in contents)


def _content(table: Any) -> str:
    """What a table holds: finite "numbers", numbers with "missing" values, "text"; "other" if it is no table."""
    # The number of dimensions without a copy of the values, where the table says it; a list does not.
    ndim = table.ndim if hasattr(table, "ndim") else len(getattr(table, "shape", ())) or np.array(table, object).ndim
    if issparse(table) or ndim != 2:
        return "other"
    try:
        rows = check_array(table, dtype=[np.float64, np.float32], ensure_all_finite=False)
    except (ValueError, TypeError):
        return "text"
    return "numbers" if np.isfinite(rows).all() else "missing"


class ReadsTables:
    """Mixed into estimators with the parameter `preprocess`: source and target rows for learners and for the ratio."""

    preprocess: Any
    _reader: Any  # the learner, which may read text and missing values itself

    def _prepare(self, X: Any, target: Any) -> tuple[Any, Any, Any]:
        """Source rows for the learner, source rows for the ratio, and target rows (None without a target)."""
        target_rows = None if target is None else match_columns(target, X)
        tables = [X] if target_rows is None else [X, target_rows]
        if self.preprocess is None and not must_encode(self._reader, *tables):
            numeric = check_source(self, X)
            # A data frame stays one, for inner steps that select columns by name.
            rows = X if hasattr(X, "columns") else numeric
            return rows, numeric, None if target is None else check_target(self, target, X)
        # The input need not be numeric; the transformer or the learner makes it so.
        check_table(self, X, reset=True)
        if self.preprocess is not None:
            self.preprocess_ = clone(self.preprocess).fit(X)
            tables = [preprocessed(self.preprocess_, table) for table in tables]
        if target_rows is None:
            return tables[0], tables[0], None
        return tables[0], *(encode_tables(*tables) if must_encode(self._reader, *tables) else tables)

    def _rows(self, X: Any) -> Any:
        """New rows for the learner."""
        if self.preprocess is None and not must_encode(self._reader, X):
            rows = check_new_rows(self, X)
            return X if hasattr(X, "columns") else rows
        check_table(self, X, reset=False)
        return X if self.preprocess is None else preprocessed(self.preprocess_, X)


def encode_tables(X: Any, X_target: Any) -> tuple[Any, Any]:
    """Source and target rows as numbers: indicators of levels, medians where a number is missing, and where it was.

    Tables of finite numbers are returned as they are.

    Examples
    --------
    >>> source, target = np.array([["a", 1.0], ["b", np.nan]], dtype=object), np.array([["a", 3.0]], dtype=object)
    >>> encode_tables(source, target)[0]
    array([[1., 0., 1., 0.],
           [0., 1., 2., 1.]])
    """
    if _content(X) == _content(X_target) == "numbers":
        return X, X_target
    source, target = match_frames(as_frame(X), as_frame(X_target))
    for frame, name in ((source, "source"), (target, "target")):
        _require_no_infinity(frame, name)
    pair = encode_pair(source, target)
    return pair.X, pair.X_target


def _require_no_infinity(frame: Frame, table: str) -> None:
    for column in frame.columns:
        if column.kind == "number" and np.isinf(column.values).any():
            raise NotFiniteError(
                f"Column {column.name!r} of the {table} contains infinity, first at row "
                f"{int(np.argmax(np.isinf(column.values)))}. Give NaN where a value is missing, or a finite number."
            )
