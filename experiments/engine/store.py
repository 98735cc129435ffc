"""Computed cells on disk, one by one, so that a killed run goes on where it was."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.engine.cells import Cell, Settings
from steelyard.errors import OutputError

# Names are kept once, and dates as seconds since 1970: tables of many cells stay small.
SCHEMA = """
create table if not exists runs (id integer primary key, settings text, seed integer, unique (settings, seed));
create table if not exists names (id integer primary key, data text, method text, unique (data, method));
create table if not exists environments (run integer, text text, primary key (run, text)) without rowid;
create table if not exists cells (
    run integer, name integer, trial integer, error real not null, seconds real not null, date integer not null,
    primary key (run, name, trial)
) without rowid;
"""


@dataclass(frozen=True)
class Outcome:
    """What a cell came to."""

    error: float
    seconds: float
    date: int  # seconds since 1970


def settings_key(settings: Settings) -> str:
    """Cells of other settings are other cells."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


class CellStore:
    """An SQLite file in WAL mode: what was stored survives a kill at any moment."""

    def __init__(self, connection: sqlite3.Connection, settings: Settings, seed: int) -> None:
        self.connection = connection
        self.run = self._number("runs", "settings, seed", (settings_key(settings), seed))

    def outcomes(self) -> dict[Cell, Outcome]:
        """Every stored cell of these settings and this seed."""
        rows = self.connection.execute(
            "select data, method, trial, error, seconds, date from cells join names on names.id = name where run = ?",
            (self.run,),
        )
        return {Cell(*row[:3]): Outcome(*row[3:]) for row in rows}

    def put(self, cell: Cell, outcome: Outcome) -> None:
        """Store one cell, durably."""
        name = self._number("names", "data, method", (cell.data, cell.method))
        with self.connection:
            self.connection.execute(
                "insert or replace into cells values (?, ?, ?, ?, ?, ?)",
                (self.run, name, cell.trial, outcome.error, outcome.seconds, outcome.date),
            )

    def note_environment(self, environment: Mapping[str, Any]) -> None:
        """Keep what cells of this run are computed with."""
        with self.connection:
            self.connection.execute(
                "insert or ignore into environments values (?, ?)", (self.run, json.dumps(environment, sort_keys=True))
            )

    def environments(self) -> list[dict[str, Any]]:
        """What the cells of this run were computed with."""
        rows = self.connection.execute("select text from environments where run = ? order by text", (self.run,))
        return [json.loads(text) for (text,) in rows]

    def _number(self, table: str, columns: str, values: tuple[str | int, ...]) -> int:
        """The id of a row of a table of names, which is added where it is new."""
        with self.connection:
            self.connection.execute(f"insert or ignore into {table} ({columns}) values (?, ?)", values)
        found = self.connection.execute(f"select id from {table} where ({columns}) = (?, ?)", values).fetchone()
        return int(found[0])


@contextmanager
def open_store(path: Path, settings: Settings, seed: int) -> Iterator[CellStore]:
    """The store at a path, made where there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=60)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.executescript(SCHEMA)
        store = CellStore(connection, settings, seed)
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"Results cannot be written to {path.parent} ({error}). Give a folder that can be written with --out."
        ) from error
    try:
        yield store
    except sqlite3.Error as error:  # a full disk, a folder that went away
        raise OutputError(
            f"{path} could not be written any more ({error}). What was stored before is safe; the same command goes on."
        ) from error
    finally:
        connection.close()  # the last one out folds the log into the file
