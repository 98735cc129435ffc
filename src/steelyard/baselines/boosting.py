"""Two-stage TrAdaBoost.R2 (Pardoe and Stone, 2010): boosting that reduces the weights of source rows step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

from steelyard._numerics.written import written
from steelyard._typing import FloatArray
from steelyard._validation import check_count, generator
from steelyard.baselines.base import FewShotRegressor


@dataclass(frozen=True, eq=False)
class Committee:
    """Regressors with weights; the prediction is the weighted median of their predictions."""

    members: list[Any]
    votes: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """The smallest prediction such that predictions up to it have at least half of the votes."""
        predictions = np.array([member.predict(X) for member in self.members])
        order = np.argsort(predictions, axis=0, kind="stable")
        shares = np.cumsum(self.votes[order], axis=0)
        place = np.argmax(shares >= 0.5 * shares[-1], axis=0)
        columns = np.arange(predictions.shape[1])
        return np.asarray(predictions[order[place, columns], columns])


def boost(
    estimator: Any,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray,
    n_target: int,
    n_estimators: int,
    rng: np.random.Generator,
) -> Committee:
    """AdaBoost.R2 with linear loss, in which only the weights of the last `n_target` rows change.

    Each member is fitted on rows drawn with probabilities given by the weights. The total weight of the target rows
    stays constant.
    """
    weights = weights / weights.sum()
    target = np.arange(len(y)) >= len(y) - n_target
    mass = weights[target].sum()
    members: list[Any] = []
    votes: list[float] = []
    for _ in range(n_estimators):
        drawn = rng.choice(len(y), len(y), p=weights)
        member = _seeded(estimator, rng).fit(X[drawn], y[drawn])
        residuals = np.abs(member.predict(X) - y)
        largest = residuals.max()
        share = residuals / largest if largest > 0 else residuals
        error = float(weights @ share)
        if error <= 1e-12:  # no error on any row of positive weight
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


def reduce_source_weights(weights: FloatArray, share: FloatArray, n_target: int, wanted: float) -> FloatArray:
    """Multiply the weight of each source row by β^e, where e is its error divided by the largest error.

    β is such that the target rows, which come last, have the share `wanted` of the total weight. If that needs more
    than weight zero for all source rows with an error, the weights of the other source rows are reduced by one factor.
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
    """Two-stage TrAdaBoost.R2: boosting on source and target rows that reduces the weights of misfitting source rows.

    Before step t + 1 of S, the m target rows have the share m/(n + m) + t/(S − 1) · n/(n + m) of the total weight,
    where n is the number of source rows. In each step AdaBoost.R2 is fitted with the current weights. The model of the
    step with the smallest leave-one-out error on the target rows is chosen.

    Parameters
    ----------
    estimator : regressor, default=None
        The regressor to boost; its ``fit`` must have the parameter `sample_weight`. None is a decision tree of depth 6.
    n_steps : int, default=30
        S, the number of steps.
    n_estimators : int, default=50
        Number of regressors of AdaBoost.R2 in each step.
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.
    random_state : int, default=None
        Seed of the drawn rows and of the regressors.

    Attributes
    ----------
    step_ : int
        Number of the chosen step, counted from zero.
    loo_ : array of shape (n_steps,)
        Leave-one-out error of each step on the target rows.
    weights_ : array of shape (n_steps, n_source + n_target)
        Weights of all rows in each step, source rows first.
    model_ : object
        The boosted model of the chosen step.
    scale_ : Scale
        Mean and standard deviation of columns and label.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import Target
    >>> from steelyard.baselines import TwoStageTrAdaBoostR2
    >>> rng = np.random.default_rng(0)
    >>> X, X_target = rng.normal(0, 1, (60, 1)), rng.normal(1, 0.5, (8, 1))
    >>> target = Target(X_target, np.sin(X_target[:, 0]))
    >>> model = TwoStageTrAdaBoostR2(n_steps=3, n_estimators=5, random_state=0).fit(X, np.sin(X[:, 0]), target=target)
    >>> model.predict(X_target).shape
    (8,)
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

    def _found(self) -> dict[str, str]:
        kept = f"{self.step_ + 1} of {len(self.loo_)}, with leave-one-out error {written(float(self.loo_[self.step_]))}"
        return {"step that is kept": kept}

    def _learn(self, X: FloatArray, y: FloatArray, X_target: FloatArray, y_target: FloatArray) -> None:
        estimator = DecisionTreeRegressor(max_depth=6) if self.estimator is None else self.estimator
        n_steps, n_members = check_count("n_steps", self.n_steps, 2), check_count("n_estimators", self.n_estimators)
        rng = generator(self.random_state)
        n, m = len(y), len(y_target)
        rows, labels = np.vstack([X, X_target]), np.concatenate([y, y_target])
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
                residuals = np.abs(learner.predict(rows) - labels)
                share = residuals / residuals.max() if residuals.max() > 0 else residuals
                wanted = m / (n + m) + (step + 1) / (n_steps - 1) * n / (n + m)
                weights = reduce_source_weights(weights, share, m, min(wanted, 1 - 1e-9))
        self.weights_, self.loo_ = np.array(every), np.array(errors)
        self.step_ = int(np.argmin(self.loo_))
        self.model_ = models[self.step_]


def _seeded(estimator: Any, rng: np.random.Generator) -> Any:
    """A clone of an estimator; if it has a random state, this is drawn."""
    cloned = clone(estimator)
    if "random_state" in cloned.get_params():
        cloned.set_params(random_state=int(rng.integers(2**31)))
    return cloned
