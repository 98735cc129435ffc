"""Files and folders that appear whole or not at all and take nothing from their owner, and CSV that is no program.

Nothing is written over an input. A file that is there already needs `overwrite`, and so does a folder with anything in
it, unless the same command made it: every folder holds ``run.json``, which names the command and the SHA-256 of each of
its files. What else lies in a folder stays there.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from steelyard.errors import OutputError

NEGATIVE = re.compile(r"-\d+(\.\d+)?")  # a number is no formula
ASKED = ("fit",)  # commands that replace their own files with --overwrite alone: a model may be in use
MARK = "run.json"
# A folder in the folder: files that are written and whole, and count already, but are not all in their places yet.
PENDING = ".steelyard-pending"
# In the names of folders in which files are being written; after so many seconds nobody is.
STAGED = ".steelyard-staged-"
ABANDONED = 3600.0


def check_file(out: Path, *inputs: Path, overwrite: bool = False) -> None:
    """An error for a file that must not be written: it is an input, is no plain file, or is there already."""
    _check_apart(out, inputs)
    if out.exists() and not out.is_file():
        raise OutputError(f"{out} is no plain file. Give the name of a file with --out.")
    if os.path.lexists(out) and not overwrite:
        raise OutputError(f"{out} exists already. Give another name with --out, or --overwrite to replace it.")


def _check_apart(out: Path, inputs: Iterable[Path]) -> None:
    """An error for an output that is an input, by whatever path or link."""
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise OutputError(f"{out} is an input, and not even --overwrite writes over it. Give another --out.")


def write_file(out: Path, content: str | bytes, *inputs: Path, overwrite: bool = False) -> None:
    """Write a file whole, where `check_file` finds nothing against it."""
    check_file(out, *inputs, overwrite=overwrite)
    write_whole(out, content)


def write_file_in_parts(out: Path, parts: Iterable[str], *inputs: Path, overwrite: bool = False) -> None:
    """Like `write_file`, of parts that are not all in memory."""
    check_file(out, *inputs, overwrite=overwrite)
    write_whole(out, parts)


def write_whole(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a file beside its place and move it there: a reader never sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, [_bytes(content)] if isinstance(content, str | bytes) else map(_bytes, content))
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error}). Give a folder that can be written with --out."
        ) from error


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


def _write(path: Path, parts: Iterable[bytes]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def check_folder(folder: Path, names: Collection[str], *inputs: Path, made_by: str, overwrite: bool = False) -> None:
    """An error, before long work and again before writing, if files of these names must not be written there.

    Parameters
    ----------
    inputs : files that are read in the same call.
    made_by : the command that writes. Without `overwrite` it replaces no files but its own, and those of a fit not
        even then.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file. Give another folder with --out.")
    parent = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
    if not os.access(parent, os.R_OK | os.W_OK | os.X_OK):
        raise OutputError(f"{parent} cannot be written. Give another folder with --out.")
    for path in (folder / name for name in (*names, MARK)):
        _check_apart(path, inputs)
        if path.is_dir():
            raise OutputError(f"{path} is a folder where a file must go. Give another folder with --out.")
    if not overwrite and folder.is_dir():
        _check_own(folder, names, made_by)


def _check_own(folder: Path, names: Iterable[str], made_by: str) -> None:
    """An error for a folder that holds anything and was made by someone else, or changed where it would be replaced."""
    if all(name.startswith(STAGED) for name in os.listdir(folder)):
        return
    advice = "Give another folder with --out, or --overwrite to write there; what has other names stays."
    maker: str | None = None
    digests: Mapping[str, Any] = {}
    with suppress(OSError, ValueError, KeyError, TypeError):  # nothing says that a command made the folder
        mark = json.loads(read_file(folder, MARK))
        maker, digests = str(mark["made_by"]), dict(mark["files"])
    if maker != made_by:
        whose = f"made by steelyard {maker}" if maker else f"not made by steelyard {made_by}"
        raise OutputError(f"{folder} holds files already and was {whose}. {advice}")
    if made_by in ASKED:
        raise OutputError(
            f"{folder} holds a run of steelyard {made_by} already. Give another folder with --out, or --overwrite to "
            "replace it; what has other names stays."
        )
    for name in names:
        try:
            as_left = _digest(read_file(folder, name)) == digests.get(name)
        except OSError as error:
            as_left = isinstance(error, FileNotFoundError)
        if not as_left:
            raise OutputError(f"{folder / name} is not as steelyard {made_by} left it. {advice}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_file(folder: Path, name: str) -> bytes:
    """A file of the run in a folder: where a replacement was cut short, the new one, though it is not in place yet."""
    try:
        return (folder / PENDING / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return (folder / name).read_bytes()


def write_folder(
    folder: Path, files: Mapping[str, str | bytes], *inputs: Path, made_by: str, overwrite: bool = False
) -> None:
    """Write the files of a run so that all of them count, or none; see `check_folder` for what is refused.

    A new folder is filled beside its place and appears by one rename. A folder that is there already keeps its place
    and whatever else lies in it (it may be the current one, or a mount): the new files are written into a folder within
    it, one rename to `PENDING` makes all of them count at once, and then each is moved to its place. Killed before that
    rename, the old run is whole; killed after it, `read_file` gives the new one, and the next call moves the rest.
    """
    check_folder(folder, files, *inputs, made_by=made_by, overwrite=overwrite)
    data = {name: _bytes(content) for name, content in files.items()}
    mark = {"made_by": made_by, "files": {name: _digest(content) for name, content in sorted(data.items())}}
    data[MARK] = (json.dumps(mark, indent=2, ensure_ascii=False) + "\n").encode()
    # Remove what killed processes left, once it is so old that nobody can be writing there.
    for place, prefix in ((folder, STAGED), (folder.parent, f".{folder.name}{STAGED}")):
        with suppress(OSError):
            for path in [place / name for name in os.listdir(place) if name.startswith(prefix)]:
                if time.time() - path.stat().st_mtime > ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)
    try:
        if folder.exists():
            with _staged(folder, STAGED, data) as staged:
                _settle(folder)
                os.replace(staged, folder / PENDING)
                _settle(folder)
        else:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _staged(folder.parent, f".{folder.name}{STAGED}", data) as staged:
                os.replace(staged, folder)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be written ({error}). Give a folder that can be written with --out."
        ) from error


@contextmanager
def _staged(place: Path, prefix: str, files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder with files, to be renamed."""
    staged = place / f"{prefix}{secrets.token_hex(4)}"
    staged.mkdir()
    try:
        for name, data in files.items():
            _write(staged / name, [data])
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _settle(folder: Path) -> None:
    """Move files that count already to their places. Another process may be doing the same."""
    pending = folder / PENDING
    if pending.is_symlink():  # a folder from elsewhere must not make us move what it points at
        return
    with suppress(FileNotFoundError):
        for name in os.listdir(pending):
            with suppress(FileNotFoundError):
                os.replace(pending / name, folder / name)
    with suppress(OSError):
        pending.rmdir()


def csv_text(header: Sequence[str] | None, rows: Iterable[Sequence[Any]]) -> str:
    """CSV whose text cells cannot start a formula: those get a leading apostrophe. None: no header line."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if header is not None:
        writer.writerow([_defused(name) for name in header])
    writer.writerows([_defused(value) for value in row] for row in rows)
    return file.getvalue()


def _defused(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") and not NEGATIVE.fullmatch(value):
        return "'" + value
    return value
