"""Is there a shift between two tables? Plain numbers, and a recommendation in words."""

from __future__ import annotations

import json
import textwrap
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from steelyard._numerics.duplicates import units_of_rows
from steelyard._numerics.written import written_p, written_share
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import generator
from steelyard.balance import ColumnBalance, balance_in_words
from steelyard.diagnostics.columns import ColumnShift, column_shifts
from steelyard.diagnostics.conditional import class_conditional_test, concept_test
from steelyard.diagnostics.labels import read_labels, require_one_kind
from steelyard.diagnostics.overlap import pareto_k, uncovered_share
from steelyard.diagnostics.recommendation import LEVEL, kind_of_shift, recommend
from steelyard.diagnostics.two_sample import TestResult, classifier_test, column_test, mmd_test
from steelyard.errors import InputError, NoOverlapError, SteelyardWarning
from steelyard.ratio import AutoRatio
from steelyard.ratio.candidates import mixture_in_words
from steelyard.report import phrases
from steelyard.report.notebook import findings_fragment, weights_fragment
from steelyard.tables import Column, Frame, TablePair, as_frame, encode_pair, match_frames
from steelyard.target import Target
from steelyard.weights import effective_sample_size

AT_MOST = 5000  # rows of a domain that are compared
LEAST_ROWS = 20


@dataclass(frozen=True)
class LabelFindings:
    """Tests that need labels of the target.

    Attributes
    ----------
    label_p : float
        Does the distribution of y differ?
    concept_p : float
        Does y depend on the domain given x (concept shift)?
    class_conditional_p : float
        Does x depend on the domain given y?

    Examples
    --------
    >>> from steelyard.diagnostics import LabelFindings
    >>> LabelFindings(label_p=0.001, concept_p=0.5, class_conditional_p=0.4).label_p
    0.001
    """

    label_p: float
    concept_p: float
    class_conditional_p: float


