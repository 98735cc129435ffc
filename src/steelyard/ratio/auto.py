"""The default ratio estimator: candidates averaged by their cross-validated scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments, blocks, gaussian
from steelyard._numerics.written import written_share
from steelyard._progress import LOG
from steelyard._splits.merged_rows import FoldParts, assign_folds, number_of_folds
from steelyard._threads import one_openmp_thread
from steelyard._typing import FloatArray
from steelyard._validation import check_count
from steelyard.balance import Balance, column_balance
from steelyard.errors import NoOverlapError, RawMeanWarning, warn_user
from steelyard.ratio._auto_streams import refit_ulsif, refitted_linear
from steelyard.ratio._base import InductiveRatio
from steelyard.ratio._centers import fold_of_centers
from steelyard.ratio._domain_classifiers import MOST_BOOSTED, BoundedCalibration, fit_odds
from steelyard.ratio._overlap import NO_OVERLAP
from steelyard.ratio._sums import RatioSums, Summary
from steelyard.ratio.candidates import BOOSTED, KERNEL, LINEAR, UNIFORM, RatioCandidate, assign_shares
from steelyard.ratio.ulsif import ULSIF, rounded_coefficients
from steelyard.tables.row_stream import RowStream
from steelyard.weights import effective_sample_size

# η of the relative density ratio by which candidates are compared.
ETA = 0.1
# Boosted trees are no candidate where a domain has fewer rows.
LEAST_BOOSTED = 200
# In streams and tables of more than FOLDS_ABOVE rows, the candidates are compared on this many rows of each table.
SAMPLE_ROWS = 20_000
# With fewer rows in a domain, cross-fitted weights depend on the random folds: N_DRAWS sets of folds are averaged.
FEW_ROWS, N_DRAWS = 3000, 4
# The mean of the ratio over the source is the share of the target inside the source's support; an error below this.
LEAST_MEAN = 0.01
# Share of the target rows outside the source's support above which the domains are called separable.
SEPARATED = 0.95

Draw = tuple[FoldParts, FoldParts]  # the folds of source and target


@dataclass(frozen=True, eq=False)
class _CrossFitted:
    """Held-out ratios of a candidate on the parts of source and target, for every draw of the folds."""

    on_source: Sequence[FloatArray]
    on_target: Sequence[FloatArray]
    calibration: BoundedCalibration | None = None

    def weights(self, draws: Sequence[Draw], source: Empirical) -> FloatArray:
        """Held-out ratio at each distinct source row, averaged over the draws of the folds."""
        by_draw = [draw[0].mean_of_cells(on, source) for draw, on in zip(draws, self.on_source, strict=True)]
        return np.mean(by_draw, axis=0)

    def score_terms(
        self, samples: tuple[Empirical, Empirical], draws: Sequence[Draw], mean: float
    ) -> list[tuple[FloatArray, FloatArray]]:
        """The term of J' of each distinct row of source and target, for every draw of the folds."""

        def relative(values: FloatArray) -> FloatArray:
            scaled = values / mean if mean > 0 else np.zeros_like(values)
            return scaled / (1 - ETA + ETA * scaled)

        terms = []
        for draw, on_source, on_target in zip(draws, self.on_source, self.on_target, strict=True):
            source, target = relative(on_source), relative(on_target)
            terms.append(
                (
                    draw[0].mean_of_cells(0.5 * (1 - ETA) * np.square(source), samples[0]),
                    draw[1].mean_of_cells(0.5 * ETA * np.square(target) - target, samples[1]),
                )
            )
        return terms


