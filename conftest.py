"""Examples in docstrings are tests; those of an optional part are skipped where its package is not installed."""

from importlib.util import find_spec

OPTIONAL = {
    "torch": "src/steelyard/deep/*",
    "numba": "src/steelyard/deep/line.py",
    "triton": "src/steelyard/deep/kernel.py",
}
collect_ignore_glob = [files for package, files in OPTIONAL.items() if find_spec(package) is None]
