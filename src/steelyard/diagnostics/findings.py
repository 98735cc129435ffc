"""What two tables say about each other: plain numbers, and a recommendation in words."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import type_of_target

from steelyard._numerics.duplicates import units_of_rows
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import generator
from steelyard.balance import ColumnBalance, balance_in_words
from steelyard.diagnostics.conditional import class_conditional_test, concept_test
from steelyard.diagnostics.two_sample import TestResult, classifier_test, column_test, mmd_test
from steelyard.errors import InputError, NoOverlapError, SteelyardWarning
from steelyard.ratio import AutoRatio
from steelyard.ratio.candidates import mixture_in_words
from steelyard.report.notebook import findings_fragment
from steelyard.tables import Column, Frame, as_frame
from steelyard.tables.encoding import learn_encoding, match_frames
from steelyard.target import Target
from steelyard.weights import effective_sample_size

AT_MOST = 5000  # rows of a domain that are looked at
ALPHA = 0.05
FAR = 0.5  # share of target rows without a source row nearby beyond which no weighting helps
FEW = 0.6  # share of effective rows below which a shift counts as strong
HEAVY = 0.7  # Pareto k above which a mean of the weights is not to be trusted
BEYOND = 0.05  # share of target rows beyond the source from which on the plain ratio has no bound
LEAST_ROWS = 20


@dataclass(frozen=True)
class ColumnShift:
    """How far one column has moved."""

    name: str
    kind: str
    distance: float  # between the two distributions, 0 to 1
    standardized_difference: float  # of the means, in pooled standard deviations; for a category its largest level's
    p_value: float  # times the number of columns


@dataclass(frozen=True)
class LabelFindings:
    """What the labels of the target add."""

    label_p: float  # does the distribution of y differ?
    concept_p: float  # does y depend on the domain given x?
    class_conditional_p: float  # does x depend on the domain given y?


@dataclass(frozen=True)
class Findings:
    """Is there a shift, of which kind, will weighting help. Plain numbers; ``to_json`` writes them down.

    Attributes
    ----------
    kind : "none", "covariate", "label", "concept", or "disjoint".
    recommendation : "no weighting", "flattened", "relative", "collect data" or "not by x".
    reason : the recommendation in words, with the numbers behind it.
    shift_p : the least p-value of the three kinds of test of x, times three.
    auc, classifier_p : how well a classifier tells held-out rows apart (½: not at all).
    mmd, mmd_p : kernel distance of the two distributions.
    columns : every column, the most shifted first.
    uncovered : share of target rows that have no source row nearby.
    ratio : how the importance weights were estimated: the candidates of `AutoRatio` and their shares; None without any
        overlap.
    balance : standardized difference of every encoded column to the target before and after weighting, on rows that
        the weights have not seen; what is left most comes first.
    effective_share : effective sample size of the weights, as a share of the rows.
    variance_inflation : its inverse, the price of weighting.
    pareto_k : tail index of the weights; above 0.7 their mean is not to be trusted.
    largest_share : weight carried by the heaviest hundredth of the rows.
    labels : tests that need labels of the target, or None.
    n_source, n_target, n_duplicates : rows looked at (after sampling), and copies of rows that were left out.
    """

    kind: str
    recommendation: str
    reason: str
    shift_p: float
    auc: float
    classifier_p: float
    mmd: float
    mmd_p: float
    columns: tuple[ColumnShift, ...]
    uncovered: float
    ratio: str | None
    balance: tuple[ColumnBalance, ...]
    effective_share: float
    variance_inflation: float
    pareto_k: float
    largest_share: float
    labels: LabelFindings | None
    n_source: int
    n_target: int
    n_duplicates: int

    def to_dict(self) -> dict[str, Any]:
        """As dictionaries, lists and numbers."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return str(findings_fragment(self))

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


