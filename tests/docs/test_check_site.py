"""The check of the built site notices what it is for."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("bs4", reason="the extra 'docs' is not installed")
ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "docs" / "check_site.py"))["Site"]
PAGE = '<html><head><link rel="stylesheet" href="_static/style.css"></head><body>{}</body></html>'
GOOD = (
    '<h1 id="top">One</h1><a href="#top">here</a><a href="b/two.html#part%201">there</a><img src="a%20b.png">'
    '<a href="https://example.org/paper">a paper</a><img src="data:image/png;base64,AAAA">'
)


@pytest.fixture
def site(tmp_path):
    for folder in ("b", "_static"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one.html").write_text(PAGE.format(GOOD))
    (tmp_path / "b/two.html").write_text('<p id="part 1"><a href="../one.html?q=1#top">back</a></p>')
    (tmp_path / "_static/style.css").write_text("p { background: url('../a b.png') } q { cursor: url(data:x) }")
    (tmp_path / "a b.png").write_bytes(b"")
    return tmp_path


def faults(site):
    return SITE(site).faults()


def test_a_whole_site_has_no_fault(site):
    assert faults(site) == []


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ('<a href="b/three.html">x</a>', "b/three.html is not there"),
        ('<a href="b/two.html#part">x</a>', "b/two.html#part has no such anchor"),
        ('<a href="#bottom">x</a>', "#bottom has no such anchor"),
        ('<a href="../outside.html">x</a>', "../outside.html lies outside the site"),
        ('<img src="gone.png">', "gone.png is not there"),
        ('<source srcset="a%20b.png 1x, gone.png 2x">', "gone.png is not there"),
        (
            '<script src="https://cdn.example.org/a.js"></script>',
            "https://cdn.example.org/a.js is loaded from the network",
        ),
        ('<img src="//example.org/a.png">', "//example.org/a.png is loaded from the network"),
        (
            '<link rel="stylesheet" href="http://example.org/a.css">',
            "http://example.org/a.css is loaded from the network",
        ),
        (
            '<p style="background:url(https://example.org/a.png)">',
            "https://example.org/a.png is loaded from the network",
        ),
    ],
)
def test_a_planted_fault_is_found(site, planted, fault):
    (site / "one.html").write_text(PAGE.format(GOOD + planted))
    assert faults(site) == [f"one.html: {fault}"]


def test_a_font_from_the_network_is_found(site):
    (site / "_static/style.css").write_text("@font-face { src: url(https://example.org/a.woff2) } @import 'gone.css';")
    assert faults(site) == [
        "_static/style.css: https://example.org/a.woff2 is loaded from the network",
        "_static/style.css: gone.css is not there",
    ]
