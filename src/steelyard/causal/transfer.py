"""Causal mechanism transfer (survey, section 7, algorithm 4) as a regressor."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.svm import OneClassSVM
from sklearn.utils.validation import check_is_fitted

from steelyard._few_shot.domains import check_domains, check_few_shot, scale_of
from steelyard._few_shot.kernel_regression import fit_scored
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_count, check_new_rows, check_range, forget_fit, generator
from steelyard.causal.assumption import Assumption, independence_p_value
from steelyard.causal.contrast import Checkpoint, Start, learn
from steelyard.causal.ica import Mechanism
from steelyard.causal.inflate import combinations
from steelyard.causal.mechanism import Mechanisms
from steelyard.errors import NothingTransferredWarning, ParameterError
from steelyard.target import Target


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Rows that a mechanism makes of a few: those that were kept, and which of the few each value is from."""

    rows: FloatArray  # (m, D), labels last
    origin: IntArray  # (m, D)
    acceptance: float
    n_dropped: int  # not finite


def synthesize(mechanisms: Mechanisms, Z: FloatArray, origin: IntArray, svm: OneClassSVM) -> list[Synthetic]:
    """Synthetic rows of each network, of the combinations `origin` of the rows Z (n, D)."""
    networks = copy.deepcopy(mechanisms).double()
    n_networks, columns = len(networks.center), torch.arange(Z.shape[1])
    with torch.no_grad():
        S = networks.components(torch.tensor(Z).expand(n_networks, -1, -1))
        made = networks.rows(S[:, torch.tensor(origin), columns]).numpy()
    found = []
    for rows in made:
        finite = np.isfinite(rows).all(axis=1)
        kept = np.zeros(len(rows), dtype=bool)
        if finite.any():
            kept[finite] = svm.predict(rows[finite]) == 1
        found.append(Synthetic(rows[kept], origin[kept], float(kept.mean()), int((~finite).sum())))
    return found


def fit_augmented(regressor: Any, Z: FloatArray, made: FloatArray) -> Any:
    """A fit on original and synthetic rows; where the regressor can, its settings are chosen by the original ones."""
    rows = np.vstack([Z, made])
    return fit_scored(regressor, rows[:, :-1], rows[:, -1], np.arange(len(Z)))


def leave_one_out_error(regressor: Any, Z: FloatArray, synthetic: Synthetic | None) -> float:
    """Mean squared error of rows that had no part in the fit, neither themselves nor by one of their components."""
    errors = []
    for i in range(len(Z)):
        others = np.arange(len(Z)) != i
        made = Z[:0] if synthetic is None else synthetic.rows[(synthetic.origin != i).all(axis=1)]
        model = fit_augmented(regressor, Z[others], made)
        errors.append(float(model.predict(Z[i : i + 1, :-1])[0] - Z[i, -1]) ** 2)
    return float(np.mean(errors))


