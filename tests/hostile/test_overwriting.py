"""What the commands write over: never an input, nothing that is not theirs unless told so, and a run only as one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from steelyard.app.atomic_files import write_folder
from steelyard.app.cli import app
from steelyard.app.persistence import TableModel, load_model, model_files
from steelyard.errors import OutputError
from steelyard.tables import as_frame
from steelyard.tables.encoding import learn_encoding

X = np.linspace(-2, 2, 60)
SOURCE = "x,y\n" + "".join(f"{x:.3f},{'yes' if x > 0 else 'no'}\n" for x in X)
TARGET = "x\n" + "".join(f"{x + 0.5:.3f}\n" for x in X)
CSV = {"weights.csv": "row,weight\n1,1.0\n", "predictions.csv": "row,prediction\n1,yes\n"}


def steelyard(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tiny_run(classes=("no", "yes")):
    """The files of a fit that predicts "yes" above 0, whichever class comes first."""
    frame = as_frame(pa.table({"x": X}))
    encoding = learn_encoding(frame, frame)
    rows = encoding.transform(frame)
    y = np.array([classes.index("yes" if x > 0 else "no") for x in X])
    model = LogisticRegression().fit(rows, y)
    about = {"method": "plain", "plain_method": "plain", "kept_plain": True, "measure": "accuracy", "performance": {}}
    files = model_files(TableModel(encoding, model, model, "y", classes, about))
    return {**files, **CSV, "findings.json": json.dumps(classes), "report.html": f"<p>{classes}</p>"}


@pytest.fixture(scope="module")
def run_files():
    return tiny_run()


@pytest.fixture
def place(tmp_path, monkeypatch, run_files):
    """A folder with two tables, in which `steelyard fit` is quick."""
    (tmp_path / "s.csv").write_text(SOURCE)
    (tmp_path / "t.csv").write_text(TARGET)
    quick = SimpleNamespace(files=run_files, model=SimpleNamespace(about={"method": "plain"}))
    monkeypatch.setattr("steelyard.app.commands.fit_tables", lambda *_, **__: quick)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fit(out, *more, source="s.csv", target="t.csv"):
    return steelyard("fit", source, target, "--label", "y", "--out", out, "--quiet", *more)


def refused(said, *messages):
    assert said.exit_code == 2, said.output
    assert len(said.output.strip().splitlines()) == 1
    for message in messages:
        assert message in said.output
    return True


anyhow = pytest.mark.parametrize("more", [(), ("--overwrite",)], ids=["plain", "overwrite"])


@anyhow
def test_fit_never_writes_over_its_inputs(place, more):
    (place / "s.csv").rename(place / "predictions.csv")
    (place / "t.csv").rename(place / "weights.csv")
    before = contents(place)
    for out in (".", place, place / ".." / place.name):
        refused(fit(out, *more, source="predictions.csv", target="weights.csv"), "is an input", "Give another --out")
    assert contents(place) == before


@anyhow
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_an_input_is_known_by_another_name(place, more, link):
    (place / "run").mkdir()
    link(place / "s.csv", place / "run" / "weights.csv")
    refused(fit("run", *more), "is an input")
    link(place / "t.csv", place / "link.csv")
    refused(steelyard("weigh", "s.csv", "t.csv", "--label", "y", "--out", "link.csv", *more), "is an input")
    assert (place / "s.csv").read_text() == (place / "run" / "weights.csv").read_text() == SOURCE
    assert (place / "t.csv").read_text() == TARGET


@anyhow
def test_diagnose_never_writes_over_its_inputs(place, more):
    for name in ("findings.json", "report.html"):
        before = contents(place)
        (place / name).write_text(TARGET)
        refused(steelyard("diagnose", "s.csv", name, "--label", "y", "--out", ".", *more), f"{name} is an input")
        (place / name).unlink()
        assert contents(place) == before


@anyhow
@pytest.mark.parametrize("name", ["model.json", "model.skops", "run.json"])
def test_predict_never_writes_over_its_model(place, more, name):
    assert fit("m").exit_code == 0
    before = contents(place)
    refused(steelyard("predict", "m", "t.csv", "--out", f"m/{name}", *more), "is an input")
    assert contents(place) == before


@pytest.mark.parametrize("command", ["weigh", "predict"])
def test_a_file_that_is_there_is_kept(place, command):
    words = ("s.csv", "t.csv", "--label", "y") if command == "weigh" else ("m", "t.csv")
    assert fit("m").exit_code == 0
    out = place / {"weigh": "weights.csv", "predict": "predictions.csv"}[command]  # the names they have by themselves
    out.write_text("mine")
    refused(steelyard(command, *words), "exists already", "--out", "--overwrite")
    assert out.read_text() == "mine"
    said = steelyard(command, *words, "--overwrite")
    assert said.exit_code == 0, said.output
    assert out.read_text().startswith("row,")


def test_a_file_is_refused_before_anything_is_read(place):
    (place / "there.csv").write_text("mine")
    for words in (("weigh", "nowhere.csv", "nowhere.csv"), ("predict", "nowhere", "nowhere.csv")):
        refused(steelyard(*words, "--out", "there.csv"), "exists already")
        refused(steelyard(*words, "--out", ".", "--overwrite"), "no plain file")
    from steelyard.app.atomic_files import check_file

    with pytest.raises(OutputError, match="no plain file"):
        check_file(Path(os.devnull), overwrite=True)


COMMANDS = {
    "fit": ("fit", "nowhere.csv", "nowhere.csv", "--label", "y"),
    "diagnose": ("diagnose", "nowhere.csv", "nowhere.csv"),
    "demo": ("demo",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_someone_else_is_refused_before_anything_is_read(place, command):
    for name in ("notes.txt", "run.json", "report.html"):
        folder = place / f"with {name}"
        folder.mkdir()
        (folder / name).write_text("{}")
        refused(steelyard(*COMMANDS[command], "--out", folder), f"was not made by steelyard {command}", "--overwrite")
        assert contents(folder) == {name: b"{}"}


@pytest.mark.parametrize("command", ["fit", "diagnose"])
def test_overwrite_leaves_what_has_other_names(place, command):
    run = place / "run"
    (run / "deep").mkdir(parents=True)
    for name in ("notes.txt", "deep/model.json", "report.html"):
        (run / name).write_text("mine")
    said = steelyard(command, "s.csv", "t.csv", "--label", "y", "--out", "run", "--quiet", "--overwrite")
    assert said.exit_code == 0, said.output
    assert (run / "notes.txt").read_text() == (run / "deep" / "model.json").read_text() == "mine"
    assert (run / "report.html").read_text() != "mine"


def test_new_and_empty_folders_need_no_option_and_a_run_is_replaced_as_one(place, run_files):
    (place / "empty").mkdir()
    for out in ("deep/new", "empty"):
        for more in ((), ("--overwrite",)):
            said = fit(out, *more)
            assert said.exit_code == 0, said.output
            assert set(contents(place / out)) == {*run_files, "run.json"}
        (place / out / "notes.txt").write_text("mine")
        (place / out / "more").mkdir()
        (place / out / "more" / "weights.csv").write_text("mine")
        assert fit(out, "--overwrite").exit_code == 0
        assert set(contents(place / out)) == {*run_files, "run.json", "notes.txt", "more/weights.csv"}
        assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_the_current_folder_and_links_are_own_folders_too(place, run_files, monkeypatch):
    assert fit("run").exit_code == 0
    (place / "link").symlink_to("run")
    assert fit("link", "--overwrite").exit_code == 0
    assert (place / "link").is_symlink()
    monkeypatch.chdir(place / "run")
    assert fit(".", "--overwrite", source="../s.csv", target="../t.csv").exit_code == 0
    assert {path.name for path in Path().iterdir()} == {*run_files, "run.json"}


def test_a_folder_of_another_command_is_not_own(place):
    assert fit("run").exit_code == 0
    before = contents(place)
    words = "diagnose", "s.csv", "t.csv", "--label", "y", "--out", "run"
    refused(steelyard(*words), "was made by steelyard fit")
    refused(steelyard("demo", "--out", "run"), "was made by steelyard fit")
    assert contents(place) == before
    assert steelyard(*words, "--overwrite").exit_code == 0
    assert load_model(place / "run").classes == ("no", "yes")
    refused(fit("run"), "was made by steelyard diagnose")


def test_a_run_is_replaced_only_when_asked(place):
    assert fit("run").exit_code == 0
    before = contents(place)
    for out in ("run", "./run"):
        refused(fit(out), "holds a run of steelyard fit already", "--out", "--overwrite")
    assert contents(place) == before
    assert fit("run", "--overwrite").exit_code == 0
    (place / "run" / "model.json").unlink()
    (place / "run" / "model.json").mkdir()
    refused(fit("run", "--overwrite"), "is a folder where a file must go")


@pytest.mark.parametrize("name", ["findings.json", "report.html"])
def test_a_file_that_was_changed_is_not_own(place, name):
    words = "diagnose", "s.csv", "t.csv", "--label", "y", "--out", "found"
    for _ in range(2):
        assert steelyard(*words).exit_code == 0
    (place / "found" / name).write_text("my notes beside every finding")
    refused(steelyard(*words), f"{name} is not as steelyard diagnose left it")
    assert (place / "found" / name).read_text() == "my notes beside every finding"
    (place / "found" / name).unlink()
    assert steelyard(*words).exit_code == 0


def test_what_comes_while_the_fit_runs_is_kept(place, run_files, monkeypatch):
    def slow(*_, **__):
        (place / "run").mkdir()
        (place / "run" / "weights.csv").write_text("mine")
        return SimpleNamespace(files=run_files)

    monkeypatch.setattr("steelyard.app.commands.fit_tables", slow)
    refused(fit("run"), "was not made by steelyard fit")
    assert contents(place / "run") == {"weights.csv": b"mine"}


def test_the_names_that_are_checked_are_those_that_are_written(tmp_path):
    from steelyard.app.commands import FIT_FILES

    (tmp_path / "s.csv").write_text(SOURCE)
    (tmp_path / "t.csv").write_text(TARGET)
    said = fit(tmp_path / "run", source=tmp_path / "s.csv", target=tmp_path / "t.csv")
    assert said.exit_code == 0, said.output
    assert set(contents(tmp_path / "run")) == {*FIT_FILES, "run.json"}


def test_demo_runs_again(tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard.app.demo.N_ROWS", 60)
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        said = steelyard("demo", "--seed", seed)
        assert said.exit_code == 0, said.output
    folder = tmp_path / "steelyard-demo"
    (folder / "town.csv").write_text("mine")
    refused(steelyard("demo"), "town.csv is not as steelyard demo left it")
    refused(fit(folder, source=folder / "town.csv", target=folder / "suburbs.csv"), "was made by steelyard demo")
    assert (folder / "town.csv").read_text() == "mine"


# A process that fits into the same folder again and again, each time in a child that is killed one step later: at
# every file that is opened and everything that is renamed, made, removed or changed. `fit_files` is the command's; only
# the fit itself is replaced by files that are there.
KILLED = """
import os, sys
from pathlib import Path
from types import SimpleNamespace

