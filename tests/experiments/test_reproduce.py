"""The runner of the survey's tables: streams, store, statistics, errors, and tiny tables from end to end."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

import steelyard
from experiments import EXPERIMENTS, STUDIES, benchmark, choice, coupling, digits, promises, toy
from experiments.__main__ import app
from experiments.engine.cells import Cell, Experiment, Named, settings_key, stream
from experiments.engine.command import Options, Run
from experiments.engine.errors import CellError
from experiments.engine.page import Entry, Section, markdown
from experiments.engine.printed import printed
from experiments.engine.runner import compute, run_missing
from experiments.engine.store import Outcome, TrialStore
from experiments.engine.summary import Summary, best_and_comparable, paired_p_value, summarize
from steelyard.errors import OutputError, ParameterError


def reproduce(*words):
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


def read_csv(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def made_up(value):
    """A table of two methods on one data set whose errors are known."""
    return Experiment(
        name="made-up",
        title="Made up",
        explains="Nothing.",
        settings={},
        data_class=Named,
        method_class=Named,
        data=lambda settings: [Named("numbers")],
        methods=lambda data: [Named("one"), Named("two"), Named("control")],
        compute=value,
        sections=lambda summary: [],
        pictures=lambda summary: [],
        controls=frozenset([Named("control")]),
    )


def of_the_stream(cell, settings, seed):
    return float(stream(seed, cell.data.name, cell.method.name, cell.trial).random())


@pytest.fixture
def drawing():
    """Tables from end to end draw pictures."""
    pytest.importorskip("matplotlib", reason="matplotlib (needed by the pictures of the experiments) is not installed")


@pytest.fixture
def known(monkeypatch):
    experiment = made_up(of_the_stream)
    monkeypatch.setitem(EXPERIMENTS, "made-up", experiment)
    return experiment


# --- random streams and the store ------------------------------------------------------------------------------------


def test_a_stream_depends_on_identity_and_seed_alone():
    assert stream(0, "toy", 3).random() == stream(0, "toy", 3).random()
    others = [stream(1, "toy", 3), stream(0, "toy", 4), stream(0, "benchmark", 3), stream(0, "toy", 3, "fit")]
    assert len({generator.random() for generator in others} | {stream(0, "toy", 3).random()}) == 5


def test_order_and_workers_do_not_change_a_cell(known, tmp_path):
    cells = known.cells({}, range(4))
    forward, backward = (TrialStore(tmp_path / name, known, {}, 0) for name in ("forward", "backward"))
    run_missing(known, cells, {}, 0, forward, jobs=1)
    run_missing(known, cells[::-1], {}, 0, backward, jobs=1)
    errors = [{cell: outcome.error for cell, outcome in store.outcomes().items()} for store in (forward, backward)]
    assert errors[0] == errors[1]
    assert len(errors[0]) == 12


def test_real_cells_are_the_same_in_other_processes(tmp_path):
    experiment = EXPERIMENTS["toy"]
    settings = experiment.settled({})
    cells = [Cell(toy.TOY, toy.Method(name), 1000) for name in ("ERM", "one-step")]
    store = TrialStore(tmp_path, experiment, settings, 0)
    run_missing(experiment, cells, settings, 0, store, jobs=2)
    found = store.outcomes()
    for cell in cells:
        assert found[cell].error == compute("toy", cell, settings, 0).error


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_cells_go_to_the_backend_of_joblib(tmp_path):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (the extra distributed)")
    experiment = EXPERIMENTS["toy"]
    settings = experiment.settled({})
    cells = [Cell(toy.TOY, toy.Method("ERM"), trial) for trial in range(1000, 1004)]
    store = TrialStore(tmp_path, experiment, settings, 0)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask", n_jobs=-1),
    ):
        run_missing(experiment, cells, settings, 0, store, jobs=1)
        used = client.run(lambda: "experiments.toy" in sys.modules)
    assert any(used.values())
    found = store.outcomes()
    for cell in cells:
        assert found[cell].error == compute("toy", cell, settings, 0).error


def test_a_failed_cell_is_named_and_the_others_are_kept(monkeypatch, tmp_path):
    def fails_later(cell, settings, seed):
        if cell.trial == 1:
            raise ValueError("no rows")
        return 1.0

    experiment = made_up(fails_later)
    monkeypatch.setitem(EXPERIMENTS, "made-up", experiment)
    store = TrialStore(tmp_path, experiment, {}, 0)
    with pytest.raises(CellError, match="made-up, numbers, one, trial 1: no rows"):
        run_missing(experiment, experiment.cells({}, range(3)), {}, 0, store, jobs=1)
    assert len(store.outcomes()) == 3


def test_an_error_that_is_not_a_number_is_refused(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "made-up", made_up(lambda *_: float("nan")))
    with pytest.raises(CellError, match="the error is nan"):
        compute("made-up", Cell(Named("numbers"), Named("one"), 0), {}, 0)


# --- statistics ------------------------------------------------------------------------------------------------------


def test_one_or_two_shared_trials_make_nothing_comparable():
    marks = best_and_comparable({"a": np.array([10.0]), "b": np.array([60.0])})
    assert [marks[name][0] for name in "ab"] == [True, False]
    noisy = {"a": np.array([1.0, 2.0, 1.0]), "b": np.array([2.0, 9.0, 1.0])}
    assert [best_and_comparable(noisy)[name][0] for name in "ab"] == [True, True]
    two = {name: values[:2] for name, values in noisy.items()}
    assert [best_and_comparable(two)[name][0] for name in "ab"] == [True, False]


def test_the_best_is_one_of_those_with_the_most_trials():
    errors = {"lucky": np.array([1.0, np.nan, np.nan]), "whole": np.array([3.0, 2.0, 4.0]), "far": np.full(3, 9.0)}
    marks = best_and_comparable(errors)
    assert [marks[name][0] for name in errors] == [False, True, False]


def test_best_and_comparable_by_the_paired_t_test():
    rng = np.random.default_rng(0)
    common = rng.normal(0, 10, 50)  # pairing takes this out
    errors = {"best": common, "near": common + rng.normal(0, 1, 50), "worse": common + 1 + rng.normal(0, 1, 50)}
    marks = best_and_comparable(errors)
    leader = min(errors, key=lambda name: errors[name].mean())
    assert marks[leader] == (True, 1.0)
    assert not marks["worse"][0]
    assert marks["worse"][1] == pytest.approx(stats.ttest_rel(errors["worse"], errors[leader]).pvalue)
    assert stats.ttest_ind(errors["worse"], errors[leader]).pvalue > 0.05


def test_paired_p_value_at_the_edges():
    same = np.array([1.0, 2.0, 3.0])
    assert paired_p_value(same, same) == 1
    assert paired_p_value(same, same + 1) == 0
    assert paired_p_value(same[:1], same[1:2]) == 1


def test_summary_of_known_numbers(known):
    cells = known.cells({}, range(3))
    outcomes = {cell: Outcome(cell.trial + 10.0 * (cell.method.name == "two"), 0.5, "2026-01-01") for cell in cells}
    summary = summarize(known, {}, range(3), outcomes, printed(EXPERIMENTS["toy"]))
    one, two, control = summary.rows
    assert (one.mean, one.sd, one.median, one.seconds, one.trials) == (1, 1, 1, 0.5, 3)
    assert one.best
    assert not two.best
    assert not control.best  # as good as the best, but not a competitor


def test_printed_numbers_are_those_of_the_survey():
    table = printed(EXPERIMENTS["toy"])
    assert len(table) == 8
    assert table[toy.TOY, toy.Method("one-step", "tukey")].mean == 0.0125
    assert table[toy.TOY, toy.Method("ERM")].sd == 0.1812
    table = printed(EXPERIMENTS["benchmark"])
    assert len(table) == 36
    assert table[benchmark.Data("parkinsons"), benchmark.Method("one-step")].mean == 0.76
    assert {data.name for data, _ in table} == {*benchmark.NATURAL, *benchmark.SYNTHETIC}


def test_markdown_marks_the_best():
    text = markdown(Section("Title", ["method", "error"], [[Entry("a"), Entry("1", True)], [Entry("b"), Entry("2")]]))
    assert "| a | **1** |" in text
    assert "| b | 2 |" in text


# --- tables from end to end ------------------------------------------------------------------------------------------


def test_a_tiny_toy_table(drawing, tmp_path, monkeypatch):
    monkeypatch.setattr(toy, "VARIANTS", {"best": toy.Variant("least held-out loss", {"rule": "best"})})
    out = str(tmp_path / "results")
    first = reproduce("toy", "--trials", "2", "--first-trial", "1000", "--out", out, "--jobs", "1")
    assert first.exit_code == 0, first.output
    assert "32 cells, 0 stored, 32 to compute" in first.output
    assert "one-step, coupling off (Tukey)" in first.output
    folder = tmp_path / "results" / "toy"
    names = {"README.md", "table.csv", "trials.csv", "provenance.json", "errors.png", "problem.png", "curves.npz"}
    assert {path.name for path in folder.iterdir()} == names | {".work"}
    assert [path.name for path in (folder / ".work").iterdir()] == ["lock"]
    rows = read_csv(folder / "table.csv")
    assert len(rows) == 16
    assert float(rows[0]["paper_mean"]) == 0.1453
    assert all(0.01 <= float(row["mean"]) < 1 for row in rows)
    trials = read_csv(folder / "trials.csv")
    assert len(trials) == 32
    assert {row["trial"] for row in trials} == {"1000", "1001"}
    key = settings_key(EXPERIMENTS["toy"].settled({}))
    assert {row["settings"] for row in (*rows, *trials)} == {key}
    about = json.loads((folder / "provenance.json").read_text())["settings"][key]
    assert about["values"]["rule"] == "one-standard-error"
    story = about["seeds"]["0"]
    assert story["page"] == "README.md"
    assert story["command"] == "python -m experiments toy --first-trial 1000 --trials 2"
    assert story["trials"] == [1000, 1001]
    assert story["computed_with"][0]["versions"]["steelyard"] == steelyard.__version__
    assert {"computed", "cpu_seconds"} <= set(story)
    again = reproduce("toy", "--trials", "2", "--first-trial", "1000", "--out", out, "--jobs", "1")
    assert "32 stored, 0 to compute" in again.output
    more = reproduce("toy", "--trials", "3", "--first-trial", "1000", "--out", out, "--jobs", "1")
    assert "32 stored, 16 to compute" in more.output


def test_a_tiny_benchmark_table(drawing, published_data, tmp_path):
    protocol = tmp_path / "tiny.toml"
    protocol.write_text(
        "[sizes]\nauto = { source = 40, target = 30 }\nheart = { source = 40, target = 30 }\n"
        "[synthetic]\nslope = 16.0\ndirections = 2\nleast_of_a_class = 5\n"
        '[variants]\nswapped = { title = "other side", swap = true }\n'
    )
    out = str(tmp_path / "results")
    words = ["--trials", "2", "--first-trial", "1000", "--out", out, "--jobs", "1", "--set", f"protocol={protocol}"]
    done = reproduce("benchmark", *words)
    assert done.exit_code == 0, done.output
    assert "Variant: other side" in done.output
    rows = read_csv(tmp_path / "results" / "benchmark" / "table.csv")
    found = [(row["data"], row["variant"]) for row in rows[::6]]
    assert found == [("auto", ""), ("heart", ""), ("auto", "swapped"), ("heart", "swapped")]
    assert all(float(row["mean"]) > 0 for row in rows)


def test_a_tiny_table_of_choices(drawing, published_data, tmp_path):
    protocol = tmp_path / "tiny.toml"
    protocol.write_text(
        "[sizes]\nauto = { source = 40, target = 30 }\nheart = { source = 40, target = 30 }\n"
        "[synthetic]\nslope = 16.0\ndirections = 2\nleast_of_a_class = 10\n[variants]\n"
    )
    words = ["--trials", "2", "--first-trial", "1000", "--jobs", "1", "--set", f"protocol={protocol}"]
    done = reproduce("choice", *words, "--out", str(tmp_path / "results"))
    assert done.exit_code == 0, done.output
    assert "better than before on" in " ".join(done.output.split())
    rows = read_csv(tmp_path / "results" / "choice" / "table.csv")
    methods = ["pick", "fit", "plain mean", "stacking", "weighted stacking", "weighted pick", "one-step"]
    assert [(row["data"], row["method"]) for row in rows] == [
        (data, method) for data in ("auto", "heart") for method in [*methods, "interval given", "interval covers"]
    ]
    assert all(float(row["mean"]) > 0 for row in rows if row["method"] in methods)


def test_a_tiny_table_of_promises(drawing, published_data, tmp_path, monkeypatch):
    monkeypatch.setattr(promises, "GENERATORS", {"continuous": promises.continuous})
    protocol = tmp_path / "tiny.toml"
    protocol.write_text(
        "[sizes]\nauto = { source = 40, target = 30 }\nheart = { source = 40, target = 30 }\n"
        "[synthetic]\nslope = 16.0\ndirections = 2\nleast_of_a_class = 10\n[variants]\n"
    )
    words = ["--trials", "1", "--first-trial", "1000", "--jobs", "1", "--set", f"protocol={protocol}"]
    done = reproduce("promises", *words, "--out", str(tmp_path / "results"))
    assert done.exit_code == 0, done.output
    assert "table 2 together" in done.output
    rows = read_csv(tmp_path / "results" / "promises" / "table.csv")
    assert [(row["data"], row["method"]) for row in rows] == [
        (data, method)
        for data in ("continuous", "auto", "heart")
        for method in ("given", "covered", "worse than promised", "width")
    ]
    assert all(float(row["mean"]) == 1 for row in rows if row["method"] == "given")


def test_tiny_digits(drawing, tmp_path, monkeypatch):
    """With few steps; the peer's figures come from a file, and a trial that is not in it is named."""
    pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")
    from steelyard.deep import _candidates

    monkeypatch.setattr(_candidates, "STEPS", 60)
    monkeypatch.setattr(digits, "DATA", [digits.PAIR, digits.ONE_SIDED])
    monkeypatch.setattr(digits, "PEER_FILE", tmp_path / "peer.csv")
    digits._peer_rows.cache_clear()
    settings = json.dumps(digits.EXPERIMENT.settled({}), sort_keys=True).replace('"', '""')
    lines = [f'"{settings}",0,"digits pair",{trial},12.5,0.75' for trial in (1000, 1001)]
    lines.insert(0, f"settings,seed,data,trial,{','.join(each.name for each in digits.PEERS)}")
    digits.PEER_FILE.write_text("\n".join(lines) + "\n")
    words = ["--trials", "2", "--first-trial", "1000", "--jobs", "1", "--out", str(tmp_path / "results")]
    done = reproduce("digits", *words)
    assert done.exit_code == 0, done.output
    rows = {(r["data"], r["method"]): float(r["mean"]) for r in read_csv(tmp_path / "results/digits/table.csv")}
    assert rows["digits pair", "cleanlab"] == 12.5
    assert rows["digits pair", "AUC of cleanlab"] == 0.75
    assert ("mixed table one-sided", "cleanlab") not in rows
    assert all(0 < rows["digits pair", name] < 60 for name in ("default", "no weights", "clean rows alone"))
    assert 0.8 < rows["digits pair", "AUC of label_issues"] <= 1
    page = (tmp_path / "results" / "digits" / "README.md").read_text()
    assert "| digits pair | " in page
    assert "0.750 (least 0.750)" in page
    words[3] = "1001"
    assert "has no figures of cleanlab for digits pair, trial 1002" in reproduce("digits", *words).output
    digits._peer_rows.cache_clear()


