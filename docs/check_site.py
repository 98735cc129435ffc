"""Check the built site: ``python docs/check_site.py`` finds broken links and anchors, and what comes from the network.

Every link, picture, style and script of a page must be a file of the site, every anchor must exist on its page, and
nothing that a browser loads by itself may have an address on the network. (Links to other sites may.)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

SITE = Path(__file__).with_name("_build") / "html"
LOADED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "embed": "src",
    "object": "data",
    "use": "href",
}
FOLLOWED = ("a", "area")
IN_STYLES = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


def references(page: BeautifulSoup) -> Iterator[tuple[str, bool]]:
    """Every address on a page, and whether a browser loads it by itself."""
    for name, attribute in LOADED.items():
        yield from ((tag[attribute], True) for tag in page.find_all(name) if tag.get(attribute))
    for tag in page.find_all("link", href=True):
        yield tag["href"], "canonical" not in (tag.get("rel") or [])
    for tag in page.find_all(srcset=True):
        yield from ((part.split()[0], True) for part in tag["srcset"].split(","))
    for tag in page.find_all(FOLLOWED, href=True):
        yield tag["href"], False
    for tag in page.find_all("style"):
        yield from ((address, True) for address in in_styles(tag.get_text()))
    for tag in page.find_all(style=True):
        yield from ((address, True) for address in in_styles(tag["style"]))


def in_styles(text: str) -> list[str]:
    """The addresses in a style sheet."""
    return [first or second for first, second in IN_STYLES.findall(text)]


def anchors(page: BeautifulSoup) -> set[str]:
    """The names on a page that a link can lead to."""
    return {tag[name] for name in ("id", "name") for tag in page.find_all(attrs={name: True})} | {""}


class Site:
    """A folder of pages, each read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.pages: dict[Path, BeautifulSoup] = {}

    def page(self, path: Path) -> BeautifulSoup:
        """A page of the site."""
        if path not in self.pages:
            self.pages[path] = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        return self.pages[path]

    def wrong(self, path: Path, address: str, loaded: bool) -> str | None:
        """What is wrong with an address on the file at a path, or None."""
        parts = urlsplit(address.strip())
        if parts.scheme == "data":
            return None
        if parts.scheme or parts.netloc:
            return "is loaded from the network" if loaded else None
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_relative_to(self.folder):
            return "lies outside the site"
        if not target.is_file():
            return "is not there"
        fragment = unquote(parts.fragment)
        if fragment and target.suffix == ".html" and fragment not in anchors(self.page(target)):
            return "has no such anchor"
        return None

    def faults(self) -> list[str]:
        """Everything that is wrong, each with its page."""
        found = []
        templates = self.folder / "_static"  # of the theme, which are no pages
        for path in sorted(path for path in self.folder.rglob("*.html") if not path.is_relative_to(templates)):
            found += self.faults_of(path, references(self.page(path)))
        for path in sorted(self.folder.rglob("*.css")):
            found += self.faults_of(path, ((address, True) for address in in_styles(path.read_text("utf-8"))))
        return found

    def faults_of(self, path: Path, addresses: Iterator[tuple[str, bool]]) -> list[str]:
        """What is wrong with the addresses in one file."""
        found = []
        for address, loaded in dict.fromkeys(addresses):
            fault = self.wrong(path, address, loaded)
            if fault:
                found.append(f"{path.relative_to(self.folder)}: {address} {fault}")
        return found


if __name__ == "__main__":
    site = Site(Path(sys.argv[1]) if len(sys.argv) > 1 else SITE)
    faults = site.faults()
    print("\n".join([*faults, f"{len(site.pages)} pages, {len(faults)} faults"]))
    sys.exit(bool(faults) or not site.pages)
