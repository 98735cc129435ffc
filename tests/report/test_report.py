"""The page: what it may load, what it shows, and how it looks in a browser."""

import base64
import hashlib
import itertools
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from steelyard import ULSIF, AutoRatio, Target, WeightedRegressor, diagnose
from steelyard.app.comparison import ComparedMethod, Comparison
from steelyard.balance import ColumnBalance, column_balance
from steelyard.diagnostics import diagnose_pair
from steelyard.model_selection import Interval
from steelyard.report import gather, pictures, render, svg
from steelyard.report.evidence import marginal, weight_histogram
from steelyard.tables import Column, Frame, as_frame, encode_pair

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def frame(seed, shift):
    rng = np.random.default_rng(seed)
    n = 200
    age = rng.normal(40 + 10 * shift, 10, n)
    age[::17] = np.nan
    city = rng.choice(["oslo", "<script>alert(1)</script>", "a city with a very long name indeed"], n)
    columns = [
        Column("age", "number", age),
        Column("<script>alert('x')</script>", "category", city.astype(object)),
        Column("member", "boolean", (rng.random(n) < 0.5).astype(float)),
        Column("since", "date", 19_000 + 30 * shift + rng.integers(0, 100, n).astype(float)),
    ]
    return Frame(tuple(columns), n)


def comparison():
    methods = [
        ComparedMethod("linear, no weights", "linear", False, 1.0, 0.9, 0.0, 0.0, 200.0),
        ComparedMethod("linear, relative, η=½", "linear", True, 0.8, 1.0, 0.2, 0.1, 120.0),
        ComparedMethod("one-step", "one-step", True, 9.0, 1.0, -8.0, np.inf, 20.0),
    ]
    scores = {name: Interval(0.5, 0.4, 0.7) for name in ("source", "plain", "chosen")}
    reason = "It <b>is</b> better."
    return Comparison(
        tuple(methods), 1, 0, 60.0, 200, reason, (), scores, "squared error", weights_used=True, flattening=0.5
    )


@pytest.fixture(scope="module")
def page():
    source, target = frame(0, 0.0), frame(1, 1.0)
    findings = diagnose(source, target=Target(target))
    pair = encode_pair(source, target)
    weights = ULSIF(random_state=0).fit(pair.X, target=pair.X_target).weights_
    evidence = gather(pair, findings, weights, np.random.default_rng(0))
    return render(
        findings,
        evidence,
        comparison(),
        facts={"source": "<i>s.csv</i>"},
        notes=["A <u>note</u>."],
    )