def test_rates_of_promises_are_of_those_given():
    given = {"auto": [1.0, 1.0, 0.0, 1.0], "heart": [1.0, 1.0, 1.0, 1.0]}
    covered = {"auto": [1.0, 0.0, 0.0, 1.0], "heart": [1.0, 1.0, 1.0, 0.0]}
    data = {name: Named(name) for name in given}
    errors = {(data[name], promises.GIVEN): np.array(given[name]) for name in given}
    errors |= {(data[name], promises.COVERED): np.array(covered[name]) for name in given}
    errors |= {(data[name], promises.WORSE): np.array(given[name]) - covered[name] for name in given}
    errors |= {(data[name], promises.WIDTH): 0.5 * np.array(given[name]) for name in given}
    (section,) = promises.sections(Summary([], errors, {}))
    assert [[entry.text for entry in line] for line in section.rows] == [
        ["auto", "75.0", "66.7", "33.3", "0.50"],
        ["heart", "100.0", "75.0", "25.0", "0.50"],
        ["table 2 together", "87.5", "71.4", "28.6", "0.50"],
    ]


def test_the_ratios_to_the_pick_and_the_sets_that_are_significant_are_counted():
    names = ["auto", "bike", "heart"]
    pick = np.array([1.0, 2.0, 3.0, 4.0])
    fit = {"auto": pick - [0.5, 0.4, 0.5, 0.6], "bike": pick * 1.05, "heart": pick + np.array([0, 0, 0, 0.01])}
    errors = {(benchmark.Data(name), method): pick for name in names for method in (choice.PICK, *choice.CONTROLS)}
    errors |= {(benchmark.Data(name), choice.FIT): fit[name] for name in names}
    errors |= {(benchmark.Data(name), choice.GIVEN): np.array([1.0, 1.0, 1.0, 0.0]) for name in names}
    errors |= {(benchmark.Data(name), choice.COVERED): np.array([1.0, 1.0, 0.0, 0.0]) for name in names}
    settings = {"protocol": {"sizes": dict.fromkeys(names), "variants": {}}}
    rows = [type("Row", (), {"trials": 4})]
    beside, promised = choice.sections(Summary(rows, errors, settings))
    found = {line[0].text: [entry.text for entry in line] for line in beside.rows}
    assert [found[name][2] for name in names] == ["0.800", "1.050", "1.001"]
    assert [found[name][4:9] for name in names] == [["1.000"] * 5] * 3
    assert [line[2].bold for line in beside.rows] == [True, False, False]
    assert f"ratio of the fit: {(0.8 * 1.05 * 1.001) ** (1 / 3):.3f}" in beside.remark
    assert "(paired t-test, 5 %) on 1 of 3 (auto), significantly worse on 1 (bike); better than before" in beside.remark
    assert [entry.text for entry in promised.rows[-1]] == ["all", "75.0", "66.7"]


