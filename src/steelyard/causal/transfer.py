"""Causal mechanism transfer as a regressor (survey, section 7, algorithm 4)."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.svm import OneClassSVM
from sklearn.utils.validation import check_is_fitted

from steelyard._few_shot.domains import check_domains, check_few_shot, scale_of
from steelyard._few_shot.kernel_regression import fit_scored
from steelyard._numerics.written import written
from steelyard._progress import LOG, progress_bar, track
from steelyard._typing import FloatArray, IntArray
from steelyard._validation import check_count, check_new_rows, check_range, forget_fit, generator
from steelyard.causal.assumption import Assumption, independence_p_value
from steelyard.causal.contrast import Checkpoint, Start, learn
from steelyard.causal.ica import Mechanism
from steelyard.causal.inflate import combinations
from steelyard.causal.mechanism import Mechanisms
from steelyard.errors import NothingTransferredWarning, ParameterError, warn_user
from steelyard.report.notebook import ShowsFit
from steelyard.target import Target


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Synthetic rows that a mechanism makes from target rows and that the one-class SVM accepts."""

    rows: FloatArray  # (m, D), label last
    origin: IntArray  # (m, D), number of the target row that each component comes from
    acceptance: float  # share of the combinations that are accepted
    n_dropped: int  # number of combinations that are not finite


def synthesize(mechanisms: Mechanisms, Z: FloatArray, origin: IntArray, svm: OneClassSVM) -> list[Synthetic]:
    """The synthetic rows of each network, from the combinations `origin` of the components of the rows Z (n, D)."""
    networks = copy.deepcopy(mechanisms).double()
    n_networks, columns = len(networks.center), torch.arange(Z.shape[1])
    with torch.no_grad():
        S = networks.components(torch.tensor(Z).expand(n_networks, -1, -1))
        rows_of_networks = networks.rows(S[:, torch.tensor(origin), columns]).numpy()
    synthetic = []
    for rows in rows_of_networks:
        finite = np.isfinite(rows).all(axis=1)
        kept = np.zeros(len(rows), dtype=bool)
        if finite.any():
            kept[finite] = svm.predict(rows[finite]) == 1
        synthetic.append(Synthetic(rows[kept], origin[kept], float(kept.mean()), int((~finite).sum())))
    return synthetic


def fit_augmented(regressor: Any, Z: FloatArray, synthetic_rows: FloatArray) -> Any:
    """Fit a regressor on target rows Z and synthetic rows.

    If its `fit` has the parameter `scored`, its hyperparameters are chosen by the errors of the target rows alone.
    """
    rows = np.vstack([Z, synthetic_rows])
    return fit_scored(regressor, rows[:, :-1], rows[:, -1], np.arange(len(Z)))


def leave_one_out_error(regressor: Any, Z: FloatArray, synthetic: Synthetic | None) -> float:
    """Mean squared error of each target row by a fit without the row and without synthetic rows from its components."""
    errors = []
    for i in range(len(Z)):
        kept = np.arange(len(Z)) != i
        synthetic_rows = Z[:0] if synthetic is None else synthetic.rows[(synthetic.origin != i).all(axis=1)]
        model = fit_augmented(regressor, Z[kept], synthetic_rows)
        errors.append(float(model.predict(Z[i : i + 1, :-1])[0] - Z[i, -1]) ** 2)
    return float(np.mean(errors))


