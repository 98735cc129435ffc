"""Arrays that pages and pictures need beside the errors: curves.npz of a table, for all settings, seeds and groups."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.engine.cells import Arrays, Condition, D, Experiment, M, texts
from experiments.engine.files import locked, replace_file, work_folder
from steelyard._typing import FloatArray

ACCURACY = "curves"  # the array of accuracies, stored as integers
STEPS = 60000  # accuracies on 10,000 and on 2,000 rows are whole multiples of one step
DRAWN = "drawn"  # in place of data and method: arrays of pictures that belong to no group


def group_name(key: str, seed: int, data: Condition | None = None, method: Condition | None = None) -> str:
    """Start of the names of a group's arrays: settings, seed, and the fields of data and method."""
    ends = [DRAWN] if data is None or method is None else [",".join(texts(each)) for each in (data, method)]
    return "/".join([key, str(seed), *ends])


def keep_arrays(folder: Path, group: str, arrays: Mapping[str, Any]) -> None:
    """Keep a group's arrays among the half-done work; `gather_arrays` takes them to curves.npz."""
    with locked(folder):
        stored = {f"{group}/{name}": _stored(name, np.asarray(values)) for name, values in arrays.items()}
        replace_file(work_folder(folder) / f"{group.replace('/', ';')}.npz", _packed(stored))


def gather_arrays(folder: Path) -> None:
    """Take the arrays of the half-done work to curves.npz, whose other arrays stay."""
    with locked(folder):
        files = sorted(work_folder(folder).glob("*.npz"))
        if not files:
            return
        found = _read(folder / "curves.npz")
        for path in files:
            new = _read(path)
            groups = {name.rpartition("/")[0] for name in new}
            found = {name: values for name, values in found.items() if name.rpartition("/")[0] not in groups} | new
        replace_file(folder / "curves.npz", _packed(dict(sorted(found.items()))))
        for path in files:
            path.unlink()


def read_arrays(folder: Path, group: str) -> Arrays | None:
    """The arrays of one group, or None where it was not run."""
    for path in (work_folder(folder) / f"{group.replace('/', ';')}.npz", folder / "curves.npz"):
        found = {
            name.rpartition("/")[2]: values
            for name, values in _read(path, f"{group}/").items()
            if name.rpartition("/")[0] == group
        }
        if found:
            return {name: _restored(name, values) for name, values in found.items()}
    return None


def all_arrays(
    folder: Path, experiment: Experiment[D, M], settings: Mapping[str, Any], key: str, seed: int
) -> dict[tuple[D, M], Arrays]:
    """The arrays of every group of some settings and a seed that was run."""
    found = {}
    for data, method in experiment.groups(settings) if experiment.job is not None else []:
        arrays = read_arrays(folder, group_name(key, seed, data, method))
        if arrays is not None:
            found[data, method] = arrays
    return found


def _stored(name: str, values: Any) -> Any:
    return np.rint(STEPS * values.astype(np.float64)).astype(np.uint16) if name == ACCURACY else values


def _restored(name: str, values: Any) -> Any:
    return (values / STEPS).astype(np.float32) if name == ACCURACY else values


def _read(path: Path, start: str = "") -> dict[str, FloatArray]:
    try:
        with np.load(path) as found:
            return {name: found[name] for name in found.files if name.startswith(start)}
    except FileNotFoundError:
        return {}


def _packed(arrays: Mapping[str, Any]) -> bytes:
    """As numpy's npz; the compression is the strongest, and the bytes depend on the arrays alone."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, values in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(values), allow_pickle=False)
            packed.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED, 9)
    return file.getvalue()
