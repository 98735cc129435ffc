"""The files of a table: trials that survive a kill, processes that write at once, curves of several settings."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from experiments import EXPERIMENTS
from experiments.engine.cells import Cell, Condition, Experiment, Named, settings_key, texts
from experiments.engine.curves import all_arrays, gather_arrays, group_name, keep_arrays, read_arrays
from experiments.engine.provenance import note, read_provenance
from experiments.engine.store import Outcome, TrialStore
from steelyard.errors import OutputError


@dataclass(frozen=True)
class Setup(Condition):
    images: str
    rate: float = 0.5
    leak: bool = True
    eta: float | None = None

    @property
    def label(self):
        return f"{self.images} {self.rate}"


EXPERIMENT = Experiment(
    name="two-settings",
    title="",
    explains="",
    settings={},
    data_class=Setup,
    method_class=Named,
    data=lambda settings: [Setup("a"), Setup("b", 0.25, leak=False, eta=0.0)],
    methods=lambda data: [Named("one"), Named("two")],
    sections=lambda summary: [],
    pictures=lambda summary: [],
    job=lambda *arguments: None,
)
OUTCOME = Outcome(0.1 + 0.2, 0.125, "2026-01-31")


def cell(trial=0, name="one"):
    return Cell(Setup("a"), Named(name), trial)


def store_in(folder, settings=None, seed=0):
    return TrialStore(folder, EXPERIMENT, settings or {}, seed)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_cells_are_identified_by_ascii_fields_that_are_read_back(name):
    experiment = EXPERIMENTS[name]
    assert len(set(experiment.columns)) == len(experiment.columns)
    groups = experiment.groups(experiment.settled({}))
    rows = [[*texts(data), *texts(method)] for data, method in groups]
    assert [experiment.conditions(row) for row in rows] == groups
    assert len({tuple(row) for row in rows}) == len(groups)
    assert len({(data.label, method.label) for data, method in groups}) == len(groups)
    assert all(text.isascii() and not set(text) & set(',"\n/;') for row in rows for text in row)


def test_what_was_stored_is_read_back_exactly(tmp_path):
    store = store_in(tmp_path)
    cells = EXPERIMENT.cells({}, range(3))
    for each in cells:
        store.put(each, OUTCOME)
    assert store_in(tmp_path).outcomes() == dict.fromkeys(cells, OUTCOME)
    header = (tmp_path / "trials.csv").read_text().splitlines()[0]
    assert header == "settings,seed,images,rate,leak,eta,method,trial,error,seconds,date"


def test_the_store_keeps_settings_and_seeds_apart(tmp_path):
    store_in(tmp_path, {"rule": "best"}).put(cell(), OUTCOME)
    assert store_in(tmp_path, {"rule": "best"}).outcomes() == {cell(): OUTCOME}
    for settings, seed in (({"rule": "best"}, 1), ({"rule": "other"}, 0)):
        assert store_in(tmp_path, settings, seed).outcomes() == {}
    assert settings_key({"a": 1, "b": 2}) == settings_key({"b": 2, "a": 1})


def test_a_torn_last_line_is_dropped_and_cut_off(tmp_path):
    """A kill may leave any part of the last line, and of the header of a new file."""
    path = tmp_path / "trials.csv"
    store = store_in(tmp_path)
    store.put(cell(0), OUTCOME)
    one = path.read_bytes()
    store.put(cell(1), OUTCOME)
    two = path.read_bytes()
    store.put(cell(2), OUTCOME)
    for length in range(len(two)):
        path.write_bytes(two[:length])
        whole = {cell(0): OUTCOME} if length >= len(one) else {}
        assert store.outcomes() == whole
        store.put(cell(1), OUTCOME)
        assert store.outcomes() == {**whole, cell(1): OUTCOME}
        assert path.read_bytes().count(b"\n") == 2 + len(whole)


def test_a_line_that_is_torn_inside_the_file_is_an_error(tmp_path):
    store = store_in(tmp_path)
    store.put(cell(), OUTCOME)
    with open(tmp_path / "trials.csv", "a") as file:
        file.write("x,y\n")
    with pytest.raises(OutputError, match="line 3, has 2 fields instead of 11"):
        store.outcomes()


def test_a_file_of_other_columns_is_not_written_to(tmp_path):
    (tmp_path / "trials.csv").write_text("data,method\n")
    with pytest.raises(OutputError, match="has the columns data,method"):
        store_in(tmp_path).outcomes()


def test_tidy_lines_do_not_depend_on_the_order_of_computation(tmp_path):
    cells = EXPERIMENT.cells({}, range(11))
    for name, order in (("forward", cells), ("backward", [*cells[::-1], *cells[:3]])):
        for each in order:
            store_in(tmp_path / name).put(each, OUTCOME)
        store_in(tmp_path / name).tidy()
    forward, backward = ((tmp_path / name / "trials.csv").read_bytes() for name in ("forward", "backward"))
    assert forward == backward
    assert forward.count(b"\n") == len(cells) + 1
    trials = [line.split(b",")[-4] for line in forward.splitlines()[1:12]]
    assert trials == [str(k).encode() for k in range(11)]  # as numbers, not as texts


WRITER = """
import sys
from pathlib import Path
from tests.experiments.test_store import OUTCOME, cell, store_in
store = store_in(Path(sys.argv[1]), seed=int(sys.argv[2]))
for trial in range(100):
    store.put(cell(trial, "one"), OUTCOME)
    if trial % 10 == 0:
        store.tidy()
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(seed)]) for seed in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    for seed in range(2):
        assert store_in(tmp_path, seed=seed).outcomes() == {cell(trial): OUTCOME for trial in range(100)}
    assert (tmp_path / "trials.csv").read_bytes().count(b"\n") == 201


