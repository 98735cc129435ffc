"""Every code block of the README and the documentation runs, and prints what the page says."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.code_blocks import WrongOutput, blocks, needed, run_page

ROOT = Path(__file__).parent.parent.parent
MADE = {"_build", "gallery"}  # by Sphinx


def pages():
    """README and pages of the documentation that have something to run."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in paths:
        if not MADE & {*path.relative_to(ROOT).parts} and blocks(path.read_text("utf-8")):
            yield path


PAGES = list(pages())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_blocks_run_and_print_what_the_page_says(path, tmp_path, monkeypatch):
    found = blocks(path.read_text("utf-8"))
    for name in sorted(needed(found)):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed; the page needs it")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    run_page(path, found, tmp_path)


def test_the_pages_are_found():
    guide = {path.name for path in (ROOT / "docs" / "guide").glob("*.md")} - {"index.md"}
    assert guide | {"README.md"} <= {path.name for path in PAGES}


PAGE = """
```python
x = 1
print(x + 1)
```

```text
2
```

A sentence, and a block without a promise:

```python
print("anything", x)
```

```bash
false
```
"""


def run(page, folder):
    run_page(Path("page.md"), blocks(page), folder)


def test_a_page_that_tells_the_truth_passes(tmp_path):
    assert [(block.line, block.output) for block in blocks(PAGE)] == [(2, "2\n"), (13, None)]
    run(PAGE, tmp_path)


@pytest.mark.parametrize(("true", "planted"), [("```text\n2", "```text\n3"), ("```text\n2", "```text\n2\n2")])
def test_a_planted_output_is_noticed(true, planted, tmp_path):
    with pytest.raises(WrongOutput, match=r"page\.md, line 2"):
        run(PAGE.replace(true, planted), tmp_path)


@pytest.mark.filterwarnings("error")
def test_an_error_and_a_warning_are_noticed(tmp_path):
    with pytest.raises(NameError):
        run("```python\nmissing\n```", tmp_path)
    with pytest.raises(UserWarning):
        run("```python\nimport warnings\nwarnings.warn('look')\n```", tmp_path)


def test_a_plot_without_a_figure_is_noticed(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    page = "```{plot}\n:alt: A line\n\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\n```"
    run(page, tmp_path)
    with pytest.raises(WrongOutput, match="without a figure"):
        run(page.replace("plt.plot", "sorted"), tmp_path)


def test_commands_run_and_their_output_is_compared(tmp_path):
    page = "```console\n$ pip install no-such-package\n$ steelyard weigh --help\n...Usage: ...weigh...\n```"
    run(page, tmp_path)
    with pytest.raises(WrongOutput, match="weigh --help was to print"):
        run(page.replace("weigh...\n", "nothing of the kind\n"), tmp_path)
    with pytest.raises(WrongOutput, match=r"none\.csv"):
        run("```console\n$ steelyard weigh none.csv none.csv\n```", tmp_path)
