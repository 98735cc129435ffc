"""The check of a release notices what is missing."""

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import release

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path):
    """A tiny checkout, and artifacts of it without a builder."""
    root = tmp_path / "checkout"
    for name, text in {
        "src/steelyard/__init__.py": '__version__ = "1.2"\n',
        "src/steelyard/app.py": "",
        "tests/test_it.py": "",
        "CHANGELOG.md": "# Changelog\n\n## 1.2\n\n* Something.\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run("git init -q && git add -A", shell=True, cwd=root, check=True)
    return root


def artifacts(root, folder, *, without=(), version="1.2"):
    metadata = f"Name: steelyard\nVersion: {version}\nLicense-Expression: BSD-3-Clause\n\n# Steelyard\n"
    with zipfile.ZipFile(folder / "steelyard.whl", "w") as wheel:
        for name in ("steelyard/__init__.py", "steelyard/app.py"):
            if name not in without:
                wheel.writestr(name, "")
        wheel.writestr("steelyard-1.dist-info/METADATA", metadata)
        wheel.writestr("steelyard-1.dist-info/licenses/LICENSE", "")
        wheel.writestr("steelyard-1.dist-info/entry_points.txt", "steelyard = steelyard.app.cli:app")
    with tarfile.open(folder / "steelyard.tar.gz", "w:gz") as sdist:
        for name in ("src/steelyard/__init__.py", "src/steelyard/app.py", "tests/test_it.py"):
            if name not in without:
                sdist.add(root / name, f"steelyard-1/{name}")
    return folder / "steelyard.tar.gz", folder / "steelyard.whl"


def test_whole_artifacts_pass(checkout, tmp_path):
    assert release.check_contents(checkout, *artifacts(checkout, tmp_path)) == "1.2"
    release.check_changelog(checkout, "1.2")


@pytest.mark.parametrize("name", ["steelyard/app.py", "src/steelyard/app.py", "tests/test_it.py"])
def test_a_planted_missing_file_is_noticed(checkout, tmp_path, name):
    with pytest.raises(release.NotReady, match="lacks files"):
        release.check_contents(checkout, *artifacts(checkout, tmp_path, without=(name,)))


def test_another_version_and_a_missing_entry_are_noticed(checkout, tmp_path):
    with pytest.raises(release.NotReady, match=r"Version: 1.1, and 1.2 is expected"):
        release.check_contents(checkout, *artifacts(checkout, tmp_path, version="1.1"))
    with pytest.raises(release.NotReady, match=r"no entry for 1.3"):
        release.check_changelog(checkout, "1.3")


def test_a_license_that_binds_is_noticed():
    for line in ("some | GPL-3.0-only", "some | License :: OSI Approved :: GNU General Public License v3 (GPLv3)"):
        assert release.REFUSED.search(line)
    for line in ("some | BSD-3-Clause", "some | LGPL-3.0-or-later", "some | MIT"):
        assert not release.REFUSED.search(line)
