"""A page for each public name, and links to it from wherever the name stands as code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS))
import make_api  # noqa: E402


def pages_of_names() -> dict[str, str]:
    """The page of each name as it is written: short, after ``steelyard.`` or full. A name of two objects has none."""
    found: dict[str, set[str]] = {}
    for full in make_api.homes().values():
        for written in {full, full.removeprefix("steelyard."), full.rsplit(".", 1)[1]}:
            found.setdefault(written, set()).add(full)
    return {written: f"api/generated/{min(full)}" for written, full in found.items() if len(full) == 1}


def make_pages(app: Any) -> None:
    """Before the build reads its sources."""
    make_api.write_names(DOCS / "api" / "generated")
    app.env.pages_of_names = pages_of_names()


def link(app: Any, tree: nodes.document, page: str) -> None:
    """Turn code that is a public name into a link, but for titles, links and the page of the name itself."""
    for code in list(tree.findall(nodes.literal)):
        target = app.env.pages_of_names.get(code.astext().split("(")[0])
        above = code.parent
        while above is not None and not isinstance(above, nodes.title | nodes.reference | addnodes.pending_xref):
            above = above.parent
        if target and target != page and above is None:
            link = nodes.reference("", "", internal=True)
            link["refuri"] = app.builder.get_relative_uri(page, target)
            code.replace_self(link)
            link += code


def setup(app: Any) -> dict[str, Any]:
    """Register both."""
    app.connect("builder-inited", make_pages)
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
