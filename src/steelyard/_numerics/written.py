"""Numbers as people write them, on the page, in the terminal and in print."""

from __future__ import annotations

from math import floor, isfinite, log10

SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def written(value: float) -> str:
    """Three digits that count, two below a thousandth, with a comma between thousands.

    Powers of ten are written only for what is next to nothing or beyond counting.

    Examples
    --------
    >>> [written(value) for value in (51_832.4, 120.3, 0.7104, -2.5, 0, 0.000123, 0.0000123)]
    ['51,800', '120', '0.71', '-2.5', '0', '0.00012', '0.000012']
    >>> written(1.234e-9), written(5e20)
    ('1.2 × 10⁻⁹', '5 × 10²⁰')
    """
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    digits = 3 if abs(value) >= 1e-3 else 2
    rounded = float(f"{value:.{digits}g}")
    power = floor(log10(abs(rounded)) + 1e-12)
    if not -6 <= power < 15:
        return f"{float(f'{rounded / 10.0**power:.{digits}g}'):g} × 10{str(power).translate(SUPERSCRIPT)}"
    text = f"{rounded:,.{max(0, digits - 1 - power)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def written_share(share: float) -> str:
    """A share as a percentage: whole above one percent, and never 0% or 100% for what is not.

    Examples
    --------
    >>> [written_share(share) for share in (0.236, 0.004, 0.0001, 0, 1, 0.9999)]
    ['24%', '0.4%', '<0.1%', '0%', '100%', '>99%']
    """
    if 0 < share < 0.01:
        return f"{100 * share:.1f}%" if share >= 0.0005 else "<0.1%"
    return ">99%" if 0.995 <= share < 1 else f"{100 * share:.0f}%"


def written_p(value: float, name: str = "p") -> str:
    """A p-value with two digits that count; below a thousandth only that it is.

    Examples
    --------
    >>> written_p(0.0341), written_p(1e-12), written_p(1e-12, "")
    ('p = 0.034', 'p < 0.001', '< 0.001')
    """
    if value < 0.001:
        return f"{name} < 0.001".strip()
    rounded = f"{value:.2g}"
    return f"{name} = {rounded}" if name else rounded
