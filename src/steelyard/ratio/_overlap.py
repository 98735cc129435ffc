"""Whether source and target overlap at all: distances between them, and cells that only the target has."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist, pdist

from steelyard._numerics.empirical import Empirical
from steelyard.errors import NoOverlapError

# Kernel values at or below this count as zero. The coefficient of a center at which all source rows have such values
# would be unbounded: no source row constrains it.
NEGLIGIBLE_KERNEL = 1e-12
# Target rows in cells that the source lacks are reported where their share exceeds UNSEEN_SHARE and UNSEEN_TIMES the
# share that sampling alone explains.
UNSEEN_SHARE, UNSEEN_TIMES = 0.01, 2.0

NO_OVERLAP = (
    "Source and target share no region ({}), so importance weights cannot be estimated: drop columns that differ by "
    "construction (identifiers, dates), or collect source rows that resemble the target."
)


def require_overlap(largest_mean: float) -> None:
    """Raise `NoOverlapError` where the largest mean kernel value of a source row is practically zero."""
    if largest_mean <= NEGLIGIBLE_KERNEL:
        raise NoOverlapError(NO_OVERLAP.format(f"the largest mean kernel value of a source row is {largest_mean:.1e}"))


def median_distance(source: Empirical, target: Empirical, at_most: int = 150) -> float:
    """Median distance between rows of both domains, from a sample of each: the customary bandwidth of a kernel.

    Raises `NoOverlapError` where the gap between the domains is more than ten times as wide as either of them: a
    kernel wide enough to bridge the gap sees two points, and its weights would say nothing.
    """
    source_rows, target_rows = source.rows[:at_most], target.rows[:at_most]  # random rows: they are shuffled
    across = cdist(source_rows, target_rows)
    within = pdist(source_rows), pdist(target_rows)
    spread = max(float(np.median(part)) if len(part) else 0.0 for part in within)
    if across.min() > 10 * spread > 0:
        raise NoOverlapError(
            NO_OVERLAP.format(
                f"the closest rows are {across.min():.3g} standardized units apart, rows within a domain {spread:.3g}"
            )
        )
    return float(np.median(np.concatenate([across.ravel(), *within])))


def unseen_cells(source: Empirical, target: Empirical) -> tuple[float, int]:
    """Share of the target rows whose combination of values the source lacks, and the position of the most common one.

    Both are zero unless the tables are discrete and the share is larger than sampling explains: by the Good–Turing
    estimate, the cells that a sample lacks by chance have about as much mass as the cells with a single row.
    """
    if source.units.max() == 1 or target.units.max() == 1:
        return 0.0, 0
    source_cells = {row.tobytes() for row in source.rows + 0.0}  # adding zero turns −0 into 0
    unseen = np.array([row.tobytes() not in source_cells for row in target.rows + 0.0])
    share = float(target.mass[unseen].sum())
    single = float(np.sum(source.counts == 1)) / source.n_rows
    if share <= max(UNSEEN_SHARE, UNSEEN_TIMES * single):
        return 0.0, 0
    return share, int(np.argmax(np.where(unseen, target.mass, 0)))
