"""PyTorch tensors as input: seen without importing PyTorch, taken to the host, and given back on their device."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.errors import InputError, InputTypeError


def is_tensor(values: Any) -> bool:
    """Whether something is a PyTorch tensor; PyTorch is not imported to find out."""
    return any(kind.__name__ == "Tensor" and kind.__module__ == "torch" for kind in type(values).__mro__)


def to_numpy(values: Any) -> Any:
    """A tensor as an array on the host, half precision as single; anything else as it is."""
    if not is_tensor(values):
        return values
    values = values.detach()
    half = values.is_floating_point() and values.element_size() < 4
    return (values.float() if half else values).cpu().numpy()


def like_tensor(values: Any, tensor: Any) -> Any:
    """Numbers as a tensor on the device of `tensor`, and of its type where that is a floating-point type."""
    import torch  # a tensor was given, so it is loaded already

    dtype = tensor.dtype if tensor.is_floating_point() else torch.float64
    return torch.as_tensor(values).to(device=tensor.device, dtype=dtype)


def require_same_device(source: Any, target: Any, names: tuple[str, str] = ("source", "target")) -> None:
    """Raise an error unless both tables are tensors on the same device; `target` may be None."""
    if target is None:
        return
    if not (is_tensor(source) and is_tensor(target)):
        kinds = [type(table).__name__ for table in (source, target)]
        raise InputTypeError(
            f"The {names[0]} is a {kinds[0]} and the {names[1]} a {kinds[1]}. Give both as tensors on the same device, "
            "or both as arrays (tensor.cpu().numpy())."
        )
    if source.device != target.device:
        raise InputError(
            f"The {names[0]} is on the device {source.device} and the {names[1]} on {target.device}. Move one of them: "
            f"{names[1]}.to({str(source.device)!r})."
        )


def as_array(values: Any) -> Any:
    """Like `to_numpy`, and an array of whatever is no tensor."""
    return np.asarray(to_numpy(values))
