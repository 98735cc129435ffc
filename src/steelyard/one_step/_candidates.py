"""The settings that one-step and its baselines choose from, fitted side by side on any part of the source rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from steelyard._numerics.kernels import blocks, gaussian
from steelyard._splits.merged_rows import FoldParts
from steelyard._typing import FloatArray, IntArray
from steelyard.one_step._alternating import MakeLoss, RatioProblem, Settings, Solution, alternate, fit_under_weights
from steelyard.one_step._minimize import Features
from steelyard.one_step.risk_bound import FittedNumbers

# Settings are fitted side by side while their largest array has at most so many numbers (32 MB).
SIDE_BY_SIDE = 4_000_000
# Settings are compared after at most so many rounds: later ones move held-out losses in the fourth digit.
SELECTION_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class Tables:
    """Both domains as the fit sees them: distinct rows in scaled units, their masses, and the labels."""

    rows: FloatArray
    mass: FloatArray
    y: FloatArray  # (n, k), scaled or −1 and 1
    target: FloatArray
    target_mass: FloatArray
    centers: FloatArray
    pooled_median: float  # distance between two rows, of whichever domain
    target_median: float  # distance between two target rows
    n_source: int  # rows of the table, equal ones counted
    n_target: int

    def basis(self, width: float, rows: IntArray | slice = slice(None)) -> FloatArray:
        """Gaussians at some of the source rows; made when needed, so that no more than one width is in memory."""
        return gaussian(self.rows[rows], self.centers, width)


class Candidates(Protocol):
    """C settings, of which `penalty` has the μ of each."""

    tables: Tables
    width: float
    penalty: FloatArray

    def coefficients(self, rows: IntArray, mass: FloatArray) -> FloatArray:
        """α of every setting, (C, b, k), fitted on some of the source rows, each with a mass."""

    def solve(self, which: int) -> Fitted:
        """One setting on all rows."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """One setting, fitted on all rows."""

    coef: FloatArray  # α, (b, k)
    ratio: FloatArray  # the raw weight of each row, (n,)
    solution: Solution | None = None  # of the alternation
    numbers: FittedNumbers | None = None


class FixedWeights:
    """f under weights that are given: every combination of V weightings (V, n) and M penalties."""

    def __init__(
        self, make_loss: MakeLoss, tables: Tables, width: float, weightings: FloatArray, regs: FloatArray
    ) -> None:
        self.make_loss, self.tables, self.width = make_loss, tables, width
        self.weights = np.repeat(weightings, len(regs), axis=0)
        self.penalty = np.tile(regs, len(weightings))

    def coefficients(self, rows: IntArray, mass: FloatArray) -> FloatArray:
        """α of every setting, (C, b, k), fitted on some of the source rows, each with a mass."""
        features = Features(self.tables.basis(self.width, rows))
        shares = self.weights[:, rows] * (mass / mass.sum())
        return np.concatenate(
            [
                fit_under_weights(self.make_loss, features, shares[part], self.tables.y[rows], self.penalty[part])[0]
                for part in side_by_side(len(self.penalty), features)
            ]
        )

    def solve(self, which: int) -> Fitted:
        """One setting on all rows."""
        features, part = Features(self.tables.basis(self.width)), slice(which, which + 1)
        shares = self.weights[part] * self.tables.mass
        coef, _ = fit_under_weights(self.make_loss, features, shares, self.tables.y, self.penalty[part])
        return Fitted(coef[0], self.weights[which])


class Alternating:
    """f and g together, by algorithm 1."""

    def __init__(
        self,
        make_loss: MakeLoss,
        tables: Tables,
        widths: tuple[float, float],
        settings: Settings,
        max_iter: int,
        tol: float,
    ) -> None:
        self.make_loss, self.tables, self.settings = make_loss, tables, settings
        self.max_iter, self.tol = max_iter, tol
        self.width, self.ratio_width = widths
        self.penalty = settings.reg
        self.on_target, self.target_square = np.zeros(len(tables.centers)), 0.0
        for block in blocks(len(tables.target)):
            kernel = gaussian(tables.target[block], tables.centers, self.ratio_width)
            self.on_target += tables.target_mass[block] @ kernel
            self.target_square += _mean_square(kernel, tables.target_mass[block])

    def coefficients(self, rows: IntArray, mass: FloatArray) -> FloatArray:
        """α of every setting, (C, b, k), fitted on some of the source rows in a few rounds."""
        features, ratio = self._problem(rows, mass)
        rounds = min(self.max_iter, SELECTION_ROUNDS)
        return np.concatenate(
            [
                self._solve(features, ratio, self.tables.y[rows], self.settings.part(part), rounds).coef
                for part in side_by_side(len(self.settings), features)
            ]
        )

    def solve(self, which: int) -> Fitted:
        """One setting on all rows, with its history."""
        features, ratio = self._problem(slice(None), self.tables.mass)
        solution = self._solve(
            features, ratio, self.tables.y, self.settings.part(slice(which, which + 1)), self.max_iter
        )
        values = ratio.on_source @ solution.ratio_coef[0]
        numbers = self._numbers(solution, features.values, ratio.on_source, values)
        return Fitted(solution.coef[0], values, solution, numbers)

    def _numbers(
        self, solution: Solution, features: FloatArray, ratio_features: FloatArray, ratio: FloatArray
    ) -> FittedNumbers:
        """What the generalization bound needs to know of a setting fitted on all rows."""
        tables, beta = self.tables, solution.ratio_coef[0]
        losses = solution.loss.values((features @ solution.coef[0])[None], tables.y)[0]
        on_target = float(self.on_target @ beta)
        return FittedNumbers(
            weighted_risk=float(tables.mass @ (ratio * losses)),
            ratio_error=float(tables.mass @ np.square(ratio)) - 2 * on_target,
            target_mean=on_target,
            predictor_norm=float(np.linalg.norm(solution.coef[0])),
            ratio_norm=float(np.linalg.norm(beta)),
            predictor_square=_mean_square(features, tables.mass),
            ratio_square=_mean_square(ratio_features, tables.mass),
            ratio_square_target=float(self.target_square),
            n_centers=len(tables.centers),
            largest_label=float(np.max(np.abs(tables.y))),
            n_source=tables.n_source,
            n_target=tables.n_target,
        )

    def _problem(self, rows: IntArray | slice, mass: FloatArray) -> tuple[Features, RatioProblem]:
        on_source = self.tables.basis(self.ratio_width, rows)
        return Features(self.tables.basis(self.width, rows)), RatioProblem(on_source, mass / mass.sum(), self.on_target)

    def _solve(
        self, features: Features, ratio: RatioProblem, y: FloatArray, settings: Settings, rounds: int
    ) -> Solution:
        return alternate(self.make_loss, features, ratio, y, settings, max_iter=rounds, tol=self.tol)


def _mean_square(features: FloatArray, mass: FloatArray) -> float:
    """mean ‖φ‖²."""
    return float(mass @ np.einsum("ij,ij->i", features, features))


def side_by_side(n_settings: int, features: Features) -> Iterator[slice]:
    """Slices of settings whose arrays (a number a row, a Gram matrix) fit in memory."""
    n_rows, b = features.values.shape
    return blocks(n_settings, max(1, SIDE_BY_SIDE // max(n_rows, b**2)))


def held_out_predictions(candidates: Candidates, parts: FoldParts) -> FloatArray:
    """Predictions (C, P, k) on each part of the source rows, by fits that have not seen the part's fold."""
    tables = candidates.tables
    predictions = np.empty((len(candidates.penalty), len(parts.cell), tables.y.shape[1]))
    for f in range(parts.n_folds):
        mass = parts.masses(int(parts.cell.max()) + 1, without=f)
        train, test = np.flatnonzero(mass > 0), np.flatnonzero(parts.fold == f)
        held_out = tables.basis(candidates.width, parts.cell[test])
        predictions[:, test] = held_out @ candidates.coefficients(train, mass[train])
    return predictions
