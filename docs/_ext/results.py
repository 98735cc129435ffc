"""Numbers, tables and paragraphs of the site that are read from ``results/`` while it is built; see `measured`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from counts import count
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from measured import RESULTS, QueryError, Table, answer, conditions, load, matching, paragraph
from sphinx.util.docutils import SphinxDirective, SphinxRole


class ResultRole(SphinxRole):
    """A number: ``{result}`toy/table.csv: method=ERM -> mean -> .3f` ``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The number, or an error of the build."""
        depend(self.env, self.text)
        try:
            return [nodes.inline(self.rawtext, answer(self.text), classes=["result"])], []
        except (QueryError, SyntaxError) as error:
            return [], [self.inliner.reporter.error(f"{self.text}: {error}", line=self.lineno)]


class CountRole(SphinxRole):
    """How many tests, bugs or files there are: ``{count}`tests in tests/oracle` ``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The count, or an error of the build."""
        try:
            return [nodes.inline(self.rawtext, f"{count(self.text):,}")], []
        except ValueError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]


class ResultTable(SphinxDirective):
    """A table of a page of results, or some of its rows and columns, and the remark below it."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {
        "columns": directives.unchanged_required,
        "rows": directives.unchanged_required,
        "heads": directives.unchanged_required,
        "remark": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """The table as Markdown, parsed where the directive stands."""
        source = self.arguments[0]
        depend(self.env, source)
        try:
            (table,) = load(source)
            lines = chosen(table, *(self.options.get(name, "") for name in ("columns", "rows", "heads")))
        except ValueError as error:
            raise self.error(f"{source}: {error}") from None
        if "remark" in self.options:
            lines += ["", table.remark]
        return parsed(self, lines)


class ResultText(SphinxDirective):
    """The paragraph of a page of results that starts with the given words."""

    required_arguments = 2
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The paragraph, parsed where the directive stands."""
        file, words = self.arguments
        depend(self.env, file)
        try:
            return parsed(self, paragraph(file, words))
        except QueryError as error:
            raise self.error(str(error)) from None


def depend(env: Any, query: str) -> None:
    """Build the page again when the file changes."""
    env.note_dependency(str(RESULTS / query.split(":")[0].split(" ~ ")[0].partition("#")[0]))


def chosen(table: Table, columns: str, rows: str, heads: str = "") -> list[str]:
    """Lines of a Markdown table: columns and conditions as in a query, everything where nothing is named.

    Columns have their names for heads unless there are others.
    """
    names = [name.strip() for name in columns.split(";")] if columns else list(table.columns)
    wanted = conditions(rows)
    unknown = [name for name in [*names, *wanted] if name not in table.columns]
    if unknown:
        raise QueryError(f"There is no column {unknown[0]!r}. The columns: {', '.join(table.columns)}.")
    body = list(matching(table.rows, wanted))
    if not body:
        raise QueryError(f"No row has {wanted}.")
    header = [head.strip() for head in heads.split(";")] if heads else [repeated(name) for name in names]
    if len(header) != len(names):
        raise QueryError(f"There are {len(names)} columns and {len(header)} heads.")
    return [line(header), "|---" + "|--:" * (len(names) - 1) + "|", *(line([row[n] for n in names]) for row in body)]


def repeated(name: str) -> str:
    """A column name without the number that tells it from others of the same name."""
    return "" if name == "row" else name.rpartition(" ")[0] if name.startswith("survey ") else name


def line(entries: list[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(entries) + " |"


def parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    """Markdown as nodes."""
    box = nodes.container(classes=["results"])
    directive.state.nested_parse(StringList(lines, directive.get_source_info()[0]), 0, box)
    return [box]


def setup(app: Any) -> dict[str, Any]:
    """Register the roles and directives."""
    app.add_role("result", ResultRole())
    app.add_role("count", CountRole())
    app.add_directive("result-table", ResultTable)
    app.add_directive("result-text", ResultText)
    app.add_css_file("results.css")
    app.connect("env-get-outdated", lambda app, env, *_: pages_with_counts(Path(env.srcdir)))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def pages_with_counts(folder: Path) -> list[str]:
    """Pages whose counts may have changed without a change of the page: they are always read again."""
    pages = (folder / "evidence").rglob("*.md")
    return [str(path.relative_to(folder).with_suffix("")) for path in pages if "{count}" in path.read_text("utf-8")]