class CausalTransferRegressor(ShowsFit, RegressorMixin, BaseEstimator):
    """Regression in a target domain with a few labeled rows, from many source domains that share one mechanism.

    All domains are assumed to follow z = F(s), where z is a row with its label, F is an invertible function that all
    domains share, and the components s are independent in each domain but differently distributed (survey, section 7).
    Step 1 learns F from the source domains (`NonlinearICA`). Step 2 forms all combinations of the components of the
    target rows and maps them back to synthetic rows; those that are unlike any source row, by a one-class SVM, are
    dropped. Step 3 fits a regressor on target rows and synthetic rows. The leave-one-out error on the target rows
    chooses the networks.

    Parameters
    ----------
    regressor : estimator, default=None
        The regressor of step 3; None is `LeaveOneOutKernelRegressor`.
    n_hidden : int or sequence of int, default=(10, 20)
        Numbers of units of the hidden layers of the domain classifiers.
    weight_decay : float or sequence of float, default=(0.01, 0.1)
        Strengths of the weight decay. Each pair of `n_hidden` and `weight_decay` is trained with `n_seeds` seeds; all
        networks are trained as one batch.
    n_seeds : int, default=4
        Number of networks for each pair.
    epochs : int, default=300
        Number of training epochs.
    every : int, default=100
        Each network is a candidate after each `every` epochs and after the last one.
    n_average : int, default=5
        The predictions of this many best candidates are averaged.
    fallback : bool, default=True
        Whether only candidates are used whose leave-one-out error is smaller than that of a fit on the target rows
        alone. If there is none, the result is the fit on the target rows alone.
    max_synthetic : int, default=2000
        Largest number of combinations; if there are more, a random sample is taken. The memory of the default regressor
        grows with the square of this number.
    rotations : bool, default=True
        Whether the matrices of the networks start as random rotations. False starts them as in the authors' code, where
        they are sometimes nearly singular.
    linear : bool, default=False
        Whether the networks are linear, without couplings.
    batch_size : int, default=32
        Number of rows in a batch.
    standardize : bool, default=True
        Whether columns and label are standardized by mean and standard deviation of the source rows.
    random_state : int, default=None
        Seed of the networks, batches and combinations.
    progress : bool, default=True
        Whether a progress bar is shown on stderr during training, if stderr is a terminal.

    Attributes
    ----------
    mechanism_ : Mechanism
        The best network: ``mechanism_.components(Z)`` maps rows with their labels to components, and
        ``mechanism_.rows(S)`` maps components to rows.
    synthetic_ : array of shape (m, n_columns + 1)
        Synthetic rows of the best network, label last.
    loo_ : array of shape (n_checkpoints, n_networks)
        Leave-one-out error of each candidate, in units of the standardized label.
    loo_target_only_ : float
        Leave-one-out error of a fit on the target rows alone.
    acceptance_ : array of shape (n_checkpoints, n_networks)
        Share of the combinations that the one-class SVM accepts, for each candidate.
    n_dropped_ : array of shape (n_checkpoints, n_networks)
        Number of combinations that are not finite, for each candidate.
    epochs_ : array of shape (n_checkpoints,)
        Number of epochs of each checkpoint.
    regressors_ : list of estimators
        The fitted regressors, whose predictions are averaged.
    scale_ : Scale
        Mean and standard deviation of columns and label.
    transferred_ : bool
        Whether synthetic rows were used. A warning is given if not.
    assumption_ : Assumption
        Check of the assumptions of the method.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `X` has names.

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
        """Fit on rows of several source domains and a few labeled target rows.

        Parameters
        ----------
        X : table of shape (n_source, n_columns)
            Source rows.
        y : array of shape (n_source,)
            Labels of the source rows.
        domain : array of shape (n_source,)
            Name or number of the domain of each source row.
        target : Target
            ``Target(X_target, y_target)``: at least two labeled target rows.

        Returns
        -------
        self : CausalTransferRegressor
            The fitted regressor.
        """
        forget_fit(self)
        max_synthetic, n_average = (check_count(name, getattr(self, name)) for name in ("max_synthetic", "n_average"))
        pairs = self._pairs()
        source, target_rows = check_few_shot(self, X, y, target)
        numbers, names = check_domains(domain, len(source), source.shape[1], type(self).__name__)
        self.scale_ = scale_of(source, self.standardize)
        source, target_rows = self.scale_.standardize(source), self.scale_.standardize(target_rows)
        rng = generator(self.random_state)
        checkpoints = self._learn(source, numbers, pairs, rng)
        origin = combinations(len(target_rows), target_rows.shape[1], max_synthetic, rng)
        self._choose(checkpoints, target_rows, origin, one_class(source), n_average)
        self.assumption_ = self._assumption(source, numbers, names, rng)
        return self

    def _pairs(self) -> list[tuple[int, float]]:
        """Each number of hidden units with each weight decay; a single value need not be in a list."""
        widths = [check_count("n_hidden", h) for h in np.atleast_1d(self.n_hidden).tolist()]
        decays = [check_range("weight_decay", decay, 0) for decay in np.atleast_1d(self.weight_decay).tolist()]
        if not widths or not decays:
            raise ParameterError("n_hidden and weight_decay must have at least one value each.")
        return [(h, decay) for h in widths for decay in decays]

    def _learn(
        self, source: FloatArray, numbers: IntArray, pairs: list[tuple[int, float]], rng: np.random.Generator
    ) -> list[Checkpoint]:
        """Step 1: train all networks."""
        seeds = rng.integers(2**40, size=(check_count("n_seeds", self.n_seeds), len(pairs)))
        starts = [Start(0, h, decay, int(seed)) for row in seeds for (h, decay), seed in zip(pairs, row, strict=True)]
        epochs = check_count("epochs", self.epochs, 0)
        LOG.info("causal transfer: %s networks are trained for %s epochs", f"{len(starts):,}", f"{epochs:,}")
        with progress_bar(hidden=not (self.progress and sys.stderr.isatty())) as shown:
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
        self, checkpoints: list[Checkpoint], Z: FloatArray, origin: IntArray, svm: OneClassSVM, n_average: int
    ) -> None:
        """Steps 2 and 3: compute the leave-one-out error of each candidate on the target rows Z, and fit the best."""
        candidates = [synthesize(checkpoint.mechanisms, Z, origin, svm) for checkpoint in checkpoints]
        self.epochs_ = np.array([checkpoint.epoch for checkpoint in checkpoints])
        self.loo_target_only_ = leave_one_out_error(self.regressor, Z, None)
        errors = (leave_one_out_error(self.regressor, Z, c) for each in candidates for c in each)
        shape = len(candidates), len(candidates[0])
        found = list(track(errors, shape[0] * shape[1], "leave-one-out errors of networks", shown=self.progress))
        self.loo_ = np.array(found).reshape(shape)
        self.acceptance_ = np.array([[c.acceptance for c in each] for each in candidates])
        self.n_dropped_ = np.array([[c.n_dropped for c in each] for each in candidates])
        order = [np.unravel_index(k, self.loo_.shape) for k in np.argsort(self.loo_, axis=None, kind="stable")]
        i, j = order[0]
        self.mechanism_ = Mechanism(checkpoints[i].mechanisms.only([int(j)]), self.scale_)
        self.synthetic_ = self.scale_.restore(candidates[i][j].rows)
        # With the fallback only candidates that are better than the target rows alone are averaged.
        used = [k for k in order if not self.fallback or self.loo_[k] < self.loo_target_only_][:n_average]
        synthetic_rows = [candidates[i][j].rows for i, j in used] or [Z[:0]]
        self.transferred_ = any(len(rows) for rows in synthetic_rows)
        self.regressors_ = [fit_augmented(self.regressor, Z, rows) for rows in synthetic_rows]
        if not self.transferred_:
            why = (
                "no synthetic row resembles a source row"
                if not self.acceptance_.any()
                else "by the leave-one-out error on the target rows, transfer hurts"
                if self.fallback
                else "no synthetic row of the best candidates resembles a source row"
            )
            warn_user(
                f"CausalTransferRegressor: {why}; the result is a fit on the target rows alone.",
                NothingTransferredWarning,
            )

    _found_after = "assumption_"

    def _found(self) -> dict[str, str]:
        used = f"{written(float(np.nanmin(self.loo_)))} at best with synthetic rows" if self.loo_.size else "no network"
        return {
            "leave-one-out error on the target rows": f"{used}, {written(self.loo_target_only_)} without",
            "synthetic rows": f"{len(self.synthetic_):,}" + ("" if self.transferred_ else "; none is used"),
            "assumption": str(self.assumption_),
        }

    def _assumption(self, source: FloatArray, numbers: IntArray, names: Any, rng: np.random.Generator) -> Assumption:
        """Test the independence of the recovered components in each source domain."""
        recovered = self.mechanism_.components(self.scale_.restore(source))
        p_values = {
            name: independence_p_value(recovered[numbers == k][:200], random_state=rng) for k, name in enumerate(names)
        }
        return Assumption(len(names), 2 * source.shape[1] + 1, p_values)

    def predict(self, X: Any) -> FloatArray:
        """Predict the labels of target rows.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
            Rows with the columns of the source.

        Returns
        -------
        array of shape (n_rows,)
            Predictions.
        """
        check_is_fitted(self)
        X = check_new_rows(self, X)
        inputs = self.scale_.standardize_inputs(X)
        predictions = [regressor.predict(inputs) for regressor in self.regressors_]
        return self.scale_.restore_labels(np.mean(predictions, axis=0))


def one_class(source: FloatArray) -> OneClassSVM:
    """A one-class SVM of the source rows, with the survey's settings: ν = 0.1 and the kernel exp(−|z − z'|²/D)."""
    return OneClassSVM(nu=0.1, gamma=1 / source.shape[1]).fit(source)
