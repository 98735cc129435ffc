"""Gasoline demand in 18 countries over 19 years (Baltagi and Griffin, 1983), with the published splits."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steelyard._numerics.display import ShortRepr
from steelyard._typing import FloatArray
from steelyard.datasets.loaders import find_file
from steelyard.errors import DataChangedError

COLUMNS = ("log_income_per_capita", "log_price", "log_cars_per_capita", "log_gas_per_car")
CODES = {
    "AUSTRIA": "AUT",
    "BELGIUM": "BEL",
    "CANADA": "CAN",
    "DENMARK": "DNK",
    "FRANCE": "FRA",
    "GERMANY": "DEU",
    "GREECE": "GRC",
    "IRELAND": "IRL",
    "ITALY": "ITA",
    "JAPAN": "JPN",
    "NETHERLA": "NLD",
    "NORWAY": "NOR",
    "SPAIN": "ESP",
    "SWEDEN": "SWE",
    "SWITZERL": "CHE",
    "TURKEY": "TUR",
    "U.K.": "GBR",
    "U.S.A.": "USA",
}


@dataclass(frozen=True, eq=False, repr=False)
class Gasoline(ShortRepr):
    """Panel of gasoline demand y and its covariates x in 18 countries and 19 years (survey, section 7.4).

    Parameters
    ----------
    Z : array of shape (342, 4)
        Logarithms of income per capita, price and cars per capita (x), then of gasoline per car (y).
    country : array of shape (342,)
        Three-letter code of the country of each row.
    year : array of shape (342,)
        Year of each row.
    train_years : dict of str to list of list of int
        For each country, ten published sets of six years to train on; the other thirteen years are for testing.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.datasets import Gasoline
    >>> panel = Gasoline(np.zeros((1, 4)), np.array(["AUT"]), np.array([1960]), {"AUT": [[1960]]})
    >>> panel.Z.shape
    (1, 4)
    """

    Z: FloatArray
    country: NDArray[np.str_]
    year: NDArray[np.int64]
    train_years: dict[str, list[list[int]]]


def load_gasoline() -> Gasoline:
    """Load the gasoline panel from ``oecd_gasoline.csv``, and its splits from ``oecd_gasoline_splits.json``.

    Returns
    -------
    Gasoline
        The panel and its published splits. A missing file is a `DataNotFoundError` that names its provider, another
        content a `DataChangedError`.

    Examples
    --------
    >>> from steelyard.datasets import load_gasoline
    >>> from steelyard.errors import DataNotFoundError
    >>> try:
    ...     shape = load_gasoline().Z.shape
    ... except DataNotFoundError:  # the files are not in the data folder
    ...     shape = (342, 4)
    >>> shape
    (342, 4)
    """
    from pyarrow import csv  # imported here, so that importing the library does not load pyarrow

    provider = "Baltagi, Econometric Analysis of Panel Data, companion site"
    columns = csv.read_csv(find_file("oecd_gasoline.csv", provider)).to_pydict()
    published = "T. Teshima, few-shot-domain-adaptation-by-causal-mechanism-transfer, on GitHub"
    content = json.loads(find_file("oecd_gasoline_splits.json", published).read_text("utf-8"))
    try:
        Z = np.array([columns[name] for name in COLUMNS], dtype=np.float64).T
        country = np.array([CODES[name] for name in columns["country"]])
        splits = {CODES[name]: found for name, found in content["train_years"].items()}
    except KeyError as error:
        raise DataChangedError(
            f"oecd_gasoline.csv or its splits lack {error}; download them again ({provider})."
        ) from error
    if Z.shape != (342, 4) or set(splits) != set(CODES.values()):
        raise DataChangedError(
            f"oecd_gasoline.csv has the shape {Z.shape} and splits for {len(splits)} countries, not (342, 4) and "
            f"{len(CODES)}; download both files again ({provider})."
        )
    return Gasoline(Z, country, np.array(columns["year"]), splits)
