"""Candidate fits of the one-step method and its baselines: many hyperparameter settings, fitted side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from steelyard._numerics.kernels import blocks, gaussian
from steelyard._splits.merged_rows import FoldParts
from steelyard._typing import FloatArray, IntArray
from steelyard.one_step._alternating import (
    Hyperparameters,
    MakeLoss,
    RatioProblem,
    Solution,
    alternate,
    fit_under_weights,
)
from steelyard.one_step._minimize import Features
from steelyard.one_step.risk_bound import FittedNumbers

# As many settings are fitted side by side as keep the largest array below this many numbers (32 MB).
SIDE_BY_SIDE = 4_000_000
# Settings are compared after at most this many rounds: later ones change held-out losses in the fourth digit.
SELECTION_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class Tables:
    """Source and target as the fit sees them: distinct rows in scaled units, their masses, and the labels."""

    rows: FloatArray
    mass: FloatArray
    y: FloatArray  # (n, k), scaled labels, or −1 and 1
    target: FloatArray
    target_mass: FloatArray
    centers: FloatArray
    pooled_median: float  # median distance between two rows of either domain
    target_median: float  # median distance between two target rows
    n_source: int  # number of source rows, duplicates included
    n_target: int

    def basis(self, width: float, rows: IntArray | slice = slice(None)) -> FloatArray:
        """Basis functions at some source rows; computed when needed, so that only one width is in memory at a time."""
        return gaussian(self.rows[rows], self.centers, width)


@dataclass(frozen=True, eq=False)
class FittedSetting:
    """One setting, fitted on all rows."""

    coef: FloatArray  # α, (b, k)
    ratio: FloatArray  # one raw weight for each row, (n,)
    solution: Solution | None = None  # of the alternation
    numbers: FittedNumbers | None = None


class Candidates(ABC):
    """C hyperparameter settings that share one width of f; `reg` holds the μ of each."""

    tables: Tables
    width: float
    reg: FloatArray

    @abstractmethod
    def coefficients(self, rows: IntArray, mass: FloatArray) -> FloatArray:
        """α of each setting, (C, b, k), fitted on some of the source rows with the given masses."""

    @abstractmethod
    def solve(self, which: int) -> FittedSetting:
        """Fit one setting on all rows."""

    def held_out_predictions(self, parts: FoldParts) -> FloatArray:
        """Predictions (C, P, k) on each part of the source rows, by fits on the other folds."""
        predictions = np.empty((len(self.reg), len(parts.cell), self.tables.y.shape[1]))
        for f in range(parts.n_folds):
            mass = parts.masses(int(parts.cell.max()) + 1, without=f)
            train, test = np.flatnonzero(mass > 0), np.flatnonzero(parts.fold == f)
            held_out = self.tables.basis(self.width, parts.cell[test])
            predictions[:, test] = held_out @ self.coefficients(train, mass[train])
        return predictions


class FixedWeights(Candidates):
    """f with fixed weights: every combination of V vectors of weights (V, n) and M regularization strengths."""

    def __init__(
        self, make_loss: MakeLoss, tables: Tables, width: float, weightings: FloatArray, reg: FloatArray
    ) -> None:
        self.make_loss, self.tables, self.width = make_loss, tables, width
        self.weights = np.repeat(weightings, len(reg), axis=0)
        self.reg = np.tile(reg, len(weightings))

    def coefficients(self, rows: IntArray, mass: FloatArray) -> FloatArray:
        """α of each setting, (C, b, k), fitted on some of the source rows with the given masses."""
        features = Features(self.tables.basis(self.width, rows))
        shares = self.weights[:, rows] * (mass / mass.sum())
        return np.concatenate(
            [
                fit_under_weights(self.make_loss, features, shares[part], self.tables.y[rows], self.reg[part])[0]
                for part in side_by_side(len(self.reg), features)
            ]
        )

    def solve(self, which: int) -> FittedSetting:
        """Fit one setting on all rows."""
        features, part = Features(self.tables.basis(self.width)), slice(which, which + 1)
        shares = self.weights[part] * self.tables.mass
        coef, _ = fit_under_weights(self.make_loss, features, shares, self.tables.y, self.reg[part])
        return FittedSetting(coef[0], self.weights[which])


class Alternating(Candidates):
    """f and g fitted together by algorithm 1."""

    def __init__(
        self,
        make_loss: MakeLoss,
        tables: Tables,
        widths: tuple[float, float],
        settings: Hyperparameters,
        max_iter: int,
        tol: float,
    ) -> None:
        self.make_loss, self.tables, self.settings = make_loss, tables, settings
        self.max_iter, self.tol = max_iter, tol
        self.width, self.ratio_width = widths
        self.reg = settings.reg
        self.on_target, self.target_square = np.zeros(len(tables.centers)), 0.0
        for block in blocks(len(tables.target)):
            kernel = gaussian(tables.target[block], tables.centers, self.ratio_width)
            self.on_target += tables.target_mass[block] @ kernel
            self.target_square += _mean_square(kernel, tables.target_mass[block])

    def coefficients(self, rows: IntArray, mass: FloatArray) -> FloatArray:
        """α of each setting, (C, b, k), fitted on some of the source rows in a few rounds."""
        features, ratio = self._problem(rows, mass)
        rounds = min(self.max_iter, SELECTION_ROUNDS)
        return np.concatenate(
            [
                self._solve(features, ratio, self.tables.y[rows], self.settings.part(part), rounds).coef
                for part in side_by_side(len(self.settings), features)
            ]
        )

    def solve(self, which: int) -> FittedSetting:
        """Fit one setting on all rows and record its history."""
        features, ratio = self._problem(slice(None), self.tables.mass)
        solution = self._solve(
            features, ratio, self.tables.y, self.settings.part(slice(which, which + 1)), self.max_iter
        )
        values = ratio.on_source @ solution.ratio_coef[0]
        numbers = self._numbers(solution, features.values, ratio.on_source, values)
        return FittedSetting(solution.coef[0], values, solution, numbers)

    def _numbers(
        self, solution: Solution, features: FloatArray, ratio_features: FloatArray, ratio: FloatArray
    ) -> FittedNumbers:
        """The numbers of a setting fitted on all rows that enter the generalization bound."""
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
        self, features: Features, ratio: RatioProblem, y: FloatArray, settings: Hyperparameters, rounds: int
    ) -> Solution:
        return alternate(self.make_loss, features, ratio, y, settings, max_iter=rounds, tol=self.tol)


def _mean_square(features: FloatArray, mass: FloatArray) -> float:
    """Mean of ‖φ‖² over the rows."""
    return float(mass @ np.einsum("ij,ij->i", features, features))


def side_by_side(n_settings: int, features: Features) -> Iterator[slice]:
    """Slices of settings whose arrays (one number for each row, one Gram matrix) fit in memory."""
    n_rows, b = features.values.shape
    return blocks(n_settings, max(1, SIDE_BY_SIDE // max(n_rows, b**2)))