def test_the_policy_allows_the_style_and_nothing_else(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1).replace("&#39;", "'")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_nothing_comes_from_elsewhere(page):
    assert re.findall(r'(?:src|href|action|url)\s*[=(]\s*["\']?', page) == []
    assert set(re.findall(r"https?://[^\s\"<]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "style=" not in page
    assert "<script" not in page
    assert "onload" not in page


def test_text_from_tables_is_escaped(page):
    for words in ("<b>is</b>", "<i>s.csv", "<u>note", "<script>alert"):
        assert words not in page
    assert "It &lt;b&gt;is&lt;/b&gt; better." in page


def test_every_picture_is_well_formed_and_named(page):
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 9  # methods, weights, gauge, four columns, differences, map
    for text in pictures:
        root = ET.fromstring(text)
        title = root.find("{http://www.w3.org/2000/svg}title")
        assert title.text
        assert root.find("{http://www.w3.org/2000/svg}desc").text
        for node in root.iter():
            for name, value in node.attrib.items():
                if name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"):
                    assert np.isfinite(float(value)), (name, value)


def test_the_sign_of_an_error_beyond_the_axis_is_explained():
    source, target = frame(0, 0.0), frame(1, 1.0)
    diagnosis = diagnose_pair(encode_pair(source, target))
    evidence = gather(diagnosis.compared, diagnosis.findings, diagnosis.weights, np.random.default_rng(0))
    plain, single, bad = comparison().methods
    for gain, beyond in ((-50.0, True), (-0.01, False)):
        methods = (plain, single, replace(bad, gain=gain, gain_error=0.001))
        page = render(diagnosis.findings, evidence, replace(comparison(), methods=methods), facts={}, notes=[])
        assert ("›</text>" in page) == beyond
        assert ("stands for an error beyond the axis" in page) == beyond


def test_long_labels_are_whole_and_nothing_is_drawn_through_them():
    names = ["city = a place whose name is as long as a sentence, because it is one", "age"]
    picture = str(pictures.love_plot([ColumnBalance(name, 0.5, 0.2, 0.1) for name in names], True))
    words = re.findall(r'<text x="[^"]+" y="[^"]+" [^>]*class="label"[^>]*>([^<]*)', picture)
    assert " ".join(words) == " ".join(names)
    baselines = [float(y) for y in re.findall(r'y="([^"]+)"[^>]*class="label"', picture)]
    rules = re.findall(r'y1="([^"]+)" y2="([^"]+)" class="rule"', picture)
    assert len(rules) == len(names)
    assert not any(float(low) - 2 < y - 4 < float(high) + 2 for low, high in rules for y in baselines)


def test_only_weights_that_are_flattened_are_called_so(page):
    source, target = frame(0, 0.0), frame(1, 1.0)
    diagnosis = diagnose_pair(encode_pair(source, target))
    evidence = gather(diagnosis.compared, diagnosis.findings, diagnosis.weights, np.random.default_rng(0))
    unused = replace(comparison(), weights_used=False, flattening=1.0)
    assert "flattened (to the power 0.5)" in page
    assert page.count("of the difference on purpose") == 2
    plain = render(diagnosis.findings, evidence, unused, facts={}, notes=[])
    assert "importance weights, not flattened; they are not used" in plain
    assert "of the difference on purpose" not in plain


def test_the_verdict_comes_first(page):
    assert page.index("<h1>Linear, weighted for the target</h1>") < page.index("<svg")
    assert "0.707 (0.632 to 0.837)" in page  # the root of 0.5 (0.4 to 0.7)


def test_learners_left_out_are_notes_and_a_missing_error_is_called_unknown():
    source, target = frame(0, 0.0), frame(1, 1.0)
    diagnosis = diagnose_pair(encode_pair(source, target))
    evidence = gather(diagnosis.compared, diagnosis.findings, diagnosis.weights, np.random.default_rng(0))
    failed = replace(comparison(), failed=("The forest was <i>left out</i>.",), weights_used=False, flattening=1.0)
    page = render(diagnosis.findings, evidence, failed, facts={}, notes=[])
    assert "<li>The forest was &lt;i&gt;left out&lt;/i&gt;.</li>" in page
    assert "not used by the chosen model" in page
    assert "<td>-8</td><td>unknown</td>" in page  # the standard error of one-step
    assert not re.search(r"\b(inf|nan)\b", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))


def test_shares_are_drawn_and_those_of_every_combination_are_listed():
    source, target = frame(0, 0.0), frame(1, 1.0)
    diagnosis = diagnose_pair(encode_pair(source, target))
    evidence = gather(diagnosis.compared, diagnosis.findings, diagnosis.weights, np.random.default_rng(0))
    plain, single, _ = comparison().methods
    shares = (("forest, weighted", 0.7), ("linear, weighted", 0.3))
    methods = (plain, replace(single, name="weighted stacking", shares=shares))
    methods += tuple(replace(single, name=name) for name, _ in shares)
    methods += (replace(single, name="equal shares", shares=(("linear", 0.5), ("forest", 0.5))),)
    page = render(diagnosis.findings, evidence, replace(comparison(), methods=methods), facts={}, notes=[])
    assert "<h1>A combination of two learners, weighted for the target</h1>" in page
    (bars,) = re.findall(r"<svg[^>]*><title>Shares of weighted stacking</title>.*?</svg>", page, re.DOTALL)
    widths = [float(width) for width in re.findall(r'<rect x="[^"]*" y="[^"]*" width="([^"]*)"', bars)]
    assert widths[1] / widths[0] == pytest.approx(3 / 7, abs=0.01)
    assert "weighted stacking: forest, weighted 70%, linear, weighted 30%." in page
    assert "equal shares: linear 50%, forest 50%." in page


def test_the_drift_table_and_the_balance_of_the_weights_drawn(page):
    source, target = frame(0, 0.0), frame(1, 1.0)
    findings = diagnose(source, target=Target(target))
    drifted = {column.name for column in findings.columns if column.drifted}
    assert {"age"} <= drifted < {column.name for column in findings.columns}
    table = page[page.index("Which columns drifted?") : page.index("Importance weights")]
    shown = r'<th scope="row">(.*?)</th><td class="verdict"[^>]*>(\w+)</td><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>'
    rows = re.findall(shown, table)
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table)
    assert re.findall(r'data-name="(.*?)"', table) == heads[1:] * 4  # on a phone every cell has its name
    assert {name for name, verdict, _, _ in rows if verdict == "yes"} == drifted
    assert all(float(distance) >= float(least) for _, verdict, distance, least in rows if verdict == "yes")
    assert f"Drift is seen in {len(drifted)} of 4 columns." in page
    pair = encode_pair(source, target)
    weights = ULSIF(random_state=0).fit(pair.X, target=pair.X_target).weights_
    balance = column_balance(pair.X, pair.X_target, weights, columns=pair.encoding.feature_names).by_column()
    after = page[page.index("Columns before and after weighting") :]
    shown = re.findall(r'<th scope="row">.*?</th><td>([+-][\d.]+)</td><td>([+-][\d.]+)</td>', after)
    assert shown == [(f"{c.before:+.2f}", f"{c.after:+.2f}") for c in balance[: len(shown)]]
    assert len(shown) == len(balance)


