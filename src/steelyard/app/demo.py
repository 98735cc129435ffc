"""`steelyard fit` on embedded data: a courier's town orders to learn from, suburban ones to predict."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from steelyard.app.atomic_files import check_folder, csv_text, write_folder, write_whole
from steelyard.app.commands import FIT_FILES, evaluate_file, fit_pair, show_evaluation, show_run

LABEL = "minutes"
TABLES = ("town.csv", "suburbs.csv")
N_ROWS = 1000
HEADER = ("distance_km", "vehicle", "rain", "parcels", "hour", "ordered_on", "rating", LABEL)
STORY = (
    "A courier wants to know how many minutes deliveries to the suburbs take, and has timed deliveries in town. The "
    "two tables are made up: suburban orders are farther, go by van more often and came later in the year, while the "
    "same order takes the same time anywhere. The minutes of the suburbs are kept for the end."
)


def deliveries(suburbs: bool, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Rows with numbers, a category, yes or no, dates and missing values."""
    n = N_ROWS
    vehicle = rng.choice(["bike", "scooter", "van"], n, p=[0.2, 0.3, 0.5] if suburbs else [0.5, 0.3, 0.2])
    distance = np.maximum(rng.gamma(5.0 if suburbs else 3.0, 0.9, n), 0.2)
    rain = rng.random(n) < (0.45 if suburbs else 0.3)
    parcels = 1 + rng.poisson(1.5, n)
    hour = rng.uniform(8, 20, n)
    day = np.datetime64("2024-01-01") + rng.integers(0, 90, n) + (20 if suburbs else 0)
    rating = np.clip(rng.normal(4.3, 0.4, n), 1, 5)
    unrated = rng.random(n) < 0.1
    by_bike = vehicle == "bike"
    minutes = (
        6
        + np.select([by_bike, vehicle == "scooter"], [3.6, 2.6], 2.0) * distance
        + np.where(by_bike, 0.45, 0.25) * distance**2
        + np.where(by_bike, 8, 3) * rain
        + 1.5 * parcels
        + 9 * (parcels > 3)  # a second walk from the curb
        + np.where(by_bike, 1, 7) * ((hour > 16) & (hour < 19))  # traffic
        + 6 * (distance > 4.5)  # over the bridge
        + rng.normal(0, 4, n)
    )
    return [
        (
            round(float(distance[i]), 2),
            str(vehicle[i]),
            "true" if rain[i] else "false",
            int(parcels[i]),
            round(float(hour[i]), 1),
            str(day[i]),
            "" if unrated[i] else round(float(rating[i]), 1),
            round(float(minutes[i]), 1),
        )
        for i in range(n)
    ]


def run(out: Path, seed: int, console: Console, progress: Progress, overwrite: bool = False) -> None:
    """Make two tables, fit, write and show everything, and compare the result with the labels of the target."""
    check_folder(out, (*TABLES, *FIT_FILES), made_by="demo", overwrite=overwrite)
    console.print(STORY, style="dim", highlight=False)
    rng = np.random.default_rng(seed)
    tables = {name: csv_text(HEADER, deliveries(name == "suburbs.csv", rng)) for name in TABLES}
    town, suburbs = (out / name for name in TABLES)
    # The tables and the run appear together, so the fit reads temporary copies.
    with tempfile.TemporaryDirectory() as place:
        source, target = (Path(place) / name for name in TABLES)
        for path in (source, target):
            write_whole(path, tables[path.name])
        fitted = fit_pair(source, target, LABEL, "auto", seed, progress, names=(str(town), str(suburbs)))
    write_folder(out, {**tables, **fitted.files}, made_by="demo", overwrite=overwrite)
    show_run(fitted, out, console)
    console.print(
        "\nThis is a demo, so the minutes of the suburbs are known. steelyard evaluate finds:", highlight=False
    )
    show_evaluation(evaluate_file(out, suburbs, seed, progress), console)
    for words in (
        f"The same by hand: steelyard fit {town} {suburbs} --label {LABEL} --out run",
        f"Look at the report: {out / 'report.html'}",
    ):
        console.print(words, style="bold", highlight=False, soft_wrap=True)