from rich.progress import Progress
from steelyard.app import commands

STEPS = {"open", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink"}
place, kind = Path(sys.argv[1]), sys.argv[2]
runs = {name: {path.name: path.read_bytes() for path in (place / name).iterdir()} for name in ("old", "new")}
commands.read_pair = lambda *_, **__: (None, None)
commands.require_label = lambda *_: None


def fit(name, out):
    commands.fit_tables = lambda *_, **__: SimpleNamespace(files=runs[name])
    commands.fit_files(Path("s.csv"), Path("t.csv"), "y", "auto", 0, out, Progress(disable=True), overwrite=True)


def fit_and_die(step, out):
    count = 0

    def count_down(event, _):
        nonlocal count
        count += event in STEPS
        if count == step:
            os._exit(9)

    sys.addaudithook(count_down)
    fit("new", out)
    os._exit(0)


for name in ("old", "new"):  # everything is imported before steps are counted
    fit(name, place / "before")
step, code = 0, 9
while code == 9:
    step += 1
    out = place / f"{step:03}" / "run"
    out.parent.mkdir()
    if kind != "absent":
        fit("old", out)
        (out / "notes.txt").write_text("mine")
    if kind == "current":
        os.chdir(out)
    child = os.fork()
    if not child:
        try:
            fit_and_die(step, Path() if kind == "current" else out)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(code)
"""


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """The same model twice, with its classes the other way round."""
    folder = tmp_path_factory.mktemp("runs")
    for name, classes in (("old", ("no", "yes")), ("new", ("yes", "no"))):
        (folder / name).mkdir()
        for file, content in tiny_run(classes).items():
            (folder / name / file).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def killed_runs(exchanged, place, kind):
    """The folders that a refit leaves which is killed at its first step, its second, and so on."""
    for name in ("old", "new"):
        (place / name).symlink_to(exchanged / name)
    done = subprocess.run([sys.executable, "-c", KILLED, place, kind], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(path / "run" for path in place.glob("[0-9]*"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that are killed step by step need fork")
@pytest.mark.parametrize("kind", ["folder", "current", "absent"])
def test_a_refit_killed_anywhere_leaves_one_run_or_the_other(exchanged, tmp_path, monkeypatch, kind):
    frame, truth = as_frame(pa.table({"x": X})), np.where(X > 0, "yes", "no")
    runs = killed_runs(exchanged, tmp_path, kind)
    found = []
    for run in runs:
        model = load_model(run) if run.exists() else None
        assert model is None or np.mean(model.predict(model.encode(frame)) == truth) == 1, run
        found.append("nothing" if model is None else "old" if model.classes == ("no", "yes") else "new")
    before = "nothing" if kind == "absent" else "old"
    n_before = found.count(before)
    assert found == [before] * n_before + ["new"] * (len(found) - n_before)  # one moment decides
    assert n_before > 10
    assert n_before < len(found)
    # The next fit knows the folder as its own, finishes or replaces what was begun, and leaves no trace of it.
    monkeypatch.setattr("steelyard.app.atomic_files.ABANDONED", -1.0)
    expected = {f"run/{path.name}": path.read_bytes() for path in (exchanged / "new").iterdir()}
    files = {name.removeprefix("run/"): data for name, data in expected.items()}
    for run in runs:
        write_folder(run, files, made_by="fit", overwrite=True)
        assert load_model(run).classes == ("yes", "no")
        left = contents(run.parent)
        assert set(json.loads(left.pop("run/run.json"))["files"]) == set(files)
        assert left == (expected if kind == "absent" else {**expected, "run/notes.txt": b"mine"})


def test_a_replacement_cut_short_is_not_led_elsewhere(place, run_files):
    """A folder from elsewhere cannot make a fit move files that a link in it points at."""
    assert fit("run").exit_code == 0
    (place / "run" / ".steelyard-pending").symlink_to(place)
    before = contents(place)
    refused(fit("run"))
    assert contents(place) == before


def test_what_a_killed_process_left_is_removed_when_it_is_old(place, run_files):
    assert fit("run").exit_code == 0
    for name, age in ((".steelyard-staged-1", 7200), (".steelyard-staged-2", 0), ("../.run.steelyard-staged-3", 7200)):
        (place / "run" / name).mkdir()
        (place / "run" / name / "model.json").write_text("{")
        os.utime(place / "run" / name, times=(os.stat(place).st_mtime - age,) * 2)
    assert fit("run", "--overwrite").exit_code == 0
    hidden = {path.name for path in place.rglob(".*")}
    assert hidden == {".steelyard-staged-2"}  # somebody may be writing there
    (place / "other").mkdir()
    (place / "run" / ".steelyard-staged-2").rename(place / "other" / ".steelyard-staged-2")
    assert fit("other").exit_code == 0  # nothing of the owner's is in it
