"""Logistic regression of the domain by Newton's method on sums over the rows, for all folds at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import expit

from steelyard._numerics.kernels import blocks
from steelyard._typing import FloatArray
from steelyard.errors import ConvergenceError
from steelyard.ratio._sums import N_FOLDS
from steelyard.tables.row_stream import RowStream

# Values of features per block: 2 MB.
BLOCK_VALUES = 2**18
# Newton's method ends when no coefficient of a standardized column moves by more than this.
LARGEST_MOVE = 1e-9
MOST_PASSES = 50


@dataclass(frozen=True, eq=False)
class Features:
    """Standardized columns, their squares and products if `squared`, and a last column of ones."""

    center: FloatArray
    scale: FloatArray
    squared: bool

    def of(self, rows: FloatArray) -> FloatArray:
        """The features of some rows, in the order of scikit-learn's PolynomialFeatures."""
        columns = (rows.astype(np.float64, copy=False) - self.center) / self.scale
        products = [columns[:, i : i + 1] * columns[:, i:] for i in range(columns.shape[1] if self.squared else 0)]
        return np.column_stack([columns, *products, np.ones(len(rows))])

    def block_rows(self) -> int:
        """Rows per block, a multiple of the number of folds."""
        d = len(self.center)
        width = 1 + d + (d * (d + 1) // 2 if self.squared else 0)
        return N_FOLDS * max(1, BLOCK_VALUES // (N_FOLDS * width))


class LogisticSums:
    """Loss, gradient and Hessian of the models of a domain: one of all rows and, if `folds`, one without each fold."""

    def __init__(self, features: Features, coef: FloatArray, domain: int, weight: float) -> None:
        self.features, self.coef, self.domain, self.weight = features, coef, domain, weight
        self.loss: FloatArray = np.zeros(coef.shape[1])
        self.gradient: FloatArray = np.zeros(coef.shape)
        self.hessian: FloatArray = np.zeros((len(coef), len(coef)))  # of the model of all rows

    def add(self, start: int, rows: FloatArray) -> None:
        """Add rows."""
        for block in blocks(len(rows), self.features.block_rows()):
            values = self.features.of(rows[block])
            logits = values @ self.coef
            signed = -logits if self.domain else logits
            losses = np.logaddexp(0, signed)
            probability = expit(logits)
            residual = probability - self.domain
            for f in range(self.coef.shape[1] - 1):
                held = slice((f - start - block.start) % N_FOLDS, None, N_FOLDS)
                losses[held, f + 1] = residual[held, f + 1] = 0
            self.loss += self.weight * losses.sum(axis=0)
            self.gradient += self.weight * (values.T @ residual)
            values *= np.sqrt(self.weight * probability[:, 0] * (1 - probability[:, 0]))[:, None]
            self.hessian += values.T @ values

    def merge(self, part: LogisticSums) -> None:
        """Add another part of the table, or the other domain."""
        self.loss += part.loss
        self.gradient += part.gradient
        self.hessian += part.hessian


def fit_logistic(
    tables: Sequence[RowStream],
    features: Features,
    weights: Sequence[float],
    strength: float,
    start: FloatArray,
    *,
    folds: bool,
) -> FloatArray:
    """Coefficients of weighted logistic regression with the penalty ½‖β‖²/C, C = `strength`; the last one is free.

    The first column is the model of all rows, the others (if `folds`) are those without each fold. Newton's method
    takes the Hessian of the model of all rows for every model: for that one convergence is quadratic, for the others
    linear with a factor as small as the difference between four fifths of the rows and all of them.
    """
    coef = np.repeat(start[:, None], 1 + N_FOLDS * folds, axis=1)
    penalty = np.full(len(start), 1 / strength)
    penalty[-1] = 0.0

    def evaluate(coef: FloatArray) -> LogisticSums:
        both = [
            table.reduce(partial(LogisticSums, features, coef, domain, weight), "fitting the domain classifier")
            for domain, (table, weight) in enumerate(zip(tables, weights, strict=True))
        ]
        both[0].merge(both[1])
        both[0].loss += penalty @ np.square(coef) / 2
        both[0].gradient += penalty[:, None] * coef
        both[0].hessian += np.diag(penalty)
        return both[0]

    now = evaluate(coef)
    for _ in range(MOST_PASSES):
        # A fold model has four fifths of the rows, and so of the Hessian.
        share = np.append(1.0, np.full(coef.shape[1] - 1, 1 - 1 / N_FOLDS))
        step = -np.linalg.solve(now.hessian, now.gradient) / share
        if np.abs(step).max() <= LARGEST_MOVE:
            return coef + step
        length, following = _descend(evaluate, coef, step, now)
        coef, now = coef + length * step, following
    raise ConvergenceError(
        f"The logistic regression of the domain did not converge in {MOST_PASSES} passes. Rescale extreme columns, or "
        "drop columns that tell source and target apart without error."
    )


def _descend(
    evaluate: Callable[[FloatArray], LogisticSums], coef: FloatArray, step: FloatArray, now: LogisticSums
) -> tuple[float, LogisticSums]:
    """The longest of 1, ½, ¼, … of a step that increases no model's loss, and the sums there."""
    length = 1.0
    while True:
        following = evaluate(coef + length * step)
        if np.all(following.loss <= now.loss + 1e-9 * np.abs(now.loss)) or length < 1e-4:
            return length, following
        length /= 2


@dataclass(frozen=True, eq=False)
class HeldOutOdds:
    """Log-odds of every row by the model without its fold."""

    features: Features
    coef: FloatArray  # one column per fold

    def __call__(self, start: int, rows: FloatArray) -> FloatArray:
        """Log-odds of rows that are numbered from `start` on."""
        odds: FloatArray = np.empty(len(rows))
        for block in blocks(len(rows), self.features.block_rows()):
            fold = (start + block.start + np.arange(len(rows[block]))) % N_FOLDS
            odds[block] = (self.features.of(rows[block]) @ self.coef)[np.arange(len(fold)), fold]
        return odds


class CalibrationSums:
    """Sums for Newton's method on the line through held-out log-odds of one domain."""

    def __init__(
        self,
        log_odds: Callable[[int, FloatArray], FloatArray],
        line: FloatArray,
        domain: int,
        largest: float = np.inf,
    ) -> None:
        self.log_odds, self.line, self.domain, self.largest = log_odds, line, domain, largest
        self.count = 0
        self.gradient: FloatArray = np.zeros(2)
        self.hessian: FloatArray = np.zeros((2, 2))

    def add(self, start: int, rows: FloatArray) -> None:
        """Add rows."""
        scores = np.minimum(self.log_odds(start, rows), self.largest)
        probability = expit(self.line[0] * scores + self.line[1])
        values = np.column_stack([scores, np.ones(len(scores))])
        self.count += len(rows)
        self.gradient += values.T @ (probability - self.domain)
        self.hessian += (values * (probability * (1 - probability))[:, None]).T @ values

    def merge(self, part: CalibrationSums) -> None:
        """Add another part of the table."""
        self.count += part.count
        self.gradient += part.gradient
        self.hessian += part.hessian


def fit_calibration(
    tables: Sequence[RowStream], log_odds: Callable[[int, FloatArray], FloatArray], start: tuple[float, float]
) -> tuple[float, float]:
    """Slope and intercept of the log-odds as a linear function of held-out ones, both domains with equal mass.

    A negative slope means that the classifier is worse than chance on held-out rows; then both are zero.
    """
    line = np.array(start)
    for _ in range(MOST_PASSES):
        both = [
            table.reduce(partial(CalibrationSums, log_odds, line, domain), "calibrating")
            for domain, table in enumerate(tables)
        ]
        gradient = sum(sums.gradient / sums.count for sums in both)
        hessian = sum(sums.hessian / sums.count for sums in both) + 1e-12 * np.eye(2)
        step = -np.linalg.solve(hessian, gradient)
        line = line + step
        if np.abs(step).max() <= LARGEST_MOVE:
            break
    slope, intercept = (float(value) for value in line)
    return (slope, intercept) if slope > 0 else (0.0, 0.0)
