"""Write docs/api.md, the list of all public names: ``python docs/make_api.py``."""

from __future__ import annotations

import importlib
from pathlib import Path

PACKAGES = (
    "steelyard",
    "steelyard.ratio",
    "steelyard.one_step",
    "steelyard.stacking",
    "steelyard.model_selection",
    "steelyard.diagnostics",
    "steelyard.tables",
    "steelyard.datasets",
    "steelyard.report",
    "steelyard.deep",
    "steelyard.deep.training",
    "steelyard.deep.lightning",
    "steelyard.deep.transformers",
    "steelyard.causal",
    "steelyard.baselines",
)


def summary(value: object) -> str:
    """The first sentence of a docstring."""
    paragraph = (getattr(value, "__doc__", None) or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split())


def page() -> str:
    """The whole page."""
    lines = [
        "# Public names",
        "",
        "Every public package and its names, as in its `__all__`; docstrings have parameters, returns and a running",
        "example. What is not here, and every module or package with a leading underscore, may change at any time. The",
        "errors and warnings are in `steelyard.errors`, the command line in `steelyard.app`.",
    ]
    for package in PACKAGES:
        module = importlib.import_module(package)
        lines += ["", f"## {package}", "", summary(module), "", "| name | |", "|---|---|"]
        lines += [f"| `{name}` | {summary(getattr(module, name))} |" for name in sorted(module.__all__)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(page(), "utf-8")
