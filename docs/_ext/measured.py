"""Numbers out of ``results/``: the cells of its CSV files and of the tables on its pages, and arithmetic with them.

A query is ``FILE: field=value; field=value -> expression -> format``. The file is a CSV file, or a page with Markdown
tables, of which ``FILE#part of a title`` names one. Where several rows match, those are meant whose other conditions
are empty. In the expression names are columns (in quotation marks where they are more than a word), ``other.mean`` or
``other("mean")`` is the column of the row after ``vs``, which has the conditions before it and its own, and ``p`` is
the p-value of a paired t-test over the trials of the two. ``FILE ~ text with {} for a number``, or ``FILE#part of a
title ~ text``, reads a number out of a sentence.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

RESULTS = Path(__file__).parents[2] / "results"
NUMBER = r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)*(?:e[-+]?\d+)?"
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
AGGREGATES: dict[str, Any] = {
    "min": min,
    "max": max,
    "average": lambda values: sum(values) / len(values),
    "gmean": lambda values: math.exp(sum(map(math.log, values)) / len(values)),
    "sum": sum,
}
Row = dict[str, str]


class QueryError(ValueError):
    """A query that no file of results answers, or that several answer."""


@dataclass(frozen=True)
class Table:
    """Rows of a CSV file or of a table on a page; `conditions` are the columns that say what a row is of."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    conditions: tuple[str, ...] = ()
    remark: str = ""

    def select(self, wanted: dict[str, str]) -> tuple[Row, ...]:
        """The rows that a query means."""
        unknown = [name for name in wanted if name not in self.columns]
        if unknown:
            raise QueryError(f"{self.name} has no column {unknown[0]!r}. Its columns: {', '.join(self.columns)}.")
        rows = list(matching(self.rows, wanted))
        for name in self.conditions:
            if name not in wanted and any(not row[name] for row in rows):
                rows = [row for row in rows if not row[name]]
        if not rows:
            raise QueryError(f"{self.name} has no row with {wanted}.")
        return tuple(rows)


def matching(rows: Iterable[Row], wanted: dict[str, str]) -> Iterator[Row]:
    """The rows whose cells are those wanted; ``this or that`` allows two."""
    for row in rows:
        if all(plain(row[name]) in {value, *value.split(" or ")} for name, value in wanted.items()):
            yield row


def plain(cell: str) -> str:
    """The text of a cell, without the stars of bold."""
    return cell.strip("*")


def read(file: str) -> str:
    """Text of a file of results."""
    path = RESULTS / file
    if not path.is_file():
        raise QueryError(f"There is no file results/{file}.")
    return path.read_text("utf-8")


def paragraph(file: str, words: str) -> list[str]:
    """Lines of the paragraph of a page that starts with these words."""
    blocks = re.sub(r"(?m)^#.*\n", "", read(file)).split("\n\n")
    found = [each for block in blocks if (each := block.strip()).startswith(words)]
    if len(found) != 1:
        raise QueryError(f"results/{file} has {len(found)} paragraphs that start with {words!r}; one was needed.")
    return found[0].splitlines()


@cache
def load(source: str) -> tuple[Table, ...]:
    """The tables of a file; ``FILE#part of a title`` for those of a page below such a title."""
    file, _, title = source.partition("#")
    text = read(file)
    if file.endswith(".csv"):
        reader = csv.DictReader(text.splitlines())
        columns = tuple(reader.fieldnames or ())
        last = next((columns.index(name) for name in ("mean", "trial") if name in columns), 0)
        return (Table(file, columns, tuple(reader), columns[:last]),)
    tables = tuple(table for heading, table in markdown_tables(file, text) if title in heading)
    if not tables:
        raise QueryError(f"results/{file} has no table below a title with {title!r}.")
    return tables


def markdown_tables(file: str, text: str) -> list[tuple[str, Table]]:
    """Each table of a page with the title above it, and the paragraph that follows it."""
    found, heading = [], ""
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not re.fullmatch(r"\|[-:| ]+\|", line):
            continue
        columns = numbered(cells(lines[place - 1]))
        body = lines[place + 1 :]
        end = next((i for i, each in enumerate(body) if not each.startswith("|")), len(body))
        rows = tuple(dict(zip(columns, cells(each), strict=True)) for each in body[:end])
        after = "\n".join(body[end:]).strip().split("\n\n")[0]
        found.append((heading, Table(f"{file}#{heading}", columns, rows, remark=after)))
    return found