def diagnose(X: Any, y: Any = None, *, target: Any, random_state: Any = 0) -> Findings:
    """Compare two tables: is there a shift, of which kind, and what to do about it.

    Parameters
    ----------
    X : table
        Source rows: a pandas, polars or Arrow frame, or an array. Numbers, booleans, dates, categories; values may be
        missing. At most 5,000 rows, drawn at random, are looked at.
    y : array, default=None
        Their labels.
    target : Target or table
        The other domain. With labels on both sides the kind of shift can be told; they serve nothing else.
    random_state : int or Generator, default=0
        For sampling, folds and permutations.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import diagnose
    >>> rng = np.random.default_rng(0)
    >>> found = diagnose(rng.normal(size=(300, 2)), target=rng.normal(0.5, 1, size=(300, 2)))
    >>> found.kind
    'covariate'
    """
    rng = generator(random_state)
    rows = target.X if isinstance(target, Target) else target
    source, goal = match_frames(as_frame(X), as_frame(rows))
    labels = _labels(y, source), _labels(target.y if isinstance(target, Target) else None, goal)
    for frame, name in ((source, "source"), (goal, "target")):
        if len(frame) < LEAST_ROWS:
            raise InputError(f"The {name} has {len(frame)} rows; at least {LEAST_ROWS} are needed to compare tables.")
    near, copies_near = _sample(source, labels[0], rng)
    far, copies_far = _sample(goal, labels[1], rng)
    for rows_kept, name in ((near, "source"), (far, "target")):
        if len(rows_kept) < LEAST_ROWS:
            raise InputError(
                f"The {name} has {len(rows_kept)} distinct rows; at least {LEAST_ROWS} are needed to compare tables."
            )
    one, other = source.take(near), goal.take(far)
    encoding = learn_encoding(one, other)
    a, b = encoding.transform(one), encoding.transform(other)
    for rows_encoded, name in ((a, "source"), (b, "target")):
        if not np.ptp(rows_encoded, axis=0).any():
            raise InputError(f"Every row of the {name} is the same: there is nothing to compare.")
    known = labels[0] is not None and labels[1] is not None
    by_label = _label_findings(a, b, labels[0][near], labels[1][far], rng) if known else None  # type: ignore[index]
    weighted = _weights(a, b, encoding.feature_names, rng)
    return _findings(one, other, a, b, weighted, by_label, copies_near + copies_far, rng)


def _labels(y: Any, frame: Frame) -> NDArray[Any] | None:
    if y is None:
        return None
    values = np.asarray(y).ravel()
    if len(values) != len(frame):
        raise InputError(f"{len(values)} labels for {len(frame)} rows; one a row is needed.")
    return values


def _sample(frame: Frame, labels: NDArray[Any] | None, rng: np.random.Generator) -> tuple[IntArray, int]:
    """At most so many rows, duplicates left out: they would count as evidence twice.

    Only in a table that is as good as continuous are equal rows duplicates (see `duplicates`).
    """
    columns = [column.values for column in frame.columns] + ([] if labels is None else [labels])
    _, kept = np.unique(units_of_rows(columns), return_index=True)
    return np.sort(rng.permutation(np.sort(kept))[:AT_MOST]), len(frame) - len(kept)


def _findings(
    one: Frame,
    other: Frame,
    a: FloatArray,
    b: FloatArray,
    weighted: AutoRatio | None,
    by_label: LabelFindings | None,
    n_duplicates: int,
    rng: np.random.Generator,
) -> Findings:
    classifier = classifier_test(a, b, rng)
    mmd = mmd_test(a, b, rng)
    columns = column_shifts(one, other)
    shift_p = min(1.0, 3 * min(classifier.p_value, mmd.p_value, columns[0].p_value))
    uncovered = uncovered_share(a, b, rng)
    weights = None if weighted is None else weighted.weights_
    balance = () if weighted is None else weighted.balance_.by_column()
    share = 0.0 if weights is None else effective_sample_size(weights) / len(weights)
    tail = np.inf if weights is None else pareto_k(weights)
    largest = 1.0 if weights is None else _largest_share(weights)
    kind = kind_of_shift(shift_p, uncovered, weights is None, by_label)
    recommendation, reason = recommend(kind, shift_p, columns, uncovered, share, tail, by_label)
    unbalanced = balance_in_words(balance) if recommendation in ("flattened", "relative") else None
    return Findings(
        kind,
        recommendation,
        reason if unbalanced is None else f"{reason} {unbalanced}",
        shift_p,
        classifier.statistic,
        classifier.p_value,
        mmd.statistic,
        mmd.p_value,
        columns,
        uncovered,
        None if weighted is None else mixture_in_words(weighted.candidates_),
        balance,
        share,
        1 / share if share else float(len(a)),
        float(min(tail, 99.0)),
        largest,
        by_label,
        len(a),
        len(b),
        n_duplicates,
    )


