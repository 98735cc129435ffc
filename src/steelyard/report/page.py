"""One page to look at: self-contained, without scripts, under a policy that allows no other."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from steelyard._numerics.written import written, written_p, written_share
from steelyard.balance import balance_in_words
from steelyard.report import phrases, pictures
from steelyard.report.evidence import Evidence

if TYPE_CHECKING:
    from steelyard.app.comparison import Comparison
    from steelyard.diagnostics.findings import Findings

N_SHOWN = 10  # columns of a table; the rest is behind a click
N_COLUMNS = 100  # of all columns that are behind it


def render(
    findings: Findings,
    evidence: Evidence,
    comparison: Comparison | None,
    *,
    facts: Mapping[str, str],
    notes: Sequence[str],
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
    >>> findings = diagnose_pair(pair).findings
    >>> page = render(findings, gather(pair, findings, None, rng), None, facts={}, notes=[])
    >>> page.startswith("<!doctype html>")
    True
    """
    from jinja2 import Environment, StrictUndefined

    folder = files("steelyard.report")
    style = (folder / "style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(written=written, share=written_share, p=written_p)
    template = environment.from_string((folder / "template.html").read_text("utf-8"))
    return template.render(
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        findings=findings,
        evidence=evidence,
        comparison=comparison,
        phrases=phrases,
        pictures=_pictures(findings, evidence, comparison),
        unbalanced=balance_in_words(evidence.balance) if evidence.weights else None,
        n_shown=N_SHOWN,
        n_columns=N_COLUMNS,
        facts=facts,
        notes=[*notes, *(comparison.failed if comparison else ())],
    )


def _pictures(findings: Findings, evidence: Evidence, comparison: Comparison | None) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "marginals": [(found.name, pictures.marginal(found), found.n_hidden) for found in evidence.marginals],
        "love": pictures.love_plot(evidence.balance[:N_SHOWN], evidence.weights is not None),
        "map": pictures.domain_map(evidence),
        "methods": None,
        "shares": None,
        "weights": None,
        "gauge": None,
    }
    if comparison is not None:
        drawn["methods"] = pictures.methods(comparison, phrases.compared_domain(findings, comparison))
    if comparison is not None and comparison.methods[comparison.chosen].shares:
        drawn["shares"] = pictures.shares(comparison.methods[comparison.chosen])
    if evidence.weights is not None and evidence.effective_sample_size is not None:
        drawn["weights"] = pictures.weight_histogram(evidence.weights)
        drawn["gauge"] = pictures.gauge(evidence.effective_sample_size, evidence.n_rows)
    return drawn
