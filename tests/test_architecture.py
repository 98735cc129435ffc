"""The house: rooms on their layers, few files in the hall, nothing that imports upwards."""

import shutil
from pathlib import Path

import pytest

from tests.architecture import LEVEL, modules, room, violations

ROOT = Path(__file__).parent.parent
MOST_ROOT_FILES = 12


def test_every_module_imports_from_below():
    assert violations(ROOT) == []


def test_every_room_has_its_layer():
    assert {room(name) for name in modules(ROOT)} <= set(LEVEL)


def test_few_files_lie_in_the_root_of_the_package():
    assert len([path for path in (ROOT / "src/steelyard").iterdir() if path.is_file()]) <= MOST_ROOT_FILES


@pytest.fixture
def copy(tmp_path):
    for folder in ("src/steelyard", "experiments", "benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    return tmp_path


def plant(path, line):
    path.write_text(f"{path.read_text('utf-8')}\n{line}\n", "utf-8")


def test_an_upward_import_is_noticed(copy):
    plant(copy / "src/steelyard/ratio/ulsif.py", "from steelyard.diagnostics import diagnose")
    assert "steelyard.ratio.ulsif imports steelyard.diagnostics" in violations(copy)


def test_a_lazy_cycle_is_noticed(copy):
    plant(
        copy / "src/steelyard/_numerics/kernels.py",
        "def lazily():\n    from steelyard._numerics.interior_point import solve_box_slab_low_rank",
    )
    (found,) = violations(copy)
    assert found.startswith("cycle: ")
    assert "steelyard._numerics.kernels" in found


def test_an_import_for_types_alone_is_allowed(copy):
    plant(
        copy / "src/steelyard/_numerics/kernels.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from steelyard.diagnostics import Findings",
    )
    assert violations(copy) == []
