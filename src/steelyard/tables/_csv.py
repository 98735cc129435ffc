"""A CSV file: its encoding, its separator, the types of its columns, and its rows in blocks."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steelyard.errors import TableError
from steelyard.tables.frame import check_names

BLOCK_BYTES = 4 * 2**20
HEAD_BYTES = 2**20


class OtherType(Exception):
    """A column turned out to hold something else than its first rows."""

    def __init__(self, column: str) -> None:
        self.column = column


class OtherEncoding(Exception):
    """The file is not in UTF-8, although its first bytes were."""


class CsvFile:
    """A CSV file whose first bytes are in memory.

    Parameters
    ----------
    path : Path
        The file.
    head : bytes
        Its first `HEAD_BYTES` bytes, or all of it.
    """

    def __init__(self, path: Path, head: bytes) -> None:
        self.path, self.head = path, head
        self.encoding = self._guess_encoding()
        self.separator, self.decimal_point = self._guess_separators()

    def _guess_encoding(self) -> str:
        if self.head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return "utf-16"
        if b"\0" in self.head:
            raise TableError(
                f"{self.path}: this is a binary file, not a CSV or Parquet table (byte {self.head.index(0)} is zero)."
            )
        try:
            self.head[: self.head.rfind(b"\n") + 1 or len(self.head)].decode("utf-8")
        except UnicodeDecodeError:
            return "latin-1"
        return "utf-8"

    def _guess_separators(self) -> tuple[str, str]:
        """Commas; where the header has none, its semicolons, tabs or bars, with decimal commas if rows have some."""
        header, _, rest = self.head.decode(self.encoding, errors="replace").partition("\n")
        separator = max((";", "\t", "|"), key=header.count)
        if "," in header or separator not in header:
            return ",", "."
        row = rest.partition("\n")[0]
        comma = re.search(r"\d,\d", row) is not None and re.search(r"\d\.\d", row) is None
        return separator, "," if comma else "."

    def batches(self, known: Mapping[str, str]) -> Iterator[Any]:
        """Arrow batches of rows, with the kinds of some columns given.

        The first rows say what the columns are. A file that is in memory as a whole is not opened again.
        """
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        names: list[str] = []
        # No invalid_row_handler: a thread that holds a Python function may outlive the interpreter, which then aborts.
        options = {
            "read_options": arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, encoding=self.encoding),
            "parse_options": arrow_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
        }
        convert = {"strings_can_be_null": True, "decimal_point": self.decimal_point}
        whole = len(self.head) < HEAD_BYTES
        try:
            guessed = self._guess_schema({**options, "convert_options": arrow_csv.ConvertOptions(**convert)})
            names = guessed.names
            check_names(names, str(self.path))
            types = {name: _reading_type(guessed.field(name).type, known.get(name)) for name in names}
            convert_options = arrow_csv.ConvertOptions(**convert, column_types=types)
            place = pa.BufferReader(self.head) if whole else self.path
            with arrow_csv.open_csv(place, **options, convert_options=convert_options) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise self._explained(error, names) from error

    def _guess_schema(self, options: dict[str, Any]) -> Any:
        """Names and types of the columns by the first rows."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        head = self.head if len(self.head) < HEAD_BYTES else self.head[: self.head.rfind(b"\n") + 1]
        try:
            with arrow_csv.open_csv(pa.BufferReader(head), **options) as reader:
                return reader.schema
        except (pa.ArrowInvalid, UnicodeDecodeError):  # the first bytes may end within quotes, or within a character
            with arrow_csv.open_csv(self.path, **options) as reader:
                return reader.schema

    def _explained(self, error: Exception, names: list[str]) -> Exception:
        text = str(error)
        ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text)
        if ragged:
            row, expected, got = map(int, ragged.groups())
            # Rows are counted from the header on.
            return TableError(f"{self.path}, {self.place(row - 2)}: {got} fields where the header has {expected}.")
        if "invalid UTF8" in text and self.encoding == "utf-8":
            return OtherEncoding()
        if "CSV conversion error" in text and "column #" in text.lower():
            return OtherType(names[int(text.lower().split("column #")[1].split(":")[0])])
        return TableError(f"{self.path}: this cannot be read as a CSV table ({text}).")

    def place(self, row: int) -> str:
        """Where a row, counted from 0, is in the file: quoted line ends and blank lines count as lines."""
        with open(self.path, "rb") as file:
            text = io.TextIOWrapper(file, encoding=self.encoding, errors="replace", newline="")
            reader = csv.reader(text, delimiter=self.separator)
            filled = (reader.line_num for fields in reader if fields)
            next(filled, None)  # the header
            found = next(itertools.islice(filled, row, None), None)
        return f"row {row + 1}" if found is None else f"line {found}"


def _reading_type(guessed: Any, kind: str | None) -> Any:
    """Whole numbers may turn out to have fractions later; a column empty so far may hold anything."""
    import pyarrow as pa

    if kind == "number":
        return pa.float64()
    if kind == "category" or pa.types.is_null(guessed) or pa.types.is_binary(guessed):
        return pa.string()
    return pa.float64() if pa.types.is_integer(guessed) else guessed
