"""Links from a page to files of the repository outside docs: the site takes a copy along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

ROOT = Path(__file__).parents[2]


def take_along(app: Any, tree: nodes.document) -> None:
    """Turn a link to a Markdown file that is no page of the site into one to a copy of the file."""
    for link in list(tree.findall(addnodes.pending_xref)):
        if link.get("refdomain") != "doc" or link["reftarget"] in app.env.found_docs:
            continue
        path = Path(app.srcdir, link["reftarget"] + ".md").resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            copy = addnodes.download_reference("", "", reftarget="/" + str(Path("..") / path.relative_to(ROOT)))
            copy["refdoc"] = app.env.current_document.docname
            copy += link.children
            link.replace_self(copy)


def setup(app: Any) -> dict[str, Any]:
    """Register it before the builder collects the files to copy."""
    app.connect("doctree-read", take_along, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
