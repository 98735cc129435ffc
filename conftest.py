"""Examples in docstrings are tests; those of an optional part are skipped where its package is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/steelyard/deep/*"]
