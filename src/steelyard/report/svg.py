"""The parts of pictures as SVG text. Colors are classes, so that a page can be light, dark or printed.

All text is escaped. A picture is drawn 360 units wide: on a phone a unit is about a pixel, and letters stay legible.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from steelyard._numerics.written import written

WIDTH = 360
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 36
NARROW, LETTER, CAPITAL, WIDE = 4.2, 7.5, 9.5, 12.5  # widths of letters in units, in a wide font
BOLD = 1.06  # how much wider bold letters are
LONGEST_LABEL = 120  # letters; a longer one is shortened in its middle, and a tooltip has all of it
BESIDE = 172.0  # width of labels up to which they stand left of the data, and not above it


def tag(name: str, *inside: Any, **attributes: Any) -> Markup:
    """An element; attribute names are written with _ for -, and numbers are rounded."""
    rounded = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(f"{value:.2f}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{rounded}>") + Markup("").join(escape(i) for i in inside) + Markup(f"</{name}>")


def picture(height: float, label: str, description: str, *inside: Markup) -> Markup:
    """The whole picture, with a name and a description for people who listen to it."""
    words = tag("title", label), tag("desc", description)
    return tag(
        "svg",
        *words,
        *inside,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


class Axis:
    """From values to places."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = low, high if high > low else low + 1.0
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return float(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start))

    def inside(self, value: float) -> float:
        """The place of a value, or the end of the axis that is nearest to it."""
        return self(float(np.clip(value, self.low, self.high)))

    def ticks(self, at_most: int = 4) -> list[float]:
        """Round values along the axis: multiples of 1, 2, 2.5 or 5 times a power of ten, in at most so many steps."""
        span = self.high - self.low
        power = 10.0 ** np.floor(np.log10(span / at_most))
        step = next(power * times for times in (1, 2, 2.5, 5, 10) if span / (power * times) <= at_most + 1e-9)
        first, last = np.ceil(self.low / step - 1e-9), np.floor(self.high / step + 1e-9)
        return [float(step * k) + 0.0 for k in np.arange(first, last + 1)]  # adding zero turns −0 into 0

    def spaced_ticks(self, name: Callable[[float], str], at_most: int) -> list[float]:
        """As many ticks, up to a limit, as there is room for their names."""
        for n_steps in range(at_most, 1, -1):
            found = self.ticks(n_steps)
            room = max((text_width(name(value)) for value in found), default=0.0) + 8
            if all(abs(self(after) - self(before)) >= room for before, after in pairwise(found)):
                return found
        return self.ticks(1)


def text_width(content: str) -> float:
    """About the width of words in units, and hardly below it."""

    def width(letter: str) -> float:
        if unicodedata.east_asian_width(letter) in "WF":
            return WIDE
        return NARROW if letter in "iIjlt.,:;'|!() " else CAPITAL if letter.isupper() or letter in "mwMW%" else LETTER

    return sum(width(letter) for letter in content)


def text(x: float, y: float, content: str, anchor: str = "middle", kind: str = "tick") -> Markup:
    """Words."""
    return tag("text", content, x=float(x), y=float(y), text_anchor=anchor, class_=kind)


def wrapped(content: str, width: float) -> list[str]:
    """The lines of a label, broken at a space or behind a sign where there is one in the second half of a line."""
    lines, rest = [], content
    while text_width(rest) > width:
        fits = next(n for n in range(len(rest), 0, -1) if text_width(rest[:n]) <= width or n == 1)
        ends = [n for n in range(fits, fits // 2, -1) if rest[n - 1] in " _-./,:="]
        end = ends[0] if ends else fits
        lines.append(rest[:end].strip())
        rest = rest[end:].strip()
    return [*lines, rest] if rest else lines


class Lanes:
    """One lane for each row of a picture, with its label: left of the data where all are short, above it otherwise."""

    def __init__(self, labels: Sequence[str], height: float) -> None:
        kept = LONGEST_LABEL // 2
        self.labels = [
            label if len(label) <= LONGEST_LABEL else f"{label[: kept - 1]}…{label[-kept:]}" for label in labels
        ]
        self._names = labels
        widest = BOLD * max(text_width(label) for label in self.labels)
        self.beside = widest <= BESIDE
        self.start = widest + 14 if self.beside else 12.0
        self._lines = [[label] if self.beside else wrapped(label, WIDTH - 24) for label in self.labels]
        self.middles: list[float] = []
        self._tops: list[float] = []
        self.bottom = 6.0
        for lines in self._lines:
            above = 0.0 if self.beside else 14.0 * len(lines) + 4
            self._tops.append(self.bottom)
            self.middles.append(self.bottom + above + height / 2)
            self.bottom += above + height

    def label(self, i: int, kind: str = "") -> list[Markup]:
        """The label of a lane; a tooltip has what was left out."""
        full = [tag("title", self._names[i])] if self.labels[i] != self._names[i] else []
        if self.beside:
            places = [(self.start - 10, self.middles[i] + 4, "end")]
        else:
            places = [(12.0, self._tops[i] + 14.0 * (k + 1), "start") for k in range(len(self._lines[i]))]
        return [
            tag("text", *full, line, x=x, y=y, text_anchor=anchor, class_=f"label {kind}".strip())
            for line, (x, y, anchor) in zip(self._lines[i], places, strict=True)
        ]


def bottom_axis(
    axis: Axis, y: float, title: str = "", name: Callable[[float], str] = written, n_steps: int = 5
) -> list[Markup]:
    """A line, ticks and a title below."""
    parts = [tag("line", x1=axis.start, x2=axis.end, y1=float(y), y2=float(y), class_="axis")]
    for value in axis.spaced_ticks(name, n_steps):
        place, half = axis(value), text_width(name(value)) / 2
        anchor = "end" if place + half > WIDTH else "start" if place - half < 0 else "middle"
        parts.append(tag("line", x1=place, x2=place, y1=float(y), y2=y + 4.0, class_="axis"))
        parts.append(
            text(WIDTH - 2 if anchor == "end" else 2 if anchor == "start" else place, y + 16, name(value), anchor)
        )
    return [*parts, text((axis.start + axis.end) / 2, y + 32, title)] if title else parts
