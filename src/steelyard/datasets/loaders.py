"""The tables of the survey's experiments, read from the user's own copies and checked against the published ones.

Nothing is downloaded. Files are looked for in the folder named by ``STEELYARD_DATA``, else in the user's cache
folder (``~/.cache/steelyard``).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steelyard._typing import FloatArray
from steelyard.errors import DataChangedError, DataNotFoundError, ParameterError


@dataclass(frozen=True, eq=False)
class Table:
    """A published table: numeric columns and the label."""

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
    positive: str | None = None  # the label value that becomes 1, all others 0


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
    """The names that `load_table` knows."""
    return tuple(_TABLES)


def data_folder() -> Path:
    """Where the data files are looked for."""
    named = os.environ.get("STEELYARD_DATA")
    return Path(named) if named else Path.home() / ".cache" / "steelyard"


def load_table(name: str) -> Table:
    """One of the survey's tables; rows with missing values are dropped.

    The parsed numbers are checked against the published table, so that a file of another edition is an error
    (`DataChangedError`) rather than another result. An absent file is a `DataNotFoundError` that names provider,
    file and folder.
    """
    if name not in _TABLES:
        raise ParameterError(f"There is no table {name!r}; the names are {', '.join(_TABLES)}.")
    published = _TABLES[name]
    path = find_file(published.file, published.provider)
    try:
        table = _parse(published, path)
    except (KeyError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataChangedError(
            f"{published.file} in {data_folder()} cannot be read as the published table ({error!r}). "
            f"Get it again from {published.provider}."
        ) from error
    digest = _digest(table)
    if digest != published.digest:
        raise DataChangedError(
            f"{published.file} in {data_folder()} does not hold the published table (digest {digest}, expected "
            f"{published.digest}). Get it again from {published.provider}."
        )
    return table


def find_file(file: str, provider: str) -> Path:
    """The path of a data file, or an error that says where to get it and where to put it."""
    path = data_folder() / file
    if not path.is_file():
        raise DataNotFoundError(
            f"{file} is not in {data_folder()}. Get it from its provider ({provider}), save it there as {file}, or "
            "point the environment variable STEELYARD_DATA to the folder that has it."
        )
    return path


def _parse(published: _Published, path: Path) -> Table:
    from pyarrow import csv  # here, so that importing the library does not load pyarrow

    columns = csv.read_csv(path).to_pydict()
    label = columns.pop(published.label)
    for name in published.drop:
        del columns[name]
    values = np.array([[np.nan if v is None else float(v) for v in column] for column in columns.values()]).T
    complete = ~np.isnan(values).any(axis=1)
    y = np.array([float(v) if published.positive is None else float(str(v) == published.positive) for v in label])
    return Table(values[complete], y[complete], tuple(columns))


def _digest(table: Table) -> str:
    numbers = np.column_stack([table.X, table.y])
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).hexdigest()[:16]
