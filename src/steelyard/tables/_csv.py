"""A CSV file: its encoding, its separator, its header, and its rows as text in blocks."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steelyard.errors import ColumnMismatchError, TableError
from steelyard.tables._header import check_header
from steelyard.tables.frame import check_names
from steelyard.tables.missing import SIGNS, SIGNS_AMONG_NUMBERS

BLOCK_BYTES = 4 * 2**20
HEAD_BYTES = 2**20


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
    name : str
        What it is called in errors.
    """

    def __init__(self, path: Path, head: bytes, name: str) -> None:
        self.path, self.head, self.name = path, head, name
        self.encoding = self._guess_encoding()
        self.separator, self.decimal_point = self._guess_separators()

    def _guess_encoding(self) -> str:
        if self.head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return "utf-16"
        if b"\0" in self.head:
            raise TableError(
                f"{self.name}: this is a binary file, not a CSV or Parquet table (byte {self.head.index(0)} is zero)."
            )
        try:
            self.head[: self.head.rfind(b"\n") + 1 or len(self.head)].decode("utf-8")
        except UnicodeDecodeError:
            return "latin-1"
        return "utf-8"

    def _guess_separators(self) -> tuple[str, str]:
        """Commas; where the header has none, its semicolons, tabs or bars, with decimal commas if rows have some."""
        header, _, rows = self.head.decode(self.encoding, errors="replace").partition("\n")
        separator = max((";", "\t", "|"), key=header.count)
        if "," in re.sub(r"(^|[;\t|])\s*[+-]?\d+,\d+\s*(?=[;\t|\r]|$)", "", header) or separator not in header:
            return ",", "."
        field = rf'(?m)(?:^|[{separator}])[ "]*[+-]?\d+%s\d+[ "]*(?=[{separator}\r]|$)'
        comma = re.search(field % ",", rows) is not None and re.search(field % "[.]", rows) is None
        return separator, "," if comma else "."

    def batches(self) -> Iterator[Any]:
        """Arrow tables of rows, all of them text. A file that is in memory as a whole is not opened again."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        options = self._options()
        try:
            first = self._first_rows(options)
            names = [name.strip() for name in first.column_names]
            check_header(names, first, self.decimal_point, self.name)
            check_names(names, self.name)
            text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(first.column_names, pa.string()))
            place = pa.BufferReader(self.head) if len(self.head) < HEAD_BYTES else self.path
            with arrow_csv.open_csv(place, **options, convert_options=text) as reader:
                yield pa.Table.from_batches([], reader.schema).rename_columns(names)  # also where there is no row
                for batch in reader:
                    yield pa.Table.from_batches([batch]).rename_columns(names)
        except pa.ArrowInvalid as error:
            raise self._explained(error) from error

    def numbers(self, columns: Sequence[str] | None) -> Iterator[Any]:
        """Arrow batches of the columns that were asked for (None: all), all of them numbers."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        options = self._options()
        try:
            first = self._first_rows(options)
            check_header([name.strip() for name in first.column_names], first, self.decimal_point, self.name)
            stored = {name.strip(): name for name in first.column_names}
            check_names(list(stored), self.name)
            lacking = [name for name in columns or () if name not in stored]
            if lacking:
                raise ColumnMismatchError(f"{self.name}: there are no columns {lacking}.")
            read = [stored[name] for name in columns or stored]
            convert = arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(read, pa.float64()),
                include_columns=read,
                null_values=["", *SIGNS, *SIGNS_AMONG_NUMBERS],
                decimal_point=self.decimal_point,
            )
            with arrow_csv.open_csv(self.path, **options, convert_options=convert) as reader:
                for batch in reader:
                    yield batch.rename_columns(list(columns or stored))
        except pa.ArrowInvalid as error:
            text = re.search(r"In CSV column #(\d+): .*invalid value '(.*)'", str(error))
            if text:
                raise TableError(
                    f"{self.name}: {text[2]!r} in column {int(text[1]) + 1} is not a number, and every column must be "
                    "numeric. Leave the column out (TableBlocks(path, columns=[...])), or use `steelyard weigh`, which "
                    "reads text."
                ) from error
            raise self._explained(error) from error

    def _options(self) -> dict[str, Any]:
        from pyarrow import csv as arrow_csv

        # No invalid_row_handler: a thread that holds a Python function may outlive the interpreter, which then aborts.
        return {
            "read_options": arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, encoding=self.encoding),
            "parse_options": arrow_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
        }

    def _first_rows(self, options: dict[str, Any]) -> Any:
        """The first rows with the types that they have."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        signs = ["", *SIGNS, *SIGNS_AMONG_NUMBERS]
        convert = arrow_csv.ConvertOptions(null_values=signs, decimal_point=self.decimal_point)
        head = self.head if len(self.head) < HEAD_BYTES else self.head[: self.head.rfind(b"\n") + 1]
        try:
            with arrow_csv.open_csv(pa.BufferReader(head), **options, convert_options=convert) as reader:
                return pa.Table.from_batches(itertools.islice(reader, 1), reader.schema)
        except (pa.ArrowInvalid, UnicodeDecodeError):  # the first bytes may end within quotes, or within a character
            with arrow_csv.open_csv(self.path, **options, convert_options=convert) as reader:
                return pa.Table.from_batches(itertools.islice(reader, 1), reader.schema)

    def _explained(self, error: Exception) -> Exception:
        text = str(error)
        ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text)
        if ragged:
            row, expected, got = map(int, ragged.groups())
            # Rows are counted from the header on.
            return TableError(f"{self.name}, {self.place(row - 2)}: {got} fields where the header has {expected}.")
        if "invalid UTF8" in text and self.encoding == "utf-8":
            return OtherEncoding()
        return TableError(f"{self.name}: this cannot be read as a CSV table ({text}).")

    def place(self, row: int) -> str:
        """Where a row, counted from 0, is in the file: quoted line ends and blank lines count as lines."""
        with open(self.path, "rb") as file:
            text = io.TextIOWrapper(file, encoding=self.encoding, errors="replace", newline="")
            reader = csv.reader(text, delimiter=self.separator)
            filled = (reader.line_num for fields in reader if fields)
            next(filled, None)  # the header
            found = next(itertools.islice(filled, row, None), None)
        return f"row {row + 1}" if found is None else f"line {found}"
