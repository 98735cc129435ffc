"""Files of a table that several processes may write: one lock, whole files by renaming, whole lines by appending."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steelyard.errors import OutputError

WORK = ".work"


def work_folder(folder: Path) -> Path:
    """The folder of checkpoints and half-done work of a table, which git ignores."""
    return folder / WORK


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The files of a table are this process's alone; what cannot be written is an `OutputError`."""
    try:
        work_folder(folder).mkdir(parents=True, exist_ok=True)
        with open(work_folder(folder) / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also by a kill
            yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"Results cannot be written to {folder} ({error}). Give a folder that can be written with --out; trials "
            "that were stored before are safe, and the same command resumes."
        ) from error


def replace_file(path: Path, content: bytes) -> None:
    """The whole content or nothing of it; a file that has this content already is left alone."""
    if path.exists() and path.read_bytes() == content:
        return
    work = path.parent if path.parent.name == WORK else work_folder(path.parent)
    work.mkdir(parents=True, exist_ok=True)
    unfinished = work / f"{path.name}.{os.getpid()}.unfinished"
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def append_line(path: Path, line: str, header: str) -> None:
    """One whole line, durably, after a torn last line was cut off; a new file gets the header. Needs the lock."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            size = os.pread(file, size, 0).rfind(b"\n") + 1
            os.ftruncate(file, size)
        content = (line if size else header + line).encode()
        written = os.write(file, content)
        if written != len(content):
            raise OSError(f"only {written} of {len(content)} bytes could be written to {path}")
        os.fsync(file)
    finally:
        os.close(file)


def whole_lines(path: Path) -> list[str]:
    """Lines of a file, without a torn last one; none where there is no file."""
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    return content[: content.rfind(b"\n") + 1].decode().splitlines()