def test_splits_of_table_2(published_data):
    settings = EXPERIMENTS["benchmark"].settled({})
    halved = benchmark.Data("wine", "half")
    for data in (*map(benchmark.Data, ("auto", "sonar")), benchmark.Data("sonar", "swapped"), halved):
        one, same = (benchmark.split(data, 1000, settings, 0) for _ in range(2))
        np.testing.assert_array_equal(one.X, same.X)
        assert len(one.X) <= 100
        assert len(one.X_target) <= 100
        assert len(one.X_test) >= len(one.X_target) - 1
        if data.name != "wine":  # whose table repeats rows
            parts = [set(map(bytes, part)) for part in (one.X, one.X_target, one.X_test)]
            assert len(set.union(*parts)) == sum(map(len, parts))
    assert len(benchmark.split(halved, 1000, settings, 0).X) == 50


def test_the_worst_direction_is_the_worst(published_data):
    settings = EXPERIMENTS["benchmark"].settled({})["protocol"]["synthetic"]
    table = benchmark._table("heart")

    def error(directions):
        source, target = benchmark._worst_direction(
            table, np.random.default_rng(1000), **{**settings, "directions": directions}
        )
        rows = np.arange(len(source.y)), np.arange(len(source.y), len(source.y) + len(target.y))
        both = type(table)(np.vstack([source.X, target.X]), np.append(source.y, target.y), table.columns)
        return benchmark._kernel_ridge_error(both, *rows)

    errors = [error(n) for n in (1, 3, 10)]
    assert errors == sorted(errors)


