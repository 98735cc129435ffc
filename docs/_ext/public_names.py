"""A page for each public name, and links to it from wherever the name stands as code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS))
import make_api  # noqa: E402


def pages_of_names() -> dict[str, str]:
    """The page of each name as it is written: in full, after ``steelyard.``, or short where it cannot be mistaken.

    Errors and warnings have an entry on one page.
    """
    found: dict[str, set[str]] = {}
    for full in make_api.homes().values():
        package, name = full.rsplit(".", 1)
        plain_word = name.islower() and "_" not in name and package != "steelyard"
        for written in {full, full.removeprefix("steelyard."), *([] if plain_word else [name])}:
            found.setdefault(written, set()).add(f"api/generated/{full}")
    for package in make_api.PACKAGES[1:]:
        short = package.removeprefix("steelyard.")
        for written in (package, *([short] if "_" in short or "." in short else [])):
            found[written] = {f"api/{package}"}  # `one_step` is the package, and not the function in another
    entries = re.findall(r"^#+ (\w+(?:Error|Warning))$", (DOCS / "errors.md").read_text("utf-8"), re.MULTILINE)
    errors = {name: f"errors#{name.lower()}" for name in entries}
    return errors | {written: min(pages) for written, pages in found.items() if len(pages) == 1}


def page_of(written: str, page: str, pages: dict[str, str]) -> str | None:
    """The page of a name on a page; on those of a package its own names come first."""
    for package in sorted(make_api.PACKAGES, key=len, reverse=True):
        if page == f"api/{package}" or page.startswith(f"api/generated/{package}."):
            return pages.get(f"{package}.{written}") or pages.get(written)
    return pages.get(written)


def make_pages(app: Any) -> None:
    """Before the build reads its sources."""
    make_api.write_names(DOCS / "api" / "generated")
    app.env.pages_of_names = pages_of_names()


def link(app: Any, tree: nodes.document, page: str) -> None:
    """Turn code that is a public name into a link, but for titles, links and the page of the name itself."""
    for code in list(tree.findall(nodes.literal)):
        target = page_of(code.astext().split("(")[0], page, app.env.pages_of_names)
        above = code.parent
        while above is not None and not isinstance(above, nodes.title | nodes.reference | addnodes.pending_xref):
            above = above.parent
        if target and target != page and above is None:
            file, _, anchor = target.partition("#")
            link = nodes.reference("", "", internal=True)
            link["refuri"] = app.builder.get_relative_uri(page, file) + (f"#{anchor}" if anchor else "")
            code.replace_self(link)
            link += code


def setup(app: Any) -> dict[str, Any]:
    """Register both."""
    app.connect("builder-inited", make_pages)
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
