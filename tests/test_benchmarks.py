"""The benchmarks, tiny: that they run, that they compare the same thing, that an absent peer is a note."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("psutil", reason="psutil (needed by the benchmarks) is not installed")
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import cases, contestants, measure, run

RESULTS = Path(__file__).parent.parent / "results" / "benchmarks" / "results.csv"


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
    with open(RESULTS, newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["group"] for row in rows} == set(run.CASES) == set(cases.CASES)
    assert all(row["commit"] for row in rows)
