import re

from typer.testing import CliRunner

import steelyard
from steelyard.cli import app


def test_demo_prints_a_table_and_saves_a_picture(tmp_path):
    picture = tmp_path / "demo.png"
    result = CliRunner().invoke(app, ["demo", "--splits", "2", "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    error = {name: float(re.search(rf"{name}\D*(\d+\.\d)", result.output).group(1)) for name in ("ERM", "IWERM, uLSIF")}
    assert error["IWERM, uLSIF"] < error["ERM"]
    assert "chosen by IWCV" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_version():
    assert steelyard.__version__ in CliRunner().invoke(app, ["--version"]).output


def test_no_command_gives_help():
    assert "demo" in CliRunner().invoke(app, []).output
