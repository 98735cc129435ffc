"""The parts of a table: cells with structured conditions, settings, and one random stream for each cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import numpy as np

from steelyard.errors import ParameterError

Settings = Mapping[str, Any]
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Condition:
    """The fields that identify the data, or the method, of a cell.

    Subclasses are frozen dataclasses whose fields are texts, numbers, booleans or None. Every name on a page is made
    from the fields; nothing reads a name back.
    """

    @property
    def label(self) -> str:
        """Name on pages and in messages."""
        raise NotImplementedError

    @property
    def stream_name(self) -> str:
        """Text that seeds random streams. It must stay when a label is reworded, or the cells are other cells."""
        return self.label


D = TypeVar("D", bound=Condition)
M = TypeVar("M", bound=Condition)
C = TypeVar("C", bound=Condition)


@dataclass(frozen=True)
class Named(Condition):
    """A condition that is nothing but its name."""

    name: str

    @property
    def label(self) -> str:
        """The name itself."""
        return self.name


def columns(cls: type[Condition], side: str) -> dict[str, str]:
    """Columns of a condition in a CSV file, by field; the field `name` has the column of its side, data or method."""
    return {each.name: side if each.name == "name" else each.name for each in fields(cls)}


def texts(condition: Condition) -> list[str]:
    """Texts of the fields in a CSV file. A field that has its default is left empty."""
    found = []
    for each in fields(condition):
        value = getattr(condition, each.name)
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        found.append("" if value == each.default else text)
    return found


def read_condition(cls: type[C], found: Sequence[str]) -> C:
    """A condition from the texts of its fields."""
    hints, values = get_type_hints(cls), {}
    for each, text in zip(fields(cls), found, strict=True):
        if not text and each.default is not MISSING:
            continue
        (kind,) = (kind for kind in get_args(hints[each.name]) or (hints[each.name],) if kind is not NoneType)
        values[each.name] = text == "yes" if kind is bool else kind(text)
    return cls(**values)


@dataclass(frozen=True)
class Cell(Generic[D, M]):
    """One method on one draw of one data set."""

    data: D
    method: M
    trial: int

    @property
    def label(self) -> str:
        """Names of the data and of the method."""
        return f"{self.data.label}: {self.method.label}"


@dataclass(frozen=True)
class Setting:
    """A choice that the survey leaves open: the value used, and the reason or the alternatives.

    One that was added when results were stored already is left out of the settings at its default, so that their key
    stays what it was.
    """

    default: Any
    meaning: str
    added_later: bool = False


def _same(method: Any) -> Any:
    return method


@dataclass(frozen=True)
class Experiment(Generic[D, M]):
    """A table: its cells, how one is computed, and how the results are laid out."""

    name: str
    title: str
    explains: str
    settings: Mapping[str, Setting]
    data_class: type[D]
    method_class: type[M]
    data: Callable[[Settings], list[D]]  # the data sets, variants of their draws included
    methods: Callable[[D], list[M]]  # the methods that are run on a data set
    sections: Callable[[Any], list[Any]]  # the tables to print, from a `Summary`
    pictures: Callable[[Any], list[Any]]  # the pictures to draw, from a `Summary`
    compute: Callable[[Cell[D, M], Settings, int], float] | None = None  # the error of a cell; None for deep tables
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # other settings that have a page, by name
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = _same  # replaces settings that name a file by its content
    controls: frozenset[M] = frozenset()  # methods that are shown but do not compete for best
    printed_as: Callable[[M], M | None] = _same  # which column of the survey's table a method is compared with
    trials: range = range(100)  # the trials that are reported
    # Computed before the cells that share it: cells, settings, seed, number of processes.
    before: Callable[[Any, Settings, int, int], None] | None = None
    # Arrays that pictures need beside the trials; computed once and stored with the curves.
    drawn: Callable[[Settings, int], Arrays] | None = None
    # Deep tables: trains the trials of a method on a data set together; groups of low urgency number come first.
    job: Callable[[D, M, list[int], Settings, int, str], Any] | None = None
    urgency: Callable[[D, M], int] = lambda data, method: 0

    @property
    def folder(self) -> str:
        """Name of the folder of the results."""
        return self.name.replace("-", "_")

    @property
    def columns(self) -> list[str]:
        """Columns that identify the conditions of a cell."""
        return [
            *columns(self.data_class, "data").values(),
            *columns(self.method_class, "method").values(),
        ]

    def conditions(self, found: Sequence[str]) -> tuple[D, M]:
        """Data and method from the texts of their columns."""
        split = len(fields(self.data_class))
        data, method = found[:split], found[split:]
        return read_condition(self.data_class, data), read_condition(self.method_class, method)

    def groups(self, settings: Settings) -> list[tuple[D, M]]:
        """Every data set with every method that is run on it."""
        return [(data, method) for data in self.data(settings) for method in self.methods(data)]

    def cells(self, settings: Settings, trials: range) -> list[Cell[D, M]]:
        """Every cell, trial by trial, so that an unfinished run has whole trials."""
        groups = self.groups(settings)
        return [Cell(data, method, trial) for trial in trials for data, method in groups]

    def settled(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Settings with the given ones replaced, each as the type of its default."""
        return self.prepare(parse_settings(self.name, self.settings, given))

    def variant(self, settings: Settings) -> str:
        """Name of these settings: empty for the default ones, the key for settings that have no name."""
        if settings == self.settled({}):
            return ""
        for name, given in self.variants.items():
            if settings == self.settled(given):
                return name
        return settings_key(settings)


def settings_key(settings: Settings) -> str:
    """Eight digits that identify settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def parse_settings(owner: str, settings: Mapping[str, Setting], given: Mapping[str, str]) -> dict[str, Any]:
    """Default values with the given texts in place of some of them."""
    unknown = sorted(set(given) - set(settings))
    if unknown:
        raise ParameterError(f"{owner} has no setting {unknown[0]!r}; it has {', '.join(settings) or 'none'}.")
    values = {name: setting.default for name, setting in settings.items()}
    values |= {name: _parse(name, text, values[name]) for name, text in given.items()}
    left_out = {name for name, setting in settings.items() if setting.added_later and values[name] == setting.default}
    return {name: value for name, value in values.items() if name not in left_out}


def _parse(name: str, text: str, default: Any) -> Any:
    words = {"true": True, "yes": True, "false": False, "no": False}
    try:
        return words[text.lower()] if isinstance(default, bool) else type(default)(text)
    except (KeyError, ValueError) as error:
        kind = "yes or no" if isinstance(default, bool) else f"a value like {default!r}"
        raise ParameterError(f"{name}={text} cannot be read; {kind} is needed.") from error


def stream(seed: int, *identity: str | int) -> np.random.Generator:
    """A random stream that depends on the seed and an identity alone, never on the order of cells or the worker."""
    text = "/".join(map(str, (seed, *identity)))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))
