"""Measured numbers that are typed on a page instead of read from a file: ``typed(text)`` finds them."""

from __future__ import annotations

import re

# What is taken out before: blocks of code and directives, roles, code, formulas, the targets of links and anchors.
NOT_PROSE = (
    re.compile(r"^(`{3,}|:{3,}).*?^\1[ ]*$", re.MULTILINE | re.DOTALL),
    re.compile(r"(\{\w+\})?(`+)(?!`).+?(?<!`)\2(?!`)", re.DOTALL),
    re.compile(r"\$[^$]+\$"),
    re.compile(r"(?<=\])\([^)]*\)"),
    re.compile(r"^\([\w-]+\)=$", re.MULTILINE),
)
NUMBERED = r"(?:sections?|tables?|figures?|algorithms?|theorems?|lemmas?|equations?|assumptions?|steps?)"
# Digits that measure nothing: what the survey numbers, years, versions, names such as DIW2-L, CIFAR-10 and IW(.5).
ALLOWED = (
    re.compile(rf"\b{NUMBERED} \(?\d+(\.\d+)*\)?((, | and | to |–)\(?\d+(\.\d+)*\)?)*(?![\d.]* ?%)", re.IGNORECASE),
    re.compile(r"\b(19|20)\d\d\b"),
    re.compile(r"\b\d+\.\d+\.\d+\b"),
    re.compile(r"\b[A-Za-z]+-?\d+\b"),
    re.compile(r"\bIW\(\.?\d+\)"),
)
WORD = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|eighteen"
COUNTED = re.compile(rf"\b({WORD}) (?:out )?of (?:the )?({WORD})\b", re.IGNORECASE)


def typed(text: str) -> list[str]:
    """Digits, and counts such as "five of nine", that are typed in the prose of a page, each with its neighbors."""
    for pattern in NOT_PROSE:
        text = pattern.sub(" ", text)
    text = " ".join(text.split())
    counted = [match.group() for match in COUNTED.finditer(text)]
    for pattern in ALLOWED:
        text = pattern.sub(lambda match: re.sub(r"\d", "n", match.group()), text)
    return counted + [text[max(0, m.start() - 30) : m.end() + 10] for m in re.finditer(r"[\d.]*\d+", text)]
