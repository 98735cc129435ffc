"""Pictures as SVG text. Colours are classes, so that the page can be light, dark or printed; all text is escaped.

A picture is drawn 360 units wide: on a phone a unit is about a pixel, and the letters stay legible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from steelyard.report.evidence import Balance, Evidence, Histogram, Marginal, Point

if TYPE_CHECKING:
    from steelyard.app.comparison import Comparison

WIDTH = 360
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 10, 34


def tag(name: str, *inside: Any, **attributes: Any) -> Markup:
    """An element; attribute names are written with _ for -, and numbers are rounded."""
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(f"{value:.2f}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>") + Markup("").join(escape(i) for i in inside) + Markup(f"</{name}>")


def picture(height: float, label: str, *inside: Markup) -> Markup:
    """The whole picture, with a name for people who listen to it."""
    title = tag("title", label)
    return tag("svg", title, *inside, viewBox=f"0 0 {WIDTH} {height:g}", role="img", xmlns="http://www.w3.org/2000/svg")


class Axis:
    """From values to places."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = low, high if high > low else low + 1.0
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return float(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start))

    def ticks(self, at_most: int = 4) -> list[float]:
        """Round values along the axis: multiples of 1, 2, 2.5 or 5 times a power of ten, in at most so many steps."""
        span = self.high - self.low
        power = 10.0 ** np.floor(np.log10(span / at_most))
        step = next(power * times for times in (1, 2, 2.5, 5, 10) if span / (power * times) <= at_most + 1e-9)
        first, last = np.ceil(self.low / step - 1e-9), np.floor(self.high / step + 1e-9)
        return [float(step * k) + 0.0 for k in np.arange(first, last + 1)]  # adding zero turns −0 into 0


def text(x: float, y: float, content: str, anchor: str = "middle", kind: str = "tick") -> Markup:
    """Words."""
    return tag("text", content, x=float(x), y=float(y), text_anchor=anchor, class_=kind)


def shortened(content: str, n_letters: int) -> str:
    """At most so many letters."""
    return content if len(content) <= n_letters else content[: n_letters - 1] + "…"


def bottom_axis(axis: Axis, y: float, title: str, written: Any = None, n_steps: int = 4) -> list[Markup]:
    """A line, ticks and a title below."""
    written = written or (lambda value: f"{value:g}")
    parts = [tag("line", x1=axis.start, x2=axis.end, y1=float(y), y2=float(y), class_="axis")]
    for value in axis.ticks(n_steps):
        parts.append(tag("line", x1=axis(value), x2=axis(value), y1=float(y), y2=y + 4.0, class_="axis"))
        parts.append(text(axis(value), y + 15, written(value)))
    return [*parts, text((axis.start + axis.end) / 2, y + 30, title)]


def percent(value: float) -> str:
    """A share in words."""
    return f"{100 * value:.3g}%"


