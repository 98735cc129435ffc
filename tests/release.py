"""Is this commit fit to be released? ``python -m tests.release [--quick] [--release]``, or ``make release-check``.

Builds the source distribution and the wheel, checks what is in them, installs each alone in an empty environment, runs
the demo there and the core tests from the unpacked source distribution, and reads the licenses of what was installed
and of the optional dependencies, the metadata, the changelog and every place that has the version. With ``--release``
the changelog must have a date for the version.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
# Licenses that would bind those who use the package; the LGPL binds changes of the library alone.
REFUSED = re.compile(r"(?<!L)(?<!Lesser )\b(A?GPL|GNU (Affero )?General Public)", re.IGNORECASE)
# Prints the licenses of the packages that are named as arguments, or of all that are installed.
LICENSES = """
import sys
from importlib.metadata import distribution, distributions
for d in [distribution(name) for name in sys.argv[1:]] or distributions():
    m = d.metadata
    said = [m.get("License-Expression") or "", (m.get("License") or "")[:60]]
    said += [c for c in m.get_all("Classifier") or [] if c.startswith("License")]
    print(m["Name"], "|", " ; ".join(s.replace("\\n", " ") for s in said if s))
"""


class NotReady(Exception):
    """What has to be mended before a release."""


def run(*command: str | Path, cwd: Path) -> str:
    """Output of a command; an error with its last lines where it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, env=clean())
    if done.returncode:
        raise NotReady(f"{' '.join(str(part) for part in command)}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def clean() -> dict[str, str]:
    """The environment without what would let a checkout be imported."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def build(checkout: Path, out: Path, *options: str) -> tuple[Path, Path]:
    """The source distribution and the wheel of a checkout; the wheel is built from the former."""
    run(sys.executable, "-m", "build", *options, "--outdir", out, checkout, cwd=out)
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


def check_contents(checkout: Path, sdist: Path, wheel: Path) -> str:
    """The version; an error where a file of the package is missing, or the metadata are not those of the project."""
    package = checkout / "src"
    wanted = {
        path.relative_to(package).as_posix()
        for path in (package / "steelyard").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())
        entry_points = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
        licensed = any("/licenses/" in name and name.endswith("LICENSE") for name in names)
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(run("git", "ls-files", cwd=checkout).splitlines())
    for kind, missing in (
        ("wheel", wanted - names),
        ("wheel", {name for name in names if not name.startswith(("steelyard/", "steelyard-"))}),
        ("source distribution", {name for name in tracked if name.startswith(("src/", "tests/"))} - packed),
    ):
        if missing:
            raise NotReady(f"The {kind} lacks files, or has files of others: {sorted(missing)[:5]}")
    if not licensed or "steelyard = steelyard.app.cli:app" not in entry_points:
        raise NotReady("The wheel lacks the license or the command.")
    check_metadata(checkout, metadata)
    return metadata["Version"]


def check_metadata(checkout: Path, metadata: Message) -> None:
    """An error where the wheel does not say what the checkout says of itself; unknown classifiers stop the build."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]
    version = re.search(r'__version__ = "(.+)"', (checkout / "src/steelyard/__init__.py").read_text("utf-8"))
    expected = {
        "Name": project["name"],
        "Version": version and version[1],
        "License-Expression": project["license"],
        "Requires-Python": project["requires-python"],
        "Summary": project["description"],
        "Description-Content-Type": "text/markdown",
    }
    for key, value in expected.items():
        if metadata[key] != value:
            raise NotReady(f"The wheel says {key}: {metadata[key]}, and {value} is expected.")
    if set(metadata.get_all("Classifier") or []) != set(project["classifiers"]):
        raise NotReady("The wheel has other classifiers than pyproject.toml.")
    text = str(metadata.get_payload())
    if text.strip() != (checkout / "README.md").read_text("utf-8").strip():
        raise NotReady("The wheel does not hold the README.")
    if "<h1>Steelyard</h1>" not in MarkdownIt().enable("table").render(text):
        raise NotReady("The README does not begin with its title once it is drawn.")


def check_version(checkout: Path, version: str, *, dated: bool) -> None:
    """An error where CITATION.cff has another version, or the changelog no entry for it (with a date, if asked)."""
    cited = re.search(r"(?m)^version: (\S+)$", (checkout / "CITATION.cff").read_text("utf-8"))
    if cited is None or cited[1] != version:
        raise NotReady(f"CITATION.cff has version {cited and cited[1]}, and __version__ is {version}.")
    pattern = rf"(?ms)^## {re.escape(version)} \(([^)\n]+)\)\n(.*?)(?=^## |\Z)"
    entry = re.search(pattern, (checkout / "CHANGELOG.md").read_text("utf-8"))
    if entry is None or "* " not in entry[2]:
        raise NotReady(f"CHANGELOG.md has no entry for {version}, or an empty one.")
    if dated and not re.fullmatch(r"\d{4}-\d\d-\d\d", entry[1]):
        raise NotReady(f"CHANGELOG.md says {version} ({entry[1]}); a release needs its date, such as 2026-01-31.")


def installed(artifact: Path, folder: Path, checkout: Path) -> Path:
    """The Python of an empty environment with nothing but this artifact and what it needs."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    constraint = checkout / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", constraint, artifact, cwd=folder.parent)
    return python


def check_demo(python: Path, folder: Path) -> None:
    """Run the demo outside of any checkout."""
    run(python.parent / "steelyard", "demo", "--out", folder / "demo", cwd=folder)
    if not (folder / "demo" / "report.html").is_file():
        raise NotReady("The demo wrote no report.")


def check_licenses(python: Path, *names: str) -> int:
    """How many dependencies there are; an error for one whose license is the GPL, or that names none."""
    lines = run(python, "-c", LICENSES, *names, cwd=python.parent).splitlines()
    for line in lines:
        if REFUSED.search(line) or not line.partition(" | ")[2].strip():
            raise NotReady(f"A dependency has a license that we do not depend on, or none: {line}")
    return len(lines)


def optional_dependencies(checkout: Path) -> list[str]:
    """Names of the packages in the extras for users, which are installed where this runs."""
    extras = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    needed = (each for name, part in extras.items() if name not in ("dev", "docs") for each in part)
    names = {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in needed}
    return sorted(names - {"steelyard"})


def check_tests(sdist: Path, python: Path, folder: Path, checkout: Path) -> str:
    """Run the tests of the unpacked source distribution against the installed wheel; the last line of their output."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = next(path for path in folder.iterdir() if path.name.startswith("steelyard-"))
    shutil.rmtree(unpacked / "src")  # what is tested is what was installed
    needed = ("pytest", "pytest-xdist", "hypothesis", "psutil")
    constraint = checkout / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", constraint, *needed, cwd=folder)
    parts = [unpacked / "tests" / name for name in ("app", "ratio", "tables", "report", "stacking", "model_selection")]
    command = (python, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", "-o", "addopts=", *parts)
    return run(*command, cwd=unpacked).splitlines()[-1]


def main() -> None:
    """Check everything, and say what was checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the core tests")
    parser.add_argument("--release", action="store_true", help="the changelog must have a date")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            sdist, wheel = build(ROOT, folder)
            version = check_contents(ROOT, sdist, wheel)
            check_version(ROOT, version, dated=options.release)
            print(f"{sdist.name} and {wheel.name}: contents, metadata, versions and changelog are in order")
            n_optional = check_licenses(Path(sys.executable), *optional_dependencies(ROOT))
            print(f"the licenses of {n_optional} optional dependencies were read")
            for artifact in (sdist, wheel):
                at = folder / artifact.suffix[1:]
                python = installed(artifact, at, ROOT)
                n_installed = check_licenses(python)
                check_demo(python, at)
                print(f"{artifact.name}: installed alone, {n_installed} licenses read, the demo ran")
            if not options.quick:
                print(f"core tests: {check_tests(sdist, python, folder, ROOT)}")
        except NotReady as error:
            print(f"Not ready for a release: {error}", file=sys.stderr)
            raise SystemExit(1) from error


if __name__ == "__main__":
    main()
