"""Unconstrained and relative least-squares importance fitting, with the exact leave-one-out score of a whole grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh

from steelyard.arrays import FloatArray
from steelyard.check import check_grid, check_range
from steelyard.empirical import Empirical
from steelyard.errors import InputError
from steelyard.kernels import basis_moments, blocks, gaussian_widths
from steelyard.ratio.base import REGS, GaussianRatio


def rounded_ridge(second: FloatArray, first: FloatArray, reg: float) -> FloatArray:
    """β = max(0, (H + λI)⁻¹ h), by the eigenvectors of H, which stay accurate where H is singular."""
    values, vectors = eigh(second)
    solution = vectors @ ((vectors.T @ first) / (np.maximum(values, 0) + reg))
    return np.maximum(solution, 0)


def leave_one_out(
    source: Empirical, target: Empirical, centers: FloatArray, widths: FloatArray, regs: FloatArray, eta: float
) -> FloatArray:
    """J' of the rounded ratio, each pair of a source row and a target row judged by the fit without that pair.

    Exact for every width and reg, shape (widths, regs), smaller is better. Source row i is paired with target row i,
    up to the shorter table. Leaving the pair out takes two rank-one terms from H (the target row enters H as soon as
    η > 0) and one from h; with one eigendecomposition of H per width, the solution without the pair is

        G (c h + u a + v t),    G = (H + λI)⁻¹,

    a and t the pair's basis values, u and v scalars from a 2 × 2 system. So a grid point costs one product of a
    block of rows with a b × b matrix, and nothing is ever n × n.

    Where rows have unequal masses, the rest is rescaled by n/(n−1) as for equal ones, n the number of distinct rows.
    """
    n_pairs = min(len(source), len(target))
    rescale_source, rescale_target = (len(sample) / (len(sample) - 1) for sample in (source, target))
    first, second_target = basis_moments(target.rows, target.mass, centers, widths, second=eta > 0)
    _, second_source = basis_moments(source.rows, source.mass, centers, widths)
    second = (1 - eta) * rescale_source * second_source[:, 0] + eta * rescale_target * second_target[:, 0]
    spectra = [eigh(matrix) for matrix in second]

    source_share = source.mass[:n_pairs] / source.mass[:n_pairs].sum()
    target_share = target.mass[:n_pairs] / target.mass[:n_pairs].sum()
    scores = np.zeros((len(widths), len(regs)))
    for block in blocks(n_pairs):
        pairs = zip(
            gaussian_widths(source.rows[block], centers, widths),
            gaussian_widths(target.rows[block], centers, widths),
            strict=True,
        )
        source_down = (1 - eta) * rescale_source * source.mass[block]
        target_down = eta * rescale_target * target.mass[block]
        for w, (on_source, on_target) in enumerate(pairs):
            fits = _without_each_pair(
                on_source,
                on_target,
                rescale_target * first[w, 0],
                spectra[w],
                regs,
                (source_down, target_down, rescale_target * target.mass[block]),
            )
            for r, (g_source, g_target) in enumerate(fits):
                scores[w, r] += 0.5 * (1 - eta) * (source_share[block] @ np.square(g_source))
                scores[w, r] += target_share[block] @ (0.5 * eta * np.square(g_target) - g_target)
    return scores


def _without_each_pair(
    on_source: FloatArray,
    on_target: FloatArray,
    first: FloatArray,
    spectrum: tuple[FloatArray, FloatArray],
    regs: FloatArray,
    downdates: tuple[FloatArray, FloatArray, FloatArray],
) -> list[tuple[FloatArray, FloatArray]]:
    """For each reg, the ratio at each pair's source and target row, fitted without that pair.

    `downdates` holds, per pair, what leaves H with the source row, what leaves H with the target row, and what
    leaves h with the target row.
    """
    dtype = on_source.dtype
    values, vectors = spectrum[0], spectrum[1].astype(dtype)
    down_source, down_target, down_first = (d[:, None] for d in downdates)
    inverse = (1 / (np.maximum(values, 0)[:, None] + regs)).astype(dtype)  # (b, regs)
    a, t = on_source @ vectors, on_target @ vectors
    weighted_first = (spectrum[1].T @ first).astype(dtype)[:, None] * inverse
    aa, at, tt = (a * a) @ inverse, (a * t) @ inverse, (t * t) @ inverse
    # Inner products of the pair's basis values with G r, r the first moment without the target row.
    a_rest = a @ weighted_first - down_first * at
    t_rest = t @ weighted_first - down_first * tt
    determinant = (1 - down_source * aa) * (1 - down_target * tt) - down_source * down_target * at**2
    along_a = ((1 - down_target * tt) * a_rest + down_target * at * t_rest) / determinant
    along_t = ((1 - down_source * aa) * t_rest + down_source * at * a_rest) / determinant
    u = (down_source * along_a).astype(dtype)
    v = (down_target * along_t - down_first).astype(dtype)
    out = []
    solution, part = np.empty_like(a), np.empty_like(a)
    for r in range(len(regs)):
        np.multiply(a, u[:, r : r + 1], out=solution)
        np.multiply(t, v[:, r : r + 1], out=part)
        solution += part
        np.matmul(solution, (vectors * inverse[:, r]).T, out=part)
        part += vectors @ weighted_first[:, r]
        np.maximum(part, 0, out=part)
        out.append((np.einsum("ij,ij->i", part, on_source), np.einsum("ij,ij->i", part, on_target)))
    return out


class RULSIF(GaussianRatio):
    """Relative least-squares importance fitting: the ratio to a mixture, which is bounded.

    Fits w_η(x) = p_target(x) / (η p_target(x) + (1−η) p_source(x)) by β = max(0, (H_η + λI)⁻¹ h) for
    g(x) = Σ β_l ψ_l(x) with Gaussian ψ_l, where H_η = η mean_target ψψᵀ + (1−η) mean_source ψψᵀ and
    h = mean_target ψ (survey, section 4.2). Width and λ are chosen by the exact leave-one-out score of the
    whole grid.

    The ratio lies in [0, 1/η]. Weights have mean one over the source; ``raw_mean_`` is the mean of the ratio over
    the mixture, which theory puts at one. With eta=1 every weight is exactly one.

    Parameters
    ----------
    eta : float in [0, 1], default=0.1
        0 is the plain ratio (then the same as `ULSIF`), 1 gives equal weights.
    width, reg : positive number or list of them, default=None
        σ (in units of the standardised columns) and λ. None chooses from nine widths between 1/8 and twice the
        median distance, and nine regs between 0.001 and 10.
    n_centers : int, default=100
        How many centres to draw without replacement from the target rows.
    centers : table, default=None
        Centres to use instead.
    standardize : bool, default=True
        Whether columns are scaled by their standard deviation over both domains.
    random_state : int, Generator or None, default=None
        For the draw of the centres and the pairing of the leave-one-out score.

    Attributes
    ----------
    weights_ : one weight a source row, ≥ 0, mean one.
    raw_mean_ : mean of the ratio over the mixture.
    n_clipped_ : number of distinct source rows at which the fit exceeded 1/η.
    width_, reg_, coef_, centers_ : what was chosen and fitted.
    scores_ : leave-one-out J' of the grid ``widths_`` × ``regs_`` (absent where both were given).
    effective_sample_size_ : what the weights are worth in equally weighted rows.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import RULSIF, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> ratio = RULSIF(eta=0.5, random_state=0).fit(source, target=Target(target))
    >>> bool(np.average(source[:, 0], weights=ratio.weights_) > 0.5)
    True
    """

    def __init__(
        self,
        eta: float = 0.1,
        *,
        width: Any = None,
        reg: Any = None,
        n_centers: int = 100,
        centers: Any = None,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.eta = eta
        self.width = width
        self.reg = reg
        self.n_centers = n_centers
        self.centers = centers
        self.standardize = standardize
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.eta_ = check_range("eta", self.eta, 0, 1)
        if self.reg is not None:
            check_grid("reg", self.reg)

    def _fit(self, source: Empirical, target: Empirical, rng: np.random.Generator) -> FloatArray:
        centers, widths = self._basis(target)
        self.n_clipped_ = 0
        if self.eta_ == 1:
            # The mixture is the target itself, the ratio one everywhere; no fit could say it better.
            self.width_, self.reg_ = float(widths[0]), 0.0
            self.coef_: FloatArray = np.zeros(len(centers))
            return np.ones(len(source))
        regs = REGS if self.reg is None else check_grid("reg", self.reg)
        self.width_, self.reg_ = self._choose(source, target, widths, regs)
        width = np.array([self.width_])
        first, second_target = basis_moments(target.rows, target.mass, centers, width, second=self.eta_ > 0)
        _, second_source = basis_moments(source.rows, source.mass, centers, width)
        second = self.eta_ * second_target[0, 0] + (1 - self.eta_) * second_source[0, 0]
        self.coef_ = rounded_ridge(second, first[0, 0], self.reg_)
        self._check_overlap(source)
        raw = super()._ratio(source.rows)
        if self.eta_ > 0:
            self.n_clipped_ = int(np.count_nonzero(raw > 1 / self.eta_))
        return self._bounded(raw)

    def _choose(
        self, source: Empirical, target: Empirical, widths: FloatArray, regs: FloatArray
    ) -> tuple[float, float]:
        if len(widths) == len(regs) == 1:
            return float(widths[0]), float(regs[0])
        if min(len(source), len(target)) < 2:
            raise InputError(
                "Choosing width and reg needs at least two distinct rows in the source and in the target; "
                f"got {len(source)} and {len(target)}. Give width= and reg=, or more rows."
            )
        self.widths_, self.regs_ = widths, regs
        self.scores_ = leave_one_out(source, target, self.centers_, widths, regs, self.eta_)
        best = np.unravel_index(np.argmin(self.scores_), self.scores_.shape)
        return float(widths[best[0]]), float(regs[best[1]])

    def _ratio(self, rows: FloatArray) -> FloatArray:
        if self.eta_ == 1:
            return np.ones(len(rows))
        return self._bounded(super()._ratio(rows))

    def _bounded(self, values: FloatArray) -> FloatArray:
        return np.minimum(values, 1 / self.eta_) if self.eta_ > 0 else values

    def _raw_mean(self, raw: FloatArray, source: Empirical, target: Empirical) -> float:
        over_source = float(source.mass @ raw)
        if self.eta_ == 0:
            return over_source
        return self.eta_ * float(target.mass @ self._ratio(target.rows)) + (1 - self.eta_) * over_source


class ULSIF(RULSIF):
    """Unconstrained least-squares importance fitting: the plain ratio in closed form.

    Fits w(x) = p_target(x) / p_source(x) by β = max(0, (H + λI)⁻¹ h), H = mean_source ψψᵀ, h = mean_target ψ
    (survey, section 3.2.2). It is `RULSIF` at η = 0; parameters and attributes are described there.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ULSIF, Target
    >>> rng = np.random.default_rng(0)
    >>> source, target = rng.normal(0, 1, (200, 1)), rng.normal(1, 0.5, (100, 1))
    >>> ratio = ULSIF(random_state=0).fit(source, target=Target(target))
    >>> round(float(ratio.weights_.mean()), 12)
    1.0
    """

    def __init__(
        self,
        *,
        width: Any = None,
        reg: Any = None,
        n_centers: int = 100,
        centers: Any = None,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            0.0,
            width=width,
            reg=reg,
            n_centers=n_centers,
            centers=centers,
            standardize=standardize,
            random_state=random_state,
        )
