"""How many tests, planted bugs and estimators under law there are, counted in ``tests/`` while the site is built.

``tests in FOLDER or FILE`` counts test functions; most of them run for several estimators or inputs, and count once.
``other tests than in FOLDER, FOLDER`` counts those of all other places.
``examples`` counts the running examples in docstrings, ``bugs`` and ``bugs in FILE`` the planted bugs, ``files in
FOLDER`` test files, ``entries of NAME in FILE`` the entries of a list or dictionary.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def count(what: str) -> int:
    """One of the counts that this module's docstring names."""
    kind, _, place = what.partition(" in ")
    if kind == "tests" and place:
        return sum(len(test_functions(path)) for path in test_files(place))
    if kind == "other tests than" and place:
        return count("tests in tests") - sum(count(f"tests in {folder}") for folder in place.split(", "))
    if kind == "files" and place:
        return len(test_files(place))
    if what == "examples":
        return sum(">>> " in text for path in (ROOT / "src").rglob("*.py") for text in docstrings(path))
    if kind == "bugs":
        files = [ROOT / place] if place else sorted((ROOT / "tests/planted").glob("*.toml"))
        return sum(len(tomllib.loads(path.read_text("utf-8"))["bug"]) for path in files)
    if kind.startswith("entries of ") and place:
        return entries(kind.removeprefix("entries of "), ROOT / place)
    raise ValueError(f"{what!r} is not a count; docs/_ext/counts.py names those that there are.")


def test_files(place: str) -> list[Path]:
    """Test files in a folder, or the one file."""
    path = ROOT / place
    found = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    if not found:
        raise ValueError(f"There is no test file in {place}.")
    return found


@cache
def test_functions(path: Path) -> list[str]:
    """Names of the test functions of a file, those of classes included."""
    return [node.name for node in functions(path) if node.name.startswith("test_")]


def docstrings(path: Path) -> Iterator[str]:
    """Every docstring of a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """Every function that is defined in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield node


def entries(name: str, path: Path) -> int:
    """The entries of a list or dictionary of that name in a file."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            if isinstance(node.value, ast.Dict):
                return len(node.value.keys)
            if isinstance(node.value, ast.List | ast.Tuple):
                return len(node.value.elts)
    raise ValueError(f"{path.name} has no list or dictionary {name}.")
