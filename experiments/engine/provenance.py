"""Where the numbers of a table come from: provenance.json, with an entry for each settings and seed."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.engine.files import locked, replace_file
from steelyard import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn")


def environment(device: str | None = None) -> dict[str, Any]:
    """Versions and machine of this process; `device` where it trains networks."""
    found: dict[str, Any] = {
        "versions": {"steelyard": __version__, **{name: version(name) for name in PACKAGES}},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    if device is not None:
        import torch

        found["versions"]["torch"] = torch.__version__
        found["device"] = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return found


def read_provenance(folder: Path) -> dict[str, Any]:
    """What is stored; empty for a new table."""
    path = folder / "provenance.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def note(folder: Path, table: str, key: str, seed: int, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Add facts on the trials of some settings and a seed; an environment is added to those that are there."""
    with locked(folder):
        stored = read_provenance(folder) or {"table": table, "settings": {}}
        about = stored["settings"].setdefault(key, {"values": dict(settings), "seeds": {}})
        entry = about["seeds"].setdefault(str(seed), {"computed_with": []})
        facts = dict(facts)
        new = facts.pop("environment", None)
        if new is not None and new not in entry["computed_with"]:
            entry["computed_with"].append(new)
            entry["computed_with"].sort(key=lambda each: json.dumps(each, sort_keys=True))
        about["seeds"] = {number: about["seeds"][number] for number in sorted(about["seeds"], key=int)}
        about["seeds"][str(seed)] = {**facts, "computed_with": entry["computed_with"]} if facts else entry
        stored["settings"] = dict(sorted(stored["settings"].items()))
        replace_file(folder / "provenance.json", (json.dumps(stored, indent=1, ensure_ascii=False) + "\n").encode())
