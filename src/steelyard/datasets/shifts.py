"""One generator for each kind of distribution shift in the survey's section 2.

Each takes data of one distribution, and selects the rows or changes the labels or inputs that make up the source and
the target.

* covariate shift: `biased_split` (artificial), `natural_split` (present in the data)
* output noise: `label_noise`
* class-prior shift: `class_prior_shift`
* class-conditional shift: `class_conditional_shift`; for images `rotate`
* full-distribution shift: `full_distribution_shift`
* independent-component shift: `independent_component_shift`
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import rotate as _rotate_image
from scipy.special import expit

from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_range, generator
from steelyard.datasets.loaders import Table, load_table
from steelyard.errors import InputError, ParameterError


def biased_split(
    X: FloatArray, *, direction: FloatArray | None = None, slope: float = 16.0, random_state: Any = None
) -> tuple[IntArray, IntArray]:
    """Covariate shift by selection: P(source | x) = 1 / (1 + exp(−slope · wᵀx / sd(wᵀx))) with standardized x.

    Each row is assigned to the source with this probability, and to the target otherwise (survey, section 5.3.2). At
    slope 16 the split is nearly deterministic.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        The rows to split.
    direction : array of shape (n_columns,), default=None
        The direction w; None draws a random one.
    slope : float, default=16.0
        Strength of the shift.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    source : array of int
        Indices of the source rows.
    target : array of int
        Indices of the target rows.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import biased_split
    >>> X = np.random.default_rng(0).normal(size=(100, 1))
    >>> source, target = biased_split(X, direction=[1.0], random_state=0)
    >>> len(source) + len(target), bool(X[source].mean() > X[target].mean())
    (100, True)
    """
    rng = generator(random_state)
    X = np.asarray(X, dtype=np.float64)
    scale = X.std(axis=0)
    standardized = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1)
    w = rng.normal(size=X.shape[1]) if direction is None else np.asarray(direction, dtype=np.float64)
    along = standardized @ w
    if not along.std() > 0:
        raise InputError("The projection of the rows is constant, so it cannot split them. Give another direction.")
    to_source = rng.random(len(X)) < expit(slope * along / along.std())
    return np.flatnonzero(to_source), np.flatnonzero(~to_source)


def natural_split(name: str) -> tuple[Table, Table]:
    """Source and target p_source(x) ≠ p_target(x) of the survey's naturally shifted tables (section 5.3.2).

    Parameters
    ----------
    name : {"auto_mpg", "bike_sharing_day", "parkinsons", "wine"}
        The table. Source and target are cars from the USA and from elsewhere, days from January to June and from July
        to December, patients aged up to 60 and above, red and white wine. (The survey does not say which part is the
        source.)

    Returns
    -------
    source : Table
        The source rows, without the column that defines the split.
    target : Table
        The target rows, with the same columns.

    Examples
    --------
    >>> from steelyard.datasets import natural_split
    >>> from steelyard.errors import DataNotFoundError
    >>> try:
    ...     sizes = [len(table.y) for table in natural_split("wine")]
    ... except DataNotFoundError:  # the files are not in the data folder
    ...     sizes = [1599, 4898]
    >>> sizes
    [1599, 4898]
    """
    if name == "wine":
        return load_table("wine_red"), load_table("wine_white")
    sides = {"auto_mpg": ("origin", 1), "bike_sharing_day": ("mnth", 6), "parkinsons": ("age", 60)}
    if name not in sides:
        raise ParameterError(f"There is no natural split of {name!r}; give one of wine, {', '.join(sides)}.")
    table = load_table(name)
    column, last = sides[name]
    # The season of bike sharing follows from the month.
    inputs = [i for i, c in enumerate(table.columns) if c != column and not (c == "season" and column == "mnth")]
    columns = tuple(table.columns[i] for i in inputs)
    low = table.X[:, table.columns.index(column)] <= last
    parts = [Table(table.X[rows][:, inputs], table.y[rows], columns) for rows in (low, ~low)]
    return parts[0], parts[1]


def label_noise(
    y: IntArray, rate: float, kind: str = "symmetric", *, n_classes: int | None = None, random_state: Any = None
) -> IntArray:
    """Output noise p_source(y | x) ≠ p_target(y | x): flips each of the labels 0, …, k−1 with probability `rate`.

    Label noise of the survey's sections 2 and 6.

    Parameters
    ----------
    y : array of shape (n_rows,)
        Clean labels 0, …, k−1.
    rate : float in [0, 1]
        Probability that a label is flipped.
    kind : {"symmetric", "pair"}, default="symmetric"
        "symmetric" flips to each other class with probability rate/(k−1), "pair" flips class i to class i+1 (the last
        class to the first).
    n_classes : int, default=None
        k; None takes the largest label plus one.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    array of shape (n_rows,)
        The noisy labels, of the same dtype as `y`.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import label_noise
    >>> label_noise(np.array([0, 1, 2]), 1.0, "pair")
    array([1, 2, 0])
    """
    rng = generator(random_state)
    check_range("rate", rate, 0, 1)
    labels = np.asarray(y).astype(np.int64)  # wide enough for the addition, whatever the dtype of y
    k = int(labels.max()) + 1 if n_classes is None else n_classes
    if k < 2:
        raise InputError(f"Labels can only be flipped among at least two classes; got {k}. Give a larger n_classes.")
    flipped = rng.random(len(labels)) < rate
    if kind == "pair":
        step = np.ones(len(labels), dtype=np.int64)
    elif kind == "symmetric":
        step = rng.integers(1, k, size=len(labels))
    else:
        raise ParameterError(f'kind must be "symmetric" or "pair"; got {kind!r}.')
    return np.where(flipped, (labels + step) % k, labels).astype(np.asarray(y).dtype)


def class_prior_shift(
    y: IntArray,
    *,
    ratio: float,
    minority_share: float = 0.2,
    largest: int | None = None,
    random_state: Any = None,
) -> tuple[IntArray, FloatArray]:
    """Class-prior shift p_source(y) ≠ p_target(y): an imbalanced source, with true weights p_target(y) / p_source(y).

    A random share of the classes has 1/ρ as many source rows as the others; the target is balanced (survey, sections 2
    and 6).

    Parameters
    ----------
    y : array of shape (n_rows,)
        Labels.
    ratio : float ≥ 1
        ρ, the number of majority rows per minority row.
    minority_share : float in [0, 1], default=0.2
        Share of the classes that become minority classes.
    largest : int, default=None
        Number of rows of each majority class; None takes the number of rows of the rarest class.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    rows : array of int
        Indices of the source rows, in random order.
    weights : array of the same length
        True importance weight of each source row, with mean one.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import class_prior_shift
    >>> y = np.repeat([0, 1], 100)
    >>> rows, weights = class_prior_shift(y, ratio=10, minority_share=0.5, random_state=0)
    >>> np.sort(np.bincount(y[rows])).tolist(), np.unique(weights.round(3)).tolist()
    ([10, 100], [0.55, 5.5])
    """
    rng = generator(random_state)
    check_range("ratio", ratio, 1)
    check_range("minority_share", minority_share, 0, 1)
    classes, counts = np.unique(y, return_counts=True)
    most = int(counts.min()) if largest is None else largest
    if most > counts.min():
        raise ParameterError(f"largest={largest} exceeds the {counts.min()} rows of the rarest class.")
    minority = rng.choice(classes, size=round(minority_share * len(classes)), replace=False)
    sizes = {c: max(1, round(most / ratio)) if c in minority else most for c in classes}
    rows = np.concatenate([rng.choice(np.flatnonzero(y == c), size=sizes[c], replace=False) for c in classes])
    share = np.array([sizes[c] for c in classes]) / len(rows)
    weights = (1 / len(classes) / share)[np.searchsorted(classes, np.asarray(y)[rows])]
    order = rng.permutation(len(rows))
    return rows[order], weights[order]


def class_conditional_shift(
    X: FloatArray, y: IntArray, *, strength: float = 1.0, random_state: Any = None
) -> FloatArray:
    """Class-conditional shift p_source(x | y) ≠ p_target(x | y): moves the inputs of each class by a random vector.

    The class shares stay the same (survey, section 2).

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        Source inputs.
    y : array of shape (n_rows,)
        Their labels.
    strength : float, default=1.0
        Length of each vector, in standard deviations of the columns.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    array of shape (n_rows, n_columns)
        Target inputs with the same labels.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import class_conditional_shift
    >>> X = np.random.default_rng(0).normal(size=(100, 1))
    >>> moved = class_conditional_shift(X, np.repeat([0, 1], 50), strength=2.0, random_state=0)
    >>> np.unique(np.abs((moved - X) / X.std()).round(6)).tolist()
    [2.0]
    """
    rng = generator(random_state)
    classes, label = np.unique(y, return_inverse=True)
    moves = rng.normal(size=(len(classes), X.shape[1]))
    moves /= np.linalg.norm(moves, axis=1, keepdims=True)
    return np.asarray(X + strength * X.std(axis=0) * moves[label])


def full_distribution_shift(
    X: FloatArray,
    y: IntArray,
    *,
    noise: float = 0.2,
    ratio: float = 10.0,
    minority_share: float = 0.2,
    strength: float = 0.5,
    random_state: Any = None,
) -> tuple[FloatArray, IntArray, IntArray]:
    """Full-distribution shift p_source(x, y) ≠ p_target(x, y): class shares, inputs and labels of the source change.

    Combines `class_prior_shift`, `class_conditional_shift` and `label_noise` (survey, section 2). The given data are
    the target, clean and balanced.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        Target inputs.
    y : array of shape (n_rows,)
        Target labels 0, …, k−1.
    noise : float in [0, 1], default=0.2
        Probability that a source label is flipped.
    ratio : float ≥ 1, default=10.0
        Number of majority rows per minority row.
    minority_share : float in [0, 1], default=0.2
        Share of the classes that become minority classes.
    strength : float, default=0.5
        How far the inputs of each class move, in standard deviations of the columns.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    X : array of shape (n_source, n_columns)
        Source inputs.
    y : array of shape (n_source,)
        Source labels.
    rows : array of int
        Indices of the given rows that the source was made of.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import full_distribution_shift
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> X_source, y_source, rows = full_distribution_shift(
    ...     X, np.repeat([0, 1], 100), minority_share=0.5, random_state=0
    ... )
    >>> X_source.shape
    (110, 2)
    """
    rng = generator(random_state)
    rows, _ = class_prior_shift(y, ratio=ratio, minority_share=minority_share, random_state=rng)
    moved = class_conditional_shift(X[rows], y[rows], strength=strength, random_state=rng)
    return moved, label_noise(y[rows], noise, n_classes=int(np.max(y)) + 1, random_state=rng), rows


def independent_component_shift(
    n_domains: int, n_rows: int, n_columns: int, *, random_state: Any = None
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Independent-component shift z = A(s + tanh(s)/2): the same mixing in all domains, other components s.

    The components are independent and Laplace-distributed, with location and scale depending on the domain; A is a
    random matrix of moderate condition number (survey, section 7). The last column of z can be used as the label.

    Parameters
    ----------
    n_domains : int
        Number of domains.
    n_rows : int
        Number of rows of each domain.
    n_columns : int
        Number of columns, and of components.
    random_state : int, Generator or None, default=None
        Seed or generator of the random numbers.

    Returns
    -------
    Z : array of shape (n_domains · n_rows, n_columns)
        Rows of all domains.
    domain : array of shape (n_domains · n_rows,)
        Domain of each row.
    components : array of shape (n_domains · n_rows, n_columns)
        The independent components of each row.

    Examples
    --------
    >>> from steelyard.datasets import independent_component_shift
    >>> Z, domain, components = independent_component_shift(3, 50, 2, random_state=0)
    >>> Z.shape, domain[[0, -1]].tolist()
    ((150, 2), [0, 2])
    """
    rng = generator(random_state)
    domain = np.repeat(np.arange(n_domains), n_rows)
    location = rng.normal(size=(n_domains, n_columns))
    scale = rng.uniform(0.5, 1.5, size=(n_domains, n_columns))
    components = location[domain] + scale[domain] * rng.laplace(size=(len(domain), n_columns))
    rotation, _ = np.linalg.qr(rng.normal(size=(n_columns, n_columns)))
    mixing = rotation * rng.uniform(0.5, 1.5, size=n_columns)
    return (components + np.tanh(components) / 2) @ mixing.T, domain, components


def rotate(images: FloatArray, degrees: FloatArray) -> FloatArray:
    """Covariate shift p_source(x) ≠ p_target(x) of images: rotates each by its own angle (survey, section 5.3.3).

    Interpolation is bilinear, and pixels outside the image are zero.

    Parameters
    ----------
    images : array of shape (n, height, width)
        The images.
    degrees : array of shape (n,)
        Angle of each image, counterclockwise.

    Returns
    -------
    array of shape (n, height, width)
        The rotated images.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import rotate
    >>> rotate(np.array([[[1.0, 0.0], [0.0, 0.0]]]), np.array([90.0])).round(6).tolist()
    [[[0.0, 0.0], [1.0, 0.0]]]
    """
    if len(images) != len(degrees):
        raise InputError(f"One angle per image is needed; got {len(images)} images and {len(degrees)} angles.")
    rotated = [
        _rotate_image(image, float(angle), reshape=False, order=1) for image, angle in zip(images, degrees, strict=True)
    ]
    return np.stack(rotated)
