"""Pictures that are drawn when they are written, as small PNG files."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.engine.files import replace_file
from steelyard.errors import DependencyError

GRAY, RED, BLUE, ORANGE, GREEN = "#9aa5b1", "#d1495b", "#1d3557", "#e08e45", "#3a7d44"
DPI, PALETTE = 100, 64


@dataclass(frozen=True)
class Picture:
    """A picture that is not drawn yet: the stem of its file, and what draws it."""

    name: str
    draw: Callable[[], Any]


def require_matplotlib() -> None:
    """Say how to install what draws, before anything is computed."""
    if find_spec("matplotlib") is None:
        raise DependencyError(
            "The experiments draw with matplotlib. Install it: pip install -r experiments/requirements.txt."
        )


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no screen

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path) -> None:
    """As a PNG file of few colors, without frames."""
    from PIL import Image

    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    drawn, reduced = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI, metadata={"Software": None})
    picture = Image.open(drawn).convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE)
    picture.save(reduced, "png", optimize=True)
    replace_file(path, reduced.getvalue())
