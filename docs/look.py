"""Look at the built site in Chromium: ``python docs/look.py`` prints pages that overflow, and what the console says.

``python docs/look.py start.html 390 dark start.png`` takes a picture of one page instead, at that width. The browser is
``chromium``, or the one that the variable ``BROWSER`` names.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SITE = Path(__file__).with_name("_build") / "html"
WIDTHS = (390, 1280)
THEMES = ("light", "dark")
PAGES_AT_ONCE = 25
OF_THE_THEME = '"[PST]'  # it writes what it does, errors aside
# A script cannot read a page from the file system in another frame without the first of these.
FLAGS = (
    *("--allow-file-access-from-files", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"),
)
# Loads one page after the other in a frame of the width, and says how wide each is; `null` where it did not load.
MEASURE = """<!doctype html><title>look</title><body><script>
const pages = PAGES, width = WIDTH, found = [];
const frame = document.createElement("iframe");
frame.style = `width:${width}px;height:900px;border:0`;
let i = 0;
frame.onload = () => setTimeout(() => {
  if (frame.contentWindow.location.href === "about:blank") return;
  const root = frame.contentDocument.documentElement;
  const wide = [...frame.contentDocument.querySelectorAll("article *")].filter(
    part => part.getBoundingClientRect().right > width + 1 && part.scrollWidth > 0);
  found.push([pages[i], root.scrollWidth, wide.length ? wide[0].outerHTML.slice(0, 90) : ""]);
  if (++i < pages.length) frame.src = pages[i];
  else {
    document.body.innerHTML = "<pre id=found></pre>";
    document.getElementById("found").textContent = JSON.stringify(found);
  }
}, 150);
frame.src = pages[0];
document.body.append(frame);
</script>"""
SHOW = """<!doctype html><body style="margin:0"><script>
localStorage.setItem("mode", "THEME"); localStorage.setItem("theme", "THEME");
document.write('<iframe style="border:0;width:WIDTHpx;height:HEIGHTpx" src="PAGE"></iframe>');
</script>"""


def browse(page: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page, written to a file of its own, with a new profile."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "page.html"
        path.write_text(page, "utf-8")
        command = (os.environ.get("BROWSER", "chromium"), *FLAGS, f"--user-data-dir={place}/profile", *options)
        return subprocess.run((*command, path.as_uri()), capture_output=True, text=True, check=True, timeout=300)


def overflowing(pages: list[Path], width: int) -> tuple[list[str], list[str]]:
    """Pages that are wider than a window of this width, and what the console said."""
    script = MEASURE.replace("PAGES", json.dumps([page.as_uri() for page in pages])).replace("WIDTH", str(width))
    done = browse(script, "--dump-dom", "--virtual-time-budget=120000", f"--window-size={width + 100},1000")
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    if match is None:
        raise RuntimeError(f"The browser did not come to the end of {len(pages)} pages: {done.stderr[-2000:]}")
    found = json.loads(html.unescape(match.group(1)))
    wide = [f"{page}: {wide} of {width} pixels {part}" for page, wide, part in found if wide > width]
    said = [line.partition("CONSOLE")[2] for line in done.stderr.splitlines()]
    return wide, [words for words in said if words and OF_THE_THEME not in words]


def picture(page: str, width: int, theme: str, out: Path, height: int = 3000) -> None:
    """Take a picture of a page at a width and in a theme."""
    text = SHOW.replace("THEME", theme).replace("WIDTH", str(width)).replace("HEIGHT", str(height))
    text = text.replace("PAGE", (SITE / page).as_uri())
    browse(text, f"--screenshot={out.resolve()}", "--virtual-time-budget=30000", f"--window-size={width},{height}")


def look() -> int:
    """Print what overflows and what the console says; the number of both."""
    pages = sorted(page for page in SITE.rglob("*.html") if not page.is_relative_to(SITE / "_static"))
    said = set()
    for width in WIDTHS:
        for first in range(0, len(pages), PAGES_AT_ONCE):
            wide, console = overflowing(pages[first : first + PAGES_AT_ONCE], width)
            said |= {*wide, *console}
    print("\n".join([*sorted(said), f"{len(pages)} pages at {WIDTHS} pixels: {len(said)} remarks"]))
    return len(said)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        picture(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    else:
        sys.exit(bool(look()))
