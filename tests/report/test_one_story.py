"""The verdict, the advice and the outcome agree: made-up situations, tested on the words of page and terminal."""

import html
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from steelyard.app.commands import show_findings, show_run
from steelyard.app.comparison import ComparedMethod, Comparison
from steelyard.app.workflow import FittedTables, diagnosis_report, run_dict
from steelyard.diagnostics import diagnose_pair
from steelyard.model_selection import Interval
from steelyard.report import gather, phrases, render
from steelyard.tables import Column, Frame, as_frame, encode_pair
from steelyard.weights import effective_sample_size, normalize


def mixed(rng, n, shift):
    """Numbers with missing values, a category of twenty cities, dates."""
    age = rng.normal(40 + 8 * shift, 10, n)
    age[rng.random(n) < 0.1] = np.nan
    odds = np.exp(-0.1 * (1 - 2 * shift) * np.arange(20))
    city = np.array([f"city {i}" for i in rng.choice(20, n, p=odds / odds.sum())], dtype=object)
    columns = (
        Column("age", "number", age),
        Column("city", "category", city),
        Column("since", "date", 19_000 + 100 * rng.random(n)),
    )
    return Frame(columns, n)


MOVES = {"mild": 0.5, "kept plain": 0.5, "strong": 1.5, "disjoint": 8.0, "one of 60": 0.8, "tiny": 1.2}


