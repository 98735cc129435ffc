from typer.testing import CliRunner

import steelyard
from steelyard.cli import app


def test_version():
    assert steelyard.__version__ in CliRunner().invoke(app, ["--version"]).output


def test_no_command_gives_help():
    assert "demo" in CliRunner().invoke(app, []).output
