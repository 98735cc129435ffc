"""Gasoline demand in 18 countries over 19 years (Baltagi and Griffin, 1983), with the published splits."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, eq=False)
class Gasoline:
    """A panel: rows (inputs, then gasoline per car, all logarithms), their country and year, and published splits.

    `train_years` are, for each country, ten sets of six years to learn from; the other thirteen are the test.
    """

    Z: FloatArray
    country: NDArray[np.str_]
    year: NDArray[np.int64]
    train_years: dict[str, list[list[int]]]


def load_gasoline() -> Gasoline:
    """The panel, from ``oecd_gasoline.csv``, and its splits, from ``oecd_gasoline_splits.json``."""
    from pyarrow import csv  # here, so that importing the library does not load pyarrow

    provider = "Baltagi, Econometric Analysis of Panel Data, companion site"
    columns = csv.read_csv(find_file("oecd_gasoline.csv", provider)).to_pydict()
    published = "T. Teshima, few-shot-domain-adaptation-by-causal-mechanism-transfer, on GitHub"
    content = json.loads(find_file("oecd_gasoline_splits.json", published).read_text("utf-8"))
    try:
        Z = np.array([columns[name] for name in COLUMNS], dtype=np.float64).T
        country = np.array([CODES[name] for name in columns["country"]])
        splits = {CODES[name]: found for name, found in content["train_years"].items()}
    except KeyError as error:
        raise DataChangedError(f"oecd_gasoline.csv or its splits lack {error}; get them again ({provider}).") from error
    if Z.shape != (342, 4) or set(splits) != set(CODES.values()):
        raise DataChangedError(f"oecd_gasoline.csv has {Z.shape} numbers; 342 rows of 4 are published.")
    return Gasoline(Z, country, np.array(columns["year"]), splits)
