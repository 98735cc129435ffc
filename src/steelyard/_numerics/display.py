"""Pieces that findings, fits and tables show of themselves: HTML without scripts, and short lines for a terminal.

The styles touch nothing outside of the piece, and take the color of the text around it, light or dark.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from markupsafe import Markup

STYLE = Markup(
    "<style>.steelyard{max-width:640px;margin:8px 0}.steelyard svg{width:360px;max-width:100%}"
    ".steelyard text{font:12px system-ui,sans-serif;fill:currentColor}.steelyard .weighted{fill:#0f766e}"
    ".steelyard .axis,.steelyard .rule{stroke:currentColor}.steelyard .grid{stroke:currentColor;opacity:.15}"
    # Stronger than the rules of Jupyter, which would align cells to the right and center the table.
    ".steelyard.steelyard table{margin:0}.steelyard.steelyard :is(td,th){text-align:left;vertical-align:top;"
    "padding:2px 10px 2px 4px;max-width:none}.steelyard.steelyard th{white-space:nowrap}"
    "</style>"
)


def fragment(*inside: Markup) -> Markup:
    """The pieces in one block, with their styles."""
    return STYLE + Markup('<div class="steelyard">') + Markup("").join(inside) + Markup("</div>")


def paragraph(words: str) -> Markup:
    """Escaped words."""
    return Markup("<p>{}</p>").format(words)


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> Markup:
    """Escaped cells; without a header the first cell of each row names the others."""
    lines = [Markup("").join(Markup("<th>{}</th>").format(name) for name in header)] if header else []
    for first, *rest in rows:
        cell = Markup("<td>{}</td>") if header else Markup("<th>{}</th>")
        lines.append(cell.format(first) + Markup("").join(Markup("<td>{}</td>").format(value) for value in rest))
    return (
        Markup("<table>")
        + Markup("").join(Markup("<tr>") + line + Markup("</tr>") for line in lines)
        + Markup("</table>")
    )


class ShortRepr:
    """Mixed into data classes that hold tables: a table is shown by its type and shape, and other values shortened."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={_short(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({shown})"


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return reprlib.repr(value) if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
