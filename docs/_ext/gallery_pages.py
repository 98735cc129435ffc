"""How the examples run on the pages of the gallery: with the same look, and without the notices of other packages."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

STYLE = {
    "savefig.transparent": True,
    "savefig.dpi": 110,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def reset(gallery_conf: dict[str, Any], file: str) -> None:
    """Before each example: the look of the pictures; warnings of Steelyard are errors, others are not shown."""
    import matplotlib
    from sklearn.exceptions import ConvergenceWarning

    from steelyard.errors import SteelyardWarning

    matplotlib.rcParams.update(STYLE)
    warnings.simplefilter("ignore")
    for category in (SteelyardWarning, ConvergenceWarning):  # which a story has to speak about
        warnings.simplefilter("error", category)
    if "lightning" in Path(file).name:
        import lightning.pytorch

        logging.getLogger(lightning.pytorch.__name__).setLevel(logging.ERROR)
