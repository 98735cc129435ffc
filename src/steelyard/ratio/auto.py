"""The ratio estimator that fits the table: candidates averaged by their held-out scores."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._numerics.empirical import Empirical
from steelyard._numerics.kernels import basis_moments, blocks, gaussian
from steelyard._splits.merged_rows import FoldParts, assign_folds, number_of_folds
from steelyard._threads import one_openmp_thread
from steelyard._typing import FloatArray
from steelyard._validation import check_count
from steelyard.balance import Balance, column_balance
from steelyard.errors import NoOverlapError, RawMeanWarning
from steelyard.ratio._base import NO_OVERLAP, InductiveRatio, fold_of_centers
from steelyard.ratio._domain_classifiers import BoostedOdds, BoundedCalibration, LinearOdds, fit_odds, held_out_log_odds
from steelyard.ratio.candidates import BOOSTED, EVEN, KERNEL, LINEAR, RatioCandidate, share_out
from steelyard.ratio.ulsif import ULSIF, rounded_ridge
from steelyard.weights import effective_sample_size

# η of the relative density ratio by which candidates are compared.
ETA = 0.1
# Boosted trees do not compete where a domain has fewer rows.
LEAST_BOOSTED = 200
# On few rows the folds decide much of a cross-fitted weight: they are drawn several times, and the weights averaged.
FEW_ROWS, N_DRAWS = 3000, 4
# The mean of the ratio over the source is the share of the target that lies where the source is.
LEAST_MEAN = 0.01
# Share of the target rows beyond the source from which on the two are all but separable.
SEPARATED = 0.95

Draw = tuple[FoldParts, FoldParts]


@dataclass(frozen=True, eq=False)
class _CrossFitted:
    """Held-out ratios of a candidate: on the parts of the source and of the target, for every draw of the folds."""

    on_source: Sequence[FloatArray]
    on_target: Sequence[FloatArray]
    calibration: BoundedCalibration | None = None


class AutoRatio(InductiveRatio):
    """The density ratio w(x) = p_target(x) / p_source(x) by the estimator that fits the table.

    No estimator of the ratio is best everywhere: sums of Gaussians (uLSIF) follow smooth shifts in a few columns and
    say next to nothing of sixty columns of categories, where a domain classifier is excellent. Four candidates
    compete: `ULSIF`, a linear and a boosted domain classifier (calibrated; see Notes), and even weights. Each gives
    the ratio of every row by a fit that has not seen it, in five folds of both domains.

    The criterion that serves all of them is RuLSIF's least-squares score of the relative density ratio
    w_η = w / (1 − η + ηw) with η = 0.1, w scaled to mean one over the source:

        J' = ½(1−η) mean_source w_η² + ½η mean_target w_η² − mean_target w_η,

    up to a constant half the squared error to the true w_η. It is a relative one because the score of the plain
    ratio (η = 0) is a mean of squares of weights, which a handful of rows decide; w_η is at most 1/η.

    The weights are an average of the candidates. A candidate z standard errors behind the best counts 1 − z/2, and from
    two standard errors on nothing; even weights come first, with a share of 1 − z/2, and the others divide the rest. A
    choice of one candidate would change with the seed, or with a single row, wherever two of them are about as good;
    and the average of two such ratios is nearer to the truth than they are themselves.

    Parameters
    ----------
    n_folds : int, default=5
        Number of folds.
    random_state : int, Generator or None, default=None
        For the folds. With fewer than 3,000 rows in a domain they are drawn four times and the weights averaged.

    Attributes
    ----------
    weights_ : one weight per source row, ≥ 0, mean one.
    chosen_ : name of the candidate with the largest share.
    candidates_ : tuple of `RatioCandidate`, the best score first; each has its share in the weights.
    balance_ : `Balance` of the columns under the *cross-fitted* weights.
    raw_mean_, effective_sample_size_ : as in `RULSIF`.

    Notes
    -----
    The boosted classifier has the linear log-odds as one more column; it learns from at most 5,000 rows of a domain,
    and competes where both have at least 200. Both classifiers are calibrated by a line in their held-out log-odds,
    which are not followed beyond the largest ½/√n share of the n source rows. Weights of a classifier are
    cross-fitted ones, those of uLSIF come from the fit on all rows.

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
        return rows  # every candidate scales as it needs

    def _fit_samples(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        samples = source, target
        draws = _draw_folds(samples, self.n_folds, rng)
        boosted = min(source.n_rows, target.n_rows) >= LEAST_BOOSTED
        found = {EVEN: _even(draws)}
        with one_openmp_thread():
            kernel, found[KERNEL] = _cross_fitted_ulsif(samples, draws, rng)
            found |= _cross_fitted_classifiers(samples, draws, boosted=boosted)
            weights = {name: _cell_weights(fit, draws, source) for name, fit in found.items()}
            _warn_of_separation(found[LINEAR].calibration)
            balances = {name: _balance(samples, weights[name]) for name in found}
            compared = _compared(found, samples, draws, weights, balances)
            self.candidates_ = share_out(compared)
            self.chosen_ = max(self.candidates_, key=lambda c: c.share).name
            self.parts_ = _fitted_parts(samples, draws[0], kernel, found, self.candidates_)
        self.constant_ = False
        in_use = {c.name: c.share for c in self.candidates_ if c.share}
        cross_fitted = _average({name: weights[name] for name in in_use}, in_use, source)
        self._cross_fitted_balance = _balance(samples, cross_fitted)
        if KERNEL in in_use:
            weights[KERNEL] = self.parts_[list(in_use).index(KERNEL)].values(source.rows)
        means = [float(source.mass @ weights[name]) for name in in_use]
        self.raw_mean_ = float(np.average(means, weights=list(in_use.values())))
        if self.raw_mean_ < LEAST_MEAN or not min(means) > 0:
            why = f"the fitted ratio has mean {self.raw_mean_:.1e} over the source, where one is expected"
            raise NoOverlapError(NO_OVERLAP.format(why))
        # Each has mean one before they are averaged, and the average the mean that they had.
        self.factors_ = [share * self.raw_mean_ / mean for share, mean in zip(in_use.values(), means, strict=True)]
        raw = sum(factor * weights[name] for factor, name in zip(self.factors_, in_use, strict=True))
        return np.asarray(raw)

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

    def values(self, rows: FloatArray) -> FloatArray:
        """The ratio at rows that are not scaled yet."""
        if self.ratio is None:
            return np.ones(len(rows))
        if self.calibration is not None:
            return self.calibration.ratio(self.ratio.log_odds(rows))
        return np.asarray(self.ratio._ratio(self.ratio._scale_rows(rows)))


def _fitted_parts(
    samples: tuple[Empirical, Empirical],
    parts: Draw,
    kernel: ULSIF,
    found: dict[str, _CrossFitted],
    candidates: Sequence[RatioCandidate],
) -> list[FittedCandidate]:
    """The candidates that have a share."""
    used = [c.name for c in candidates if c.share]
    fitted: dict[str, Any] = {EVEN: None, KERNEL: kernel}
    if LINEAR in used or BOOSTED in used:
        fitted |= zip((LINEAR, BOOSTED), fit_odds(samples, parts, None, boosted=BOOSTED in used), strict=False)
    return [FittedCandidate(name, fitted[name], found[name].calibration) for name in used]


def _average(weights: dict[str, FloatArray], shares: dict[str, float], source: Empirical) -> FloatArray:
    """Weights of the distinct source rows, each with mean one, averaged by their shares."""
    means = {name: float(source.mass @ values) for name, values in weights.items()}
    return np.asarray(
        sum(shares[name] * values / (means[name] if means[name] > 0 else 1.0) for name, values in weights.items())
    )


def _warn_of_separation(linear: BoundedCalibration | None) -> None:
    """Say so where nearly all target rows have larger held-out log-odds than all but a few source rows."""
    if linear is not None and linear.beyond_ > SEPARATED:
        warnings.warn(
            f"AutoRatio: a linear classifier tells source and target apart almost without error ({linear.beyond_:.0%} "
            "of the target rows lie beyond all but the outermost source rows). They hardly overlap, and weights are "
            "guesses: drop columns that differ by construction (identifiers, dates), or collect source rows nearer to "
            "the target.",
            RawMeanWarning,
            stacklevel=5,
        )


def _draw_folds(samples: tuple[Empirical, Empirical], at_most: int, rng: np.random.Generator) -> list[Draw]:
    n_folds = number_of_folds(*samples, at_most=at_most)
    n_draws = N_DRAWS if min(sample.n_rows for sample in samples) < FEW_ROWS else 1
    return [(assign_folds(samples[0], n_folds, rng), assign_folds(samples[1], n_folds, rng)) for _ in range(n_draws)]


def _even(draws: Sequence[Draw]) -> _CrossFitted:
    source, target = ([np.ones(len(draw[side].cell)) for draw in draws] for side in (0, 1))
    return _CrossFitted(source, target)


def _cross_fitted_classifiers(
    samples: tuple[Empirical, Empirical], draws: Sequence[Draw], *, boosted: bool
) -> dict[str, _CrossFitted]:
    log_odds = [held_out_log_odds(samples, draw, boosted=boosted) for draw in draws]
    mass = [np.concatenate([draw[side].mass for draw in draws]) / len(draws) for side in (0, 1)]
    found = {}
    for name, kind in ((LINEAR, LinearOdds), (BOOSTED, BoostedOdds))[: 1 + boosted]:
        pooled = [np.concatenate([odds[kind][side] for odds in log_odds]) for side in (0, 1)]
        calibration = BoundedCalibration().fit(pooled, mass, samples[0].n_rows)
        on = [[calibration.ratio(odds[kind][side]) for odds in log_odds] for side in (0, 1)]
        found[name] = _CrossFitted(on[0], on[1], calibration)
    return found


def _cross_fitted_ulsif(
    samples: tuple[Empirical, Empirical], draws: Sequence[Draw], rng: np.random.Generator
) -> tuple[ULSIF, _CrossFitted]:
    """Width and reg are chosen once, by leave-one-out on all rows; the coefficients are fitted without each fold."""
    ratio = ULSIF()
    ratio._check_parameters()
    ratio._set_scale(*samples)
    ratio._fit_samples(*samples, rng)
    found = [_held_out_ulsif(ratio, samples, draw) for draw in draws]
    return ratio, _CrossFitted([on[0] for on in found], [on[1] for on in found])


def _held_out_ulsif(ratio: ULSIF, samples: tuple[Empirical, Empirical], parts: Draw) -> Sequence[FloatArray]:
    scaled = [ratio._scale_rows(sample.rows) for sample in samples]
    width = np.array([ratio.width_])
    (_, second), (first, _) = (
        basis_moments(
            rows[part.cell], part.mass, ratio.centers_, width, second=needed, fold=part.fold, n_folds=part.n_folds
        )
        for rows, part, needed in zip(scaled, parts, (True, False), strict=True)
    )
    of_centers = fold_of_centers(ratio._center_cells, parts[1].fold_of_cells(len(samples[1])))
    mass = [np.bincount(part.fold, part.mass) for part in parts]
    found = [np.empty(len(part.cell)) for part in parts]
    for f in range(parts[0].n_folds):
        used = np.flatnonzero(of_centers != f)
        rest_second = (second[0].sum(axis=0) - second[0, f])[np.ix_(used, used)] / (1 - mass[0][f])
        rest_first = (first[0].sum(axis=0) - first[0, f])[used] / (1 - mass[1][f])
        coef = rounded_ridge(rest_second, rest_first, ratio.reg_)
        for rows, part, values in zip(scaled, parts, found, strict=True):
            held = np.flatnonzero(part.fold == f)
            for block in blocks(len(held)):
                some = held[block]
                values[some] = gaussian(rows[part.cell[some]], ratio.centers_[used], ratio.width_) @ coef
    return found


def _cell_weights(fit: _CrossFitted, draws: Sequence[Draw], source: Empirical) -> FloatArray:
    """Cross-fitted ratio of each distinct source row, averaged over the draws of the folds."""
    return np.mean([draw[0].mean_of_cells(on, source) for draw, on in zip(draws, fit.on_source, strict=True)], axis=0)


def _balance(samples: tuple[Empirical, Empirical], weights: FloatArray) -> Balance:
    source, target = samples
    usable = weights if weights.any() else np.ones(len(weights))
    rows = target.rows if target.uniform else np.repeat(target.rows, target.counts, axis=0)
    return column_balance(source.rows, rows, usable, source.mass, n_rows=source.n_rows)


def _compared(
    found: dict[str, _CrossFitted],
    samples: tuple[Empirical, Empirical],
    draws: Sequence[Draw],
    weights: dict[str, FloatArray],
    balances: dict[str, Balance],
) -> tuple[RatioCandidate, ...]:
    """Held-out scores, and the standard error of each one's difference to the best.

    It has two parts: the rows, whose differences are taken one by one, and the draws of the folds.
    """
    terms = {
        name: _score_terms(fit, samples, draws, float(samples[0].mass @ weights[name])) for name, fit in found.items()
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
        rows = 0.0
        for side, sample in enumerate(samples):
            pairs = zip(terms[name], terms[best], strict=True)
            difference = np.mean([own[side] - other[side] for own, other in pairs], axis=0)
            rows += float(sample.mass @ np.square(difference - sample.mass @ difference)) / sample.n_units
        # No more than the rows' own part: that a candidate depends on the draw is no merit.
        variance = rows + min(rows, _between_draws(by_draw[name] - by_draw[best]))
        size = effective_sample_size(weights[name] * samples[0].mass) if weights[name].any() else 0.0
        candidates.append(RatioCandidate(name, scores[name], float(np.sqrt(variance)), size, balances[name].mean_after))
    return tuple(sorted(candidates, key=lambda c: c.score))


def _between_draws(differences: FloatArray) -> float:
    """Variance of a mean over draws of the folds that is due to the draws."""
    return float(np.var(differences, ddof=1)) / len(differences) if len(differences) > 1 else 0.0


def _score_terms(
    fit: _CrossFitted, samples: tuple[Empirical, Empirical], draws: Sequence[Draw], mean: float
) -> list[tuple[FloatArray, FloatArray]]:
    """What each distinct row of source and target adds to J', for every draw of the folds."""

    def relative(values: FloatArray) -> FloatArray:
        scaled = values / mean if mean > 0 else np.zeros_like(values)
        return scaled / (1 - ETA + ETA * scaled)

    found = []
    for draw, on_source, on_target in zip(draws, fit.on_source, fit.on_target, strict=True):
        source, target = relative(on_source), relative(on_target)
        found.append(
            (
                draw[0].mean_of_cells(0.5 * (1 - ETA) * np.square(source), samples[0]),
                draw[1].mean_of_cells(0.5 * ETA * np.square(target) - target, samples[1]),
            )
        )
    return found