def column_shifts(source: Frame, target: Frame) -> tuple[ColumnShift, ...]:
    """Every column's test and effect, the most shifted first."""
    found = []
    for column in source.columns:
        theirs = target[column.name]
        test = column_test(column, theirs)
        effect = standardized_difference(column, theirs)
        p = min(1.0, test.p_value * len(source.columns))
        found.append(ColumnShift(column.name, column.kind, test.statistic, effect, p))
    return tuple(sorted(found, key=lambda c: (c.p_value, -c.distance)))


def standardized_difference(source: Column, target: Column) -> float:
    """Difference of means over the pooled standard deviation; for a category that of its most shifted level."""
    if source.kind != "category":
        return _difference(source.values, target.values)
    levels = {v for c in (source, target) for v in c.values if v is not None}
    found = [
        _difference((source.values == v).astype(float), (target.values == v).astype(float)) for v in sorted(levels)
    ]
    return max(found, key=abs, default=0.0)


def _difference(one: FloatArray, other: FloatArray) -> float:
    one, other = one[np.isfinite(one)], other[np.isfinite(other)]
    if not len(one) or not len(other):
        return 0.0
    spread = np.sqrt((one.var() + other.var()) / 2)
    return float((other.mean() - one.mean()) / spread) if spread > 0 else 0.0


def uncovered_share(source: FloatArray, target: FloatArray, rng: np.random.Generator, at_most: int = 2000) -> float:
    """Share of target rows further from the source than source rows are from each other (but for one in a hundred)."""
    from sklearn.neighbors import NearestNeighbors

    near = source[rng.permutation(len(source))[:at_most]]
    far = target[rng.permutation(len(target))[:at_most]]
    scaler = StandardScaler().fit(np.concatenate([near, far]))
    index = NearestNeighbors(n_neighbors=2).fit(scaler.transform(near))
    own = index.kneighbors(scaler.transform(near))[0][:, 1]
    theirs = index.kneighbors(scaler.transform(far), n_neighbors=1)[0][:, 0]
    return float(np.mean(theirs > np.quantile(own, 0.99)))


