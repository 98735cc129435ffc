"""Ratio estimators on PyTorch tensors: small tables by way of NumPy, large ones on the GPU that they are on."""

from __future__ import annotations

from typing import Any

from steelyard._numerics.tensors import is_tensor, like_tensor, require_same_device, to_numpy
from steelyard.target import Target

# With more rows than this in a domain, tables on a GPU stay there (for estimators that have a way to be fitted there).
ROWS_ON_DEVICE = 100_000


def given_tensors(*tables: Any) -> bool:
    """Whether any of the tables is a tensor."""
    return any(is_tensor(table.X if isinstance(table, Target) else table) for table in tables)


def fit_tensors(estimator: Any, X: Any, target: Any, sample_weight: Any) -> Any:
    """Fit to tensors; ``weights_`` is a tensor on their device and of their type."""
    rows = target.X if isinstance(target, Target) else target
    require_same_device(X, rows)
    if is_tensor(sample_weight):
        require_same_device(X, sample_weight, ("source", "sample_weight"))
    if rows is not None and sample_weight is None and _stays_on_device(estimator, X, rows):
        from steelyard.ratio import _device  # needs PyTorch

        if _device.fit(estimator, X, rows):
            return estimator
    estimator.fit(to_numpy(X), target=to_numpy(rows), sample_weight=to_numpy(sample_weight))
    estimator.weights_ = like_tensor(estimator.weights_, X)
    return estimator


def predict_tensor(estimator: Any, X: Any) -> Any:
    """The ratio at new rows as a tensor."""
    if not estimator.constant_ and hasattr(estimator, "coef_") and _stays_on_device(estimator, X, X):
        from steelyard.ratio import _device  # needs PyTorch

        return like_tensor(_device.predict(estimator, X), X)
    return like_tensor(estimator.predict(to_numpy(X)), X)


def _stays_on_device(estimator: Any, *tables: Any) -> bool:
    on_gpu = all(table.device.type == "cuda" and table.is_floating_point() for table in tables)
    return on_gpu and max(map(len, tables)) > ROWS_ON_DEVICE and hasattr(estimator, "_fit_on_device")
