"""How fitted estimators show themselves in a notebook: scikit-learn's diagram, and below it the weights."""

from __future__ import annotations

from typing import Any

from sklearn.utils import estimator_html_repr


class ShowsWeights:
    """Mixed into estimators that have ``weights_`` once fitted."""

    def _html_repr(self) -> str:
        diagram = str(estimator_html_repr(self))
        weights = getattr(self, "weights_", None)
        if weights is None:
            return diagram
        from steelyard.report.fragment import weights_fragment  # drawing is not needed before

        return diagram + str(weights_fragment(weights))


def show_findings(findings: Any) -> str:
    """Findings as HTML."""
    from steelyard.report.fragment import findings_fragment

    return str(findings_fragment(findings))
