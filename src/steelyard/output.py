"""Files that appear whole or not at all, and CSV that a spreadsheet cannot run."""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.errors import OutputError

NEGATIVE = re.compile(r"-\d+(\.\d+)?")  # a number is no formula


def check_apart(out: Path, *inputs: Path) -> None:
    """An error for an output that would overwrite an input."""
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise OutputError(f"--out {out} is an input. Give another name.")


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


def check_folder(folder: Path) -> None:
    """An error before long work, if its results could not be written."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file. Give another folder with --out.")
    parent = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
    if not os.access(parent, os.W_OK):
        raise OutputError(f"{parent} cannot be written. Give another folder with --out.")


def write_folder(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files so that all of them appear, or none.

    They are written beside the folder first. A new folder appears by one rename; in one that is there already each
    file is replaced whole, after all of them have been written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
            staged = Path(name) / "new"
            staged.mkdir()
            for file, content in files.items():
                write_whole(staged / file, content)
            if not folder.exists():
                os.replace(staged, folder)
            else:
                for file in files:
                    os.replace(staged / file, folder / file)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be written ({error}). Give a folder that can be written with --out."
        ) from error


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV whose text cells cannot start a formula: those get a leading apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_defused(name) for name in header])
    writer.writerows([_defused(value) for value in row] for row in rows)
    return file.getvalue()


def _defused(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") and not NEGATIVE.fullmatch(value):
        return "'" + value
    return value
