"""The pictures of the report, each drawn from plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from steelyard._numerics.written import written, written_share
from steelyard.balance import ColumnBalance
from steelyard.report.evidence import Evidence, Histogram, Marginal, Point
from steelyard.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis, Lanes, bottom_axis, picture, tag, text

if TYPE_CHECKING:
    from steelyard.app.comparison import ComparedMethod, Comparison

BALANCED = 0.1  # standardized difference up to which a column counts as balanced


def percent(share: float) -> str:
    """A share on an axis."""
    return f"{written(100 * share)}%"


def weight_histogram(found: Histogram) -> Markup:
    """How many rows have which weight."""
    height = 190.0
    across = Axis(0.0, found.edges[-1], LEFT, WIDTH - RIGHT)
    up = Axis(0.0, max(found.shares) * 1.05, height - BOTTOM, TOP)
    parts = []
    for value in up.ticks():
        parts.append(tag("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=up(value), y2=up(value), class_="grid"))
        parts.append(text(LEFT - 5, up(value) + 4, percent(value), "end"))
    for share, low, high in zip(found.shares, found.edges, found.edges[1:], strict=False):
        width = max(across(high) - across(low) - 1, 0.5)
        place = {"x": across(low) + 0.5, "y": up(share), "width": width, "height": up(0) - up(share)}
        parts.append(tag("rect", **place, class_="weighted fill"))
    parts.append(tag("line", x1=across(1), x2=across(1), y1=float(TOP), y2=up(0), class_="rule"))
    said = f"Most rows weigh less than 1; the last bar holds all weights above {written(found.edges[-1])}."
    axis = bottom_axis(across, up(0), "weight of a source row")
    return picture(height, "Histogram of the weights", said, *parts, *axis)


def gauge(effective: float, n_rows: int) -> Markup:
    """The effective sample size as a bar."""
    across = Axis(0.0, 1.0, 12, WIDTH - 12)
    share = effective / n_rows
    mood = "good" if share >= 0.5 else "fair" if share >= 0.1 else "poor"
    said = f"Effective sample size {effective:,.0f} of {n_rows:,} rows ({written_share(share)})"
    parts = [
        tag("rect", x=across(0), y=24.0, width=across(1) - across(0), height=16.0, rx=4.0, class_="track"),
        tag("rect", x=across(0), y=24.0, width=max(across(share) - across(0), 3.0), height=16.0, rx=4.0, class_=mood),
        text(12, 15, said, "start", "label"),
    ]
    return picture(46.0, "Effective sample size", said, *parts)


def marginal(found: Marginal) -> Markup:
    """One column in the source, the target and the weighted source."""
    return _levels(found) if found.levels else _densities(found)


def _densities(found: Marginal) -> Markup:
    height = 150.0
    across = Axis(found.edges[0], found.edges[-1], 12, WIDTH - 12)
    shown = [found.source, found.target, *([] if found.weighted is None else [found.weighted])]
    up = Axis(0.0, max(max(values, default=0.0) for values in shown) * 1.08 or 1.0, height - 22, TOP)
    parts = [_steps(found.edges, found.source, across, up, "source fill", True)]
    if found.weighted is not None:
        parts.append(_steps(found.edges, found.weighted, across, up, "weighted line", False))
    parts.append(_steps(found.edges, found.target, across, up, "target line", False))

    def day(value: float) -> str:
        try:
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        except OverflowError:
            return written(value)

    axis = bottom_axis(across, up(0), name=day if found.kind == "date" else written)
    said = (
        f"Values from {written(found.edges[0])} to {written(found.edges[-1])}, with the share of the rows in each bin."
    )
    return picture(height, f"Distribution of {found.name}", said, *parts, *axis)


def _steps(edges: Sequence[float], shares: Sequence[float], across: Axis, up: Axis, kind: str, closed: bool) -> Markup:
    places = [(across(edges[0]), up(0))]
    for share, low, high in zip(shares, edges, edges[1:], strict=False):
        places += [(across(low), up(share)), (across(high), up(share))]
    places.append((across(edges[-1]), up(0)))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return tag("polygon" if closed else "polyline", points=points, class_=kind)


def _levels(found: Marginal) -> Markup:
    lanes = Lanes(found.levels, 34.0)
    high = max(*found.source, *found.target, *(found.weighted or (0.0,)))
    across = Axis(0.0, high * 1.02 or 1.0, lanes.start, WIDTH - 14)
    parts: list[Markup] = []
    for i, middle in enumerate(lanes.middles):
        parts += lanes.label(i)
        bars = [(found.source[i], "source fill"), (found.target[i], "target fill")]
        if found.weighted is not None:
            bars.append((found.weighted[i], "weighted fill"))
        for j, (share, kind) in enumerate(bars):
            width = max(across(share) - across(0), 0.8)
            place = {"x": across(0), "y": middle - 4.5 * len(bars) + 9.0 * j, "width": width, "height": 8.0}
            parts.append(tag("rect", **place, class_=kind))
    said = "; ".join(
        f"{level}: source {written_share(source)}, target {written_share(target)}"
        for level, source, target in zip(found.levels, found.source, found.target, strict=True)
    )
    axis = bottom_axis(across, lanes.bottom, name=percent)
    return picture(lanes.bottom + 22, f"Distribution of {found.name}", said, *parts, *axis)


def love_plot(found: Sequence[ColumnBalance], weighted: bool) -> Markup:
    """Standardized differences before and after weighting."""
    lanes = Lanes([column.name for column in found], 20.0)
    high = max(max(abs(c.before), abs(c.after) if weighted else 0.0) for c in found)
    across = Axis(0.0, max(high * 1.05, 0.3), lanes.start, WIDTH - 14)
    parts, said = [], []
    if lanes.beside:
        parts.append(tag("line", x1=across(BALANCED), x2=across(BALANCED), y1=4.0, y2=lanes.bottom, class_="rule"))
    for i, (column, y) in enumerate(zip(found, lanes.middles, strict=True)):
        before, after = abs(column.before), abs(column.after)
        parts += lanes.label(i)
        parts.append(tag("line", x1=across(0), x2=float(WIDTH - 14), y1=y, y2=y, class_="grid"))
        if not lanes.beside:  # the rule in every lane, but not through the label above it
            parts.append(tag("line", x1=across(BALANCED), x2=across(BALANCED), y1=y - 8, y2=y + 8, class_="rule"))
        shown = [(before, "before", "source ring")]
        if weighted:
            parts.append(tag("line", x1=across(before), x2=across(after), y1=y, y2=y, class_="change"))
            shown.append((after, "after", "weighted fill"))
        for value, when, kind in shown:
            named = tag("title", f"{column.name}, {when} weighting: {value:.2f}")
            parts.append(tag("circle", named, cx=across(value), cy=y, r=4.5, class_=kind))
        said.append(f"{column.name}: {before:.2f}" + (f", weighted {after:.2f}" if weighted else ""))
    axis = bottom_axis(across, lanes.bottom, "standardized difference to the target")
    label = "Differences before and after weighting" if weighted else "Differences of source and target"
    return picture(lanes.bottom + BOTTOM, label, "; ".join(said), *parts, *axis)


def domain_map(found: Evidence) -> Markup:
    """Both domains in two dimensions; the size of a source row is its weight."""
    height = 270.0
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
    said = f"{len(found.source_points)} source rows as circles and {len(found.target_points)} target rows as crosses."
    return picture(height, "Map of source and target", said, *parts)


def _stretch(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.002, 0.998])
    slack = 0.05 * float(high - low) or 1.0
    return float(low) - slack, float(high) + slack


def methods(found: Comparison, domain: str) -> Markup:
    """Estimated error of every method against the plain model's, with one standard error (thick) and 95 % (thin)."""
    lanes = Lanes([method.name for method in found.methods], 20.0)
    unit = found.methods[found.plain].loss or 1.0
    spans = [(-m.gain / unit, m.gain_error / unit) for m in found.methods]
    ends = [(0.0, 0.0), *((d - 1.96 * e, d + 1.96 * e) for d, e in spans if np.isfinite(e))]
    # One bad method may not squeeze the others: the axis ends at twice the upper quartile, or at a doubled error.
    limit = min(max(0.1, 2 * float(np.quantile([high for _, high in ends], 0.75))), 1.0)
    low, high = max(min(end for end, _ in ends), -1.0), min(max(0.05, *(end for _, end in ends)), limit)
    across = Axis(low - 0.02, high + 0.02, lanes.start, WIDTH - 14)
    parts = [tag("line", x1=across(0), x2=across(0), y1=4.0, y2=lanes.bottom, class_="rule")]
    for i, (change, error) in enumerate(spans):
        kind = "chosen" if i == found.chosen else "plain" if i == found.plain else "other"
        parts += lanes.label(i, kind)
        y = lanes.middles[i]
        for times, name in ((1.96, "thin"), (1.0, "thick")) if error > 0 else ():
            reach = min(times * error, 2.0)
            places = {"x1": across.inside(change - reach), "x2": across.inside(change + reach)}
            parts.append(tag("line", **places, y1=y, y2=y, class_=f"{name} {kind}"))
        if across.low <= change <= across.high:
            parts.append(tag("circle", cx=across(change), cy=y, r=4.5, class_=f"spot {kind}"))
        else:
            parts.append(text(across.inside(change), y + 4, "›" if change > 0 else "‹", kind=f"tick {kind}"))

    def signed(value: float) -> str:
        return f"+{percent(value)}" if value > 0 else percent(value) if value else "0"

    axis = bottom_axis(across, lanes.bottom, f"change of the error on the {domain}", signed)
    names = zip(found.methods, spans, strict=True)
    said = "; ".join(f"{method.name}: {signed(round(change, 3))}" for method, (change, _) in names)
    return picture(lanes.bottom + BOTTOM, "The methods compared", said, *parts, *axis)


def shares(method: ComparedMethod) -> Markup:
    """The members of a combination as bars."""
    used = [(name, share) for name, share in method.shares if share > 0]
    lanes = Lanes([name for name, _ in used], 22.0)
    across = Axis(0.0, max(share for _, share in used), lanes.start, WIDTH - 52)
    parts: list[Markup] = []
    for i, ((_, share), y) in enumerate(zip(used, lanes.middles, strict=True)):
        parts += lanes.label(i)
        width = max(across(share) - across(0), 1.0)
        parts.append(tag("rect", x=across(0), y=y - 7, width=width, height=14.0, rx=3.0, class_="weighted fill"))
        parts.append(text(across(share) + 6, y + 4, written_share(share), "start", "label"))
    said = "; ".join(f"{name}: {written_share(share)}" for name, share in used)
    return picture(lanes.bottom + 6, f"Shares of {method.name}", said, *parts)
