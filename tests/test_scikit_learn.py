"""Only names that scikit-learn documents as public are imported from it."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "steelyard"


def names_of_scikit_learn(path):
    """Every module and every name that a file imports from scikit-learn, at its top or anywhere below."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "sklearn")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sklearn":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_private_name_of_scikit_learn_is_imported():
    imported = {name for path in SOURCE.rglob("*.py") for name in names_of_scikit_learn(path)}
    assert "sklearn.base.BaseEstimator" in imported
    assert [name for name in imported if any(part.startswith("_") for part in name.split("."))] == []