def test_baselines_are_what_they_say():
    from experiments import EIWERMRegressor, ERMRegressor, RIWERMRegressor
    from steelyard import RULSIF, ULSIF, Target
    from steelyard._numerics.kernels import gaussian
    from steelyard.datasets import sinc_toy

    X, y, X_target, _ = sinc_toy(random_state=1000)
    scaled = (y - y.mean()) / y.std()

    def ridge(model, weights):
        phi = gaussian((X - model.center_) / model.scale_, model.centers_, model.width_)
        matrix = (phi.T * weights) @ phi / 150 + model.reg_ * np.eye(50)
        return phi @ np.linalg.solve(matrix, (phi.T * weights) @ scaled / 150) * y.std() + y.mean()

    options = {"n_centers": 50, "random_state": 0}
    erm = ERMRegressor(**options).fit(X, y, target=Target(X_target))
    np.testing.assert_allclose(erm.predict(X), ridge(erm, np.ones(150)), atol=1e-8)
    # The seed that the baselines hand to their ratios, so that the same centres are drawn here.
    rng = np.random.default_rng(0)
    rng.permutation(150), rng.permutation(150)
    seed = int(rng.integers(2**31))
    plain = ULSIF(n_centers=50, random_state=seed).fit(X, target=Target(X_target)).weights_
    flattened = [plain**power / np.mean(plain**power) for power in np.linspace(0, 1, 11)]
    relative = [
        RULSIF(eta, n_centers=50, random_state=seed).fit(X, target=Target(X_target)).weights_
        for eta in np.linspace(0, 1, 11)
    ]
    for cls, weightings in ((EIWERMRegressor, flattened), (RIWERMRegressor, relative)):
        model = cls(**options).fit(X, y, target=Target(X_target))
        distances = [np.max(np.abs(model.predict(X) - ridge(model, weights))) for weights in weightings]
        assert min(distances) < 1e-8


