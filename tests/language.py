"""Retired names and phrases, searched for in any copy of the package and its pages; see docs/glossary.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# Whole identifiers that named the two domains by eight other names, and words that were replaced by those of the field.
RETIRED_NAMES = {"near", "far", "here", "there", "ours", "theirs", "one", "other", "goal", "judge", "ridge", "lambdas"}
NAMES_OF_SCIKIT_LEARN = {"Ridge"}
# Parts of identifiers, between underscores.
RETIRED_PARTS = {
    *("goal", "goals", "judge", "judged", "judging", "judges", "deal", "deals", "dealt", "dealer", "learnt", "lambdas"),
    *("optimiser", "optimisers", "normalise", "normalised", "standardise", "standardised", "minimise", "summarise"),
    *("centre", "centres", "labelled", "unlabelled", "renew", "renewed", "watched", "penalised", "synthesise"),
}
RETIRED_PHRASES = (
    r"\bone (weight|number|label|score|loss|line|value) a (source |target )?row\b",
    r"\bone a row\b",
    r"\bweights? (are|is) worth\b",
    r"\bworth so many\b",
    r"\bwhat (the )?weights leave\b",
    r"\beffective rows\b",
    r"\bclassifier tells\b",
    r"\b(the|a) judge\b",
    r"\bjudging\b",
    r"\bjudged (for|by|on)\b",
    r"\bdealt\b",
    r"\blearnt\b",
    r"\b(optimis|normalis|standardis|minimis|summaris|regularis|generalis|initialis|factoris)(e|ed|er|es|ing|ation)\b",
    r"\bcentres?\b",
    r"\b(un|mis)?labelled\b",
    r"\bbehaviour\b",
    r"\bneighbour",
    r"\bis no number\b",
    r"\bnothing is sure\b",
    r"\bmade of steps\b",
    r"\bof another training\b",
    r"\bgoes on from there\b",
    r"\bas far as the source reaches\b",
    r"\blook like the other\b",
    r"\bsteelyard reproduce\b",
)
REQUIRED_TERMS = (
    "density ratio",
    "importance weights",
    "bandwidth",
    "hyperparameter",
    "regularization strength",
    "effective sample size",
    "covariate shift",
    "domain classifier",
    "importance-weighted cross-validation",
)


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name that a file defines or uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def retired_names(root: Path) -> list[str]:
    """Retired identifiers in the package, each with its file."""
    found = set()
    for path in sorted((root / "src").rglob("*.py")):
        for name in identifiers(ast.parse(path.read_text("utf-8"))):
            lowered = name.lower()
            if name in NAMES_OF_SCIKIT_LEARN:
                continue
            if lowered in RETIRED_NAMES or RETIRED_PARTS & set(lowered.split("_")):
                found.add(f"{path.relative_to(root)}: {name}")
    return sorted(found)


def pages(root: Path) -> Iterator[Path]:
    """Files whose prose is checked; the glossary may name what it retires."""
    for pattern in ("src/**/*.py", "src/**/*.html", "README.md", "CONTRIBUTING.md", "docs/*.md", "docs/guide/*.md"):
        yield from sorted(root.glob(pattern))


def retired_phrases(root: Path) -> list[str]:
    """Retired phrases in the package and its pages, each with its file."""
    retired = [re.compile(phrase, re.IGNORECASE) for phrase in RETIRED_PHRASES]
    found = []
    for path in pages(root):
        # Phrases may be broken over lines of a docstring, a comment or a string.
        text = re.sub(r"[\"']?\s*\n\s*(#|f?\"|f?')?\s*", " ", path.read_text("utf-8"))
        found += [f"{path.relative_to(root)}: {m.group()}" for phrase in retired for m in phrase.finditer(text)]
    return found
