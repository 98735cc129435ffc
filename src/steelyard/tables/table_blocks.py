"""CSV and Parquet files of numbers as blocks of rows, for fits that stream."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steelyard.errors import ColumnMismatchError, InputError, TableError
from steelyard.tables._csv import HEAD_BYTES, CsvFile
from steelyard.tables.frame import check_names

# Blocks of a Parquet file: whole row groups read ahead would take ten times the memory, and no less time.
BLOCK_ROWS, BUFFER_BYTES = 32_768, 2**16


class TableBlocks:
    """A Parquet file, a folder of Parquet files or a CSV file, as blocks of rows that can be read again and again.

    Estimators take a path as well; this class selects columns. Memory does not grow with the number of rows.

    Parameters
    ----------
    path : str or path
        The file or folder. The files of a folder are read in the order of their names.
    columns : list of str, default=None
        The columns to read; None reads all. They have to be numeric.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from steelyard import ULSIF, TableBlocks
    >>> from steelyard.datasets import gaussian_pair
    >>> pair = gaussian_pair(200, 200, 1, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "source.csv"
    ...     _ = path.write_text("id,x\\n" + "".join(f"{i},{x}\\n" for i, x in enumerate(pair.X[:, 0])))
    ...     blocks = TableBlocks(path, columns=["x"])
    ...     target = [pair.X_target]
    ...     [batch.num_rows for batch in blocks]
    [200]
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> None:
        self.path, self.columns = Path(path), None if columns is None else list(columns)
        if self.path.is_dir():
            self.files = sorted(file for file in self.path.rglob("*.parquet") if file.is_file())
            if not self.files:
                raise TableError(f"{self.path}: the folder holds no Parquet files (*.parquet).")
        elif self.path.is_file():
            self.files = [self.path]
        else:
            raise TableError(f"{self.path}: there is no such file or folder.")

    def __iter__(self) -> Iterator[Any]:
        for file in self.files:
            with open(file, "rb") as stream:
                head = stream.read(HEAD_BYTES)
            if head[:4] == b"PAR1":
                yield from self._parquet(file)
            elif not head.strip():
                raise TableError(f"{file}: the file is empty. A header line and at least one row are needed.")
            else:
                yield from CsvFile(file, head, str(file)).numbers(self.columns)

    def _parquet(self, file: Path) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as table:
                names = table.schema_arrow.names
                check_names(names, str(file))
                lacking = [name for name in self.columns or () if name not in names]
                if lacking:
                    raise ColumnMismatchError(f"{file}: there are no columns {lacking}.")
                for batch in table.iter_batches(BLOCK_ROWS, columns=self.columns, use_threads=False):
                    # The order is that of `columns`, not that of the file.
                    yield batch if self.columns is None else batch.select(self.columns)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, InputError):
                raise
            raise TableError(f"{file}: this cannot be read as a Parquet file ({error}).") from error
