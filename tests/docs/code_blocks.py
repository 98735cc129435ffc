"""Read a page and run what is in it: Python blocks, plots and commands, each compared with the output on the page.

A ``text`` block right after a Python block or a plot is its output. In a ``console`` block the lines after
``$ steelyard ...`` up to the next ``$`` are the output of that command; three dots stand for any text, and elapsed
times may differ.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

PYTHON = "python"
PLOT = "{plot}"
CONSOLE = "console"
# What has to be installed for an import, by any word of it.
NEEDS = {
    **{name: name for name in ("torch", "dask", "distributed", "lightning", "transformers", "matplotlib", "pandas")},
    **{"deep": "torch", "causal": "torch", "CopulaRegressor": "pyvinecopulib", "DiscrepancyRegressor": "clarabel"},
}
ADVISING = {"lightning", "transformers"}  # they warn of their own plans, and advise
ELAPSED = re.compile(r"\b\d+(\.\d+)?( ?ms| ?s| seconds?| minutes?)\b")
OPTION = re.compile(r":[\w-]+:")


class WrongOutput(AssertionError):
    """A page says something else than its code prints."""


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, its text, the line where the text begins, and the output that is promised."""

    language: str
    text: str
    line: int
    output: str | None = None


def blocks(page: str) -> list[Block]:
    """The blocks of a page that are run, in their order."""
    tokens = MarkdownIt().parse(page)
    found = []
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        language = token.info.strip() if token.type == "fence" else ""
        if language not in (PYTHON, PLOT, CONSOLE) or (language == CONSOLE and not list(commands(token.content))):
            continue
        promised = after is not None and after.type == "fence" and after.info.strip() == "text"
        text = without_options(token.content) if language == PLOT else token.content
        found.append(Block(language, text, token.map[0] + 1, after.content if promised else None))
    return found


def without_options(text: str) -> str:
    """A plot directive's code, with empty lines in the place of its options."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not OPTION.match(line):
            break
        lines[number] = ""
    return "\n".join(lines)


def commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Each ``$ steelyard`` of a console block with the output that follows it; other programs are not run."""
    for part in re.split(r"(?m)^\$ ", text)[1:]:
        command, _, output = part.partition("\n")
        if command.split()[:1] == ["steelyard"]:
            yield shlex.split(command)[1:], output


def needed(page: list[Block]) -> set[str]:
    """Optional packages that the blocks of a page import."""
    words: set[str] = set()
    for block in page:
        tree = ast.parse("" if block.language == CONSOLE else block.text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                words |= {word for name in names for word in name.split(".")}
    return {NEEDS[word] for word in words & {*NEEDS}}


def wrong(path: Path, block: Block, what: str, promised: str, printed: str) -> WrongOutput:
    """The error for an output that is not the promised one."""
    return WrongOutput(f"{path}, line {block.line}: {what} was to print\n{promised}\nand printed\n{printed}")


def run_page(path: Path, page: list[Block], folder: Path) -> None:
    """Run all blocks of a page in one namespace; an error where an output is not the promised one."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in page:
        if block.language == CONSOLE:
            run_commands(path, block, folder)
            continue
        printed = run_python(path, block, namespace)
        if block.output is not None and printed != block.output:
            raise wrong(path, block, "the code", block.output, printed)


def run_python(path: Path, block: Block, namespace: dict[str, Any]) -> str:
    """What a block prints; lines in a traceback are those of the page."""
    code = compile("\n" * block.line + block.text, str(path), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        if needed([block]) & ADVISING:
            warnings.simplefilter("ignore")
        exec(code, namespace)
    if block.language == PLOT:
        import matplotlib.pyplot as plt

        if not plt.get_fignums():
            raise WrongOutput(f"{path}, line {block.line}: a plot without a figure")
        plt.close("all")
    return printed.getvalue()


def run_commands(path: Path, block: Block, folder: Path) -> None:
    """Run the commands of a console block in a folder; one without promised output has to succeed."""
    for arguments, promised in commands(block.text):
        command = [sys.executable, "-c", "from steelyard.app.cli import app; app()", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        printed = done.stdout + done.stderr
        same = doctest.OutputChecker().check_output(normalized(promised), normalized(printed), doctest.ELLIPSIS)
        if (promised.strip() and not same) or (not promised.strip() and done.returncode):
            raise wrong(path, block, f"steelyard {shlex.join(arguments)}", promised, printed)


def normalized(text: str) -> str:
    """Output without elapsed times and spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in ELAPSED.sub("(time)", text).strip().split("\n")) + "\n"