def cells(line: str) -> list[str]:
    """Cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def numbered(names: list[str]) -> tuple[str, ...]:
    """Column names, the second of the same name with a 2 and so on; that of a column without one is "row"."""
    names = [name.replace("`", "") or "row" for name in names]
    return tuple(
        name if names[:i].count(name) == 0 else f"{name} {names[:i].count(name) + 1}" for i, name in enumerate(names)
    )


@dataclass(frozen=True)
class Selection:
    """The rows of a table that a query names."""

    table: Table
    rows: tuple[Row, ...]
    trials: tuple[int, int] | None = None  # the first and the last that are reported

    def cell(self, column: str) -> str:
        """The text of a cell of the only row."""
        if column not in self.table.columns:
            known = ", ".join(self.table.columns)
            raise QueryError(f"{self.table.name} has no column {column!r}. Its columns: {known}.")
        if len(self.rows) != 1:
            raise QueryError(f"{len(self.rows)} rows of {self.table.name} match where one was needed.")
        return plain(self.rows[0][column])

    def errors(self) -> dict[str, float]:
        """The error of each trial that is reported."""
        first, last = self.trials or (0, math.inf)
        found = {row["trial"]: float(row["error"]) for row in self.rows if first <= int(row["trial"]) <= last}
        if len(found) < len(self.rows) and self.trials is None:
            raise QueryError(f"Several rows of {self.table.name} have the same trial: name more conditions.")
        return found


def select(source: str, wanted: dict[str, str]) -> Selection:
    """Rows of the one table of a file that has them; of the settings of its own page, unless another is named."""
    tables, trials = load(source), None
    file = source.partition("#")[0]
    if file.endswith(("/table.csv", "/trials.csv")):
        key, trials = settings_of(file.split("/")[0], wanted.get("page", "README.md"))
        wanted = {name: value for name, value in wanted.items() if name != "page"} | {"settings": key}
    answers, refusals = [], []
    for table in tables:
        try:
            answers.append(Selection(table, table.select(wanted), trials))
        except QueryError as refusal:
            refusals.append(str(refusal))
    if len(answers) != 1:
        raise QueryError(refusals[0] if not answers else f"{len(answers)} tables of {source} have such a row.")
    return answers[0]


@cache
def settings_of(folder: str, page: str) -> tuple[str, tuple[int, int]]:
    """Settings key and reported trials of a page of a table."""
    for key, about in json.loads(read(f"{folder}/provenance.json"))["settings"].items():
        for entry in about["seeds"].values():
            if entry["page"] == page:
                return key, (entry["trials"][0], entry["trials"][1])
    raise QueryError(f"results/{folder}/provenance.json has no page {page!r}.")


def numbers_in(text: str) -> list[str]:
    """The numbers in a cell, as they are written."""
    return re.findall(NUMBER, text)


def number(text: str) -> float:
    """A number as it is written."""
    return float(text.replace(",", "").replace("−", "-"))


def evaluate(node: ast.expr, here: Selection, other: Selection | None) -> float:
    """An expression of columns."""
    match node:
        case ast.Constant(value=int() | float() as constant):
            return float(constant)
        case ast.BinOp():
            left, right = (evaluate(each, here, other) for each in (node.left, node.right))
            return float(OPERATIONS[type(node.op)](left, right))
        case ast.Name(id="p") if other is not None:
            return p_value(here, other)
        case ast.Name(id="count"):
            return len(here.rows)
        case ast.Name(id=column) | ast.Constant(value=str(column)):
            return first_number(here, column)
        case ast.Attribute(value=ast.Name(id="other"), attr=column) if other is not None:
            return first_number(other, column)
        case ast.Call(func=ast.Name(id="other"), args=[ast.Constant(value=str(column))]) if other is not None:
            return first_number(other, column)
        case ast.Call(func=ast.Name(id="second"), args=[ast.Name(id=column) | ast.Constant(value=str(column))]):
            return nth_number(here, column, 1)
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in AGGREGATES:
            each = [Selection(here.table, (row,), here.trials) for row in here.rows]
            return float(AGGREGATES[name]([evaluate(argument, one, other) for one in each]))
    raise QueryError(f"{ast.unparse(node)} is not an expression of columns.")


def first_number(selection: Selection, column: str) -> float:
    """The number of a cell."""
    return nth_number(selection, column, 0)


def nth_number(selection: Selection, column: str, place: int) -> float:
    """A number of a cell, counted from 0."""
    text = selection.cell(column)
    found = numbers_in(text)
    if len(found) <= place:
        raise QueryError(f"{selection.table.name}: the cell {column!r} has no such number: {text!r}.")
    return number(found[place])


def p_value(here: Selection, other: Selection) -> float:
    """Two-sided paired t-test over the trials that both have."""
    left, right = here.errors(), other.errors()
    both = sorted(left.keys() & right.keys())
    if len(both) < 3:
        raise QueryError(f"{here.table.name}: the two have {len(both)} trials in common, too few for a t-test.")
    difference = np.array([left[trial] - right[trial] for trial in both])
    return 1.0 if not difference.any() else float(ttest_rel(difference, 0 * difference).pvalue)


def conditions(text: str) -> dict[str, str]:
    """``field=value; field=value`` as a dictionary."""
    found = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise QueryError(f"{part!r} is no condition: write field=value.")
        found[name.strip()] = value.strip()
    return found


def answer(query: str) -> str:
    """What stands on the page for a query."""
    source, tilde, pattern = query.partition(" ~ ")
    if tilde:
        pattern, _, form = pattern.partition(" -> ")
        return shown(from_sentence(source.strip(), pattern), form.strip())
    head, _, what = query.partition(" -> ")
    source, _, where = head.partition(": ")
    what, _, form = (each.strip() for each in what.partition(" -> "))
    if not what:
        raise QueryError(f"{query!r} names no column: write FILE: field=value -> column.")
    first, _, second = where.partition(" vs ")
    wanted = conditions(first)
    here = select(source.strip(), wanted)
    other = select(source.strip(), wanted | conditions(second)) if second else None
    node = ast.parse(what, mode="eval").body
    if form:
        return shown(evaluate(node, here, other), form)
    match node:
        case ast.Name(id=column) | ast.Constant(value=str(column)):
            first_number(here, column)
            return typeset(numbers_in(here.cell(column))[0])
        case ast.Call(func=ast.Name(id="second"), args=[ast.Name(id=column) | ast.Constant(value=str(column))]):
            nth_number(here, column, 1)
            return typeset(numbers_in(here.cell(column))[1])
        case ast.Call(func=ast.Name(id="text"), args=[ast.Name(id=column) | ast.Constant(value=str(column))]):
            return here.cell(column)
    raise QueryError(f"{query!r} computes a number: say how it is written, as in -> .2f.")


def section(source: str) -> str:
    """Text of a file; of ``FILE#part of a title`` what stands below that title."""
    file, _, title = source.partition("#")
    if not title:
        return read(file)
    parts = [part for part in re.split(r"(?m)^#+ ", read(file)) if title in part.partition("\n")[0]]
    if len(parts) != 1:
        raise QueryError(f"results/{file} has {len(parts)} titles with {title!r}; one was needed.")
    return parts[0]


def from_sentence(source: str, pattern: str) -> str:
    """The number at {} in a sentence of a file; ... stands for any text of its line."""
    if pattern.count("{}") != 1:
        raise QueryError(f"{pattern!r} needs one {{}}, for the number.")
    words = r"\s+".join(map(re.escape, pattern.split()))
    words = words.replace(re.escape("{}"), f"({NUMBER})").replace(re.escape("..."), ".*?")
    found = set(re.findall(rf"(?<![\d.,])(?:{words})" if pattern.startswith("{}") else words, section(source)))
    if len(found) != 1:
        raise QueryError(f"results/{source}: {len(found)} different numbers stand at {pattern!r}; one was needed.")
    return found.pop()


def shown(value: str | float, form: str) -> str:
    """A number in a format of Python, with a true minus sign; as it is written without one."""
    text = value if isinstance(value, str) and not form else format(number(str(value)), form)
    return typeset(text)


def typeset(text: str) -> str:
    """A minus sign instead of a hyphen, no plus sign nor leading zero in an exponent."""
    return re.sub(r"e([-+−]?)0*(\d)", lambda m: f"e{m[1].replace('+', '')}{m[2]}", text).replace("-", "−")
