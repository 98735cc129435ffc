"""The page of errors has an entry for every class, and messages point at entries that exist."""

import contextlib
import importlib
import inspect
import pickle
import pkgutil
import re
from pathlib import Path

import pytest

import steelyard
from steelyard import errors

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
ENTRIES = dict(re.findall(r"(?ms)^### (\w+)\n(.*?)(?=^##|\Z)", PAGE))
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.SteelyardError | errors.SteelyardWarning)
}


def test_every_class_has_an_entry_and_every_entry_a_class():
    assert sorted(ENTRIES) == sorted(CLASSES)


def test_all_classes_are_in_the_module_of_errors():
    for module in pkgutil.walk_packages(steelyard.__path__, "steelyard."):
        # A class of a package that needs what is not installed is seen where that is.
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)
    known, found = set(CLASSES.values()), {errors.SteelyardError, errors.SteelyardWarning}
    while found:
        assert found <= known
        found = {each for cls in found for each in cls.__subclasses__() if each.__module__.startswith("steelyard")}


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_an_entry_has_a_meaning_a_cause_a_real_message_and_a_remedy(name):
    parts = ("**What it means.**", "**Usual cause.**", "```python", "```text", "**What to do.**")
    places = [ENTRIES[name].find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_message_ends_with_an_entry_that_exists_and_survives_pickling(name):
    raised = CLASSES[name]("What came.")
    again = pickle.loads(pickle.dumps(raised))
    assert (type(again), again.args, str(again)) == (type(raised), ("What came.",), str(raised))
    assert raised.message == "What came."
    place = re.fullmatch(r"What came\.(?: See errors\.html#(\w+) in the documentation\.)?", str(raised))
    assert place is not None
    assert (place[1] is not None) == raised.more_in_docs
    if raised.more_in_docs:
        assert place[1] in {entry.lower() for entry in ENTRIES}


def test_messages_that_need_more_room_say_where_it_is():
    for cls in (errors.NoOverlapError, errors.ConvergenceError, errors.RawMeanWarning, errors.TruncationWarning):
        assert cls.more_in_docs
    assert not errors.ParameterError.more_in_docs
