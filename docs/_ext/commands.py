"""``{commands}``: commands of a page, which the build runs, and what they print.

The commands of a page share a temporary folder, in which they run one after the other. One that fails ends the build.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

COLUMNS = 88  # of the terminal that the commands see


def printed(command: str, folder: Path) -> str:
    """What a command of `steelyard` prints in a folder."""
    words = shlex.split(command, comments=True)
    words[0] = str(Path(sys.executable).with_name(words[0]))
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExtensionError(f"{command!r} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


class Commands(SphinxDirective):
    """Commands, one in each line; with ``:quiet:`` without what they print."""

    has_content = True
    option_spec = {"quiet": directives.flag}  # noqa: RUF012 (docutils has it so)

    def run(self) -> list[nodes.Node]:
        """Run the commands, and show them with their output."""
        folders = self.env.temp_data
        if "commands" not in folders:
            folders["commands"] = tempfile.TemporaryDirectory(prefix="steelyard-docs-")
        shown = []
        for command in self.content:
            output = printed(command, Path(folders["commands"].name))
            shown.append(f"$ {command}")
            if "quiet" not in self.options:
                shown.append(output)
        block = nodes.literal_block("\n".join(shown), "\n".join(shown), language="console")
        self.set_source_info(block)
        return [block]


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
