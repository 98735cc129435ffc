"""Examples in docstrings are tests; those of an optional part are skipped where its package is not installed."""

from importlib.util import find_spec

OPTIONAL = {
    "torch": [
        "src/steelyard/deep/*",
        "src/steelyard/causal/*",
        "src/steelyard/_numerics/torch_*.py",
        "src/steelyard/ratio/_device.py",
        "tests/deep/*_under_torchrun.py",
    ],
    "lightning": ["src/steelyard/deep/lightning/*"],
    "transformers": ["src/steelyard/deep/transformers/*"],
    "numba": ["src/steelyard/deep/_matching/line.py", "src/steelyard/deep/_matching/pair_quantile.py"],
    "pyvinecopulib": ["src/steelyard/baselines/copula.py"],
    "dask": ["src/steelyard/tables/dask_rows.py"],
    "clarabel": ["src/steelyard/baselines/discrepancy.py"],
    "triton": ["src/steelyard/deep/_matching/triton_*.py"],
}
collect_ignore_glob = [name for package, names in OPTIONAL.items() if find_spec(package) is None for name in names]
