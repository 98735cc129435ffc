"""Tables of the survey's experiments, read from local files and checked against the published ones.

Nothing is downloaded. Files are searched in the folder given by the environment variable ``STEELYARD_DATA``, or else in
the user's cache folder (``~/.cache/steelyard``).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steelyard._numerics.display import ShortRepr
from steelyard._typing import FloatArray
from steelyard.errors import DataChangedError, DataNotFoundError, ParameterError


@dataclass(frozen=True, eq=False, repr=False)
class Table(ShortRepr):
    """A published table: numeric inputs x and the label y.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        The inputs.
    y : array of shape (n_rows,)
        The labels; 0 and 1 for two classes.
    columns : tuple of str
        Names of the columns of `X`.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import Table
    >>> Table(np.zeros((2, 1)), np.array([0.0, 1.0]), ("age",)).columns
    ('age',)
    """

    X: FloatArray
    y: FloatArray
    columns: tuple[str, ...]


@dataclass(frozen=True)
class _Published:
    file: str
    provider: str
    label: str
    digest: str  # of the parsed numbers, label last
    drop: tuple[str, ...] = ()
    positive: str | None = None  # the label that becomes 1; all others become 0

    def read(self, path: Path) -> Table:
        """Read the file, without rows that have missing values."""
        from pyarrow import csv  # imported here, so that importing the library does not load pyarrow

        columns = csv.read_csv(path).to_pydict()
        label = columns.pop(self.label)
        for name in self.drop:
            del columns[name]
        values = np.array([[np.nan if v is None else float(v) for v in column] for column in columns.values()]).T
        complete = ~np.isnan(values).any(axis=1)
        y = np.array([float(v) if self.positive is None else float(str(v) == self.positive) for v in label])
        return Table(values[complete], y[complete], tuple(columns))


UCI = "UCI Machine Learning Repository"
_TABLES = {
    "auto_mpg": _Published("auto_mpg.csv", f"{UCI}, Auto MPG", "mpg", "ae2460f71f1ad184", drop=("car_name",)),
    "bike_sharing_day": _Published(
        "bike_sharing_day.csv",
        f"{UCI}, Bike Sharing (day.csv)",
        "cnt",
        "f1883b5373d3d614",
        drop=("instant", "dteday", "casual", "registered"),
    ),
    "parkinsons": _Published(
        "parkinsons_telemonitoring.csv",
        f"{UCI}, Parkinsons Telemonitoring",
        "total_UPDRS",
        "e75396490e3d5101",
        drop=("subject#", "motor_UPDRS"),
    ),
    "wine_red": _Published("wine_quality_red.csv", f"{UCI}, Wine Quality (red)", "quality", "d4f6a6d672e0ee31"),
    "wine_white": _Published("wine_quality_white.csv", f"{UCI}, Wine Quality (white)", "quality", "8cc6071e55becf6a"),
    "australian": _Published(
        "australian.csv", f"{UCI}, Statlog Australian Credit Approval", "class", "31f7d2e7692d5104", positive="1"
    ),
    "breast_cancer": _Published(
        "breast_cancer.csv",
        f"{UCI}, Breast Cancer Wisconsin (Original), complete rows",
        "class",
        "55160099446809c6",
        drop=("sample_code_number",),
        positive="4",
    ),
    "diabetes": _Published("diabetes.csv", "NIDDK, Pima Indians Diabetes", "class", "3e5bd23b2c24c831", positive="1"),
    "heart": _Published("heart.csv", f"{UCI}, Statlog Heart", "class", "63ec604a5108c6d3", positive="1"),
    "sonar": _Published("sonar.csv", f"{UCI}, Connectionist Bench (Sonar)", "class", "f5f8ed9a7da00248", positive="M"),
}


def table_names() -> tuple[str, ...]:
    """Names of the tables that `load_table` can load.

    Returns
    -------
    tuple of str
        The names.

    Examples
    --------
    >>> from steelyard.datasets import table_names
    >>> "heart" in table_names()
    True
    """
    return tuple(_TABLES)


def data_folder() -> Path:
    """The folder in which data files are searched.

    Returns
    -------
    Path
        The folder given by the environment variable ``STEELYARD_DATA``, or else ``~/.cache/steelyard``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from steelyard.datasets import data_folder
    >>> isinstance(data_folder(), Path)
    True
    """
    named = os.environ.get("STEELYARD_DATA")
    return Path(named) if named else Path.home() / ".cache" / "steelyard"


def load_table(name: str) -> Table:
    """Load one of the tables of the survey's section 5.3.2, without rows that have missing values.

    Parameters
    ----------
    name : str
        One of `table_names`.

    Returns
    -------
    Table
        Inputs and labels. They are checked against the published table, so that a file of another edition is a
        `DataChangedError` rather than another result. A missing file is a `DataNotFoundError` that names provider,
        file and folder.

    Examples
    --------
    >>> from steelyard.datasets import load_table
    >>> from steelyard.errors import DataNotFoundError
    >>> try:
    ...     shape = load_table("heart").X.shape
    ... except DataNotFoundError:  # the file is not in the data folder
    ...     shape = (270, 13)
    >>> shape
    (270, 13)
    """
    if name not in _TABLES:
        raise ParameterError(f"There is no table {name!r}; the names are {', '.join(_TABLES)}.")
    published = _TABLES[name]
    path = find_file(published.file, published.provider)
    try:
        table = published.read(path)
    except (KeyError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataChangedError(
            f"{published.file} in {data_folder()} cannot be read as the published table ({error!r}). "
            f"Download it again from {published.provider}."
        ) from error
    numbers = np.ascontiguousarray(np.column_stack([table.X, table.y]), dtype="<f8")
    digest = hashlib.sha256(numbers.tobytes()).hexdigest()[:16]
    if digest != published.digest:
        raise DataChangedError(
            f"{published.file} in {data_folder()} does not hold the published table (digest {digest}, expected "
            f"{published.digest}). Download it again from {published.provider}."
        )
    return table


def find_file(file: str, provider: str) -> Path:
    """The path of a data file, or an error that says where to get it and where to save it."""
    path = data_folder() / file
    if not path.is_file():
        raise DataNotFoundError(
            f"{file} is not in {data_folder()}. Download it from its provider ({provider}), save it there as {file}, "
            "or set the environment variable STEELYARD_DATA to the folder that has it."
        )
    return path
