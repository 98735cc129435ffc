"""The package as a whole: what importing does, what is public."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

import steelyard

ROOT = Path(__file__).parent.parent


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_loads_nothing_heavy():
    heavy = ["torch", "piqp", "pyarrow", "matplotlib", "skops", "typer", "rich", "jinja2", "pandas", "polars", "dask"]
    loaded = python(f"import steelyard, sys; print([m for m in {heavy} if m in sys.modules])")
    # scikit-learn itself may load pandas where it is installed; only what we add counts.
    by_sklearn = python(
        "import sklearn.model_selection, sklearn.ensemble, sklearn.compose, scipy.optimize, sys;"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert loaded == by_sklearn


# Imported and not declared: Triton comes with PyTorch where it can run, and `steelyard.deep` does without it elsewhere.
BROUGHT_BY = {"triton": "torch"}


def imported(path):
    """Names of the packages that a file imports, at its top or anywhere below."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def test_what_is_imported_is_declared():
    """A package that only comes with some version of another is missing on a fresh machine with the next version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    declared = {re.match(r"[\w.-]+", line).group() for line in project["dependencies"] + extras}
    names = {name for path in (ROOT / "src").rglob("*.py") for name in imported(path)}
    theirs = {name.replace("sklearn", "scikit-learn") for name in names - {*sys.stdlib_module_names, "steelyard"}}
    assert {name for name in theirs if BROUGHT_BY.get(name, name) not in declared} == set()


def test_importing_changes_no_global_setting():
    same = python(
        "import sklearn, numpy as np, warnings, logging, os, scipy.linalg, threadpoolctl\n"
        "def state():\n"
        "    return (sklearn.get_config(), np.geterr(), list(warnings.filters), logging.root.level,"
        " dict(os.environ), repr(np.random.get_state()), repr(threadpoolctl.threadpool_info()))\n"
        "import sklearn.model_selection, sklearn.ensemble\n"
        "before = state()\n"
        "import steelyard\n"
        "print(before == state())"
    )
    assert same == "True\n"


def test_fitting_gives_blas_its_threads_back():
    import threadpoolctl

    before = [info["num_threads"] for info in threadpoolctl.threadpool_info()]
    rng = np.random.default_rng(0)
    steelyard.ULSIF(random_state=0).fit(rng.normal(size=(50, 2)), target=rng.normal(0.3, 1, size=(50, 2)))
    assert [info["num_threads"] for info in threadpoolctl.threadpool_info()] == before


def test_public_names():
    for name in steelyard.__all__:
        assert getattr(steelyard, name).__doc__, name
    assert sorted(steelyard.__all__) == sorted(set(steelyard.__all__))
    readme = (ROOT / "README.md").read_text()
    undocumented = [
        name
        for name in steelyard.__all__
        if name not in readme and name not in ("Certificate", "effective_sample_size")
    ]
    assert undocumented == []


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", steelyard.__version__)
