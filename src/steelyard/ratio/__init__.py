"""Estimators of the density ratio w(x) = p_target(x) / p_source(x); its values at the source rows are their weights.

* `AutoRatio` (the default): averages uLSIF, two domain classifiers and uniform weights by their cross-validated scores
* `ULSIF`, `RULSIF`: least squares in closed form, for the plain and the relative density ratio
* `LSIF`: least squares with non-negative, sparse coefficients
* `KLIEP`: largest target likelihood
* `KMM`: kernel mean matching, weights without a ratio function
* `ClassifierRatio`: calibrated probabilities of a domain classifier
* `RatioCandidate`: how a candidate of `AutoRatio` performed on held-out rows
"""

from steelyard.ratio.auto import AutoRatio
from steelyard.ratio.candidates import RatioCandidate
from steelyard.ratio.classifier import ClassifierRatio
from steelyard.ratio.kliep import KLIEP
from steelyard.ratio.kmm import KMM
from steelyard.ratio.lsif import LSIF
from steelyard.ratio.ulsif import RULSIF, ULSIF

__all__ = [
    "KLIEP",
    "KMM",
    "LSIF",
    "RULSIF",
    "ULSIF",
    "AutoRatio",
    "ClassifierRatio",
    "RatioCandidate",
    "default_ratio",
]


def default_ratio() -> AutoRatio:
    """The ratio estimator that is used where none is given, with a fixed seed so that results are reproducible.

    Returns
    -------
    AutoRatio
        An unfitted ``AutoRatio(random_state=0)``.

    Examples
    --------
    >>> from steelyard.ratio import default_ratio
    >>> default_ratio()
    AutoRatio(random_state=0)
    """
    return AutoRatio(random_state=0)