def _weights(source: FloatArray, target: FloatArray, names: list[str], rng: np.random.Generator) -> AutoRatio | None:
    """The fitted ratio, None where the domains share no region."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # what they say is in the findings
        try:
            fitted = AutoRatio(random_state=rng).fit(source, target=Target(target))
        except NoOverlapError:
            return None
    fitted.balance_ = replace(fitted.balance_, columns=tuple(names))
    return fitted


def pareto_k(weights: FloatArray) -> float:
    """Tail index of the largest weights, by a generalized Pareto fit: 0.5 no variance, 1 no mean."""
    from scipy.stats import genpareto

    n_tail = int(min(len(weights) / 5, 3 * np.sqrt(len(weights))))
    ordered = np.sort(weights)
    excess = ordered[-n_tail:] - ordered[-n_tail - 1]
    if n_tail < 5 or not excess.max() > 0:
        return 0.0
    return float(genpareto.fit(excess[excess > 0], floc=0)[0])


def _largest_share(weights: FloatArray) -> float:
    n_top = max(1, len(weights) // 100)
    return float(np.sort(weights)[-n_top:].sum() / weights.sum())


def _label_findings(
    a: FloatArray, b: FloatArray, y_source: NDArray[Any], y_target: NDArray[Any], rng: np.random.Generator
) -> LabelFindings:
    rows = np.concatenate([a, b])
    domain = np.repeat([0.0, 1.0], [len(a), len(b)])
    labels = np.concatenate([y_source, y_target])
    continuous = type_of_target(labels) in ("continuous", "multiclass") and labels.dtype.kind in "fiu"
    continuous = continuous and len(np.unique(labels)) > 20
    kind = "number" if continuous else "category"
    text = labels.astype(np.float64) if continuous else labels.astype(str).astype(object)
    parts = np.split(text, [len(a)])
    marginal: TestResult = column_test(Column("y", kind, parts[0]), Column("y", kind, parts[1]))
    if continuous:
        outputs = text[:, None]
    else:
        levels = np.unique(labels.astype(str))
        outputs = labels.astype(str)[:, None] == levels[:-1] if len(levels) > 1 else np.zeros((len(labels), 1))
        outputs = outputs.astype(np.float64)
    return LabelFindings(
        marginal.p_value,
        concept_test(rows, outputs, domain, rng).p_value,
        class_conditional_test(rows, outputs, domain, rng).p_value,
    )


def kind_of_shift(shift_p: float, uncovered: float, no_overlap: bool, labels: LabelFindings | None) -> str:
    """The name of the shift, by what the tests reject at 5 %."""
    if no_overlap or uncovered > FAR:
        return "disjoint"
    if labels is not None:
        # Other label shares show in x as well, a changed meaning of x need not.
        both = max(labels.label_p, labels.concept_p, shift_p) < ALPHA
        if both and labels.class_conditional_p >= ALPHA:
            return "label"
        if labels.concept_p < ALPHA:
            return "concept"
    return "covariate" if shift_p < ALPHA else "none"


def recommend(
    kind: str,
    shift_p: float,
    columns: tuple[ColumnShift, ...],
    uncovered: float,
    effective_share: float,
    tail: float,
    labels: LabelFindings | None,
) -> tuple[str, str]:
    """What to do, and why."""
    moved = [c.name for c in columns if c.p_value < ALPHA][:3]
    where = f" Most shifted: {', '.join(moved)}." if moved else ""
    if kind == "disjoint":
        return "collect data", (
            f"{uncovered:.0%} of the target rows have no source row nearby, so no weighting of the source can look "
            "like the target. Collect labeled rows nearer to the target, or drop columns that differ by "
            f"construction.{where}"
        )
    if kind == "label" and labels is not None:
        return "not by x", (
            f"The labels are distributed differently (p = {labels.label_p:.2g}) while rows of the same label look "
            f"alike (p = {labels.class_conditional_p:.2g}): label shift. Weighting by x does not help; weight by the "
            "ratio of the label shares."
        )
    if kind == "concept" and labels is not None:
        return "not by x", (
            f"The same x has other labels in the target (p = {labels.concept_p:.2g}): concept shift. Weighting by x "
            "does not help; learn from labeled target rows."
        )
    if kind == "none":
        return "no weighting", (
            f"The tests see no difference between source and target (p = {shift_p:.2g}). Weighting would only add "
            "noise."
        )
    said = f"Source and target differ (p = {shift_p:.2g}); weights are worth {effective_share:.0%} of the rows."
    if tail > HEAVY or uncovered > BEYOND:
        return "relative", (
            f"{said} {uncovered:.0%} of the target rows lie beyond the source (Pareto k = {tail:.2f}), where the plain "
            f"ratio has no bound: use the relative one.{where}"
        )
    if effective_share < FEW:
        return "relative", f"{said} That is a strong shift: use a bounded ratio, or one-step.{where}"
    return "flattened", f"{said} That is a mild shift: flattened weights correct it at little cost.{where}"
