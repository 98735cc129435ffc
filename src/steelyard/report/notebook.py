"""How fitted estimators and findings show themselves in a notebook.

Pieces of HTML without scripts, without a page around them, and with styles that touch nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from sklearn.utils import estimator_html_repr

from steelyard._numerics.tensors import as_array, is_tensor
from steelyard._numerics.written import written, written_p
from steelyard._typing import FloatArray
from steelyard.report import phrases, pictures, svg
from steelyard.report.evidence import weight_histogram
from steelyard.weights import effective_sample_size

if TYPE_CHECKING:
    from steelyard.diagnostics.findings import Findings

STYLE = Markup(
    "<style>.steelyard{max-width:640px;margin:8px 0}.steelyard svg{width:360px;max-width:100%}"
    ".steelyard text{font:12px system-ui,sans-serif;fill:currentColor}.steelyard .weighted{fill:#0f766e}"
    ".steelyard .axis,.steelyard .rule{stroke:currentColor}.steelyard .grid{stroke:currentColor;opacity:.15}"
    ".steelyard td,.steelyard th{text-align:left;padding:2px 10px 2px 0}</style>"
)


class ShowsWeights:
    """Mixed into estimators that have ``weights_`` once fitted: scikit-learn's diagram, and below it the weights."""

    def _html_repr(self) -> str:
        diagram = str(estimator_html_repr(self))
        weights: Any = getattr(self, "weights_", None)
        # Weights of blocks or of a Dask collection are not computed for a picture.
        known = isinstance(weights, np.ndarray) or is_tensor(weights)
        return diagram + str(weights_fragment(weights)) if known else diagram


def weights_fragment(weights: FloatArray) -> Markup:
    """Effective sample size and distribution of importance weights."""
    weights = as_array(weights)
    size = effective_sample_size(weights)
    words = (
        f"{len(weights):,} importance weights with an effective sample size of {size:,.0f}; the largest is "
        f"{written(float(weights.max()))}."
    )
    return STYLE + svg.tag(
        "div", svg.tag("p", words), pictures.weight_histogram(weight_histogram(weights)), class_="steelyard"
    )


def findings_fragment(findings: Findings) -> Markup:
    """Verdict, reason, advice, and the most shifted columns."""
    head = svg.tag("p", svg.tag("b", phrases.headline(findings, None)))
    words = " ".join(filter(None, (findings.reason, phrases.unseen(findings), findings.advice)))
    names = ("column", "kind", "difference (sd)", "distance", "corrected p", "drifted")
    header = svg.tag("tr", *(svg.tag("th", name) for name in names))
    rows = [
        svg.tag(
            "tr",
            svg.tag("td", c.name),
            svg.tag("td", c.kind),
            svg.tag("td", f"{c.standardized_difference:+.2f}"),
            svg.tag("td", f"{c.distance:.2f}"),
            svg.tag("td", written_p(c.p_value, "")),
            svg.tag("td", "yes" if c.drifted else "no"),
        )
        for c in findings.columns[:10]
    ]
    return STYLE + svg.tag("div", head, svg.tag("p", words), svg.tag("table", header, *rows), class_="steelyard")