class CausalTransferRegressor(RegressorMixin, BaseEstimator):
    """A regressor for a new domain with a handful of labeled rows, from many domains with one mechanism.

    All domains are assumed to be z = F(s): the same invertible F, and components s that are independent in each domain
    but distributed differently (section 7 of the survey). Step 1 learns F from the source domains (`NonlinearICA`);
    step 2 takes the components of the target's rows, combines them in every way and maps the combinations back; those
    that look like no source row are dropped; step 3 fits a regressor on original and synthetic rows. Which of the
    networks are used is decided by leaving out the target's rows one by one.

    Parameters
    ----------
    regressor : estimator, default=None
        What is fitted in the end; None is `LeaveOneOutKernelRegressor`.
    n_hidden : sequence of int, default=(10, 20)
    weight_decay : sequence of float, default=(0.01, 0.1)
        Settings of networks; every pair is trained with `n_seeds` seeds, all at once.
    n_seeds : int, default=4
    epochs, every : int, default=300 and 100
        Networks are candidates after every so many epochs.
    n_average : int, default=5
        Predictions of that many best candidates are averaged.
    fallback : bool, default=True
        Candidates that do not beat the target's rows alone, by leave-one-out, are not used; if none does, it is those.
    max_synthetic : int, default=2000
        Most combinations; a random part is taken of more. The default regressor's memory grows with its square.
    rotations, linear, batch_size : of the networks
    standardize : bool, default=True
        By mean and standard deviation of the source rows.
    random_state : int, default=None
    progress : bool, default=True
        A bar on stderr while networks are trained, where that is a terminal.

    Attributes
    ----------
    mechanism_ : forward and inverse of the best network
    synthetic_ : array of shape (m, n_columns + 1), what it made of the target's rows, labels last
    loo_ : array of shape (n_checkpoints, n_networks), leave-one-out error of every candidate, in units of the
        standardized label
    loo_target_only_ : that of the target's rows alone
    acceptance_ : share of combinations that were kept, of every candidate
    n_dropped_ : combinations that were not finite, of every candidate
    epochs_ : of the checkpoints
    transferred_ : whether the result is more than that of the target's rows alone; there is a warning where it is not
    assumption_ : `Assumption`, what speaks for and against it

    Examples
    --------
    >>> from steelyard import Target
    >>> from steelyard.causal import CausalTransferRegressor
    >>> from steelyard.datasets import independent_component_shift
    >>> Z, domain, _ = independent_component_shift(8, 40, 2, random_state=0)
    >>> source, few = domain < 7, (domain == 7).nonzero()[0][:6]
    >>> model = CausalTransferRegressor(n_seeds=1, epochs=10, every=10, random_state=0)
    >>> model = model.fit(Z[source, :1], Z[source, 1], domain=domain[source], target=Target(Z[few, :1], Z[few, 1]))
    >>> model.predict(Z[few, :1]).shape
    (6,)
    """

    def __init__(
        self,
        regressor: Any = None,
        *,
        n_hidden: Sequence[int] = (10, 20),
        weight_decay: Sequence[float] = (0.01, 0.1),
        n_seeds: int = 4,
        epochs: int = 300,
        every: int = 100,
        n_average: int = 5,
        fallback: bool = True,
        max_synthetic: int = 2000,
        rotations: bool = True,
        linear: bool = False,
        batch_size: int = 32,
        standardize: bool = True,
        random_state: int | None = None,
        progress: bool = True,
    ) -> None:
        self.regressor = regressor
        self.n_hidden = n_hidden
        self.weight_decay = weight_decay
        self.n_seeds = n_seeds
        self.epochs = epochs
        self.every = every
        self.n_average = n_average
        self.fallback = fallback
        self.max_synthetic = max_synthetic
        self.rotations = rotations
        self.linear = linear
        self.batch_size = batch_size
        self.standardize = standardize
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, *, domain: Any = None, target: Target | None = None) -> CausalTransferRegressor:
        """Learn from the rows of the source domains and ``target=Target(X, y)``, the labeled rows of the new one."""
        forget_fit(self)
        max_synthetic, n_average = (check_count(name, getattr(self, name)) for name in ("max_synthetic", "n_average"))
        pairs = self._pairs()
        source, few = check_few_shot(self, X, y, target)
        numbers, names = check_domains(domain, len(source), source.shape[1], type(self).__name__)
        self.scale_ = scale_of(source, self.standardize)
        source, few = self.scale_.to(source), self.scale_.to(few)
        rng = generator(self.random_state)
        checkpoints = self._learn(source, numbers, pairs, rng)
        origin = combinations(len(few), few.shape[1], max_synthetic, rng)
        self._choose(checkpoints, few, origin, one_class(source), n_average)
        self.assumption_ = self._assumption(source, numbers, names, rng)
        return self

    def _pairs(self) -> list[tuple[int, float]]:
        """Every width of classifiers with every weight decay; one of either may come without a list."""
        widths = [check_count("n_hidden", h) for h in np.atleast_1d(self.n_hidden).tolist()]
        decays = [check_range("weight_decay", decay, 0) for decay in np.atleast_1d(self.weight_decay).tolist()]
        if not widths or not decays:
            raise ParameterError("n_hidden and weight_decay must have at least one value each.")
        return [(h, decay) for h in widths for decay in decays]

    def _learn(
        self, source: FloatArray, numbers: IntArray, pairs: list[tuple[int, float]], rng: np.random.Generator
    ) -> list[Checkpoint]:
        seeds = rng.integers(2**40, size=(check_count("n_seeds", self.n_seeds), len(pairs)))
        starts = [Start(0, h, decay, int(seed)) for row in seeds for (h, decay), seed in zip(pairs, row, strict=True)]
        epochs = check_count("epochs", self.epochs, 0)
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not (self.progress and console.is_terminal)) as shown:
            task = shown.add_task(f"training {len(starts)} networks", total=max(epochs, 1))
            return learn(
                torch.tensor(source, dtype=torch.float32)[None],
                torch.tensor(numbers)[None],
                starts,
                epochs=epochs,
                every=check_count("every", self.every),
                batch_size=check_count("batch_size", self.batch_size),
                rotations=self.rotations,
                linear=self.linear,
                advance=lambda: shown.advance(task),
            )

    def _choose(
        self, checkpoints: list[Checkpoint], few: FloatArray, origin: IntArray, svm: OneClassSVM, n_average: int
    ) -> None:
        """Score every candidate by leaving out rows of the target, and fit the best."""
        made = [synthesize(checkpoint.mechanisms, few, origin, svm) for checkpoint in checkpoints]
        self.epochs_ = np.array([checkpoint.epoch for checkpoint in checkpoints])
        self.loo_target_only_ = leave_one_out_error(self.regressor, few, None)
        self.loo_ = np.array([[leave_one_out_error(self.regressor, few, one) for one in each] for each in made])
        self.acceptance_ = np.array([[one.acceptance for one in each] for each in made])
        self.n_dropped_ = np.array([[one.n_dropped for one in each] for each in made])
        order = [np.unravel_index(k, self.loo_.shape) for k in np.argsort(self.loo_, axis=None, kind="stable")]
        i, j = order[0]
        self.mechanism_ = Mechanism(checkpoints[i].mechanisms.only([int(j)]), self.scale_)
        self.synthetic_ = self.scale_.back(made[i][j].rows)
        # With the fallback only what beats the target's rows alone may be averaged.
        used = [k for k in order if not self.fallback or self.loo_[k] < self.loo_target_only_][:n_average]
        rows = [made[i][j].rows for i, j in used] or [few[:0]]
        self.transferred_ = any(len(each) for each in rows)
        self.regressors_ = [fit_augmented(self.regressor, few, each) for each in rows]
        if not self.transferred_:
            why = (
                "no synthetic row looks like a row of the sources"
                if not self.acceptance_.any()
                else "leave-one-out on the target says that transfer hurts"
                if self.fallback
                else "the best candidates have no synthetic row that looks like one of the sources"
            )
            warnings.warn(
                f"CausalTransferRegressor: {why}; the result is that of the target's rows alone.",
                NothingTransferredWarning,
                stacklevel=3,
            )

    def _assumption(self, source: FloatArray, numbers: IntArray, names: Any, rng: np.random.Generator) -> Assumption:
        recovered = self.mechanism_.components(self.scale_.back(source))
        p_values = {
            name: independence_p_value(recovered[numbers == k][:200], random_state=rng) for k, name in enumerate(names)
        }
        return Assumption(len(names), 2 * source.shape[1] + 1, p_values)

    def predict(self, X: Any) -> FloatArray:
        """Predicted labels of rows of the new domain."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        inputs = self.scale_.inputs_to(X)
        return self.scale_.labels_back(np.mean([regressor.predict(inputs) for regressor in self.regressors_], axis=0))


def one_class(source: FloatArray) -> OneClassSVM:
    """What looks like a row of the sources, by the survey's settings: ν = 0.1, kernel exp(−|z − z'|²/D)."""
    return OneClassSVM(nu=0.1, gamma=1 / source.shape[1]).fit(source)