def tables(name):
    rng = np.random.default_rng(7)
    n = 40 if name == "tiny" else 400
    if name == "mixed":
        return mixed(rng, n, 0.0), mixed(rng, n, 1.0)
    if name == "discrete":
        return tuple(as_frame(rng.choice(3, (n, 3), p=p)) for p in ([0.6, 0.2, 0.2], [0.3, 0.3, 0.4]))
    n_columns = 60 if name == "one of 60" else 4
    X, T = rng.normal(size=(n, n_columns)), rng.normal(size=(n, n_columns))
    T[:, 0] += {"mild": 0.5, "kept plain": 0.5, "strong": 1.5, "disjoint": 8.0, "one of 60": 0.8, "tiny": 1.2}.get(
        name, 0
    )
    if name == "heavy tails":
        T[:, 0] *= 2.5
    if name == "extrapolation":
        T[: n // 5, 0] += 7
    return as_frame(X), as_frame(T)


SITUATIONS = {  # and what a diagnosis may recommend
    "none": {"no weighting"},
    "mild": {"flattened", "relative"},
    "strong": {"relative"},
    "disjoint": {"collect data"},
    "heavy tails": {"relative"},
    "discrete": {"flattened", "relative"},
    "mixed": {"flattened", "relative"},
    "one of 60": {"flattened", "relative"},
    "tiny": {"flattened", "relative"},
    "kept plain": {"flattened", "relative"},
    "extrapolation": {"relative"},
}
# What a fit may do: the chosen method, and whether importance weights enter it.
FORMS = {
    "plain": False,
    "combination": False,
    "weighted combination": True,
    "weighted learner": True,
}
LABELS = "Without target labels"
# Two sentences of a pair may not stand in one story.
USE = r"\buse (relative|flattened)"
CONTRADICTIONS = (
    (r"Keep the plain model", rf"{USE}|weighted for the target|advised|lower than that of the plain"),
    (r"weighted for the target", r"without weights|only add noise|No importance weights|not used by the chosen model"),
    (r"No shift was found|find no difference", rf"\bdiffer \(|in \d+ of \d+ columns|\b(mild|strong)\b|{USE}"),
    (r"No importance weights can represent", rf"weighted for the target|{USE}|at little cost"),
    (r"[Cc]ollect labeled", r"No shift was found|weighted for the target|\b(mild|strong)\b"),
    (r"[Ff]it without weights", rf"{USE}|[Cc]ollect labeled|weighted for the target"),
    (r"cannot be known from these tables", r"the plain model on the target: \d"),
    (r"no other method was clearly better", r"lower than that of the plain"),
    (LABELS, r"(Covariate|Label|Concept) shift\b"),
)


def contradictions(story):
    return [(a, b) for a, b in CONTRADICTIONS if re.search(a, story) and re.search(b, story)]


def text_of(page):
    """What a reader sees, in lines."""
    body = re.sub(r"<(style|title|desc)>.*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "\n", body))


def words_of(text):
    return " ".join(text.split())


def compared(form, findings):
    """A comparison as a fit would return it: four learners, alone and together."""
    names = ["linear", "RBF", "boosted trees", "forest"]
    weighted = FORMS[form]
    suffix = ", weighted" if weighted else ""
    methods = [
        ComparedMethod(name, name, False, 1.0 + 0.1 * i, 0.9, -0.1 * i, 0.02, 400.0) for i, name in enumerate(names)
    ]
    members = tuple(zip((name + suffix for name in names), (0.4, 0.3, 0.2, 0.1), strict=True))
    flattening = None if findings.kind == "disjoint" else 0.5 if weighted else 1.0
    combination = "weighted stacking" if weighted else "stacking"
    methods.append(ComparedMethod(combination, "combination", weighted, 0.88, 0.9, 0.12, 0.03, 300.0, members))
    methods += [ComparedMethod(f"{name}, weighted", name, True, 0.9, 0.95, 0.1, 0.03, 300.0) for name in names]
    chosen = {"plain": 0, "combination": 4, "weighted combination": 4, "weighted learner": 5}[form]
    known = Interval(0.5, 0.4, 0.7)
    disjoint = findings.kind == "disjoint"
    scores = {"source": known} if disjoint else dict.fromkeys(("source", "plain", "chosen"), known)
    size = 0.0 if disjoint else 60.0
    return Comparison(
        tuple(methods),
        chosen,
        0,
        size,
        findings.n_source,
        "By the rule.",
        (),
        scores,
        "squared error",
        False,
        weighted,
        flattening,
    )


@pytest.fixture(scope="module")
def diagnoses():
    return {name: diagnose_pair(encode_pair(*tables(name))) for name in SITUATIONS}


STORIES = [
    (name, form)
    for name in SITUATIONS
    for form, weighted in FORMS.items()
    if not (weighted and name in ("disjoint", "none")) and (name != "kept plain" or form == "plain")
]


def told(diagnosis, form):
    """The page of a fit, and what its terminal said."""
    findings, pair = diagnosis.findings, diagnosis.compared
    comparison = compared(form, findings)
    weights = diagnosis.weights if findings.kind != "disjoint" else None
    if weights is not None and comparison.weights_used:
        weights = normalize(np.sqrt(weights))
    evidence = gather(pair, findings, weights, np.random.default_rng(0))
    page = render(findings, evidence, comparison, facts={}, notes=[])
    console = Console(file=io.StringIO(), width=200)
    show_run(FittedTables(findings, comparison, None, (), {"report.html": page}), Path("run"), console)
    return findings, comparison, weights, page, console.file.getvalue()


@pytest.fixture(scope="module")
def stories(diagnoses):
    return {(name, form): told(diagnoses[name], form) for name, form in STORIES}


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_is_what_it_is_called(diagnoses, name):
    assert diagnoses[name].findings.recommendation in SITUATIONS[name]


@pytest.mark.parametrize(("name", "form"), STORIES)
def test_a_fit_tells_one_story(stories, name, form):
    findings, comparison, weights, page, terminal = stories[name, form]
    text = words_of(text_of(page))
    for story in (text, words_of(terminal)):
        assert contradictions(story) == []
        assert findings.advice not in story  # a fit has decided
        assert LABELS in story
        assert ("covariate shift and label shift cannot be told apart" in story) == (findings.kind == "covariate")
        assert phrases.headline(findings, comparison) in story
        assert phrases.outcome(findings, comparison) in story
        assert ("weighted for the target" in story) == comparison.weights_used
        assert ("Collect labeled data near the target" in story) == (name == "disjoint")
        assert ("or drop columns that differ by construction" in story) == (name == "disjoint")
        assert ("the model is fitted without weights" in story) == (name == "disjoint")
        assert ("unknown" in story) == (name == "disjoint")
    if form == "plain":
        assert phrases.headline(findings, comparison) == "Keep the plain model (linear)"
    elif "combination" in form:
        assert "A combination of four learners" in text
    assert ("not used by the chosen model" in text) == (weights is not None and not comparison.weights_used)


@pytest.mark.parametrize(("name", "form"), STORIES)
def test_one_effective_sample_size_that_of_the_weights_drawn(stories, name, form):
    _, _, weights, page, _ = stories[name, form]
    found = set(re.findall(r"[Ee]ffective sample size (?:of )?([\d,]+ of [\d,]+)", page))
    expected = set() if weights is None else {f"{effective_sample_size(weights):,.0f} of {len(weights):,}"}
    assert found == expected
    assert "ESS" not in page


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_diagnosis_gives_one_advice(diagnoses, name):
    diagnosis = diagnoses[name]
    findings = diagnosis.findings
    page = words_of(text_of(diagnosis_report(diagnosis, {}, [], 0)))
    console = Console(file=io.StringIO(), width=200)
    show_findings(findings, console)
    wanted = {
        "no weighting": (r"[Ff]it without weights", r"\buse |[Cc]ollect"),
        "flattened": (r"use flattened weights", r"relative|[Cc]ollect|[Ff]it without"),
        "relative": (r"use relative weights", r"flattened|[Cc]ollect|[Ff]it without"),
        "collect data": (r"[Cc]ollect labeled data near the target", r"\buse |[Ff]it without"),
    }[findings.recommendation]
    shown = words_of(str(findings)), words_of(console.file.getvalue()), page, words_of(text_of(findings._repr_html_()))
    for story in shown:
        assert contradictions(story) == []
        assert phrases.headline(findings, None) in story
        assert findings.advice.split(".")[0] in story
        assert LABELS in story
        assert re.search(wanted[0], story)
        assert not re.search(wanted[1], story), re.search(wanted[1], story)
    assert len(set(re.findall(r"[\d,]+ of [\d,]+ rows \(>?\d+%\)", " ".join(shown)))) == (diagnosis.weights is not None)


@pytest.mark.parametrize(("name", "form"), STORIES)
def test_the_words_above_the_first_picture_are_plain(stories, name, form):
    page = stories[name, form][3]
    above = text_of(page[: page.index("<svg")])
    for jargon in ("AUC", "Pareto", "MMD", "density ratio", "effective sample size", "IWCV", "cross-validation", "ESS"):
        assert jargon not in above


def test_contradictions_of_earlier_pages_are_noticed():
    earlier = "Keep the plain model (linear) Covariate shift: relative (bounded) weights or one-step are advised."
    assert contradictions(earlier)
    assert contradictions("A combination of four learners, weighted for the target. They would only add noise.")
    assert contradictions("Covariate shift was found. Without target labels nothing is known.")


def test_weights_that_correct_nothing_are_not_advised():
    """Eighty rows of three hundred columns: one has shifted, and the weights do not see it."""
    rng = np.random.default_rng(11)
    X, T = rng.normal(size=(80, 300)), rng.normal(size=(80, 300))
    T[:, 0] += 1.4
    findings = diagnose_pair(encode_pair(as_frame(X), as_frame(T))).findings
    assert findings.shift_p < 0.001
    assert findings.effective_share > 0.99
    assert findings.recommendation == "no weighting"
    assert str(findings).startswith("The columns have shifted: fit without weights")
    assert "are all but uniform" in findings.advice


def test_the_table_of_columns_fits_a_terminal(diagnoses):
    console = Console(file=io.StringIO(), width=80)
    findings = diagnoses["mixed"].findings
    long = replace(findings.columns[0], name="a_column_whose_name_is_longer_than_the_terminal_leaves_room_for")
    show_findings(replace(findings, columns=(long, *findings.columns[1:])), console)
    said = console.file.getvalue()
    assert "…" not in said
    cells = [line.split("│")[1].strip() for line in said.splitlines() if line.startswith("│")]
    assert long.name in "".join(cells)
    for head in ("difference ┃", "┃ distance ┃", "┃ drifted ┃"):
        assert head in said
    assert "distance at least 0.10" in words_of(said)
    assert "threshold" not in said
    assert "(above 0.7 is heavy)" in said
    assert re.search(r"┃ +corrected ┃", said)


@pytest.mark.parametrize("form", FORMS)
def test_the_table_of_methods_fits_a_terminal(diagnoses, form):
    findings = diagnoses["mild"].findings
    comparison = compared(form, findings)
    methods = [replace(method, loss=51_832.3, gain=-10_321.4, gain_error=4_012.2) for method in comparison.methods]
    console = Console(file=io.StringIO(), width=80)
    run = FittedTables(findings, replace(comparison, methods=tuple(methods)), None, (), {"report.html": ""})
    show_run(run, Path("run"), console)
    said = console.file.getvalue()
    assert "…" not in said
    for name in ("method ", "squared error ┃", "gain over plain ┃", *(m.name for m in methods)):
        assert name in said


WEIGHTED = ("RBF, weighted", "forest, weighted")


@pytest.mark.parametrize(
    ("members", "headline", "fitted"),
    [
        (
            ("linear", "forest"),
            "A combination of two learners, its shares chosen for the target",
            "The shares of the combination are fitted with them, its members are not.",
        ),
        (
            WEIGHTED,
            "A combination of two learners, weighted for the target",
            "Fitted with them are the shares of the combination and all its members.",
        ),
        (
            ("linear", *WEIGHTED),
            "A combination of three learners, two of them weighted for the target",
            "Fitted with them are the shares of the combination and its members RBF, forest.",
        ),
        (
            ("linear", "forest, weighted", "one-step"),
            "A combination of three learners, two of them weighted for the target",
            "Fitted with them are the shares of the combination and its member forest. One-step, a member, finds",
        ),
        (
            ("linear", "one-step"),
            "A combination of two learners, one of them weighted for the target",
            "are fitted with them, its members are not. One-step, a member, finds weights of its own.",
        ),
    ],
)
def test_what_is_weighted_is_said_of_the_parts_that_are(diagnoses, members, headline, fitted):
    """A combination whose shares alone are weighted is not called weighted; page, terminal and JSON say the same."""
    diagnosis = diagnoses["mild"]
    found = compared("weighted combination", diagnosis.findings)
    one_step = ComparedMethod("one-step", "one-step", True, 0.9, 0.95, 0.1, 0.03, 300.0)
    shares = tuple((name, 1 / len(members)) for name in members)
    methods = [*found.methods, one_step]
    methods[found.chosen] = replace(methods[found.chosen], shares=shares)
    found = replace(found, methods=tuple(methods))
    assert phrases.headline(diagnosis.findings, found) == headline
    evidence = gather(diagnosis.compared, diagnosis.findings, diagnosis.weights, np.random.default_rng(0))
    page = render(diagnosis.findings, evidence, found, facts={}, notes=[])
    console = Console(file=io.StringIO(), width=200)
    show_run(FittedTables(diagnosis.findings, found, None, (), {"report.html": page}), Path("run"), console)
    for story in (words_of(text_of(page)), words_of(console.file.getvalue())):
        assert headline in story
        assert fitted in story
        assert "flattened (to the power 0.5)" in story
    assert fitted in run_dict(diagnosis.findings, found)["weights_file"]


def test_a_model_with_weights_of_its_own_is_not_said_to_use_flattened_ones(diagnoses):
    found = replace(compared("weighted learner", diagnoses["mild"].findings), flattening=None)
    assert phrases.weights_file(found) == (
        "weights.csv holds the weights that one-step found for itself; they are not flattened."
    )


def test_the_errors_are_those_of_the_domain_that_they_are_called_by(diagnoses):
    for name, domain in (("none", "source"), ("disjoint", "source"), ("mild", "target")):
        for form in ("plain", "combination"):
            _, _, _, page, terminal = told(diagnoses[name], form)
            assert f"change of the error on the {domain}" in page
            assert f"Estimated squared error of each method on the {domain}" in terminal
            assert ("is estimated in another way" in words_of(terminal)) == (domain == "target")
            assert ("is estimated in another way" in words_of(text_of(page))) == (domain == "target")
            assert ("weighted to represent the target" in page) == (domain == "target")
            assert ("error on the target</th>" in page) == (domain == "target")
            assert ("No weights can represent the target" in page) == (name == "disjoint")


def test_a_column_that_drifted_means_a_shift(diagnoses):
    """Where no shift is found no column has drifted; the level of the columns is that of one of three tests."""
    for diagnosis in diagnoses.values():
        findings = diagnosis.findings
        for column in findings.columns:
            assert not column.drifted or (findings.shift_p < 0.05 and column.distance >= 0.1)
    findings = diagnoses["strong"].findings
    drifted = sum(column.drifted for column in findings.columns)
    assert phrases.drift(findings) == f"Drift is seen in {drifted} of 4 columns."
    just = replace(findings.columns[0], p_value=0.02, distance=0.5)
    assert not just.drifted
    assert replace(just, p_value=0.016).drifted
    assert not replace(just, p_value=0.0, distance=0.09).drifted
    assert phrases.drift(replace(findings, columns=(just,))).startswith("The only column did not drift: the difference")


def test_categories_that_are_not_drawn_are_counted(diagnoses):
    mixed, numbers = (words_of(text_of(diagnosis_report(diagnoses[name], {}, [], 0))) for name in ("mixed", "mild"))
    assert "The commonest values; 14 more are not shown." in mixed  # six of twenty cities are drawn
    assert "not shown" not in numbers


def test_with_target_labels_the_kind_is_named():
    rng = np.random.default_rng(1)
    X, T = rng.normal(size=(400, 2)), rng.normal([0.6, 0], 1, size=(400, 2))
    pair = encode_pair(as_frame(X), as_frame(T))
    noise = 0.3 * rng.normal(size=(2, 400))
    same = diagnose_pair(pair, X[:, 0] + noise[0], T[:, 0] + noise[1]).findings
    assert str(same).startswith("Covariate shift: ")
    other = diagnose_pair(pair, X[:, 0] + noise[0], T[:, 1] + noise[1]).findings
    assert str(other).startswith("Concept shift: weighting by x does not help")
    for findings in (same, other):
        assert "target labels" not in str(findings)
        assert contradictions(str(findings)) == []


def test_a_score_says_why_it_has_no_interval_or_is_unknown(diagnoses):
    findings = diagnoses["strong"].findings
    comparison = compared("weighted combination", findings)
    performance = {"source": Interval(0.25, 0.2, 0.3), "plain": Interval(1e6, None, None)}
    for rough, about in ((True, "few source rows are like the target"), (False, "too few rows")):
        found = phrases.scores(findings, replace(comparison, performance=performance, rough=rough))
        assert found[0] == ("the plain model on the source", "0.5 (0.447 to 0.548)", "95% interval")
        assert found[1][:2] == ("the plain model on the target", "1,000")
        assert found[1][2].startswith("without an interval: ")
        assert about in found[1][2]
        assert found[2] == ("the chosen model on the target", "unknown", "it cannot be estimated from these rows")


@pytest.mark.parametrize(
    ("found", "promised", "measure", "words"),
    [
        ((4.0, 3, 5), (4.41, 4, 9), "squared error", "held: 2 lies within the promised 2 to 3 and is 0.1 better than"),
        (
            (16.0, 15, 17),
            (4.0, 3, 9),
            "squared error",
            "not hold: 4 lies outside the promised 1.73 to 3 and is 2 worse",
        ),
        ((0.8, 0.79, 0.81), (0.9, 0.85, 0.95), "accuracy", "not hold: 80.0% lies outside the promised 85.0% to 95.0%"),
        ((0.8, 0.79, 0.81), (0.9, 0.85, 0.95), "accuracy", "is 10.0 points worse than the expected 90.0%."),
        ((0.8, 0.7, 0.9), (0.9, 0.85, 0.95), "accuracy", "Whether the promise held cannot be told: 80.0% lies outside"),
        ((0.9, 0.8, 0.95), (0.9, 0.85, 0.95), "accuracy", "and is just as expected."),
        ((0.9, 0.8, 0.95), (0.85, None, None), "accuracy", "85.0% without an interval; 90.0% is 5.0 points better"),
        ((0.9, 0.8, 0.95), None, "accuracy", "The fit promised no score on the target"),
    ],
)
def test_whether_a_promise_held(found, promised, measure, words):
    told_before = None if promised is None else Interval(*promised)
    assert words in phrases.promise(Interval(*found), told_before, measure)
