"""Label noise that depends on the row: labels given by a small network that saw few rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_count, generator
from steelyard.errors import InputError

HIDDEN_UNITS = 5  # so few that it is wrong often enough
MOST_STEPS = 100


def instance_dependent_noise(X: FloatArray, y: IntArray, *, n_seen: int = 300, random_state: Any = None) -> IntArray:
    """Output noise p_source(y | x) ≠ p_target(y | x) that depends on x: labels given by a small network.

    A network with one hidden layer of five units learns `n_seen` random rows with their right labels, and labels all
    rows. Rows that look like those of another class get its label, which makes this noise harder than symmetric or pair
    noise. How many labels are wrong follows from `n_seen`: about three in ten of Fashion-MNIST with 300.

    Parameters
    ----------
    X : array of shape (n_rows, ...)
        Rows, such as images.
    y : array of shape (n_rows,)
        Clean labels.
    n_seen : int, default=300
        Number of rows that the network learns. With fewer of them more labels are wrong.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    array of shape (n_rows,)
        The noisy labels, of the same dtype as `y`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from steelyard.datasets import instance_dependent_noise
    >>> X, y = load_digits(return_X_y=True)
    >>> given = instance_dependent_noise(X, y, n_seen=40, random_state=0)
    >>> bool(0.2 < np.mean(given != y) < 0.5)
    True
    """
    rng = generator(random_state)
    rows, labels = np.asarray(X).reshape(len(X), -1), np.asarray(y)
    if len(rows) != len(labels) or not len(rows):
        raise InputError(f"One label for each row is needed; got {len(rows)} rows and {len(labels)} labels.")
    if check_count("n_seen", n_seen) > len(rows):
        raise InputError(f"n_seen must be at most the number of rows, {len(rows)}; got {n_seen}.")
    seen = rng.permutation(len(rows))[:n_seen]
    scaler = StandardScaler().fit(rows[seen])
    network = MLPClassifier(
        (HIDDEN_UNITS,), alpha=1.0, solver="lbfgs", max_iter=MOST_STEPS, random_state=int(rng.integers(2**31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it need not converge to label rows
        network.fit(scaler.transform(rows[seen]), labels[seen])
    parts = np.array_split(rows, -(-len(rows) // 10_000))  # scaled rows take eight times the memory of bytes
    return np.concatenate([network.predict(scaler.transform(part)) for part in parts]).astype(labels.dtype)
