"""Tables of any length for what needs its rows in memory: an even sample of them."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from steelyard._progress import LOG
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
        X, y = _sample(X, "source"), _sample(y, "labels").ravel()
    if target is not None and is_stream(rows):
        target = Target(_sample(rows, "target"))
    return X, y, target


def _sample(table: Any, name: str) -> Any:
    """An even sample of the rows, in their order; a data frame where the columns have names."""
    if name == "labels" and isinstance(table, list | tuple):
        table = [np.reshape(block, (len(block), -1)) for block in table]
    stream = as_stream(table, name)
    found = stream.reduce(partial(Summary, SAMPLE_ROWS, 0), "sampling")
    rows = found.sample[np.argsort(found.numbers)]
    LOG.info("%s: an even sample of %s of %s rows", name, f"{len(rows):,}", f"{found.count:,}")
    if stream.columns is None or name == "labels" or find_spec("pandas") is None:
        return rows
    import pandas as pd  # imported here: it is optional

    return pd.DataFrame(rows, columns=stream.columns)