def weight_histogram(found: Histogram) -> Markup:
    """How many rows have which weight."""
    height = 200.0
    across = Axis(0.0, found.edges[-1], LEFT, WIDTH - RIGHT)
    up = Axis(0.0, max(found.shares) * 1.05, height - BOTTOM, TOP)
    parts = []
    for value in up.ticks():
        parts.append(tag("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=up(value), y2=up(value), class_="grid"))
        parts.append(text(LEFT - 5, up(value) + 4, percent(value), "end"))
    for share, low, high in zip(found.shares, found.edges, found.edges[1:], strict=False):
        parts.append(
            tag(
                "rect",
                x=across(low) + 0.5,
                width=max(across(high) - across(low) - 1, 0.5),
                y=up(share),
                height=up(0) - up(share),
                class_="weighted fill",
            )
        )
    parts.append(tag("line", x1=across(1), x2=across(1), y1=float(TOP), y2=up(0), class_="rule"))
    return picture(height, "Histogram of the weights", *parts, *bottom_axis(across, up(0), "weight of a source row"))


def gauge(effective: float, n_rows: int) -> Markup:
    """The effective sample size as a bar."""
    across = Axis(0.0, 1.0, 10, WIDTH - 10)
    share = effective / n_rows
    mood = "good" if share >= 0.5 else "fair" if share >= 0.1 else "poor"
    parts = [
        tag("rect", x=across(0), y=26.0, width=across(1) - across(0), height=18.0, rx=4.0, class_="track"),
        tag("rect", x=across(0), y=26.0, width=max(across(share) - across(0), 3.0), height=18.0, rx=4.0, class_=mood),
        text(10, 17, f"ESS {effective:,.0f} of {n_rows:,} rows ({percent(share)})", "start", "label"),
    ]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if value == 0 else "end" if value == 1 else "middle"
        parts.append(text(across(value), 60, percent(value), anchor))
    return picture(66.0, "Effective sample size", *parts)


def marginal(found: Marginal) -> Markup:
    """One column in the source, the target and the weighted source."""
    return _levels(found) if found.levels else _densities(found)


def _densities(found: Marginal) -> Markup:
    height = 170.0
    across = Axis(found.edges[0], found.edges[-1], 12, WIDTH - 12)
    shown = [found.source, found.target, *([] if found.weighted is None else [found.weighted])]
    up = Axis(0.0, max(max(values, default=0.0) for values in shown) * 1.08 or 1.0, height - BOTTOM, TOP)
    parts = [_steps(found.edges, found.source, across, up, "source fill", True)]
    if found.weighted is not None:
        parts.append(_steps(found.edges, found.weighted, across, up, "weighted line", False))
    parts.append(_steps(found.edges, found.target, across, up, "target line", False))
    written = _day if found.kind == "date" else None
    name = shortened(found.name, 50)
    n_steps = 3 if found.kind == "date" else 5
    return picture(height, f"Distribution of {found.name}", *parts, *bottom_axis(across, up(0), name, written, n_steps))


def _day(value: float) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    except OverflowError:
        return f"{value:g}"


def _steps(edges: Sequence[float], shares: Sequence[float], across: Axis, up: Axis, kind: str, closed: bool) -> Markup:
    places = [(across(edges[0]), up(0))]
    for share, low, high in zip(shares, edges, edges[1:], strict=False):
        places += [(across(low), up(share)), (across(high), up(share))]
    places.append((across(edges[-1]), up(0)))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return tag("polygon" if closed else "polyline", points=points, class_=kind)


def _levels(found: Marginal) -> Markup:
    label_width = 118
    across_high = max(*found.source, *found.target, *(found.weighted or (0.0,)))
    across = Axis(0.0, across_high * 1.02 or 1.0, label_width, WIDTH - 14)
    row = 36.0
    parts = []
    for i, level in enumerate(found.levels):
        top = 6 + i * row
        parts.append(text(label_width - 6, top + 18, shortened(level, 18), "end"))
        bars = [(found.source[i], "source fill"), (found.target[i], "target fill")]
        if found.weighted is not None:
            bars.append((found.weighted[i], "weighted fill"))
        for j, (share, kind) in enumerate(bars):
            width = max(across(share) - across(0), 0.8)
            parts.append(tag("rect", x=across(0), y=top + 9.0 * j, width=width, height=8.0, class_=kind))
    bottom = 6 + len(found.levels) * row
    axis = bottom_axis(across, bottom, shortened(found.name, 50), percent)
    return picture(bottom + BOTTOM, f"Distribution of {found.name}", *parts, *axis)


def love_plot(found: Sequence[Balance]) -> Markup:
    """Standardized differences before and after weighting."""
    label_width, row = 140, 20.0
    high = max(max(b.before, b.after or 0.0) for b in found)
    across = Axis(0.0, max(high * 1.05, 0.3), label_width, WIDTH - 14)
    bottom = 8 + row * len(found)
    parts = [tag("line", x1=across(0.1), x2=across(0.1), y1=4.0, y2=bottom, class_="rule")]
    for i, b in enumerate(found):
        y = 8 + row * i + row / 2
        parts.append(text(label_width - 8, y + 4, shortened(b.name, 22), "end"))
        parts.append(tag("line", x1=across(0), x2=float(WIDTH - 14), y1=y, y2=y, class_="grid"))
        if b.after is not None:
            parts.append(tag("line", x1=across(b.before), x2=across(b.after), y1=y, y2=y, class_="change"))
        for value, when, kind in ((b.before, "before", "source ring"), (b.after, "after", "weighted fill")):
            if value is not None:
                named = tag("title", f"{b.name}, {when}: {value:.2f}")
                parts.append(tag("circle", named, cx=across(value), cy=y, r=4.5, class_=kind))
    axis = bottom_axis(across, bottom, "standardized difference to the target")
    return picture(bottom + BOTTOM, "Differences before and after weighting", *parts, *axis)


def domain_map(found: Evidence) -> Markup:
    """Both domains in two dimensions; the size of a source row is its weight."""
    height = 300.0
    points = [*found.source_points, *found.target_points]
    xs, ys = np.array([p.x for p in points]), np.array([p.y for p in points])
    across = Axis(*_stretch(xs), 10, WIDTH - 10)
    up = Axis(*_stretch(ys), height - 26, 10)
    parts = []

    def inside(p: Point) -> bool:
        return across.low <= p.x <= across.high and up.low <= p.y <= up.high

    for p in filter(inside, found.source_points):
        radius = float(np.clip(2.6 * np.sqrt(p.weight), 0.7, 11.0))
        parts.append(tag("circle", cx=across(p.x), cy=up(p.y), r=radius, class_="source dot"))
    for p in filter(inside, found.target_points):
        x, y = across(p.x), up(p.y)
        parts.append(tag("path", d=f"M{x - 2.6:.1f} {y - 2.6:.1f}l5.2 5.2m0 -5.2l-5.2 5.2", class_="target cross"))
    parts.append(text(WIDTH / 2, height - 6, "direction that separates source and target best →"))
    return picture(height, "Map of both domains", *parts)


def _stretch(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.002, 0.998])
    slack = 0.05 * float(high - low) or 1.0
    return float(low) - slack, float(high) + slack


def methods(found: Comparison) -> Markup:
    """Loss of every method for the target against ERM's, with one standard error (thick) and 95 % (thin)."""
    label_width, row = 180, 22.0
    unit = found.methods[found.plain].loss or 1.0
    spans = [(-m.gain / unit, m.gain_error / unit) for m in found.methods]
    limit = 1.0
    low = max(min(0.0, *(d - 1.96 * e for d, e in spans if np.isfinite(e))), -limit)
    high = min(max(0.05, *(d + 1.96 * e for d, e in spans if np.isfinite(e))), limit)
    across = Axis(low - 0.02, high + 0.02, label_width, WIDTH - 14)
    bottom = 8 + row * len(spans)
    parts = [tag("line", x1=across(0), x2=across(0), y1=4.0, y2=bottom, class_="rule")]
    for i, (method, (change, error)) in enumerate(zip(found.methods, spans, strict=True)):
        y = 8 + row * i + row / 2
        kind = "chosen" if i == found.chosen else "plain" if i == found.plain else "other"
        parts.append(text(label_width - 8, y + 4, shortened(method.name, 30), "end", f"tick {kind}"))
        parts += _whiskers(across, change, error if np.isfinite(error) else 2 * limit, y, kind)
    axis = bottom_axis(across, bottom, "change of the loss on the target", lambda v: f"{100 * v:+.3g}%" if v else "0")
    return picture(bottom + BOTTOM, "The methods compared", *parts, *axis)


def _whiskers(across: Axis, change: float, error: float, y: float, kind: str) -> Iterable[Markup]:
    def inside(value: float) -> float:
        return across(float(np.clip(value, across.low, across.high)))

    if error > 0:
        for times, name in ((1.96, "thin"), (1.0, "thick")):
            ends = inside(change - times * error), inside(change + times * error)
            yield tag("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_=f"{name} {kind}")
    if across.low <= change <= across.high:
        yield tag("circle", cx=across(change), cy=y, r=4.5, class_=f"spot {kind}")
    else:
        yield text(inside(change), y + 4, "›" if change > across.high else "‹", kind=f"tick {kind}")
