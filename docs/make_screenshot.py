"""Take docs/images/report.png, the top of the report of ``steelyard demo``: ``python docs/make_screenshot.py``.

It needs Chromium or Chrome, whose name can be given: ``python docs/make_screenshot.py google-chrome``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PICTURE = Path(__file__).with_name("images") / "report.png"
WIDTH, HEIGHT = 1100, 1120
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")


def take(browser: str) -> None:
    """Run the demo, open its report and keep the top of the page in 64 colors."""
    with tempfile.TemporaryDirectory() as place:
        folder, shot = Path(place), Path(place) / "shot.png"
        command = Path(sys.executable).with_name("steelyard")
        subprocess.run([command, "demo", "--out", "steelyard-demo"], cwd=folder, check=True, capture_output=True)
        page = (folder / "steelyard-demo" / "report.html").as_uri()
        options = (*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},{HEIGHT}")
        subprocess.run([browser, *options, f"--screenshot={shot}", page], check=True, capture_output=True)
        with Image.open(shot) as image:
            image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    take(sys.argv[1] if len(sys.argv) > 1 else "chromium")
