"""The public interface: packages, their names, one page that lists them, and a docstring that shows each of them."""

import importlib
import inspect
import pkgutil
import re
import runpy
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import steelyard

for package in ("torch", "lightning", "transformers"):
    pytest.importorskip(package, reason=f"{package} is not installed; steelyard.deep is part of the interface")

ROOT = Path(__file__).parent.parent
API = runpy.run_path(str(ROOT / "docs" / "make_api.py"))
# The command line is steelyard.app; it has no Python names of its own.
NOT_LISTED = {"steelyard.app"}


def public_packages():
    """Every package without a leading underscore anywhere in its name."""
    found = ["steelyard"]
    for module in pkgutil.walk_packages(steelyard.__path__, "steelyard."):
        if module.ispkg and not any(part.startswith("_") for part in module.name.split(".")):
            found.append(module.name)
    return found


def names():
    return [(package, name) for package in API["PACKAGES"] for name in importlib.import_module(package).__all__]


def test_every_public_package_is_on_the_page():
    assert sorted(API["PACKAGES"]) == sorted(set(public_packages()) - NOT_LISTED)


def test_the_pages_are_those_of_the_packages():
    for name, text in API["pages"]().items():
        assert (ROOT / "docs" / name).read_text("utf-8") == text, "run: python docs/make_api.py"
    left = {f"api/{path.name}" for path in (ROOT / "docs/api").glob("*.md")} - {*API["pages"]()}
    assert left == set(), "pages of packages that are no longer there"


def test_every_public_name_has_one_page_with_its_own_methods(tmp_path):
    (tmp_path / "steelyard.Gone.rst").write_text("a name of an older version")
    API["write_names"](tmp_path)
    pages = {path.stem: path.read_text("utf-8") for path in tmp_path.iterdir()}
    objects = {id(getattr(importlib.import_module(package), name)) for package, name in names()}
    assert len(pages) == len(objects)
    assert {full.rsplit(".", 1)[1] for full in pages} == {name for _, name in names()}
    listed = re.findall(r"^generated/(.*)", "".join(API["pages"]().values()), re.MULTILINE)
    assert sorted(listed) == sorted(pages)
    assert "autofunction:: diagnose" in pages["steelyard.diagnose"]
    assert "autoclass:: ULSIF\n   :members: fit, partial_fit, predict" in pages["steelyard.ULSIF"]
    assert "set_params" not in pages["steelyard.ULSIF"]


@pytest.mark.parametrize("package", API["PACKAGES"])
def test_all_is_sorted_complete_and_there(package):
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
    own = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
        if value.__module__.startswith("steelyard.") and value.__module__ != "steelyard.errors"
    }
    assert own <= set(module.__all__)


def section(doc, title):
    return re.search(rf"^\s*{title}\n\s*-+$", doc, re.MULTILINE) is not None


def parameters_of(value):
    return [name for name in inspect.signature(value).parameters if name not in ("self", "args", "kwargs")]


@pytest.mark.parametrize(("package", "name"), names())
def test_every_public_name_has_parameters_returns_and_an_example(package, name):
    value = getattr(importlib.import_module(package), name)
    if not callable(value):
        return
    doc = inspect.getdoc(value) or ""
    assert not inspect.isclass(value) or "__doc__" in vars(value), "it has no docstring of its own"
    if is_dataclass(value):
        assert section(doc, "Attributes") or section(doc, "Parameters")
        documented = [field for field in value.__dataclass_fields__ if not field.startswith("_")]
    else:
        documented = parameters_of(value)
        assert not documented or section(doc, "Parameters")
    missing = [
        field for field in documented if not re.search(rf"^\s*[\w, ]*\b{field}\b[\w, ]*( :|$)", doc, re.MULTILINE)
    ]
    assert missing == []
    if inspect.isfunction(value) and inspect.signature(value).return_annotation not in (None, "None"):
        assert section(doc, "Returns")
    assert ">>> " in doc


@pytest.mark.parametrize(("package", "name"), names())
def test_every_public_method_has_a_docstring_with_its_parameters(package, name):
    value = getattr(importlib.import_module(package), name)
    if not inspect.isclass(value):
        return
    for method in ("fit", "predict", "predict_proba", "decision_function", "score", "transform", "partial_fit"):
        function = getattr(value, method, None)
        if function is None or not function.__module__.startswith("steelyard."):
            continue
        doc = inspect.getdoc(function) or ""
        assert section(doc, "Parameters"), method
        assert section(doc, "Returns"), method
