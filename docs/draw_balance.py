"""The picture of the front page: importance weights are turned on until the weighted source agrees with the target.

An SVG with an animation in CSS: no script. It plays three times and stays at its end, and who asks for less motion
sees the end alone. Everything in it is computed: the histogram, the fitted line, and the tilt of the beam, which is
the difference between the mean of the target and the weighted mean of the source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import Ridge

from steelyard import AutoRatio, Target
from steelyard.datasets import sinc_toy

LIGHT = {"source": "#64748b", "target": "#c2410c", "weighted": "#0f766e", "text": "#334155", "faint": "#cbd5e1"}
DARK = {"source": "#94a3b8", "target": "#fb923c", "weighted": "#2dd4bf", "text": "#d5dbe3", "faint": "#475569"}
WIDTH, HEIGHT, MARGIN = 480, 510, 16
FRAMES = np.linspace(0, 1, 17)  # flattening of the importance weights in each frame
HOLD, SLIDE = 14, 56  # percent of the time before the weights move, and while they do
DRAWN = 170  # rows of each domain that are drawn, of the 500 that are used
EDGES = np.linspace(-0.4, 2.8, 25)
LOW, HIGH = -0.75, 1.25  # the axis of y
TOP, FLOOR, DENSITY = 200, 322, 46  # pixels: the height of the upper panel, the foot of the histogram, one unit of it
PIVOT, SHORT_ARM, LONG_ARM, TILT = (165, 392), 95, 250, 8  # pixels, and degrees at the start


@dataclass(frozen=True)
class Story:
    """The numbers that are drawn; one row of each array a frame."""

    X: np.ndarray
    y: np.ndarray
    X_target: np.ndarray
    y_target: np.ndarray
    lines: np.ndarray  # intercept and slope
    heights: np.ndarray  # densities of the weighted source
    target_heights: np.ndarray
    differences: np.ndarray  # mean of the target minus weighted mean of the source


def story() -> Story:
    """Estimate the weights, and follow them from none to full."""
    X, y, X_target, y_target = sinc_toy(500, 500, random_state=0)
    weights = AutoRatio(random_state=0).fit(X, target=Target(X_target)).weights_
    lines, heights, differences = [], [], []
    for flattening in FRAMES:
        flat = weights**flattening
        model = Ridge().fit(X, y, sample_weight=flat)
        lines.append((model.intercept_, model.coef_[0]))
        heights.append(np.histogram(X[:, 0], EDGES, density=True, weights=flat)[0])
        differences.append(X_target.mean() - np.average(X[:, 0], weights=flat))
    target_heights = np.histogram(X_target[:, 0], EDGES, density=True)[0]
    arrays = (np.array(values) for values in (lines, heights))
    return Story(X[:, 0], y, X_target[:, 0], y_target, *arrays, target_heights, np.array(differences))


def across(x: np.ndarray) -> np.ndarray:
    """Pixels of x."""
    return MARGIN + (x - EDGES[0]) / (EDGES[-1] - EDGES[0]) * (WIDTH - 2 * MARGIN)


def down(y: np.ndarray) -> np.ndarray:
    """Pixels of y in the upper panel."""
    return TOP - (y - LOW) / (HIGH - LOW) * (TOP - 8)


def moving(name: str, transforms: list[str]) -> str:
    """The rule of one part that moves: hold, go through the frames, hold."""
    times = HOLD + SLIDE * FRAMES
    steps = [f"0%,{times[0]:g}%{{transform:{transforms[0]}}}"]
    steps += [f"{time:g}%{{transform:{transform}}}" for time, transform in zip(times, transforms, strict=True)][1:-1]
    steps.append(f"{times[-1]:g}%,100%{{transform:{transforms[-1]}}}")
    return f"@keyframes {name}{{{''.join(steps)}}}#{name}{{animation-name:{name};transform:{transforms[-1]}}}"


def points(x: np.ndarray, y: np.ndarray, color: str, opacity: float) -> str:
    """Rows as one path of dots."""
    dots = "".join(f"M{a:.0f} {b:.0f}h0" for a, b in zip(across(x[:DRAWN]), down(y[:DRAWN]), strict=True))
    return f'<path d="{dots}" stroke="{color}" stroke-width="5" stroke-linecap="round" opacity="{opacity}"/>'


def text(x: float, y: float, words: str, color: str, anchor: str = "middle") -> str:
    """A label."""
    return f'<text x="{x:g}" y="{y:g}" fill="{color}" text-anchor="{anchor}">{words}</text>'


def fitted_line(story: Story, colors: dict[str, str]) -> tuple[str, str]:
    """The line of the model, which turns from the source to the target; the drawing and its rule."""
    x_at_0 = EDGES[0] - MARGIN * (EDGES[1] - EDGES[0]) / (across(EDGES[1]) - across(EDGES[0]))
    transforms = []
    for intercept, slope in story.lines:
        ends = down(intercept + slope * np.array([x_at_0, EDGES[-1]]))
        angle = np.degrees(np.arctan((ends[1] - ends[0]) / across(EDGES[-1])))
        transforms.append(f"translateY({ends[0]:.1f}px) skewY({angle:.2f}deg)")
    line = f'<path id="line" d="M0 0H{WIDTH}" stroke="{colors["weighted"]}" stroke-width="4"/>'
    return f'<g clip-path="url(#panel)">{line}</g>', moving("line", transforms)


def histogram(story: Story, colors: dict[str, str]) -> tuple[str, str]:
    """Bars of the weighted source, which grow and shrink to the outline of the target."""
    left, width = across(EDGES[:-1]), across(EDGES[1]) - across(EDGES[0])
    bars, rules = [], []
    for i, heights in enumerate(story.heights.T):
        tallest = heights.max()
        if not tallest:
            continue
        bars.append(f'<rect id="b{i}" x="{left[i]:g}" y="{-tallest * DENSITY:.1f}" width="{width - 1:g}" '
                    f'height="{tallest * DENSITY:.1f}"/>')  # fmt: skip
        rules.append(moving(f"b{i}", [f"scaleY({height / tallest:.3f})" for height in heights]))
    steps = "".join(f"V{-h * DENSITY:.1f}h{width:g}" for h in story.target_heights)
    drawn = (
        f'<g transform="translate(0 {FLOOR})"><g fill="{colors["weighted"]}" opacity=".75">{"".join(bars)}</g>'
        f'<path d="M{MARGIN} 0{steps}V0" stroke="{colors["target"]}" stroke-width="2.5" stroke-linejoin="round"/>'
        f'<path d="M{MARGIN} 0H{WIDTH - MARGIN}" stroke="{colors["faint"]}" stroke-width="1.5"/></g>'
    )
    return drawn, "".join(rules)


def balance(story: Story, colors: dict[str, str]) -> tuple[str, str]:
    """The steelyard: its weight slides out with the importance weights; the difference of the means tilts it."""
    angles = -TILT * story.differences / story.differences[0]
    turned = np.radians(angles)
    along = 45 + 150 * FRAMES
    pan = [f"translate({-SHORT_ARM * np.cos(a):.1f}px,{-SHORT_ARM * np.sin(a):.1f}px)" for a in turned]
    weight = [f"translate({r * np.cos(a):.1f}px,{r * np.sin(a):.1f}px)" for r, a in zip(along, turned, strict=True)]
    ticks = "".join(f"M{x:g} -6v-7" for x in np.linspace(45, 235, 12))
    drawn = (
        f'<g transform="translate({PIVOT[0]} {PIVOT[1]})" stroke-linecap="round" stroke-linejoin="round">'
        f'<g stroke="{colors["source"]}"><circle cy="-27" r="7" stroke-width="4"/>'
        f'<path d="M0 -20V0" stroke-width="5"/></g>'
        f'<g id="beam"><path d="{ticks}" stroke="{colors["source"]}" stroke-width="2"/>'
        f'<path d="M{-SHORT_ARM} -5H30L{LONG_ARM} -2V2L30 5H{-SHORT_ARM}Z" fill="{colors["source"]}"/></g>'
        f'<g id="pan"><path d="M0 0L-22 46M0 0L22 46" stroke="{colors["target"]}" stroke-width="2.5"/>'
        f'<path d="M-30 46H30Q26 68 0 68T-30 46Z" fill="{colors["target"]}"/>'
        f"{text(0, 92, 'target', colors['text'])}</g>"
        f'<g id="weight"><path d="M0 -9V24" stroke="{colors["weighted"]}" stroke-width="9"/>'
        f'<path d="M-10 24H10L21 66H-21Z" fill="{colors["weighted"]}" stroke="{colors["weighted"]}"'
        f' stroke-width="4"/>'
        f"{text(0, 92, 'importance weights', colors['text'])}</g></g>"
    )
    rules = moving("beam", [f"rotate({a:.2f}deg)" for a in angles]) + moving("pan", pan) + moving("weight", weight)
    return drawn, rules


def svg(story: Story, colors: dict[str, str]) -> str:
    """The whole picture."""
    parts = [fitted_line(story, colors), histogram(story, colors), balance(story, colors)]
    line, bars, beam = (drawn for drawn, _ in parts)
    moved = "#line,#beam,#pan,#weight,rect"
    labels = text(112, 22, "source, labeled", colors["source"], "start")
    labels += text(WIDTH - MARGIN, 62, "target, to predict", colors["target"], "end")
    labels += text(MARGIN, 232, "target and weighted source", colors["text"], "start")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" fill="none" role="img">'
        "<title>As the importance weights are turned on, the weighted source comes to agree with the target, and the "
        "fitted line turns to it</title><style>text{font:15px system-ui,sans-serif;stroke:none}"
        "rect{transform-box:fill-box;transform-origin:bottom}"
        f"{moved}{{animation-duration:8s;animation-timing-function:linear;animation-iteration-count:3}}"
        f"{''.join(rule for _, rule in parts)}"
        f"@media(prefers-reduced-motion:reduce){{{moved}{{animation:none}}}}</style>"
        f'<clipPath id="panel"><path d="M0 0H{WIDTH}V{TOP + 8}H0Z"/></clipPath>'
        f"{points(story.X, story.y, colors['source'], 0.55)}"
        f"{points(story.X_target, story.y_target, colors['target'], 0.55)}{line}{labels}{bars}{beam}</svg>\n"
    )
