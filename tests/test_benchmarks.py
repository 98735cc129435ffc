"""The benchmarks, tiny: that they run, that they compare the same thing, that an absent peer is a note."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("psutil", reason="psutil (needed by the benchmarks) is not installed")
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import before, cases, contestants, long_file, measure, memory, run, scale

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "benchmarks" / "results.csv"


def test_contestants_solve_the_same_problem():
    source, target = contestants.gaussians(80, 2)
    qualities = [c.quality(c.run(source, target, 1.5), source, target, 1.5) for c in (cases.STEELYARD_KMM, cases.PIQP)]
    assert qualities[0] == pytest.approx(qualities[1], rel=0.02)
    assert qualities[0] < 0.2  # of the shift is left


def test_gap_is_zero_at_the_optimum_only():
    source, target = contestants.gaussians(80, 2)
    centers, coef, width = contestants.steelyard_kliep(source, target, 1.5)
    assert contestants.kliep_gap((centers, coef, width), source, target, 1.5) <= 1e-6
    assert contestants.kliep_gap((centers, np.ones_like(coef), width), source, target, 1.5) > 1e-3


def test_an_absent_peer_is_a_note():
    def absent(source, target, width):
        import no_such_package  # noqa: F401

    peer = contestants.Contestant("absent", absent, contestants.kliep_gap)
    rows = measure.interleaved("case", [cases.KLIEPS[0], peer], contestants.gaussians(60, 2), 1.5, 2)
    assert rows[0].cpu_seconds > 0
    assert rows[0].times_ours == 1
    assert rows[1].note == "not installed (no_such_package)"
    assert rows[1].cpu_seconds is None


def test_the_stored_results_are_of_the_cases():
    rows = run.read(RESULTS)
    assert {row["group"] for row in rows} == set(run.CASES) == set(cases.CASES)
    assert all(row["commit"] for row in rows)
    assert {row["run"] for row in rows} <= {row["run"] for row in run.read(RESULTS.with_name("runs.csv"))}


def stored(run_name, contestant, ratio):
    names = {"group": "kmm", "case": "KMM", "n": "10", "d": "1", "threads": "1", "commit": "abc", "quality": ""}
    numbers = {"cpu_seconds": "0.5", "times_ours": str(ratio), "peak_mb": "", "note": ""}
    return {"run": run_name, "contestant": contestant} | names | numbers


def test_a_run_replaces_its_own_rows_only():
    earlier = [stored("one", "peer", 3), stored("two", "peer", 5)]
    measured = {key: value for key, value in stored("", "peer", 4).items() if key != "run"}
    rows = run.merged(earlier, [measured | {"threads": 1, "peak_mb": None}], "two")
    assert [(row["run"], row["times_ours"]) for row in rows] == [("one", "3"), ("two", "4")]
    assert rows[1] == stored("two", "peer", 4)  # as it is read from the file again


def test_of_several_runs_the_least_favorable_ratio_is_quoted(tmp_path):
    rows = [stored("one", "peer", 10), stored("two", "peer", 9.5)]
    assert run.quoted(rows) == "9.5"
    assert run.quoted([stored("one", "Steelyard float32", 0.7), stored("two", "Steelyard float32", 0.8)]) == "0.8"
    assert run.quoted([stored("one", "peer", "")]) == ""
    run.write(tmp_path / "results.csv", rows)
    run.write(tmp_path / "runs.csv", [{"run": "one", "made_with": "Python 3"}])
    pytest.importorskip("matplotlib")
    run.report(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| A 0.500, B 0.500 | 9.5 | A 10.0, B 9.5 |" in page
    assert "- A: one (commits abc; Python 3)\n- B: two" in page


def test_a_gpu_beside_a_core(tmp_path):
    pytest.importorskip("torch")
    from benchmarks import gpu

    rows = ["--rows", "3000", "--kmm-rows", "2500", "--cpu-rows", "1500", "--check-rows", "800", "--repeats", "1"]
    gpu.main(["--device", "cpu", *rows, "--full", "--out", str(tmp_path)])
    page = (tmp_path / "gpu.md").read_text()
    assert "differ by more than" not in page
    entries = [line.split(" | ") for line in page.splitlines() if line.startswith(("| KMM", "| RuLSIF"))]
    assert [(cells[1], cells[3]) for cells in entries] == [
        *[("3,000 × 10", "cpu"), ("3,000 × 10", "cpu"), ("1,500 × 10", "one core"), ("3,000 × 10", "one core")],
        *[("2,500 × 2", "cpu"), ("2,500 × 2", "one core")],
    ]
    times = [float(cells[4]) for cells in entries]
    assert float(entries[5][5]) == pytest.approx(times[5] / times[4], rel=0.2, abs=0.1)
    assert "at 3,000 rows, by proportion" in entries[2][6]


def test_a_gpu_with_wrong_answers_is_said_to_have_them(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from benchmarks import gpu

    monkeypatch.setattr(gpu, "N_FOLDS", 4)
    page = gpu.Page(tmp_path / "page.md")
    gpu.agreement(page, gpu.argparse.Namespace(check_rows=500, columns=2, kmm_columns=2, device="cpu"))
    assert "**The answers differ by more than 1e-6.**" in (tmp_path / "page.md").read_text()


def test_a_job_of_a_gpu_that_fails_leaves_the_next_one_its_turn(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from benchmarks import gpu

    def broken(page, options):
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr(gpu, "rulsif", broken)
    rows = ["--kmm-rows", "1000", "--check-rows", "500", "--repeats", "1"]
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cpu", *rows, "--out", str(tmp_path / "page.md")])
    page = (tmp_path / "page.md").read_text()
    assert "**broken failed: RuntimeError: out of memory**" in page
    assert page.count("| KMM | 1,000 × 2") == 2


def test_an_older_commit_beside_this_one(tmp_path):
    times = {name: [dict.fromkeys(before.names(), seconds)] * 3 for name, seconds in (("old", 1.0), ("new", 1.1))}
    page = before.page({"old": "abc", "new": "def"}, times)
    assert "at commit def and at the older commit abc" in page
    assert page.count("| 1.000 | 1.100 | 1.10 (1.10 to 1.10) |") == 8
    with pytest.raises(RuntimeError, match="imported"):  # no library there, so that another one would be timed
        before.start(tmp_path)


def test_scale_measures_a_fit_and_projects_it(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("distributed", reason="Dask is not installed (the extra distributed)")
    out = tmp_path / "scale.md"
    command = [sys.executable, "-m", "benchmarks.scale", "--rows", "1000", "3000", "6000", "--workers", "2"]
    subprocess.run([*command, "--out", str(out)], check=True, cwd=ROOT, capture_output=True)
    page = out.read_text()
    row = re.search(r"\| 6,000 \| \d+\.\d\d \| .*", page)[0]
    over_steelyard, over_scikit_learn, over_arrow = (int(cell) for cell in row.strip("| ").split(" | ")[-3:])
    assert 0 < over_steelyard < over_scikit_learn < over_arrow - 20  # scikit-learn loads more than that
    assert float(re.search(r"\| 2 \| [\d.]+ \| 1\.00 \| (\S+) \|", page)[1]) < 1e-8
    assert (tmp_path / "scale.png").stat().st_size > 5000


def test_a_projection_of_a_line_is_exact():
    found = [{"n": n, "cpu": 0.5 + 2e-6 * n, "reading": 0.5} for n in (10**5, 10**6, 10**7)]
    assert scale.projected(found, 1e9) == pytest.approx(0.5 + 2000)
    assert scale.exponent(found, 10**5) == pytest.approx(1)


def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it():
    large = np.ones(40_000_000)  # 320 MB
    code = "from benchmarks.memory import peak; print(peak())"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert 0 < float(done.stdout) < 100 < large.nbytes / 1e6 < memory.peak()


def test_a_long_file_is_weighed_as_csv_and_as_parquet(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.setattr(long_file, "PART_ROWS", 300)
    monkeypatch.chdir(ROOT)
    out = tmp_path / "long_file.md"
    arguments = ["long_file", "--gigabytes", "0.0002", "--target-rows", "400", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    long_file.main()
    page = out.read_text()
    assert "1,200 source rows and 400 target rows of 10 columns" in page
    assert re.search(r"\| csv \| 0\.00 \| \d+ \| \d{3} \|", page)
    assert "The weights of the two files are equal." in page
    first, second = tmp_path / "one.csv", tmp_path / "other.csv"
    first.write_text("row,weight\n1,1.0\n2,3.0\n")
    second.write_text("row,weight\n1,1.0\n2,2.0\n")
    assert long_file.largest_difference(first, second) == 0.5
