"""Plant each bug of the TOML files beside this one into a copy of the package, and see that its tests fail."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# What pytest returns where tests ran and some failed; a usage error or an import error is another number.
TESTS_FAILED = 1


@dataclass(frozen=True)
class Bug:
    """One plausible mistake: in `file`, `old` becomes `new`, and one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def load_bugs() -> list[Bug]:
    """Every bug that is described beside this file."""
    return [Bug(**bug) for path in sorted(HERE.glob("*.toml")) for bug in tomllib.loads(path.read_text())["bug"]]


def plant(bug: Bug, source: Path) -> None:
    """Put the bug into a copy of the package."""
    path = source / bug.file
    text = path.read_text()
    if text.count(bug.old) != 1:
        raise SystemExit(f"{bug.name}: {bug.file} has {text.count(bug.old)} places with the text to replace, not one.")
    path.write_text(text.replace(bug.old, bug.new))


def is_killed(bug: Bug) -> bool:
    """Whether a test fails with the bug in place."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        plant(bug, source)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *bug.tests]
        environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, TESTS_FAILED):
        raise SystemExit(f"{bug.name}: pytest could not run its tests.\n{done.stdout}{done.stderr}")
    return done.returncode == TESTS_FAILED


def main() -> None:
    """Print which bugs are killed, and fail where one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only bugs with one of these in their name")
    wanted = parser.parse_args().names
    bugs = [bug for bug in load_bugs() if not wanted or any(part in bug.name for part in wanted)]
    survivors = []
    for bug in bugs:
        killed = is_killed(bug)
        print(f"{'killed' if killed else 'SURVIVES'}: {bug.name}", flush=True)
        if not killed:
            survivors.append(bug.name)
    print(f"{len(bugs) - len(survivors)} of {len(bugs)} planted bugs are killed.")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
