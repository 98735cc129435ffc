"""Toy problems with a known truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._numerics.display import ShortRepr
from steelyard._typing import FloatArray
from steelyard._validation import generator


def sinc_toy(
    n_source: int = 150, n_target: int = 150, *, pi: bool = True, random_state: Any = None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Regression under covariate shift: source x ~ N(1, ½²), target x ~ N(2, ¼²), y = sinc(x) + N(0, 0.1²).

    This is the toy problem of the survey's section 5.3.1.

    Parameters
    ----------
    n_source, n_target : int, default=150
        Numbers of source and target rows.
    pi : bool, default=True
        Whether sinc(x) is sin(πx)/(πx) rather than sin(x)/x; the survey does not say which.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    X : array of shape (n_source, 1)
        Source rows.
    y : array of shape (n_source,)
        Labels of the source rows.
    X_target : array of shape (n_target, 1)
        Target rows.
    y_target : array of shape (n_target,)
        Labels of the target rows.

    Examples
    --------
    >>> from steelyard.datasets import sinc_toy
    >>> X, y, X_target, y_target = sinc_toy(random_state=0)
    >>> X.shape, bool(X_target.mean() > X.mean())
    ((150, 1), True)
    """
    rng = generator(random_state)

    def domain(n_rows: int, mean: float, sd: float) -> tuple[FloatArray, FloatArray]:
        x = rng.normal(mean, sd, n_rows)
        y = np.sinc(x if pi else x / np.pi) + rng.normal(0, 0.1, n_rows)
        return x[:, None], y

    return *domain(n_source, 1, 0.5), *domain(n_target, 2, 0.25)


@dataclass(frozen=True, eq=False, repr=False)
class GaussianPair(ShortRepr):
    """Rows of source N(0, I) and target N(shift·1, scale² I), with the true w(x) = p_target(x) / p_source(x).

    Parameters
    ----------
    X : array of shape (n_source, n_columns)
        Source rows.
    X_target : array of shape (n_target, n_columns)
        Target rows.
    shift : float
        Mean of each target column.
    scale : float
        Standard deviation of each target column.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import GaussianPair
    >>> pair = GaussianPair(np.zeros((1, 1)), np.ones((1, 1)), shift=1.0, scale=1.0)
    >>> float(pair.ratio(np.array([[0.5]]))[0])
    1.0
    """

    X: FloatArray
    X_target: FloatArray
    shift: float
    scale: float

    def ratio(self, rows: FloatArray, eta: float = 0.0) -> FloatArray:
        """The true relative density ratio w_η(x) = p_target(x) / (η p_target(x) + (1−η) p_source(x)).

        Parameters
        ----------
        rows : array of shape (n_rows, n_columns)
            The rows x.
        eta : float in [0, 1], default=0.0
            η; 0 is the plain density ratio.

        Returns
        -------
        array of shape (n_rows,)
            The ratio at each row.
        """
        n_columns = rows.shape[1]
        log_target = -np.square((rows - self.shift) / self.scale).sum(axis=1) / 2 - n_columns * np.log(self.scale)
        log_source = -np.square(rows).sum(axis=1) / 2
        # 1 / (η + (1−η)/w), which overflows neither for a huge nor for a tiny w.
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
    """Draw from source N(0, I) and target N(shift·1, scale² I), whose density ratio is known.

    Parameters
    ----------
    n_source, n_target : int, default=2000
        Numbers of source and target rows.
    n_columns : int, default=1
        Number of columns.
    shift : float, default=0.5
        Mean of each target column.
    scale : float, default=0.8
        Standard deviation of each target column.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    GaussianPair
        The rows of both domains and their true density ratio.

    Examples
    --------
    >>> from steelyard.datasets import gaussian_pair
    >>> pair = gaussian_pair(random_state=0)
    >>> round(float(pair.ratio(pair.X).mean()), 1)
    1.0
    """
    rng = generator(random_state)
    return GaussianPair(
        rng.normal(size=(n_source, n_columns)),
        rng.normal(shift, scale, size=(n_target, n_columns)),
        shift,
        scale,
    )
