"""Numbers as people write them."""

from __future__ import annotations

from math import floor, isfinite, log10


def written(value: float) -> str:
    """Three digits that count, with a comma between thousands; powers of ten only for what is next to nothing.

    Examples
    --------
    >>> [written(value) for value in (51_832.4, 120.3, 0.7104, -2.5, 0, 0.0000123)]
    ['51,800', '120', '0.71', '-2.5', '0', '1.2e-05']
    """
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4:
        return f"{value:.2g}"
    rounded = float(f"{value:.3g}")
    text = f"{rounded:,.{max(0, 2 - floor(log10(abs(rounded))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
