"""Two-stage TrAdaBoost.R2 (Pardoe and Stone, 2010): boosting that lets go of source rows bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

from steelyard._typing import FloatArray
from steelyard._validation import check_count, generator
from steelyard.baselines.base import FewShotRegressor


@dataclass(frozen=True, eq=False)
class Committee:
    """Regressors and their votes; it says the weighted median."""

    members: list[Any]
    votes: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """The least prediction that half of the votes do not exceed."""
        found = np.array([member.predict(X) for member in self.members])
        order = np.argsort(found, axis=0, kind="stable")
        shares = np.cumsum(self.votes[order], axis=0)
        place = np.argmax(shares >= 0.5 * shares[-1], axis=0)
        columns = np.arange(found.shape[1])
        return np.asarray(found[order[place, columns], columns])


def boost(
    estimator: Any,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray,
    n_target: int,
    n_estimators: int,
    rng: np.random.Generator,
) -> Committee:
    """AdaBoost.R2 with linear loss in which only the last `n_target` rows change their weights.

    Each member learns from rows drawn by the weights. The weight of the target's rows together stays what it was.
    """
    weights = weights / weights.sum()
    target = np.arange(len(y)) >= len(y) - n_target
    mass = weights[target].sum()
    members: list[Any] = []
    votes: list[float] = []
    for _ in range(n_estimators):
        drawn = rng.choice(len(y), len(y), p=weights)
        member = _seeded(estimator, rng).fit(X[drawn], y[drawn])
        far = np.abs(member.predict(X) - y)
        largest = far.max()
        share = far / largest if largest > 0 else far
        error = float(weights @ share)
        if error <= 1e-12:  # nothing is left to learn of rows that count
            return Committee([member], np.ones(1))
        if error >= 0.5:
            if not members:
                members, votes = [member], [1.0]
            break
        beta = error / (1 - error)
        members.append(member)
        votes.append(-np.log(beta))
        changed = np.where(target, weights * beta ** (1 - share), weights)
        changed[target] *= mass / changed[target].sum()
        weights = changed / changed.sum()
    return Committee(members, np.array(votes))


def let_go(weights: FloatArray, share: FloatArray, n_target: int, wanted: float) -> FloatArray:
    """Source weights times β^e, where e is a row's share of the largest error, and β gives the target its weight.

    `wanted` is the weight of the target's rows of all; the rows of the source come first. Where every source row but
    those without error has gone and the target still has less, source rows are shrunk together.
    """
    source, target = slice(None, -n_target), slice(-n_target, None)
    rest = weights[target].sum()

    def excess(beta: float) -> float:
        return float(rest / (rest + weights[source] @ beta ** share[source])) - wanted

    changed = weights.copy()
    if excess(1.0) >= 0:
        return changed / changed.sum()
    if excess(0.0) <= 0:
        changed[source] *= share[source] == 0
        changed[source] *= rest * (1 - wanted) / wanted / max(changed[source].sum(), 1e-300)
    else:
        changed[source] *= brentq(excess, 0.0, 1.0, xtol=1e-15, rtol=1e-12) ** share[source]
    return changed / changed.sum()


class TwoStageTrAdaBoostR2(FewShotRegressor):
    """Boosting on source and target rows, after a number of steps in which source rows that do not fit lose weight.

    Before step t + 1 of S the target's rows have m/(n + m) + t/(S − 1) · n/(n + m) of the weight. The step whose
    boosted model has the least leave-one-out error on the target's rows is taken.

    Parameters
    ----------
    estimator : regressor with sample weights, default=None
        None is a decision tree of depth 6.
    n_steps : int, default=30
        S.
    n_estimators : int, default=50
        Of AdaBoost.R2 in every step.
    standardize : bool, default=True
        Columns and label, by the source rows.
    random_state : int, default=None

    Attributes
    ----------
    step_ : the step that was taken
    loo_ : leave-one-out error of every step
    weights_ : array of shape (n_steps, n + m), source rows first
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_steps: int = 30,
        n_estimators: int = 50,
        standardize: bool = True,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_steps = n_steps
        self.n_estimators = n_estimators
        self.standardize = standardize
        self.random_state = random_state

    def _learn(self, X: FloatArray, y: FloatArray, target_X: FloatArray, target_y: FloatArray) -> None:
        estimator = DecisionTreeRegressor(max_depth=6) if self.estimator is None else self.estimator
        n_steps, n_members = check_count("n_steps", self.n_steps, 2), check_count("n_estimators", self.n_estimators)
        rng = generator(self.random_state)
        n, m = len(y), len(target_y)
        rows, labels = np.vstack([X, target_X]), np.concatenate([y, target_y])
        weights = np.full(n + m, 1 / (n + m))
        every, errors, models = [], [], []
        for step in range(n_steps):
            every.append(weights)
            models.append(boost(estimator, rows, labels, weights, m, n_members, rng))
            left_out = []
            for i in range(n, n + m):
                kept = np.arange(n + m) != i
                model = boost(estimator, rows[kept], labels[kept], weights[kept], m - 1, n_members, rng)
                left_out.append(float(model.predict(rows[i : i + 1])[0] - labels[i]) ** 2)
            errors.append(np.mean(left_out))
            if step + 1 < n_steps:
                learner = _seeded(estimator, rng).fit(rows, labels, sample_weight=weights)
                far = np.abs(learner.predict(rows) - labels)
                share = far / far.max() if far.max() > 0 else far
                wanted = m / (n + m) + (step + 1) / (n_steps - 1) * n / (n + m)
                weights = let_go(weights, share, m, min(wanted, 1 - 1e-9))
        self.weights_, self.loo_ = np.array(every), np.array(errors)
        self.step_ = int(np.argmin(self.loo_))
        self.model_ = models[self.step_]


def _seeded(estimator: Any, rng: np.random.Generator) -> Any:
    """A copy, with a random state of its own where it has one."""
    copy = clone(estimator)
    if "random_state" in copy.get_params():
        copy.set_params(random_state=int(rng.integers(2**31)))
    return copy
