"""One page to look at: self-contained, without scripts, under a policy that allows no other."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from steelyard.balance import balance_in_words
from steelyard.report import phrases, svg
from steelyard.report.evidence import Evidence

if TYPE_CHECKING:
    from steelyard.app.comparison import Comparison
    from steelyard.diagnostics.findings import Findings

N_COLUMNS = 30


def render(
    findings: Findings,
    evidence: Evidence,
    comparison: Comparison | None,
    *,
    facts: Mapping[str, str],
    notes: Sequence[str],
    weights_used: bool,
) -> str:
    """Render the report as one HTML page without scripts.

    Parameters
    ----------
    findings : Findings
        The diagnosis.
    evidence : Evidence
        The numbers behind the pictures.
    comparison : Comparison or None
        How methods compared; None for a diagnosis alone.
    facts : dict
        What the footer says: files, rows, seed, version.
    notes : list of str
        What the reader should know first, such as that target labels were not used.
    weights_used : bool
        Whether the weights that are shown are those of the chosen model.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.diagnostics import diagnose_pair
    >>> from steelyard.report import gather, render
    >>> from steelyard.tables import as_frame, encode_pair
    >>> rng = np.random.default_rng(0)
    >>> pair = encode_pair(as_frame(rng.normal(size=(100, 2))), as_frame(rng.normal(1, 1, size=(100, 2))))
    >>> findings = diagnose_pair(pair)
    >>> page = render(findings, gather(pair, findings, None, rng), None, facts={}, notes=[], weights_used=False)
    >>> page.startswith("<!doctype html>")
    True
    """
    from jinja2 import Environment, StrictUndefined

    folder = files("steelyard.report")
    style = (folder / "style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((folder / "template.html").read_text("utf-8"))
    return template.render(
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        findings=findings,
        evidence=evidence,
        comparison=comparison,
        unbalanced=balance_in_words(findings.balance),
        headline=phrases.headline(findings, comparison),
        kind=phrases.kind(findings),
        scores=[] if comparison is None else phrases.scores(comparison),
        score_name="" if comparison is None else phrases.score_name(comparison.measure),
        pictures=_pictures(evidence, comparison),
        columns=findings.columns[:N_COLUMNS],
        n_columns=len(findings.columns),
        facts=facts,
        notes=notes,
        weights_used=weights_used,
    )


def _pictures(evidence: Evidence, comparison: Comparison | None) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "marginals": [svg.marginal(found) for found in evidence.marginals],
        "love": svg.love_plot(evidence.balance),
        "map": svg.domain_map(evidence),
        "methods": None if comparison is None else svg.methods(comparison),
        "weights": None,
        "gauge": None,
    }
    if evidence.weights is not None and evidence.effective_sample_size is not None:
        drawn["weights"] = svg.weight_histogram(evidence.weights)
        drawn["gauge"] = svg.gauge(evidence.effective_sample_size, evidence.n_rows)
    return drawn
