"""How fitted estimators and findings show themselves in a notebook and in a terminal.

Estimators keep scikit-learn's diagram; what the fit found comes below it. Nothing is computed for a picture: importance
weights of blocks or of a Dask collection stay what they are.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from sklearn.utils import estimator_html_repr

from steelyard._numerics.display import fragment, paragraph, table
from steelyard._numerics.tensors import as_array, is_tensor
from steelyard._numerics.written import written, written_p
from steelyard._typing import FloatArray
from steelyard.report import phrases, pictures, svg
from steelyard.report.evidence import weight_histogram
from steelyard.weights import effective_sample_size

if TYPE_CHECKING:
    from steelyard.diagnostics.findings import Findings


class ShowsFit:
    """Mixed into estimators: scikit-learn's diagram and what the fit found, and ``print`` with the latter.

    A subclass writes ``_found``, which is asked once the attribute `_found_after`, the last one that `fit` sets, is
    there: a fit that failed on its way shows nothing.
    """

    _found_after = "weights_"

    def _found(self) -> dict[str, str]:
        """What the fit found, by its name; short words from attributes that are there."""
        return {}

    def _shown(self) -> dict[str, str]:
        return self._found() if self._found_after in vars(self) else {}

    def __str__(self) -> str:
        lines = (
            textwrap.fill(f"{name}: {value}", 110, initial_indent="  ", subsequent_indent="    ")
            for name, value in self._shown().items()
        )
        return "\n".join([repr(self), *lines])

    def _html_repr(self) -> str:
        diagram = str(estimator_html_repr(self))
        found = self._shown()
        pieces = [table(found.items())] if found else []
        weights: Any = vars(self).get("weights_")
        if (isinstance(weights, np.ndarray) and weights.ndim == 1) or is_tensor(weights):
            pieces += _weights(weights)
        return diagram + str(fragment(*pieces)) if pieces else diagram


def _weights(weights: FloatArray) -> list[Markup]:
    """Effective sample size and distribution of importance weights; those that a training left out are NaN."""
    weights = as_array(weights)
    weights = weights[~np.isnan(weights)]
    if not weights.any():
        return []
    size = effective_sample_size(weights)
    words = (
        f"{len(weights):,} importance weights with an effective sample size of {size:,.0f}; the largest is "
        f"{written(float(weights.max()))}."
    )
    return [paragraph(words), pictures.weight_histogram(weight_histogram(weights))]


def weights_fragment(weights: FloatArray) -> Markup:
    """Effective sample size and distribution of importance weights."""
    return fragment(*_weights(weights))


def findings_fragment(findings: Findings) -> Markup:
    """Verdict, reason, advice, and the most shifted columns."""
    head = svg.tag("p", svg.tag("b", phrases.headline(findings, None)))
    words = " ".join(filter(None, (findings.reason, phrases.unseen(findings), findings.advice)))
    rows = [
        (
            column.name,
            column.kind,
            f"{column.standardized_difference:+.2f}",
            f"{column.distance:.2f}",
            written_p(column.p_value, ""),
            "yes" if column.drifted else "no",
        )
        for column in findings.columns[:10]
    ]
    header = ("column", "kind", "difference (sd)", "distance", "corrected p", "drifted")
    return fragment(head, paragraph(words), table(rows, header))