STORED = [
    ("toy", Cell(toy.TOY, toy.Method("one-step"), 0)),
    ("toy", Cell(toy.TOY, toy.Method("RIWERM", "tukey"), 7)),
    ("coupling", Cell(coupling.Data("outliers"), coupling.Method("one-step"), 3)),
    ("benchmark", Cell(benchmark.Data("heart"), benchmark.Method("one-step"), 1)),
    ("choice", Cell(benchmark.Data("sonar"), choice.FIT, 2)),
    ("benchmark", Cell(benchmark.Data("wine", "swapped"), benchmark.Method("EIWERM"), 2)),
]


@pytest.mark.parametrize(("name", "cell"), STORED, ids=lambda value: getattr(value, "label", value))
def test_published_results_are_what_the_code_computes(request, name, cell):
    if name in ("benchmark", "choice"):
        request.getfixturevalue("published_data")
    experiment = EXPERIMENTS[name]
    folder = Path(__file__).parents[2] / "results" / experiment.folder
    if not folder.exists():
        pytest.skip("the results are not part of this copy of the package")
    settings = experiment.settled({})
    stored = TrialStore(folder, experiment, settings, 0).outcomes()
    assert len(stored) == len(experiment.cells(settings, range(100)))
    assert compute(name, cell, settings, 0).error == pytest.approx(stored[cell].error, rel=1e-6)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_the_list_explains_what_there_is():
    said = reproduce("--list")
    assert said.exit_code == 0
    for name in (*EXPERIMENTS, *STUDIES):
        assert name in said.output
    assert "--set validation_eta=0.5" in said.output
    assert "--set draws=200" in said.output
    assert reproduce().output == said.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel1"], "There is no table 'tabel1'; there are toy, benchmark"),
        (["toy", "--set", "colour=red"], "has no setting 'colour'"),
        (["toy", "--set", "rule"], "name=value is needed"),
        (["toy", "--set", "n_centers=many"], "cannot be read"),
        (["toy", "--set", "pi=perhaps"], "yes or no is needed"),
        (["benchmark", "--set", "protocol=nowhere.toml"], "cannot be read"),
        (["weights-on-tables", "--set", "colour=red"], "has no setting 'colour'"),
    ],
)
def test_bad_words_exit_with_2(tmp_path, words, message):
    said = reproduce(*words, "--out", str(tmp_path))
    assert said.exit_code == 2
    assert message in " ".join(said.output.split())