@dataclass(frozen=True)
class Findings:
    """Is there a shift, of which kind, and will weighting help? Plain numbers; ``to_json`` writes them down.

    Attributes
    ----------
    kind : {"none", "covariate", "label", "concept", "disjoint"}
        The kind of shift.
    recommendation : {"no weighting", "flattened", "relative", "collect data", "not by x"}
        What to do about it.
    reason : str
        What was found, in words.
    advice : str
        What to do about it, in words.
    shift_p : float
        The smallest p-value of the three kinds of test of x, times three.
    auc, classifier_p : float
        AUC of a domain classifier on held-out rows (0.5: no shift seen), and its p-value.
    mmd, mmd_p : float
        Squared maximum mean discrepancy (MMD) of the two distributions, and its p-value.
    columns : tuple of ColumnShift
        Every column, the most shifted first.
    uncovered : float
        Share of target rows outside the source's support (no source row nearby).
    ratio : str or None
        How the importance weights were estimated: the candidates of `AutoRatio` and their shares; None without overlap.
    balance : tuple of ColumnBalance
        Standardized difference of every encoded column to the target before and after weighting with cross-fitted
        weights; the largest difference that is left comes first.
    effective_share : float
        Effective sample size of the importance weights, as a share of n.
    variance_inflation : float
        Its inverse, the price of weighting.
    pareto_k : float
        Tail index of the importance weights; above 0.7 their mean is unreliable.
    largest_share : float
        Share of the total weight that the largest hundredth of the weights carries.
    labels : LabelFindings or None
        Tests that need labels of the target.
    n_source, n_target, n_duplicates : int
        Rows that were compared (after sampling), and duplicates that were left out.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import diagnose
    >>> rng = np.random.default_rng(0)
    >>> findings = diagnose(rng.normal(size=(200, 2)), target=rng.normal(1, 1, size=(200, 2)))
    >>> findings.kind, findings.n_source
    ('covariate', 200)
    >>> print(str(findings).splitlines()[0])
    The columns have shifted: use relative weights
    """

    kind: str
    recommendation: str
    reason: str
    advice: str
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

    @property
    def x_shifted(self) -> bool:
        """Whether the tests of x reject at 5 %.

        Returns
        -------
        bool
        """
        return self.shift_p < LEVEL

    def to_dict(self) -> dict[str, Any]:
        """As dictionaries, lists and numbers."""
        return asdict(self)

    def __repr__(self) -> str:
        """The kind of shift, the recommendation and the numbers behind it, in a few lines."""
        shown = [f"{column.name} ({written_p(column.p_value)})" for column in self.columns[:3]]
        words = " ".join(filter(None, (self.reason, phrases.unseen(self), self.advice)))
        lines = [
            phrases.headline(self, None),
            *textwrap.wrap(words, 110),
            f"domain classifier: AUC {self.auc:.2f} ({written_p(self.classifier_p)}); MMD: {written_p(self.mmd_p)}",
            f"columns, the most shifted first: {', '.join(shown)}{', …' * (len(self.columns) > 3)}",
            f"effective sample size: {written_share(self.effective_share)} of n = {self.n_source:,} source rows; "
            f"outside the source's support: {written_share(self.uncovered)} of {self.n_target:,} target rows",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return str(findings_fragment(self))

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Findings, with the rows that were compared and their importance weights.

    Attributes
    ----------
    findings : Findings
        What the rows say.
    compared : TablePair
        The rows.
    weights : array or None
        Importance weights of the compared source rows; None where source and target do not overlap.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.diagnostics import diagnose_pair
    >>> from steelyard.tables import as_frame, encode_pair
    >>> rng = np.random.default_rng(0)
    >>> pair = encode_pair(as_frame(rng.normal(size=(200, 2))), as_frame(rng.normal(1, 1, size=(200, 2))))
    >>> diagnosis = diagnose_pair(pair)
    >>> len(diagnosis.compared.source), len(diagnosis.weights)
    (200, 200)
    """

    findings: Findings
    compared: TablePair
    weights: FloatArray | None

    def __repr__(self) -> str:
        return repr(self.findings)

    def _repr_html_(self) -> str:
        shown = findings_fragment(self.findings)
        return str(shown if self.weights is None else shown + weights_fragment(self.weights))


def diagnose(X: Any, y: Any = None, *, target: Any, random_state: Any = 0) -> Findings:
    """Compare two tables: is there a shift, of which kind, and what to do about it.

    Parameters
    ----------
    X : table
        Source rows: a pandas, polars or Arrow frame, or an array. Numbers, booleans, dates, categories; values may be
        missing. At most 5,000 rows, drawn at random, are compared.
    y : array, default=None
        Their labels, one for each row.
    target : Target or table
        Target rows. With labels in both domains the kind of shift can be told; they are used for nothing else.
    random_state : int or Generator, default=0
        For sampling, folds and permutations.

    Returns
    -------
    Findings

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
    given = target if isinstance(target, Target) else Target(target)
    source, target_frame = match_frames(as_frame(X), as_frame(given.X))
    labels = read_labels(y, len(source), "source")
    target_labels = read_labels(given.y, len(target_frame), "target")
    kept, n_duplicates = _sample(source, labels, "source", rng)
    target_kept, target_duplicates = _sample(target_frame, target_labels, "target", rng)
    pair = encode_pair(source.take(kept), target_frame.take(target_kept))
    by_label = None
    if labels is not None and target_labels is not None:
        require_one_kind(labels, target_labels)
        by_label = (labels[kept], target_labels[target_kept])
    return _findings(pair, by_label, n_duplicates + target_duplicates, rng).findings


def diagnose_pair(
    pair: TablePair, y: NDArray[Any] | None = None, y_target: NDArray[Any] | None = None, *, random_state: Any = 0
) -> Diagnosis:
    """`diagnose` for tables that are matched and encoded already, with the rows and the weights behind the findings.

    Parameters
    ----------
    pair : TablePair
        Source and target.
    y, y_target : arrays, default=None
        Their labels.
    random_state : int or Generator, default=0
        For sampling, folds and permutations.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.diagnostics import diagnose_pair
    >>> from steelyard.tables import as_frame, encode_pair
    >>> rng = np.random.default_rng(0)
    >>> pair = encode_pair(as_frame(rng.normal(size=(200, 2))), as_frame(rng.normal(1, 1, size=(200, 2))))
    >>> diagnose_pair(pair).findings.kind
    'covariate'
    """
    rng = generator(random_state)
    kept, n_duplicates = _sample(pair.source, y, "source", rng)
    target_kept, target_duplicates = _sample(pair.target, y_target, "target", rng)
    labels = None if y is None or y_target is None else (y[kept], y_target[target_kept])
    return _findings(pair.take(kept, target_kept), labels, n_duplicates + target_duplicates, rng)


def _sample(frame: Frame, labels: NDArray[Any] | None, name: str, rng: np.random.Generator) -> tuple[IntArray, int]:
    """The rows that are compared, and the number of duplicates left out: they would count as evidence twice.

    Only in a table that is as good as continuous are equal rows duplicates (see `duplicates`).
    """
    if len(frame) < LEAST_ROWS:
        raise InputError(f"The {name} has {len(frame)} rows; at least {LEAST_ROWS} are needed to compare tables.")
    columns = [column.values for column in frame.columns] + ([] if labels is None else [labels])
    _, kept = np.unique(units_of_rows(columns), return_index=True)
    rows = np.sort(rng.permutation(np.sort(kept))[:AT_MOST])
    if len(rows) < LEAST_ROWS:
        raise InputError(
            f"The {name} has {len(rows)} distinct rows; at least {LEAST_ROWS} are needed to compare tables."
        )
    return rows, len(frame) - len(kept)


def _findings(
    pair: TablePair,
    labels: tuple[NDArray[Any], NDArray[Any]] | None,
    n_duplicates: int,
    rng: np.random.Generator,
) -> Diagnosis:
    """What the compared rows of both tables say."""
    for rows, name in ((pair.X, "source"), (pair.X_target, "target")):
        if not np.ptp(rows, axis=0).any():
            raise InputError(f"Every row of the {name} is the same: there is nothing to compare.")
    by_label = None if labels is None else _label_findings(pair.X, pair.X_target, *labels, rng)
    weighted = _weights(pair.X, pair.X_target, pair.encoding.feature_names, rng)
    classifier = classifier_test(pair.X, pair.X_target, rng)
    mmd = mmd_test(pair.X, pair.X_target, rng)
    columns = column_shifts(pair)
    shift_p = min(1.0, 3 * min(classifier.p_value, mmd.p_value, columns[0].p_value))
    uncovered = uncovered_share(pair.X, pair.X_target, rng)
    weights = None if weighted is None else weighted.weights_
    balance = () if weighted is None else weighted.balance_.by_column()
    share = 0.0 if weights is None else effective_sample_size(weights) / len(weights)
    tail = np.inf if weights is None else pareto_k(weights)
    largest = 1.0 if weights is None else float(np.sort(weights)[-max(1, len(weights) // 100) :].sum() / weights.sum())
    kind = kind_of_shift(shift_p, uncovered, weights is None, by_label)
    recommendation, reason, advice = recommend(kind, shift_p, columns, uncovered, share, tail, by_label)
    unbalanced = balance_in_words(balance) if recommendation in ("flattened", "relative") else None
    findings = Findings(
        kind,
        recommendation,
        reason,
        advice if unbalanced is None else f"{advice} {unbalanced}",
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
        1 / share if share else float(len(pair.X)),
        float(min(tail, 99.0)),
        largest,
        by_label,
        len(pair.X),
        len(pair.X_target),
        n_duplicates,
    )
    return Diagnosis(findings, pair, weights)


def _weights(source: FloatArray, target: FloatArray, names: list[str], rng: np.random.Generator) -> AutoRatio | None:
    """The fitted ratio; None where source and target do not overlap."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteelyardWarning)  # what they say is in the findings
        try:
            fitted = AutoRatio(random_state=rng).fit(source, target=Target(target))
        except NoOverlapError:
            return None
    fitted.balance_ = replace(fitted.balance_, columns=tuple(names))
    return fitted


def _label_findings(
    source: FloatArray, target: FloatArray, y: NDArray[Any], y_target: NDArray[Any], rng: np.random.Generator
) -> LabelFindings:
    rows = np.concatenate([source, target])
    domain = np.repeat([0.0, 1.0], [len(source), len(target)])
    labels = np.concatenate([y, y_target])
    continuous = type_of_target(labels) in ("continuous", "multiclass") and labels.dtype.kind in "fiu"
    continuous = continuous and len(np.unique(labels)) > 20
    kind = "number" if continuous else "category"
    values = labels.astype(np.float64) if continuous else labels.astype(str).astype(object)
    parts = np.split(values, [len(source)])
    marginal: TestResult = column_test(Column("y", kind, parts[0]), Column("y", kind, parts[1]))
    if continuous:
        outputs = values[:, None]
    else:
        levels = np.unique(labels.astype(str))
        outputs = labels.astype(str)[:, None] == levels[:-1] if len(levels) > 1 else np.zeros((len(labels), 1))
        outputs = outputs.astype(np.float64)
    return LabelFindings(
        marginal.p_value,
        concept_test(rows, outputs, domain, rng).p_value,
        class_conditional_test(rows, outputs, domain, rng).p_value,
    )
