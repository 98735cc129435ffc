"""How long functions are and how many are called once: ``python -m tests.functions [FOLDER]``."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent


def trees(folder: Path) -> dict[Path, ast.Module]:
    """Every file of a folder, parsed."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(folder.rglob("*.py"))}


def lengths(folder: Path) -> list[int]:
    """Lines of every function and method, docstring left out."""
    found = []
    for tree in trees(folder).values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                documented = ast.get_docstring(node, clean=False) is not None
                doc = node.body[0].end_lineno - node.body[0].lineno + 1 if documented else 0
                found.append(node.end_lineno - node.lineno + 1 - doc)
    return sorted(found)


def called_once(folder: Path) -> list[str]:
    """Module-level functions that the folder mentions once beside their definition, public names left out."""
    parsed = trees(folder)
    mentions = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for tree in parsed.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    public = {
        element.value
        for tree in parsed.values()
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for element in ast.walk(node.value)
        if isinstance(element, ast.Constant)
    }
    return [
        f"{path.relative_to(folder)}:{node.lineno} {node.name}"
        for path, tree in parsed.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.decorator_list
        and node.name not in public
        and mentions[node.name] == 1
    ]


def long_files(folder: Path, limit: int = 400) -> list[str]:
    """Files of more lines than the limit."""
    counts = {path: len(path.read_text("utf-8").splitlines()) for path in sorted(folder.rglob("*.py"))}
    return [f"{path.relative_to(folder)}: {n}" for path, n in counts.items() if n > limit]


def main() -> None:
    """Print the figures, and the functions that are called once."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / "steelyard"
    found, once = lengths(folder), called_once(folder)
    print("\n".join(once))
    print(f"{len(found)} functions, 90 % of them of at most {found[int(0.9 * len(found))]} lines, longest {found[-1]}.")
    print(f"{len(once)} module-level functions are called once.")
    print(f"Files over 400 lines: {long_files(folder) or 'none'}.")


if __name__ == "__main__":
    main()
