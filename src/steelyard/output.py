"""Files that appear whole or not at all, and CSV that a spreadsheet cannot run."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from steelyard.errors import OutputError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file beside its place and move it there: a reader never sees half of it."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error}). Give a folder that can be written with --out."
        ) from error


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV whose text cells cannot start a formula: those get a leading apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_defused(name) for name in header])
    writer.writerows([_defused(value) for value in row] for row in rows)
    return file.getvalue()


def _defused(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
