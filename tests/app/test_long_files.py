"""Files of more rows than are read into memory, by the command line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

pd = pytest.importorskip("pandas", reason="pandas is not installed (the extra tables)")

from steelyard import AutoRatio
from steelyard.app import commands, long_files, weighing
from steelyard.app.cli import app
from steelyard.errors import ClusterError
from steelyard.tables import TableFile, count_rows, read_blocks, read_table


@pytest.fixture(autouse=True)
def few_are_long(monkeypatch):
    """A few hundred rows take the way of a hundred thousand."""
    monkeypatch.setattr(long_files, "LONG", 300)


def table(n, seed, shift):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(shift, 1, n), "b": rng.normal(0, 2, n)})
    frame["city"] = rng.choice(["oslo", "rome"], n, p=[0.7 - shift / 2, 0.3 + shift / 2])
    frame["day"] = pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    frame.loc[rng.random(n) < 0.05, "b"] = np.nan
    return frame


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, n, seed, shift in (("s", 900, 0, 0.0), ("t", 700, 1, 0.5)):
        frame = table(n, seed, shift)
        if name == "s":
            frame["y"] = frame.a**2
        frame.to_parquet(f"{name}.parquet", row_group_size=128)
        frame.assign(day=frame.day.dt.strftime("%Y-%m-%d")).to_csv(f"{name}.csv", index=False, na_rep="?")
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output + (result.stderr or "")


@pytest.mark.parametrize("eta", ["0", "0.2"])
def test_weights_are_those_of_the_same_rows_in_memory(folder, eta, monkeypatch):
    for kind in ("csv", "parquet"):
        code, said = run("weigh", f"s.{kind}", f"t.{kind}", "--label", "y", "--eta", eta, "--out", f"{kind}.out")
        assert code == 0, said
        assert "900 weights by" in said
        assert "even sample of 20,000 rows" in said
    assert "read as missing" not in said  # Parquet has nulls
    assert (folder / "csv.out").read_bytes() == (folder / "parquet.out").read_bytes()
    streamed = pd.read_csv("csv.out")
    assert streamed.row.tolist() == list(range(1, 901))
    assert streamed.weight.mean() == pytest.approx(1)
    monkeypatch.setattr(long_files, "LONG", 1000)
    monkeypatch.setattr("steelyard.ratio._base.FOLDS_ABOVE", 300)
    assert run("weigh", "s.csv", "t.csv", "--label", "y", "--eta", eta, "--out", "memory.out")[0] == 0
    np.testing.assert_allclose(pd.read_csv("memory.out").weight, streamed.weight, rtol=1e-8)


def test_signs_of_missing_values_are_counted_in_all_blocks(folder, monkeypatch):
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 4096)
    n_missing = int(table(900, 0, 0.0).b.isna().sum())
    code, said = run("weigh", "s.csv", "t.csv", "--label", "y")
    assert code == 0
    assert f"s.csv, column 'b': {n_missing} values '?' were read as missing" in " ".join(said.split())


def test_predictions_of_a_long_file_are_those_of_a_short_one(folder, monkeypatch):
    code, said = run("fit", "s.csv", "t.csv", "--label", "y", "--out", "run", "--learner", "linear")
    assert code == 0, said
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 4096)
    assert len(list(read_blocks(folder / "t.csv"))) > 3
    assert run("predict", "run", "t.csv", "--out", "long.csv")[0] == 0
    assert run("predict", "run", "t.parquet", "--out", "parquet.csv")[0] == 0
    monkeypatch.setattr(long_files, "LONG", 10_000)
    assert run("predict", "run", "t.csv", "--out", "short.csv")[0] == 0
    short, long = pd.read_csv("short.csv"), pd.read_csv("long.csv")
    assert long.row.tolist() == short.row.tolist()
    np.testing.assert_allclose(long.prediction, short.prediction, rtol=1e-12)
    assert (folder / "long.csv").read_bytes() == (folder / "parquet.csv").read_bytes()


def test_fit_says_when_it_learns_from_a_sample(folder, monkeypatch):
    monkeypatch.setattr(commands, "MOST_FITTED", 400)
    code, said = run("fit", "s.csv", "t.csv", "--label", "y", "--out", "run", "--learner", "linear")
    assert code == 0, said
    said = " ".join(said.split())
    assert "learned from an even sample, 400 of the 900 rows of s.csv" in said
    assert "learned from an even sample, 400 of the 700 rows of t.csv" in said
    assert "even sample, 400 of the 900 rows" in (folder / "run" / "report.html").read_text()
    found = pd.read_csv("run/weights.csv")
    assert len(found) == 400
    assert found.row.is_monotonic_increasing
    assert found.row.max() > 400
    rows = read_table(folder / "t.csv", at_most=400, seed=1).running_numbers()
    assert pd.read_csv("run/predictions.csv").row.tolist() == (rows + 1).tolist()


def test_a_late_word_among_numbers_is_named_with_its_rows(folder, monkeypatch):
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 4096)
    monkeypatch.setattr(weighing, "SAMPLE", 10)
    lines = (folder / "s.csv").read_text().splitlines()
    lines[800] = "many" + lines[800][lines[800].index(",") :]
    (folder / "s.csv").write_text("\n".join(lines) + "\n")
    code, said = run("weigh", "s.csv", "t.csv", "--label", "y", "--out", "late.csv")
    assert code == 2
    said = " ".join(said.split())
    assert "Column 'a' held numbers" in said
    assert "'many'" in said
    assert "s.csv, rows 7" in said
    assert not (folder / "late.csv").exists()


def test_counting_rows_ends_early_and_knows_parquet(folder, monkeypatch):
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 4096)
    counts = [count_rows(TableFile(folder / name, name), 300) for name in ("s.parquet", "t.parquet", "s.csv")]
    assert counts[:2] == [900, 700]
    assert 300 < counts[2] < 900
    assert count_rows(TableFile(folder / "s.csv", "s.csv"), 10**6) == 0  # too small for so many rows


def test_the_sample_does_not_depend_on_the_kind_of_file(folder):
    one, two = (read_table(folder / f"s.{kind}", at_most=50, seed=3) for kind in ("csv", "parquet"))
    np.testing.assert_array_equal(one.running_numbers(), two.running_numbers())
    assert one.sampled_from == two.sampled_from == 900
    rows = table(900, 0, 0.0)
    np.testing.assert_array_equal(one["a"].values, rows.a.to_numpy()[one.running_numbers()])


def test_a_boosted_ratio_keeps_the_model_of_the_sample_and_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(0, 1, (900, 2))
    target = rng.normal(0, 1, (3000, 2))
    target = target[np.prod(np.sign(target), axis=1) > 0][:900]  # two of four quadrants: neither linear nor smooth
    fit = AutoRatio(random_state=0).fit([X], target=[target])
    assert "boosted classifier" in {part.name for part in fit.parts_}
    assert "keeps its fit to the sample" in weighing._fitted_to_all_rows(fit)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_running_cluster_gives_the_same(folder, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (the extra distributed)")
    arguments = ("weigh", "s.csv", "t.csv", "--label", "y", "--eta", "0.2")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        address = ("--cluster", cluster.scheduler_address)
        monkeypatch.setattr(long_files, "BLOCK_BYTES", 8 * 8 * 200)  # several blocks of a few hundred rows
        assert run(*arguments, "--out", "alone.csv")[0] == 0
        assert run(*arguments, "--out", "cluster.csv", *address)[0] == 0
        alone, there = pd.read_csv("alone.csv"), pd.read_csv("cluster.csv")
        assert there.row.tolist() == alone.row.tolist()
        np.testing.assert_allclose(there.weight, alone.weight, rtol=1e-8)
        fit = ("fit", "s.csv", "t.csv", "--label", "y", "--learner", "linear", "--learner", "forest", "--out")
        assert run(*fit, "run")[0] == 0
        assert run(*fit, "run there", *address)[0] == 0
        found, expected = (json.loads((folder / name / "model.json").read_text()) for name in ("run there", "run"))
        assert found["method"] == expected["method"]
        for key, interval in expected["performance"].items():
            assert found["performance"][key] == pytest.approx(interval, rel=1e-6)
        monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 4096)
        for out, where in (("alone.csv", ()), ("cluster.csv", address)):
            assert run("predict", "run", "t.csv", "--out", out, "--overwrite", *where)[0] == 0
        assert (folder / "cluster.csv").read_bytes() == (folder / "alone.csv").read_bytes()
        for out, where in (("alone", ()), ("cluster", address)):
            assert run("diagnose", "t.csv", "t.parquet", "--out", out, *where)[0] == 0
        assert (folder / "cluster/findings.json").read_bytes() == (folder / "alone/findings.json").read_bytes()
    code, said = run(*arguments, "--out", "none.csv", "--cluster", "tcp://127.0.0.1:1")
    assert code == 2
    assert "There is no Dask scheduler at tcp://127.0.0.1:1" in " ".join(said.split())
    assert not (folder / "none.csv").exists()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("command", ["weigh", "predict"])
def test_a_cluster_that_goes_away_while_the_output_is_written_leaves_nothing(folder, command, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (the extra distributed)")
    arguments = {"weigh": ("s.csv", "t.csv", "--label", "y", "--eta", "0.2"), "predict": ("run", "t.csv")}[command]
    if command == "predict":
        assert run("fit", "s.csv", "t.csv", "--label", "y", "--out", "run", "--learner", "linear")[0] == 0
    room, write = {"weigh": weighing, "predict": commands}[command], commands.write_file_in_parts
    monkeypatch.setattr("steelyard.tables._csv.BLOCK_BYTES", 4096)
    monkeypatch.setattr(long_files, "BLOCK_BYTES", 8 * 8 * 200)  # several blocks of a few hundred rows
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:

        def gone_after_the_first_part(out, parts, *inputs, **settings):
            def some():
                for number, part in enumerate(parts):
                    yield part
                    if number == 1:
                        cluster.close()

            write(out, some(), *inputs, **settings)

        monkeypatch.setattr(room, "write_file_in_parts", gone_after_the_first_part)
        before = set(folder.iterdir())
        code, said = run(command, *arguments, "--out", "none.csv", "--cluster", cluster.scheduler_address)
    assert code == 2, said
    assert "The cluster went away" in " ".join(said.split())
    assert set(folder.iterdir()) == before


def test_a_folder_that_workers_do_not_see_is_named(tmp_path):
    with pytest.raises(ClusterError, match=r"a worker of the cluster does not see this file"):
        long_files.read_part(tmp_path / "0.numbers", 0, 3, 2)


def test_a_damaged_parquet_file_is_named(folder):
    content = (folder / "s.parquet").read_bytes()
    (folder / "s.parquet").write_bytes(content[:2000] + b"x" * 3000 + content[5000:])
    code, said = run("weigh", "s.parquet", "t.parquet", "--label", "y", "--out", "none.csv")
    assert code == 2
    assert "s.parquet: this cannot be read as a Parquet file" in " ".join(said.split())
    assert not (folder / "none.csv").exists()
