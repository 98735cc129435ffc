"""Signs of missing values in text, and text that is a number.

Signs such as ``?`` or ``-`` stand for a missing value where everything else is a number, a date or a boolean. In a
column of words they may be a category of their own, so there only the signs that are hardly ever a word are taken.
"""

from __future__ import annotations

# Signs of missing values in any column, as written.
SIGNS = (
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
# Signs in columns that are otherwise numbers, dates or booleans, in lower case; there case does not matter.
SIGNS_AMONG_NUMBERS = (
    *{sign.lower() for sign in SIGNS},
    *("?", "-", "--", "---", ".", "..", "*", "none", "nat", "nil", "<na>", "(null)", "\\n", "na.", "n.a.", "n/d", "nd"),
    *("missing", "\u2013", "\u2014"),
)
# Digits that start with 0 are a code, not a number, where text was meant to be text.
CODE = r"^0\d"


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
