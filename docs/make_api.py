"""Write the list of all public names, docs/api.md and one page for each package: ``python docs/make_api.py``.

The site adds one page for each name (`write_names`), made of its docstring, and the names link to it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
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
DOCS = Path(__file__).parent


def summary(value: object) -> str:
    """The first sentence of a docstring."""
    paragraph = (getattr(value, "__doc__", None) or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split())


def homes() -> dict[int, str]:
    """The page of each public object: the full name in the first package that has it."""
    found: dict[int, str] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            found.setdefault(id(getattr(module, name)), f"{package}.{name}")
    return found


def pages() -> dict[str, str]:
    """The list of packages and the page of each, by their paths in docs."""
    lines = [
        "# API",
        "",
        "Every public package and its names, as in its `__all__`; docstrings have parameters, returns and a running",
        "example. What is not here, and every module or package with a leading underscore, may change at any time. The",
        "errors and warnings are in `steelyard.errors`, the command line in `steelyard.app`.",
        "",
        "| package | |",
        "|---|---|",
    ]
    found, home = {}, homes()
    for package in PACKAGES:
        about = summary(importlib.import_module(package))
        lines.append(f"| [{package}](api/{package}.md) | {about} |")
        found[f"api/{package}.md"] = package_page(package, about, home)
    found["api.md"] = "\n".join(lines) + "\n\n" + toctree(f"api/{package}" for package in PACKAGES)
    return found


def package_page(package: str, about: str, home: dict[int, str]) -> str:
    """A package and its names; those of several packages are documented with the first."""
    module = importlib.import_module(package)
    named = [(name, getattr(module, name)) for name in sorted(module.__all__)]
    table = ["| name | |", "|---|---|", *(f"| `{name}` | {cell(summary(value))} |" for name, value in named)]
    own = [f"generated/{package}.{name}" for name, value in named if home[id(value)] == f"{package}.{name}"]
    return "\n".join([f"# {package}", "", about, "", *table]) + "\n\n" + toctree(own)


def cell(text: str) -> str:
    """Text in a cell of a table, where a bar would end the cell."""
    return text.replace("|", "\\|")


def toctree(entries: Iterable[str]) -> str:
    """The pages below a page, for the navigation of the site."""
    return "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"]) + "\n"


def name_page(full_name: str) -> str:
    """One public name: its docstring and, of a class, its public methods that are ours."""
    package, name = full_name.rsplit(".", 1)
    value = getattr(importlib.import_module(package), name)
    lines = [name, "=" * len(name), "", f".. currentmodule:: {package}", ""]
    if not inspect.isclass(value):
        return "\n".join([*lines, f".. autofunction:: {name}", ""])
    lines.append(f".. autoclass:: {name}")
    if named := methods(value):
        lines.append(f"   :members: {', '.join(named)}")
    return "\n".join([*lines, ""])


def methods(value: type) -> list[str]:
    """Public methods and properties that are written in this package, not inherited from another."""
    found = []
    for name, member in inspect.getmembers(value):
        written = member.fget if isinstance(member, property) else member
        ours = (getattr(written, "__module__", None) or "").startswith("steelyard.")
        if ours and not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            found.append(name)
    return found


def write_names(folder: Path) -> None:
    """Write the page of each public name that the build reads; a page that is as it was keeps its date."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.rst": name_page(name) for name in homes().values()}
    for path in folder.glob("*.rst"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text, "utf-8")
