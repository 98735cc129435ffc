"""Toy problems whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._typing import FloatArray
from steelyard._validation import generator


def sinc_toy(
    n_source: int = 150, n_target: int = 150, *, pi: bool = True, random_state: Any = None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """The survey's regression problem (section 5.3.1): source x ~ N(1, ½²), target x ~ N(2, ¼²), y = sinc(x) + noise.

    The noise is N(0, 0.1²). The survey does not say which sinc: `pi` takes sin(πx)/(πx), otherwise sin(x)/x.

    Returns
    -------
    X, y, X_target, y_target
    """
    rng = generator(random_state)

    def domain(n_rows: int, mean: float, sd: float) -> tuple[FloatArray, FloatArray]:
        x = rng.normal(mean, sd, n_rows)
        y = np.sinc(x if pi else x / np.pi) + rng.normal(0, 0.1, n_rows)
        return x[:, None], y

    return *domain(n_source, 1, 0.5), *domain(n_target, 2, 0.25)


@dataclass(frozen=True, eq=False)
class GaussianPair:
    """Rows of N(0, I) and of N(shift, scale² I), and the ratio of the two densities."""

    X: FloatArray
    X_target: FloatArray
    shift: float
    scale: float

    def ratio(self, rows: FloatArray, eta: float = 0.0) -> FloatArray:
        """The true w_η at `rows`."""
        n_columns = rows.shape[1]
        log_target = -np.square((rows - self.shift) / self.scale).sum(axis=1) / 2 - n_columns * np.log(self.scale)
        log_source = -np.square(rows).sum(axis=1) / 2
        # 1 / (η + (1−η)/w), written so that neither a huge nor a vanishing w overflows.
        with np.errstate(over="ignore", divide="ignore"):
            return 1 / (eta + (1 - eta) * np.exp(log_source - log_target))


def gaussian_pair(
    n_source: int = 2000,
    n_target: int = 2000,
    n_columns: int = 1,
    *,
    shift: float = 0.5,
    scale: float = 0.8,
    random_state: Any = None,
) -> GaussianPair:
    """Source N(0, I), target N(shift, scale² I), with their true ratio."""
    rng = generator(random_state)
    return GaussianPair(
        rng.normal(size=(n_source, n_columns)),
        rng.normal(shift, scale, size=(n_target, n_columns)),
        shift,
        scale,
    )
