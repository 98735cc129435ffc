"""Checkpoints on disk: written completely or not at all, and resumed only by the run that wrote them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steelyard.errors import CheckpointError


def save(path: Path, description: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a temporary file and rename it, so that a kill at any moment leaves the old checkpoint or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.part")
    with open(temporary, "wb") as file:
        torch.save({"description": json.dumps(description, sort_keys=True), "state": state}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path, description: dict[str, Any], device: torch.device) -> dict[str, Any] | None:
    """The saved state, or None without a file; `CheckpointError` if the file is damaged or belongs to another run."""
    if not path.exists():
        return None
    try:
        found = torch.load(path, map_location=device, weights_only=True)
        saved, state = json.loads(found["description"]), found["state"]
    # A truncated file fails in the zip reader, the unpickler or the index, each with an error of its own.
    except Exception as error:
        raise CheckpointError(
            f"{path} is damaged or not a checkpoint ({type(error).__name__}: {error}). It was not changed; move it "
            "away to start from the beginning."
        ) from error
    wanted = json.loads(json.dumps(description))
    differ = [key for key in sorted({*saved, *wanted}) if saved.get(key) != wanted.get(key)]
    if differ:
        changes = "; ".join(f"{key} was {_short(saved.get(key))}, is {_short(wanted.get(key))}" for key in differ)
        raise CheckpointError(
            f"{path} is the checkpoint of another run: {changes}. It was not changed; use another file to start from "
            "the beginning."
        )
    return state


def fingerprint(*tensors: Tensor | None) -> str:
    """A short hash of the contents of these tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            continue
        digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]} … {text[-30:]}"
