"""Computed cells on disk, one by one, so that a killed run goes on where it was."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steelyard.errors import OutputError
from steelyard.reproduce.plan import Cell, Settings

SCHEMA = """
create table if not exists cells (
    settings text not null, seed integer not null, data text not null, method text not null, trial integer not null,
    error real not null, seconds real not null, date text not null,
    primary key (settings, seed, data, method, trial)
) without rowid
"""


@dataclass(frozen=True)
class Outcome:
    """What a cell came to."""

    error: float
    seconds: float
    date: str


def settings_key(settings: Settings) -> str:
    """Cells of other settings are other cells."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


class CellStore:
    """An SQLite file in WAL mode: what was stored survives a kill at any moment."""

    def __init__(self, connection: sqlite3.Connection, settings: Settings, seed: int) -> None:
        self.connection, self.key = connection, (settings_key(settings), seed)

    def outcomes(self) -> dict[Cell, Outcome]:
        """Every stored cell of these settings and this seed."""
        rows = self.connection.execute(
            "select data, method, trial, error, seconds, date from cells where settings = ? and seed = ?", self.key
        )
        return {Cell(*row[:3]): Outcome(*row[3:]) for row in rows}

    def put(self, cell: Cell, outcome: Outcome) -> None:
        """Store one cell, durably."""
        with self.connection:
            self.connection.execute(
                "insert or replace into cells values (?, ?, ?, ?, ?, ?, ?, ?)",
                (*self.key, cell.data, cell.method, cell.trial, outcome.error, outcome.seconds, outcome.date),
            )


@contextmanager
def open_store(path: Path, settings: Settings, seed: int) -> Iterator[CellStore]:
    """The store at a path, made where there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=60)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute(SCHEMA)
        connection.commit()
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"Results cannot be written to {path.parent} ({error}). Give a folder that can be written with --out."
        ) from error
    try:
        yield CellStore(connection, settings, seed)
    finally:
        connection.close()  # the last one out folds the log into the file
