"""Matplotlib's plot directive in Markdown pages: what it writes as reStructuredText is parsed where it stands."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from matplotlib.sphinxext.plot_directive import PlotDirective
from myst_parser.mocking import MockRSTParser, MockStateMachine
from sphinx.util.docutils import new_document


class Plot(PlotDirective):
    """The directive; MyST's state machine, unlike that of docutils, takes no more lines of input."""

    def run(self) -> list[nodes.Node]:
        """Run the code, and return its source and figures."""
        if not isinstance(self.state_machine, MockStateMachine):
            return super().run()
        lines = StringList()
        self.state_machine.insert_input = lambda more, source: lines.extend(StringList(more, source))
        messages = super().run()
        document = self.state.document
        part = new_document(document["source"], document.settings)
        part.reporter = document.reporter
        MockRSTParser().parse("\n".join(lines), part)
        return [*part.children, *messages]


def setup(app: Any) -> dict[str, Any]:
    """Take the place of the directive that matplotlib registers."""
    app.setup_extension("matplotlib.sphinxext.plot_directive")
    app.add_directive("plot", Plot, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