def test_missing_data_says_where_to_get_it(drawing, no_data, tmp_path):
    said = reproduce("benchmark", "--trials", "1", "--jobs", "1", "--out", str(tmp_path / "out"))
    assert said.exit_code == 2
    assert ".csv is not in" in said.output
    assert "STEELYARD_DATA" in said.output


def test_a_folder_that_cannot_be_written(drawing, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    said = reproduce("toy", "--trials", "1", "--out", str(tmp_path / "file" / "results"))
    assert said.exit_code == 2
    assert "cannot be written" in " ".join(said.output.split())
    assert issubclass(OutputError, OSError)
    assert issubclass(ParameterError, ValueError)


def test_without_matplotlib_nothing_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.engine.pictures.find_spec", lambda name: None)
    said = reproduce("toy", "--trials", "1", "--out", str(tmp_path))
    assert said.exit_code == 2
    assert "pip install -r experiments/requirements.txt" in " ".join(said.output.split())
    assert not list(tmp_path.iterdir())


def test_pages_are_not_made_of_half_a_table(known, tmp_path):
    run = Run(known, Options(tmp_path, trials=2), {}, Console(quiet=True))
    run.store.put(run.cells[0], Outcome(1.0, 0.1, "2026-01-31"))
    with pytest.raises(CellError, match="5 of 6 cells are not stored; run without --minutes 0"):
        run.page()


def start(out):
    words = ["toy", "--trials", "1", "--first-trial", "1000", "--out", str(out), "--jobs", "2", "--set", "points=100"]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def contents(folder):
    """Every file of the table, without seconds, dates and the machine."""
    found = {path.name: path.read_bytes() for path in (folder / "toy").iterdir() if path.is_file()}
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in read_csv(folder / "toy" / "table.csv")]
    cells = [
        {k: v for k, v in row.items() if k not in ("seconds", "date")}
        for row in read_csv(folder / "toy" / "trials.csv")
    ]
    story = json.loads(found["provenance.json"])
    for about in story["settings"].values():
        for entry in about["seeds"].values():
            del entry["cpu_seconds"], entry["computed"]
    pages = [found[name].decode().splitlines() for name in sorted(found) if name.endswith(".md")]
    assert len(pages) == 1
    page = [line for line in pages[0] if not line.startswith("| ")]
    same = {name: found[name] for name in found if name.endswith((".png", ".npz"))}
    return sorted(found), rows, cells, story, page, same