def test_two_settings_in_one_folder_keep_both_curves(tmp_path):
    curves = {rule: np.full((2, 3, 1), value, np.float32) for rule, value in (("best", 0.25), ("other", 0.75))}
    data, method = EXPERIMENT.groups({})[1]
    for gathered in (False, True):
        for rule, values in curves.items():
            group = group_name(settings_key({"rule": rule}), 0, data, method)
            keep_arrays(tmp_path, group, {"curves": values, "trials": np.array([0, 1])})
        if gathered:
            gather_arrays(tmp_path)
            assert not list((tmp_path / ".work").glob("*.npz"))
        for rule, values in curves.items():
            found = all_arrays(tmp_path, EXPERIMENT, {}, settings_key({"rule": rule}), 0)
            assert found.keys() == {(data, method)}
            np.testing.assert_array_equal(found[data, method]["curves"], values)


def test_gathered_arrays_replace_those_of_their_group_alone(tmp_path):
    first, second = (group_name("abc", 0, Setup("a"), Named(name)) for name in ("one", "two"))
    keep_arrays(tmp_path, first, {"curves": np.zeros((1, 2, 1)), "old": np.ones(2)})
    keep_arrays(tmp_path, second, {"curves": np.ones((1, 2, 1))})
    gather_arrays(tmp_path)
    before = (tmp_path / "curves.npz").read_bytes()
    gather_arrays(tmp_path)
    assert (tmp_path / "curves.npz").read_bytes() == before
    keep_arrays(tmp_path, first, {"curves": np.full((2, 2, 1), 0.5)})
    np.testing.assert_array_equal(read_arrays(tmp_path, first)["curves"], np.full((2, 2, 1), 0.5))  # of the work
    gather_arrays(tmp_path)
    assert read_arrays(tmp_path, first).keys() == {"curves"}
    np.testing.assert_array_equal(read_arrays(tmp_path, second)["curves"], np.ones((1, 2, 1)))
    assert read_arrays(tmp_path, group_name("other", 0)) is None


def test_stored_accuracies_are_those_of_the_test_rows(tmp_path):
    """Shares of 10,000 and of 2,000 rows come back as the same numbers."""
    shares = np.concatenate([np.arange(10001) / 10000, np.arange(2001) / 2000]).astype(np.float32)
    keep_arrays(tmp_path, "group", {"curves": shares})
    np.testing.assert_array_equal(read_arrays(tmp_path, "group")["curves"], shares)


def test_provenance_has_every_settings_and_every_environment(tmp_path):
    for rule, python in (("best", "3.11"), ("best", "3.12"), ("best", "3.11"), ("other", "3.12")):
        settings = {"rule": rule}
        note(tmp_path, "toy", settings_key(settings), 0, settings, {"environment": {"python": python}})
    best = settings_key({"rule": "best"})
    note(tmp_path, "toy", best, 0, {"rule": "best"}, {"page": "README.md"})
    found = read_provenance(tmp_path)["settings"]
    assert {about["values"]["rule"] for about in found.values()} == {"best", "other"}
    story = found[best]["seeds"]["0"]
    assert story == {"page": "README.md", "computed_with": [{"python": "3.11"}, {"python": "3.12"}]}
