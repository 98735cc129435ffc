"""The command line of a benchmark that makes one page: it is printed, and kept where --out says."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def print_page(make: Callable[[], str], description: str | None) -> None:
    """Read the command line, make the page, print and keep it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    text = make()
    print(text)
    if out:
        out.write_text(text)