def stored_cells(folder):
    path = folder / "toy" / "trials.csv"
    return max(path.read_bytes().count(b"\n") - 1, 0) if path.exists() else 0


def test_killed_at_twenty_moments_the_result_is_the_same(drawing, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert start(whole).wait() == 0
    rng = np.random.default_rng()
    seen = []
    for _ in range(20):
        before, process = stored_cells(cut), start(cut)
        goal = before + rng.integers(0, 4)  # cells that this run may store before it is killed
        deadline = time.monotonic() + 60
        while stored_cells(cut) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.append(stored_cells(cut))
    assert seen == sorted(seen)  # nothing that was stored is lost
    assert sum(0 < count < 44 for count in seen) >= 5
    assert start(cut).wait() == 0
    assert contents(cut) == contents(whole)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
def test_workers_end_with_a_killed_parent(drawing, tmp_path):
    process = start(tmp_path)

    def children():
        try:
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
                return [int(pid) for pid in file.read().split()]
        except FileNotFoundError:
            return []

    deadline = time.monotonic() + 30
    while len(children()) < 3 and time.monotonic() < deadline:  # two workers and the tracker of resources
        time.sleep(0.05)
    workers = children()
    assert len(workers) >= 2
    time.sleep(0.5)
    process.kill()
    process.wait()
    while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]