class AutoRatio(InductiveRatio):
    """Density ratio w(x) = p_target(x) / p_source(x), averaged over estimators by their cross-validated scores.

    No estimator of the density ratio (survey, section 3.2) is the best on every table: sums of Gaussians (uLSIF) fit
    smooth shifts in a few columns, but hardly see a shift in sixty columns of categories, where a domain classifier is
    excellent. There are four candidates: `ULSIF`, a linear and a boosted domain classifier (calibrated; see Notes),
    and uniform weights. Each estimates the ratio of held-out rows, in five folds of both domains.

    The candidates are compared by RuLSIF's least-squares score of the relative density ratio w_η = w / (1 − η + ηw)
    with η = 0.1 (survey, section 4.2), w scaled to mean one over the source:

        J' = ½(1−η) mean_source w_η² + ½η mean_target w_η² − mean_target w_η.

    Up to a constant this is half the squared error to the true w_η. The score of the plain ratio (η = 0) would be
    dominated by the squares of a few large weights; w_η is at most 1/η.

    The weights are an average of the candidates. A candidate whose score is z standard errors worse than the best
    counts 1 − z/2, and nothing for z ≥ 2; uniform weights have the share 1 − z/2, and the others divide the rest in
    proportion. Choosing a single candidate would depend on the seed, or on a single row, where two candidates perform
    alike, and the average of two such ratios is more accurate than either.

    Parameters
    ----------
    n_folds : int, default=5
        Number of folds; with fewer rows than folds, the number of rows.
    random_state : int, Generator or None, default=None
        For the folds. With fewer than 3,000 rows in a domain, four sets of folds are drawn and the weights averaged.

    Attributes
    ----------
    weights_ : array of shape (n_source,)
        One weight per source row, non-negative with mean one.
    candidates_ : tuple of RatioCandidate
        Score and share of each candidate, the best score first.
    chosen_ : str
        Name of the candidate with the largest share.
    sample_size_ : int
        At most how many rows of each table the candidates were compared on; absent where that was all rows (see Notes).
    balance_ : Balance
        Standardized differences of the columns to the target, before and after *cross-fitted* weights.
    effective_sample_size_ : float
        Effective sample size (Σw)² / Σw² of the weights.
    raw_mean_ : float
        Mean of the ratio over the source before normalization; one in theory.
    source_mean_ : float
        Mean of the weights over the source before normalization, by which ``predict`` is divided to get weights.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, where the source was a data frame.

    Notes
    -----
    The boosted classifier has the linear log-odds as one more column. It is fitted to at most 5,000 rows of each
    domain, and is a candidate where both have at least 200. Both classifiers are calibrated by a linear function of
    their held-out log-odds, which are truncated at those of the largest ½/√n share of the n source rows. Weights of a
    classifier are cross-fitted, those of uLSIF come from the fit on all rows.

    Blocks, files, and tables of more than 100,000 rows in a domain: the candidates are compared on an even sample of
    20,000 rows of each table; then uLSIF and the linear classifier are fitted to all rows, while a boosted classifier
    and the calibrations stay those of the sample. The weights, and ``balance_``, are those of the fitted ratio.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import AutoRatio, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.integers(0, 3, (300, 2)), rng.integers(0, 3, (300, 2)).clip(1)
    >>> ratio = AutoRatio(random_state=0).fit(source, target=Target(target))
    >>> len(ratio.candidates_), bool(ratio.balance_.mean_after < ratio.balance_.mean_before)
    (4, True)
    """

    standardize = False

    def __init__(self, *, n_folds: int = 5, random_state: Any = None) -> None:
        self.n_folds = n_folds
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_count("n_folds", self.n_folds, low=2)

    def _scale_rows(self, rows: FloatArray) -> FloatArray:
        return rows  # every candidate scales the columns itself

    def _fit_samples(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        samples = source, target
        n_folds = number_of_folds(*samples, at_most=self.n_folds)
        n_draws = N_DRAWS if min(source.n_rows, target.n_rows) < FEW_ROWS else 1
        draws = [(assign_folds(source, n_folds, rng), assign_folds(target, n_folds, rng)) for _ in range(n_draws)]
        ones = [[np.ones(len(draw[side].cell)) for draw in draws] for side in (0, 1)]
        found = {UNIFORM: _CrossFitted(ones[0], ones[1])}
        with one_openmp_thread():
            kernel, found[KERNEL] = _cross_fit_ulsif(samples, draws, rng)
            boosted = min(source.n_rows, target.n_rows) >= LEAST_BOOSTED
            found |= _cross_fit_classifiers(samples, draws, boosted=boosted)
            weights = {name: fit.weights(draws, source) for name, fit in found.items()}
            self._warn_of_separation(found[LINEAR].calibration)
            self.candidates_ = assign_shares(_compare(found, samples, draws, weights))
            self.chosen_ = max(self.candidates_, key=lambda c: c.share).name
            used = [c.name for c in self.candidates_ if c.share]
            fitted: dict[str, Any] = {UNIFORM: None, KERNEL: kernel}
            if LINEAR in used or BOOSTED in used:
                odds = fit_odds(samples, draws[0], None, boosted=BOOSTED in used)
                fitted |= zip((LINEAR, BOOSTED), odds, strict=False)
        self.parts_ = [FittedCandidate(name, fitted[name], found[name].calibration) for name in used]
        self.constant_ = False
        return self._average(samples, weights)

    def _n_sample(self) -> int:
        return SAMPLE_ROWS

    def _fit_tables(
        self,
        tables: tuple[RowStream, RowStream],
        summaries: list[Summary],
        samples: list[Empirical],
        rng: np.random.Generator,
    ) -> None:
        """The candidates are compared on the samples; uLSIF and the linear classifier are then fitted to all rows."""
        self._fit_samples(samples[0], samples[1], rng)
        del self._cross_fitted_balance
        self.sample_size_ = max(sample.n_rows for sample in samples)
        LOG.info("AutoRatio: candidates compared on %s sampled rows of each table", f"{self.sample_size_:,}")
        for i, part in enumerate(self.parts_):
            refitted = part.ratio
            if part.name == KERNEL:
                refit_ulsif(refitted, tables, summaries, samples)
            elif part.name == LINEAR:
                refitted = refitted_linear(refitted, tables, summaries)
            elif part.name == BOOSTED:
                LOG.info("AutoRatio: the boosted classifier stays fitted to %s rows of each table", f"{MOST_BOOSTED:,}")
            self.parts_[i] = replace(part, ratio=refitted)
        sums = [tables[0].reduce(partial(RatioSums, part.numbered, self.center_), "weighing") for part in self.parts_]
        self._set_factors({part.name: found.mean for part, found in zip(self.parts_, sums, strict=True)})

    def _average(self, samples: tuple[Empirical, Empirical], weights: dict[str, FloatArray]) -> FloatArray:
        """The ratios of the candidates on the distinct source rows, each scaled to mean one, averaged by share."""
        source = samples[0]
        shares = {c.name: c.share for c in self.candidates_ if c.share}
        means = {name: float(source.mass @ weights[name]) for name in shares}
        scaled = (share * weights[name] / (means[name] if means[name] > 0 else 1.0) for name, share in shares.items())
        self._cross_fitted_balance = _balance(samples, np.asarray(sum(scaled)))
        if KERNEL in shares:
            weights[KERNEL] = self.parts_[list(shares).index(KERNEL)].values(source.rows)
            means[KERNEL] = float(source.mass @ weights[KERNEL])
        self._set_factors(means)
        return np.asarray(sum(factor * weights[name] for factor, name in zip(self.factors_, shares, strict=True)))

    def _set_factors(self, means: dict[str, float]) -> None:
        """Factors of the candidates, from the mean of each over the source."""
        shares = {c.name: c.share for c in self.candidates_ if c.share}
        self.raw_mean_ = float(np.average([means[name] for name in shares], weights=list(shares.values())))
        if self.raw_mean_ < LEAST_MEAN or not min(means.values()) > 0:
            why = f"the fitted ratio has mean {self.raw_mean_:.1e} over the source, where it should be 1"
            raise NoOverlapError(NO_OVERLAP.format(why))
        # Each candidate is scaled to mean one before averaging, and the average to the mean that they had.
        self.factors_ = [share * self.raw_mean_ / means[name] for name, share in shares.items()]

    def _found(self) -> dict[str, str]:
        shares = ", ".join(f"{each.name} {written_share(each.share)}" for each in self.candidates_ if each.share)
        return ({"shares": shares} if shares else {}) | super()._found()

    def _warn_of_separation(self, linear: BoundedCalibration | None) -> None:
        """Warn where nearly all target rows have larger held-out log-odds than all but a few source rows."""
        if linear is not None and linear.outside_share_ > SEPARATED:
            warn_user(
                "AutoRatio: a linear domain classifier separates source and target almost without error "
                f"({linear.outside_share_:.0%} of the target rows lie outside the support of the source). They hardly "
                "overlap, and the weights are unreliable: drop columns that differ by construction (identifiers, "
                "dates), or collect source rows that resemble the target.",
                RawMeanWarning,
            )

    def _column_balance(self, rows: FloatArray, target_rows: FloatArray, counts: FloatArray | None) -> Balance:
        found = super()._column_balance(rows, target_rows, counts)
        if self.constant_:
            return found
        cross_fitted = self.__dict__.pop("_cross_fitted_balance")
        return Balance(found.columns, cross_fitted.before, cross_fitted.after, cross_fitted.noise)

    def _ratio(self, rows: FloatArray) -> FloatArray:
        parts = zip(self.factors_, self.parts_, strict=True)
        return np.asarray(sum(factor * part.values(rows) for factor, part in parts))


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """A candidate as a function of new rows, fitted on all rows."""

    name: str
    ratio: Any
    calibration: BoundedCalibration | None

    def numbered(self, start: int, rows: FloatArray) -> FloatArray:
        """The ratio at rows that are numbered from `start` on, which does not matter here."""
        return self.values(rows)

    def values(self, rows: FloatArray) -> FloatArray:
        """The ratio at rows that are not scaled yet."""
        if self.ratio is None:
            return np.ones(len(rows))
        if self.calibration is not None:
            return self.calibration.ratio(self.ratio.log_odds(rows))
        return np.asarray(self.ratio._ratio(self.ratio._scale_rows(rows)))


def _cross_fit_classifiers(
    samples: tuple[Empirical, Empirical], draws: Sequence[Draw], *, boosted: bool
) -> dict[str, _CrossFitted]:
    """Held-out ratios of the domain classifiers, with one calibration for all draws of the folds."""
    names = (LINEAR, BOOSTED)[: 1 + boosted]
    log_odds = {name: [[np.empty(len(draw[side].cell)) for draw in draws] for side in (0, 1)] for name in names}
    for number, draw in enumerate(draws):
        for f in range(draw[0].n_folds):
            for name, classifier in zip(names, fit_odds(samples, draw, f, boosted=boosted), strict=True):
                for sample, part, values in zip(samples, draw, log_odds[name], strict=True):
                    held = part.fold == f
                    values[number][held] = classifier.log_odds(sample.rows[part.cell[held]])
    mass = [np.concatenate([draw[side].mass for draw in draws]) / len(draws) for side in (0, 1)]
    found = {}
    for name in names:
        pooled = [np.concatenate(values) for values in log_odds[name]]
        calibration = BoundedCalibration().fit(pooled, mass, samples[0].n_rows)
        on_source, on_target = ([calibration.ratio(odds) for odds in values] for values in log_odds[name])
        found[name] = _CrossFitted(on_source, on_target, calibration)
    return found


def _cross_fit_ulsif(
    samples: tuple[Empirical, Empirical], draws: Sequence[Draw], rng: np.random.Generator
) -> tuple[ULSIF, _CrossFitted]:
    """uLSIF fitted to all rows, and its held-out ratios.

    Width and reg are chosen once, by leave-one-out on all rows; the coefficients are fitted without each fold.
    """
    ratio = ULSIF()
    ratio._check_parameters()
    ratio._set_scale(*samples)
    ratio._fit_samples(*samples, rng)
    scaled = [ratio._scale_rows(sample.rows) for sample in samples]
    found = []
    for parts in draws:
        (_, second), (first, _) = (
            basis_moments(
                rows[part.cell],
                part.mass,
                ratio.centers_,
                np.array([ratio.width_]),
                second=needed,
                fold=part.fold,
                n_folds=part.n_folds,
            )
            for rows, part, needed in zip(scaled, parts, (True, False), strict=True)
        )
        of_centers = fold_of_centers(ratio._center_cells, parts[1].fold_of_cells(len(samples[1])))
        mass = [np.bincount(part.fold, part.mass) for part in parts]
        held_out = [np.empty(len(part.cell)) for part in parts]
        for f in range(parts[0].n_folds):
            used = np.flatnonzero(of_centers != f)
            rest_second = (second[0].sum(axis=0) - second[0, f])[np.ix_(used, used)] / (1 - mass[0][f])
            rest_first = (first[0].sum(axis=0) - first[0, f])[used] / (1 - mass[1][f])
            coef = rounded_coefficients(rest_second, rest_first, ratio.reg_)
            for rows, part, values in zip(scaled, parts, held_out, strict=True):
                held = np.flatnonzero(part.fold == f)
                for block in blocks(len(held)):
                    some = held[block]
                    values[some] = gaussian(rows[part.cell[some]], ratio.centers_[used], ratio.width_) @ coef
        found.append(held_out)
    return ratio, _CrossFitted([on[0] for on in found], [on[1] for on in found])


def _balance(samples: tuple[Empirical, Empirical], weights: FloatArray) -> Balance:
    source, target = samples
    usable = weights if weights.any() else np.ones(len(weights))
    rows = target.rows if target.uniform else np.repeat(target.rows, target.counts, axis=0)
    return column_balance(source.rows, rows, usable, source.mass, n_rows=source.n_rows)


def _compare(
    found: dict[str, _CrossFitted],
    samples: tuple[Empirical, Empirical],
    draws: Sequence[Draw],
    weights: dict[str, FloatArray],
) -> tuple[RatioCandidate, ...]:
    """The candidates by their held-out scores, with the standard error of each difference to the best score.

    Its variance has two parts: that over the rows, from differences row by row, and that over the random folds.
    """
    terms = {
        name: fit.score_terms(samples, draws, float(samples[0].mass @ weights[name])) for name, fit in found.items()
    }
    by_draw = {
        name: np.array(
            [sum(sample.mass @ term for sample, term in zip(samples, both, strict=True)) for both in terms[name]]
        )
        for name in found
    }
    scores = {name: float(values.mean()) for name, values in by_draw.items()}
    best = min(scores, key=scores.__getitem__)
    candidates = []
    for name in found:
        over_rows = 0.0
        for side, sample in enumerate(samples):
            pairs = zip(terms[name], terms[best], strict=True)
            difference = np.mean([own[side] - of_best[side] for own, of_best in pairs], axis=0)
            over_rows += float(sample.mass @ np.square(difference - sample.mass @ difference)) / sample.n_units
        by_folds = by_draw[name] - by_draw[best]
        over_folds = float(np.var(by_folds, ddof=1)) / len(by_folds) if len(by_folds) > 1 else 0.0
        # Bounded by the part of the rows: a candidate must not gain a share by depending on the folds.
        variance = over_rows + min(over_rows, over_folds)
        size = effective_sample_size(weights[name] * samples[0].mass) if weights[name].any() else 0.0
        difference_left = _balance(samples, weights[name]).mean_after
        candidates.append(RatioCandidate(name, scores[name], float(np.sqrt(variance)), size, difference_left))
    return tuple(sorted(candidates, key=lambda c: c.score))
