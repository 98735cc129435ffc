"""Nonlinear independent component analysis (ICA) from the differences between domains."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from steelyard._few_shot.domains import Scale, check_domains, scale_of
from steelyard._numerics.written import written
from steelyard._typing import FloatArray
from steelyard._validation import check_count, check_range, forget_fit, generator
from steelyard.causal.contrast import Start, learn
from steelyard.causal.mechanism import Mechanisms
from steelyard.errors import ConvergenceError, InputError
from steelyard.report.notebook import ShowsFit


class Mechanism:
    """An invertible map from rows to independent components, in the units of the table it was learned from."""

    def __init__(self, networks: Mechanisms, scale: Scale) -> None:
        self.networks, self.scale = copy.deepcopy(networks).double(), scale

    def components(self, Z: FloatArray) -> FloatArray:
        """Map rows (n, D) to components (n, D)."""
        with torch.no_grad():
            return self.networks.components(torch.tensor(self.scale.standardize(np.asarray(Z)))[None])[0].numpy()

    def rows(self, S: FloatArray) -> FloatArray:
        """Map components (n, D) to rows (n, D)."""
        with torch.no_grad():
            return self.scale.restore(self.networks.rows(torch.tensor(np.asarray(S))[None])[0].numpy())


class NonlinearICA(ShowsFit, TransformerMixin, BaseEstimator):
    """Nonlinear ICA: independent components of rows of several domains that share one invertible mixing function.

    By generalized contrastive learning (survey, section 7): an invertible network is trained so that classifiers of its
    single components, added up, predict the domain of a row. The components are determined up to their order and an
    invertible transformation of each. There should be at least 2D + 1 sufficiently different domains for D columns.

    Parameters
    ----------
    n_starts : int, default=8
        Number of networks that are trained, as one batch; the one with the smallest contrastive loss is kept.
    n_hidden : int, default=20
        Number of units of each of the two hidden layers of the domain classifiers.
    weight_decay : float, default=0.0
        Strength of the weight decay of networks and domain classifiers.
    epochs : int, default=100
        Number of training epochs.
    batch_size : int, default=64
        Number of rows in a batch.
    random_state : int, default=None
        Seed of the networks and batches.

    Attributes
    ----------
    mechanism_ : Mechanism
        The map in both directions: ``mechanism_.components(Z)`` and ``mechanism_.rows(S)``.
    losses_ : array of shape (n_starts,)
        Contrastive loss of each network.
    domains_ : array of shape (n_domains,)
        Names of the domains.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (n_columns,)
        Names of the columns, if `Z` has names.

    Examples
    --------
    >>> from steelyard.causal import NonlinearICA
    >>> from steelyard.datasets import independent_component_shift
    >>> Z, domain, _ = independent_component_shift(5, 100, 2, random_state=0)
    >>> ica = NonlinearICA(n_starts=2, epochs=5, random_state=0).fit(Z, domain=domain)
    >>> bool(abs(ica.inverse_transform(ica.transform(Z)) - Z).max() < 1e-8)
    True
    """

    def __init__(
        self,
        *,
        n_starts: int = 8,
        n_hidden: int = 20,
        weight_decay: float = 0.0,
        epochs: int = 100,
        batch_size: int = 64,
        random_state: int | None = None,
    ) -> None:
        self.n_starts = n_starts
        self.n_hidden = n_hidden
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, Z: Any, y: Any = None, *, domain: Any = None) -> NonlinearICA:
        """Learn the mixing function from rows of several domains.

        Parameters
        ----------
        Z : array of shape (n_rows, n_columns)
            Rows of all domains.
        y : ignored
            Present for the scikit-learn interface.
        domain : array of shape (n_rows,)
            Name or number of the domain of each row.

        Returns
        -------
        self : NonlinearICA
            The fitted estimator.
        """
        forget_fit(self)
        Z = validate_data(self, Z, dtype=np.float64, ensure_min_features=2, ensure_min_samples=4)
        numbers, self.domains_ = check_domains(domain, len(Z), Z.shape[1], type(self).__name__)
        seeds = generator(self.random_state).integers(2**40, size=check_count("n_starts", self.n_starts))
        decay = check_range("weight_decay", self.weight_decay, 0)
        starts = [Start(0, check_count("n_hidden", self.n_hidden), decay, int(seed)) for seed in seeds]
        scale = scale_of(Z)
        checkpoint = learn(
            torch.tensor(scale.standardize(Z), dtype=torch.float32)[None],
            torch.tensor(numbers)[None],
            starts,
            epochs=check_count("epochs", self.epochs),
            every=self.epochs,
            batch_size=check_count("batch_size", self.batch_size),
        )[-1]
        self.losses_ = checkpoint.losses.double().numpy()
        if not np.isfinite(self.losses_).any():
            raise ConvergenceError("The loss of every network is NaN or infinite. Check the rows for extreme values.")
        self.mechanism_ = Mechanism(checkpoint.mechanisms.only([int(np.nanargmin(self.losses_))]), scale)
        return self

    _found_after = "mechanism_"

    def _found(self) -> dict[str, str]:
        low, high = (written(float(end(self.losses_))) for end in (np.nanmin, np.nanmax))
        kept = f"{len(self.losses_)} trained, with losses from {low} to {high}; the first of these is kept"
        return {"source domains": f"{len(self.domains_)}", "networks": kept}

    def transform(self, Z: Any) -> FloatArray:
        """Map rows to components.

        Parameters
        ----------
        Z : array of shape (n_rows, n_columns)
            Rows.

        Returns
        -------
        array of shape (n_rows, n_columns)
            Components.
        """
        check_is_fitted(self)
        return self.mechanism_.components(validate_data(self, Z, dtype=np.float64, reset=False))

    def inverse_transform(self, S: Any) -> FloatArray:
        """Map components to rows.

        Parameters
        ----------
        S : array of shape (n_rows, n_columns)
            Components.

        Returns
        -------
        array of shape (n_rows, n_columns)
            Rows.
        """
        check_is_fitted(self)
        S = check_array(S, dtype=np.float64)
        if S.shape[1] != self.n_features_in_:
            raise InputError(f"There are {self.n_features_in_} components; got {S.shape[1]} columns.")
        return self.mechanism_.rows(S)
