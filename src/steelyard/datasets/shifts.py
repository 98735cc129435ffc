"""One generator for each kind of shift that the survey's section 2 names.

Each takes data of one distribution and says which rows, or which changed labels or inputs, make up the source and
the target.

* covariate shift: `biased_split` (made to measure), `natural_split` (as the data came)
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
    """Covariate shift by selection along a projection (survey, section 5.3.2).

    Columns are z-scored; a row goes to the source with probability 1 / (1 + exp(−slope · wᵀx / sd(wᵀx))), to the
    target otherwise. At slope 16 the split is nearly deterministic.

    Parameters
    ----------
    direction : array of shape (n_columns,), default=None
        w; None draws one.

    Returns
    -------
    source, target : row numbers
    """
    rng = generator(random_state)
    X = np.asarray(X, dtype=np.float64)
    scale = X.std(axis=0)
    standardized = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1)
    w = rng.normal(size=X.shape[1]) if direction is None else np.asarray(direction, dtype=np.float64)
    along = standardized @ w
    if not along.std() > 0:
        raise InputError("The projection of the rows is constant, so it cannot split them; give another direction.")
    to_source = rng.random(len(X)) < expit(slope * along / along.std())
    return np.flatnonzero(to_source), np.flatnonzero(~to_source)


def natural_split(name: str) -> tuple[Table, Table]:
    """Source and target of the survey's naturally shifted tables (section 5.3.2).

    "auto_mpg": cars from the USA → from elsewhere. "bike_sharing_day": January to June → July to December.
    "parkinsons": age ≤ 60 → above. "wine": red → white. The column that splits is not an input.
    (Which side is the source is not said in the survey.)
    """
    if name == "wine":
        return load_table("wine_red"), load_table("wine_white")
    sides = {"auto_mpg": ("origin", 1), "bike_sharing_day": ("mnth", 6), "parkinsons": ("age", 60)}
    if name not in sides:
        raise ParameterError(f"There is no natural split of {name!r}; the names are wine, {', '.join(sides)}.")
    table = load_table(name)
    column, last = sides[name]
    # The season of bike sharing is the month once more.
    inputs = [i for i, c in enumerate(table.columns) if c != column and not (c == "season" and column == "mnth")]
    columns = tuple(table.columns[i] for i in inputs)
    low = table.X[:, table.columns.index(column)] <= last
    parts = [Table(table.X[rows][:, inputs], table.y[rows], columns) for rows in (low, ~low)]
    return parts[0], parts[1]


def label_noise(
    y: IntArray, rate: float, kind: str = "symmetric", *, n_classes: int | None = None, random_state: Any = None
) -> IntArray:
    """Output noise: labels 0, …, k−1 of which a share `rate` is flipped.

    "symmetric": to each other class with probability rate/(k−1). "pair": class i to class i+1 (the last to the
    first).
    """
    rng = generator(random_state)
    check_range("rate", rate, 0, 1)
    labels = np.asarray(y).astype(np.int64)  # wide enough to add to, whatever came
    k = int(labels.max()) + 1 if n_classes is None else n_classes
    if k < 2:
        raise InputError(f"Labels can only be flipped among at least two classes; got {k}. Give n_classes.")
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
    """Class-prior shift: some classes are `ratio` times rarer in the source than in a balanced target.

    A share `minority_share` of the classes, drawn at random, keeps 1/`ratio` of the rows of the others.

    Parameters
    ----------
    ratio : ρ, majority rows per minority row
    largest : rows of each majority class, default=None
        None keeps as many as the rarest class has.

    Returns
    -------
    rows : row numbers of the source
    weights : the true importance of each of them, class by class p_target(y) / p_source(y), mean one
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
    """Class-conditional shift: inputs of each class moved by a vector of its own, class shares untouched.

    The move has length `strength` in standard deviations of the columns. Given back is the target's version of `X`.
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
    """Everything at once: a source with other class shares, moved inputs and noisy labels, from balanced clean data.

    Returns
    -------
    X, y : the source
    rows : the rows of the clean data it was made of
    """
    rng = generator(random_state)
    rows, _ = class_prior_shift(y, ratio=ratio, minority_share=minority_share, random_state=rng)
    moved = class_conditional_shift(X[rows], y[rows], strength=strength, random_state=rng)
    return moved, label_noise(y[rows], noise, n_classes=int(np.max(y)) + 1, random_state=rng), rows


def independent_component_shift(
    n_domains: int, n_rows: int, n_columns: int, *, random_state: Any = None
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Independent-component shift (survey, section 7): one invertible mixing, domains that differ in the components.

    Components are Laplace with a location and scale of their own in each domain; the mixing is x = A(s + tanh(s)/2),
    A a random matrix of moderate condition, the same in all domains. The last column serves as the label.

    Returns
    -------
    Z : rows of all domains, shape (n_domains · n_rows, n_columns)
    domain : domain of each row
    components : the independent components behind `Z`
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
    """Images turned by their own angle, bilinear, zeros outside (survey, section 5.3.3).

    Parameters
    ----------
    images : array of shape (n, height, width)
    degrees : array of shape (n,)
    """
    if len(images) != len(degrees):
        raise InputError(f"One angle an image is needed; got {len(images)} images and {len(degrees)} angles.")
    turned = [
        _rotate_image(image, float(angle), reshape=False, order=1) for image, angle in zip(images, degrees, strict=True)
    ]
    return np.stack(turned)
