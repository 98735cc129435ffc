"""Rows from a `torch.utils.data.DataLoader`: all of them as tensors, or batch after batch without end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from steelyard.errors import InputError, InputTypeError

LABEL_KEYS = ("labels", "label", "y")


def validation_batches(rows: Any) -> Iterator[Any]:
    """Batches of validation rows for a training loop, without end: a `DataLoader` starts again where it ends.

    Parameters
    ----------
    rows : DataLoader, iterable of batches, or tensors
        A `DataLoader` (each pass shuffles anew if it does), or anything else that can be read more than once.
        Tensors, as a tuple ``(X, y)`` or a dict, are the batch of every step.

    Returns
    -------
    batches : iterator
        ``next(batches)`` is the batch of the next step, in the form in which the loader gives it.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from steelyard.deep import validation_batches
    >>> clean = TensorDataset(torch.arange(3), torch.tensor([0, 1, 1]))
    >>> batches = validation_batches(DataLoader(clean, batch_size=2))
    >>> [next(batches)[0].tolist() for _ in range(3)]
    [[0, 1], [2], [0, 1]]
    """
    values = list(rows.values()) if isinstance(rows, Mapping) else rows
    if isinstance(rows, Tensor) or (
        isinstance(values, list | tuple) and values and all(isinstance(value, Tensor) for value in values)
    ):
        return _without_end([rows])
    if isinstance(rows, Iterator) or not isinstance(rows, Iterable):
        raise InputTypeError(
            f"Validation rows must be tensors or a DataLoader, which is read again and again; got "
            f"{type(rows).__name__}."
        )
    return _without_end(rows)


def _without_end(batches: Iterable[Any]) -> Iterator[Any]:
    sampler: Any = getattr(batches, "sampler", None)
    n_passes = 0
    while True:
        if hasattr(sampler, "set_epoch"):  # a sampler of several processes shuffles by the number of the pass
            sampler.set_epoch(n_passes)
        batch = None
        for batch in batches:
            yield batch
        if batch is None:
            raise InputError(f"The {type(batches).__name__} of validation rows gave no batch; at least one is needed.")
        n_passes += 1


def read_rows(X: Any, y: Any, which: str) -> tuple[Any, Any]:
    """Rows and labels as they are given, or all of those in a `DataLoader` as tensors; labels None where it has none.

    A loader that is sequential or shuffles is read in the order of its dataset, to the last row; one with a sampler of
    its own is read as it gives its batches.
    """
    if not isinstance(X, DataLoader):
        return X, y
    if y is not None:
        raise InputError(f"{which}: a DataLoader brings its own labels; give no others beside it.")
    batches = [_rows_and_labels(batch, which) for batch in _in_order(X)]
    if not batches:
        raise InputError(f"{which}: the DataLoader gave no batch; at least one row is needed.")
    rows, labels = torch.cat([rows for rows, _ in batches]), [labels for _, labels in batches]
    if labels[0] is None:
        return rows, None
    if isinstance(labels[0], Tensor):
        return rows, torch.cat(labels)
    return rows, np.concatenate([np.asarray(part) for part in labels])


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    sampler, dataset = loader.sampler, loader.dataset
    shuffles = isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(dataset)  # type: ignore[arg-type]
    if type(loader.batch_sampler) is not BatchSampler or not (shuffles or type(sampler) is SequentialSampler):
        return loader
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        timeout=loader.timeout,
    )


def _rows_and_labels(batch: Any, which: str) -> tuple[Tensor, Any]:
    rows: Any = None
    labels: Any = None
    form = f"a {type(batch).__name__}"
    if isinstance(batch, Tensor):
        rows = batch
    elif isinstance(batch, Mapping):
        keys = [key for key in LABEL_KEYS if key in batch]
        others = [key for key in batch if key not in keys]
        form += f" of {list(batch)}"
        if len(keys) == 1 and len(others) == 1:
            rows, labels = batch[others[0]], batch[keys[0]]
    elif isinstance(batch, list | tuple):
        form += f" of {len(batch)} ({', '.join(type(part).__name__ for part in batch)})"
        if len(batch) in (1, 2):
            rows, labels = (*batch, None)[:2]
    if not isinstance(rows, Tensor):
        raise InputTypeError(
            f'{which}: the DataLoader must give batches (X, y), or dicts of X and "labels", with X one tensor; got '
            f"{form}."
        )
    return rows, labels
