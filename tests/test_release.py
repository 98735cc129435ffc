"""The check of a release notices what is missing."""

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import steelyard
from tests import release

ROOT = Path(__file__).parent.parent
PROJECT = """[project]
name = "steelyard"
license = "BSD-3-Clause"
requires-python = ">=3.11"
description = "A summary"
classifiers = ["Typing :: Typed"]

[project.optional-dependencies]
deep = ["torch>=2", "steelyard[x]"]
x = ["dask[array]==1"]
dev = ["pytest"]
docs = ["sphinx"]
"""


@pytest.fixture
def checkout(tmp_path):
    """A tiny checkout, and artifacts of it without a builder."""
    root = tmp_path / "checkout"
    for name, text in {
        "src/steelyard/__init__.py": '__version__ = "1.2"\n',
        "src/steelyard/app.py": "",
        "tests/test_it.py": "",
        "CHANGELOG.md": "# Changelog\n\n## 1.2 (unreleased)\n\n* Something.\n\n## 1.1 (2026-01-31)\n",
        "CITATION.cff": "version: 1.2\n",
        "README.md": "# Steelyard\n",
        "pyproject.toml": PROJECT,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run("git init -q && git add -A", shell=True, cwd=root, check=True)
    return root


def artifacts(root, folder, *, without=(), readme="# Steelyard", **changed):
    changed = {key.replace("_", "-"): value for key, value in changed.items()}
    lines = {
        "Name": "steelyard",
        "Version": "1.2",
        "License-Expression": "BSD-3-Clause",
        "Requires-Python": ">=3.11",
        "Summary": "A summary",
        "Description-Content-Type": "text/markdown",
        "Classifier": "Typing :: Typed",
    } | changed
    metadata = "\n".join(f"{key}: {value}" for key, value in lines.items()) + f"\n\n{readme}\n"
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
    release.check_version(checkout, "1.2", dated=False)


@pytest.mark.parametrize("name", ["steelyard/app.py", "src/steelyard/app.py", "tests/test_it.py"])
def test_a_planted_missing_file_is_noticed(checkout, tmp_path, name):
    with pytest.raises(release.NotReady, match="lacks files"):
        release.check_contents(checkout, *artifacts(checkout, tmp_path, without=(name,)))


@pytest.mark.parametrize(
    ("key", "value"), [("Version", "1.1"), ("Requires_Python", ">=3.9"), ("Classifier", "Private"), ("Summary", "B")]
)
def test_other_metadata_are_noticed(checkout, tmp_path, key, value):
    with pytest.raises(release.NotReady, match=r"is expected|other classifiers"):
        release.check_contents(checkout, *artifacts(checkout, tmp_path, **{key: value}))


def test_another_readme_and_one_that_does_not_draw_are_noticed(checkout, tmp_path):
    with pytest.raises(release.NotReady, match="does not hold the README"):
        release.check_contents(checkout, *artifacts(checkout, tmp_path, readme="# Another"))
    hidden = "<!--\n# Steelyard\n"
    (checkout / "README.md").write_text(hidden)
    with pytest.raises(release.NotReady, match="does not begin with its title"):
        release.check_contents(checkout, *artifacts(checkout, tmp_path, readme=hidden))


def test_versions_that_disagree_and_a_missing_entry_or_date_are_noticed(checkout):
    with pytest.raises(release.NotReady, match=r"CITATION.cff has version 1.2, and __version__ is 1.3"):
        release.check_version(checkout, "1.3", dated=False)
    with pytest.raises(release.NotReady, match=r"1.2 \(unreleased\); a release needs its date"):
        release.check_version(checkout, "1.2", dated=True)
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("unreleased", "2026-02-28"))
    release.check_version(checkout, "1.2", dated=True)
    for version in ("1.1", "1"):  # an empty entry; a version that others begin with
        (checkout / "CITATION.cff").write_text(f"version: {version}\n")
        with pytest.raises(release.NotReady, match=f"no entry for {version}, or an empty one"):
            release.check_version(checkout, version, dated=False)


def test_the_versions_of_this_checkout_agree():
    release.check_version(ROOT, steelyard.__version__, dated=False)


def test_optional_dependencies_are_those_of_users(checkout):
    assert release.optional_dependencies(checkout) == ["dask", "torch"]


def test_a_file_that_a_built_wheel_lacks_is_noticed(tmp_path):
    """From end to end: this checkout, with one file left out of the wheel by a setting of its builder."""
    for package in ("build", "hatchling"):
        pytest.importorskip(package, reason=f"{package} is not installed; nothing can be built")
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout, and its files are not known")
    planted = tmp_path / "planted"
    for name in release.run("git", "ls-files", cwd=ROOT).split():
        if name.startswith(("src/", "tests/test_release")) or "/" not in name:
            (planted / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, planted / name)
    settings = planted / "pyproject.toml"
    packages = 'packages = ["src/steelyard"]'
    settings.write_text(
        settings.read_text("utf-8").replace(packages, f'{packages}\nexclude = ["**/weights.py"]'), "utf-8"
    )
    subprocess.run("git init -q && git add -A", shell=True, cwd=planted, check=True)
    built = release.build(planted, tmp_path, "--no-isolation")
    with pytest.raises(release.NotReady, match=r"wheel lacks files.*steelyard/weights.py"):
        release.check_contents(planted, *built)


def test_a_license_that_binds_is_noticed():
    for line in ("some | GPL-3.0-only", "some | License :: OSI Approved :: GNU General Public License v3 (GPLv3)"):
        assert release.REFUSED.search(line)
    for line in ("some | BSD-3-Clause", "some | LGPL-3.0-or-later", "some | MIT"):
        assert not release.REFUSED.search(line)
