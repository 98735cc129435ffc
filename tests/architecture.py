"""Who imports whom: the layers of the package, checked on any copy of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

# Rooms and root modules, lowest first. A module imports from lower layers and from its own room, nothing else.
LAYERS = (
    {"errors"},
    {"_typing", "_threads", "_progress", "target"},
    {"weights", "_validation", "_weight_parameter"},
    {"_numerics"},
    {"_splits"},
    {"tables", "datasets", "balance"},
    {"report"},
    {"ratio"},
    {"weighted", "one_step"},
    {"stacking"},
    {"model_selection"},
    {"diagnostics", "_few_shot"},
    {"causal", "baselines", "deep"},
    {"__init__"},
    {"app"},
    {"experiments"},
    {"benchmarks"},
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def modules(root: Path) -> dict[str, Path]:
    """Every module of the package, the experiments and the benchmarks, by its dotted name."""
    found = {}
    for base in (root / "src", root):
        for top in ("steelyard",) if base.name == "src" else ("experiments", "benchmarks"):
            for path in sorted((base / top).rglob("*.py")):
                name = ".".join(path.relative_to(base).with_suffix("").parts)
                found[name.removesuffix(".__init__")] = path
    return found


def room(module: str) -> str:
    """The room of a module: its first package below steelyard, or the module itself at the root."""
    first, *rest = module.split(".")
    return first if first != "steelyard" else rest[0] if rest else "__init__"


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules that a file imports, at its top or anywhere below, those for type checking alone left out."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def violations(root: Path) -> list[str]:
    """Imports from a higher layer or from another room of the same one, and cycles, in words."""
    known = modules(root)
    graph = {name: set(imports(path, known)) - {name} for name, path in known.items()}
    found = [
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in sorted(others)
        if room(other) != room(name) and LEVEL[room(other)] >= LEVEL[room(name)]
    ]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"cycle: {' <- '.join(error.args[1])}")
    return found