def test_numbers_are_written_as_people_write_them():
    rng = np.random.default_rng(0)
    X, T = ({"income": 60_000 * rng.lognormal(shift, 0.5, 300)} for shift in (0.0, 0.4))
    diagnosis = diagnose_pair(encode_pair(as_frame(pa.table(X)), as_frame(pa.table(T))))
    large = replace(comparison(), performance={"source": Interval(51_832.0**2, 40_000.0**2, 70_000.0**2)})
    evidence = gather(diagnosis.compared, diagnosis.findings, diagnosis.weights, np.random.default_rng(0))
    page = render(diagnosis.findings, evidence, large, facts={}, notes=[])
    assert "51,800 (40,000 to 70,000)" in page
    assert ">100,000</text>" in page
    for text in (page, str(diagnosis.findings), diagnosis.findings._repr_html_()):
        assert not re.search(r"\d[eE][+-]?\d\d", re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL))
        assert "&lt; 0.001" in text or "p < 0.001" in text


@pytest.mark.parametrize("length", [5, 25, 55])
def test_labels_are_whole_and_inside_the_picture(length):
    words = "a_rather long name " * 4
    names = ["x", words[:length].strip(), "W" * min(length, 40)]
    lanes = svg.Lanes(names, 20.0)
    assert lanes.labels == names
    assert lanes.beside == (length == 5)
    ends = [*lanes.middles, lanes.bottom]
    for i, name in enumerate(names):
        lines = [ET.fromstring(line) for line in lanes.label(i)]
        assert "".join(line.text.replace(" ", "") for line in lines) == name.replace(" ", "")
        for line in lines:
            x, width = float(line.get("x")), svg.text_width(line.text)
            low, high = (x - width, x) if line.get("text-anchor") == "end" else (x, x + width)
            assert low >= 0
            assert high <= svg.WIDTH
            assert float(line.get("y")) <= ends[i] + 4  # not in the next lane


def test_only_absurd_labels_are_shortened_and_a_tooltip_has_them_whole():
    name = "begin" + 150 * "x" + "end"
    (label,) = svg.Lanes([name], 20.0).labels
    assert len(label) == 120
    assert label.startswith("begin")
    assert label.endswith("end")
    assert str(svg.Lanes([name], 20.0).label(0)[0]).count(name) == 1


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1.2e6, 9.9e6), (19_000, 19_090), (-1e-5, 1e-5)])
def test_names_of_ticks_do_not_overlap(low, high):
    axis = svg.Axis(low, high, 40, 350)
    name = pictures.written
    places = [(axis(value), svg.text_width(name(value))) for value in axis.spaced_ticks(name, 5)]
    assert len(places) >= 2
    for (before, first), (after, second) in itertools.pairwise(places):
        assert before + first / 2 < after - second / 2


def test_each_picture_says_how_to_read_it(page):
    assert page.count("How to read:") >= 6


def test_weighted_marginals_are_those_of_repeated_rows():
    """Whole weights and repeated rows are the same picture."""
    rng = np.random.default_rng(0)
    values, other = rng.normal(size=50), rng.normal(size=40)
    weights = rng.integers(0, 4, 50).astype(float)
    found = marginal(Column("x", "number", values), Column("x", "number", other), weights)
    repeated = np.repeat(values, weights.astype(int))
    shares = np.histogram(np.clip(repeated, found.edges[0], found.edges[-1]), found.edges)[0] / len(repeated)
    np.testing.assert_allclose(found.weighted, shares)
    assert sum(found.source) == pytest.approx(1)


