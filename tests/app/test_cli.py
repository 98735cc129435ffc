import pytest
from typer.testing import CliRunner

import steelyard
from steelyard.app.cli import app


def test_version():
    assert steelyard.__version__ in CliRunner().invoke(app, ["--version"]).output


@pytest.mark.parametrize("command", ["fit", "diagnose", "weigh", "predict", "demo"])
def test_what_writes_can_be_told_to_overwrite(command):
    assert "--overwrite" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output


def test_no_command_gives_help():
    assert "demo" in CliRunner().invoke(app, []).output
