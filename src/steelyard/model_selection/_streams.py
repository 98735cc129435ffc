"""Tables of any length for what needs its rows in memory: an even sample of them."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from steelyard._progress import LOG
from steelyard.errors import InputError
from steelyard.ratio._sums import Summary
from steelyard.tables.streams import as_stream, is_stream
from steelyard.target import Target

# How many rows of each table are kept. The standard error of a mean score over so many is 0.3 % of its deviation.
SAMPLE_ROWS = 100_000


def in_memory(X: Any, y: Any, target: Any) -> tuple[Any, Any, Any]:
    """Tables in memory as they are, and an even sample of those that are paths, blocks or Dask collections.

    The rows of `X` and their labels are sampled by their running numbers, and so belong together.
    """
    rows = target.X if isinstance(target, Target) else target
    if is_stream(X):
        source, found = _sample(X, "source")
        X, y = source, _labels(y, found)
    if target is not None and is_stream(rows):
        target = Target(_sample(rows, "target")[0])
    return X, y, target


def _labels(y: Any, sampled: Summary) -> Any:
    """The labels of the sampled rows."""
    if isinstance(y, list | tuple) and len(y) and np.ndim(y[0]) > 0:
        y = [np.reshape(block, (len(block), -1)) for block in y]
    if is_stream(y):
        labels, found = _sample(y, "labels")
        labels, count = labels.ravel(), found.count
    else:
        labels, count = np.asarray(y), len(y)
    if count != sampled.count:
        raise InputError(
            f"The source has {sampled.count:,} rows and there are {count:,} labels. Give one label for each row, in "
            "the same order."
        )
    return labels if is_stream(y) else labels[np.sort(sampled.numbers)]


def _sample(table: Any, name: str) -> tuple[Any, Summary]:
    """An even sample of the rows, in their order; a data frame where the columns have names."""
    stream = as_stream(table, name)
    found = stream.reduce(partial(Summary, SAMPLE_ROWS, 0), "sampling")
    rows = found.sample[np.argsort(found.numbers)]
    LOG.info("%s: an even sample of %s of %s rows", name, f"{len(rows):,}", f"{found.count:,}")
    if stream.columns is None or name == "labels" or find_spec("pandas") is None:
        return rows, found
    import pandas as pd  # imported here: it is optional

    return pd.DataFrame(rows, columns=stream.columns), found
