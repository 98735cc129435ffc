"""The picture of the page "Which method?": questions from top to bottom, and what serves where the answer is yes."""

from __future__ import annotations

WIDTH, LEFT, RIGHT, GAP = 480, 206, 218, 22  # pixels: the picture, a question, an answer, between questions
LINE, PADDING = 19, 11
LIGHT = {"question": "#f1f5f9", "answer": "#ccfbf1", "edge": "#64748b", "text": "#0f172a", "arrow": "#0f766e"}
DARK = {"question": "#273240", "answer": "#134e4a", "edge": "#94a3b8", "text": "#f1f5f9", "arrow": "#2dd4bf"}
# The lines of a question, and of what to do; the last answer has no question.
LADDER = (
    (("Is a shift only a doubt?",), ("First look:", "steelyard diagnose")),
    (("Did diagnose", "find no shift?"), ("Fit without weights",)),
    (("Do source and target", "hardly overlap?"), ("Collect labeled data", "near the target")),
    (("A few labeled target rows", "and many domains?"), ("Causal mechanism", "transfer")),
    (("A deep net, and a few", "rows with clean labels?"), ("Dynamic importance", "weighting")),
    (("A few labeled target rows", "and one source?"), ("Baselines: target alone,", "and both together")),
    (("Is it label shift", "or concept shift?"), ("Weight by label shares,", "or learn from labeled", "target rows")),
    (("Do target rows arrive", "in a drifting stream?"), ("uLSIF or RuLSIF", "with partial_fit")),
    ((), ("Weight the source rows:", "steelyard fit, or AutoRatio", "with a weighted model")),
)


def text(x: float, middle: float, lines: tuple[str, ...], color: str) -> str:
    """Lines of text around a point."""
    first = middle - LINE * (len(lines) - 1) / 2 + 5
    spans = "".join(f'<tspan x="{x:g}" y="{first + LINE * i:g}">{line}</tspan>' for i, line in enumerate(lines))
    return f'<text fill="{color}" text-anchor="middle">{spans}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, edge: str) -> str:
    """A rounded box."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="9" fill="{fill}" stroke="{edge}"/>'


def arrow(path: str, color: str) -> str:
    """A line that ends in an arrow."""
    return f'<path d="{path}" stroke="{color}" stroke-width="2" fill="none" marker-end="url(#head)"/>'


def rung(y: float, height: float, question: tuple[str, ...], answer: tuple[str, ...], colors: dict[str, str]) -> str:
    """A question with its answer and the arrows from it."""
    middle, start = y + height / 2, WIDTH - 1 - RIGHT
    drawn = box(start, y, RIGHT, height, colors["answer"], colors["arrow"])
    drawn += text(start + RIGHT / 2, middle, answer, colors["text"])
    if not question:
        return drawn
    drawn += box(1, y, LEFT, height, colors["question"], colors["edge"])
    drawn += text(1 + LEFT / 2, middle, question, colors["text"])
    drawn += arrow(f"M{LEFT + 1} {middle:g}H{start - 4}", colors["arrow"])
    drawn += text((LEFT + start) / 2 - 1, middle - 13, ("yes",), colors["text"])
    return drawn


def svg(colors: dict[str, str]) -> str:
    """The whole picture."""
    drawn, y = [], 1.0
    for question, answer in LADDER:
        height = LINE * max(len(question), len(answer)) + 2 * PADDING
        drawn.append(rung(y, height, question, answer, colors))
        below = y + height
        if question is LADDER[-2][0]:
            turn = below + GAP + LINE * len(LADDER[-1][1]) / 2 + PADDING
            drawn.append(arrow(f"M{LEFT / 2:g} {below:g}V{turn:g}H{WIDTH - RIGHT - 5}", colors["arrow"]))
        elif question:
            drawn.append(arrow(f"M{LEFT / 2:g} {below:g}V{below + GAP - 4:g}", colors["arrow"]))
        if question:
            drawn.append(text(LEFT / 2 + 18, below + GAP / 2 - 1, ("no",), colors["text"]))
        y = below + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - GAP + 1:g}" role="img">'
        "<title>Which method, by what you have in hand</title><style>text{font:15px system-ui,sans-serif}</style>"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="5" refY="4" '
        f'markerWidth="5" markerHeight="5" orient="auto"><path d="M0 0L8 4L0 8Z" fill="{colors["arrow"]}"/></marker>'
        f"</defs>{''.join(drawn)}</svg>\n"
    )
