"""Studies that make one page and have no table of the survey."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from experiments.engine.cells import Setting, Settings, parse_settings
from experiments.engine.files import locked, replace_file


@dataclass(frozen=True)
class Study:
    """A page that is computed in one go; pictures are written beside it."""

    name: str
    title: str
    explains: str
    page: Callable[[Settings, Path], str]  # the text below the title; the folder is for pictures
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Name of the folder of the results."""
        return self.name.replace("-", "_")


def run_study(study: Study, changed: Mapping[str, str], out: Path, console: Console) -> None:
    """Compute the page, show and write it."""
    settings = parse_settings(study.name, study.settings, changed)
    folder = out / study.folder
    with locked(folder):
        folder.mkdir(parents=True, exist_ok=True)
    text = study.page(settings, folder)
    command = " ".join(
        [f"python -m experiments {study.name}", *(f"--set {name}={value}" for name, value in changed.items())]
    )
    page = f"# {study.title}\n\n{study.explains}\n\n{text.strip()}\n\nMade by `{command}`.\n"
    console.print(page, markup=False, highlight=False)
    replace_file(folder / "README.md", page.encode())
    console.print(f"Wrote {folder / 'README.md'}", highlight=False)
