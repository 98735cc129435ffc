"""Files that hold tables; pipes and standard input, which can be read once only, are copied first."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from steelyard.errors import TableError

STANDARD_INPUT = (Path("-"), Path("/dev/stdin"), Path("/dev/fd/0"), Path("/proc/self/fd/0"))


@dataclass(frozen=True)
class TableFile:
    """A file that can be read more than once.

    Attributes
    ----------
    path : Path
        Where it is.
    name : str
        What the user called it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from steelyard.tables import TableFile
    >>> TableFile(Path("/tmp/copy"), "/dev/stdin").name
    '/dev/stdin'
    """

    path: Path
    name: str

    @classmethod
    def copied(cls, path: Path, copy: Path) -> TableFile:
        """A pipe or standard input, copied to a file."""
        if path.is_dir():
            raise TableError(f"{path}: this is a folder. Give a CSV or Parquet file.")
        if path == Path("-") and sys.stdin.isatty():
            raise TableError("-: standard input is a terminal. Send a table into it, for example with <.")
        with open(copy, "wb") as out:
            if path == Path("-"):
                shutil.copyfileobj(sys.stdin.buffer, out)
            else:
                with open(path, "rb") as stream:
                    shutil.copyfileobj(stream, out)
        return cls(copy, "standard input" if path in STANDARD_INPUT else str(path))

    def head(self, n_bytes: int) -> bytes:
        """Its first bytes."""
        with open(self.path, "rb") as file:
            return file.read(n_bytes)


@contextmanager
def regular_files(*paths: Path) -> Iterator[tuple[TableFile, ...]]:
    """Files as they are; pipes and standard input (also ``-``) as temporary copies.

    Parameters
    ----------
    paths : Path
        What the user gave.

    Returns
    -------
    context manager
        It gives a tuple of `TableFile`, and deletes the copies at its end.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from steelyard.tables import regular_files
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("age\\n31\\n")
    ...     with regular_files(path) as (file,):
    ...         file.path == path
    True
    """
    once = [path for path in paths if path in STANDARD_INPUT or (path.exists() and not path.is_file())]
    streams = ["standard input" if path in STANDARD_INPUT else str(path.resolve()) for path in once]
    if len(set(streams)) < len(streams):
        raise TableError(
            f"{streams[0]}: source and target are one stream, which can be read once only. Give one of them as a file."
        )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if once else Path()
        yield tuple(
            TableFile.copied(path, folder / str(i)) if path in once else TableFile(path, str(path))
            for i, path in enumerate(paths)
        )