def test_differences_before_and_after_are_means_in_standard_deviations():
    source, target = frame(0, 0.0), frame(1, 1.0)
    pair = encode_pair(source, target)
    findings = diagnose(source, target=Target(target))
    weights = AutoRatio(random_state=0).fit(pair.X, target=pair.X_target)
    balance = gather(pair, findings, weights.weights_, np.random.default_rng(0)).balance
    found = {x.name: x for x in balance}
    place = pair.encoding.feature_names.index("age")
    ages, target_ages = pair.X[:, place], pair.X_target[:, place]
    unit = np.sqrt((ages.var() + target_ages.var()) / 2)
    assert abs(found["age"].before) == pytest.approx(abs(target_ages.mean() - ages.mean()) / unit)
    assert abs(found["age"].after) == pytest.approx(abs(weights.balance_.after[place]), abs=0.1)  # other folds
    left = [abs(x.after) for x in balance]
    assert left == sorted(left, reverse=True)


def test_histogram_counts_every_row_once():
    found = weight_histogram(np.random.default_rng(0).exponential(size=1000))
    assert sum(found.shares) == pytest.approx(1)


def test_without_overlap_there_are_no_weights_to_draw():
    source, target = frame(0, 0.0), frame(1, 1.0)
    findings = replace(diagnose(source, target=Target(target)), ratio=None, balance=())
    evidence = gather(encode_pair(source, target), findings, None, np.random.default_rng(0))
    page = render(findings, evidence, None, facts={}, notes=[])
    assert "do not overlap" in page
    assert "source, weighted" not in page


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0, 0.25, 0.5, 0.75, 1]),
        (-0.19, 0.42, [0, 0.2, 0.4]),
        (0.3, 9.7, [2.5, 5, 7.5]),
        (8.0, 20.0, [10, 15, 20]),
        (1e-5, 3e-5, [1e-5, 1.5e-5, 2e-5, 2.5e-5, 3e-5]),
    ],
)
def test_ticks_are_round_values_within_the_axis(low, high, expected):
    found = svg.Axis(low, high, 0, 100).ticks(4)
    assert found == pytest.approx(expected)
    assert "-0" not in [f"{value:g}" for value in found]


def test_attributes_are_escaped():
    assert str(svg.tag("text", '<&"', class_='"><script>')) == (
        '<text class="&#34;&gt;&lt;script&gt;">&lt;&amp;&#34;</text>'
    )


def test_findings_and_fitted_estimators_show_themselves():
    source, target = frame(0, 0.0), frame(1, 1.0)
    shown = diagnose(source, target=Target(target))._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(60, 2)), rng.normal(0.5, 1, (60, 2))
    from sklearn.linear_model import Ridge

    for model in (ULSIF(random_state=0), WeightedRegressor(Ridge(), ULSIF(random_state=0))):
        assert "importance weights" not in model._repr_html_()
        shown = model.fit(X, X[:, 0], target=X_target)._repr_html_()
        assert "60 importance weights with an effective sample size of" in shown
        assert "Histogram of the weights" in shown
        assert "60 importance weights with an effective sample size of" in model._repr_mimebundle_()["text/html"]


def browse(folder, address, width):
    """A screenshot; what the console said; every address that was asked for."""
    picture, net = folder / f"{width}.png", folder / f"{width}.json"
    said = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / f'profile{width}'}",
            f"--log-net-log={net}",
            f"--window-size={width},4000",
            f"--screenshot={picture}",
            address,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stderr
    asked = [e["params"] for e in json.loads(net.read_text())["events"] if "initiator" in e.get("params", {})]
    # What the browser asks for by itself has no origin.
    urls = {a["url"] for a in asked if a["initiator"] != "not an origin" and not a["url"].startswith("file:")}
    return picture, re.findall(r"CONSOLE.*", said), urls


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: the page is not looked at")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_without_a_complaint_or_a_request(page, tmp_path, width):
    imread = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed: no picture is read").imread

    (tmp_path / "report.html").write_text(page)
    # A window cannot be narrower than 500 pixels; a frame can.
    frame_of = (
        f'<body style="margin:0"><iframe src="report.html" width="{width}" height="4000" style="border:0"></iframe>'
    )
    (tmp_path / "frame.html").write_text(frame_of)
    picture, console, urls = browse(tmp_path, (tmp_path / "frame.html").as_uri(), max(width, 500))
    assert console == []
    assert urls == set()
    pixels = imread(picture)[:, :width, :3]
    ink = np.abs(pixels - pixels[0, 0]).max(axis=2) > 0.2
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    assert rows.max() > 1500  # the page is long, and drawn to its end
    assert columns.max() < width - 4  # and nothing is cut off at the right


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: the page is not looked at")
def test_a_complaint_or_a_request_would_be_seen(tmp_path):
    """The test above could fail."""
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://127.0.0.1:9/x.png"><script>console.error("trouble")</script>')
    _, console, urls = browse(tmp_path, page.as_uri(), 500)
    assert any("trouble" in line for line in console)
    assert urls == {"http://127.0.0.1:9/x.png"}
