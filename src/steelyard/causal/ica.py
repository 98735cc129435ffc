"""Non-linear independent component analysis by what differs between domains."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from steelyard._few_shot.domains import Scale, check_domains, scale_of
from steelyard._typing import FloatArray
from steelyard._validation import check_count, check_range, forget_fit, generator
from steelyard.causal.contrast import Start, learn
from steelyard.causal.mechanism import Mechanisms
from steelyard.errors import ConvergenceError, InputError


class Mechanism:
    """An invertible map from rows to components, in the units of the table it was learned from."""

    def __init__(self, networks: Mechanisms, scale: Scale) -> None:
        self.networks, self.scale = copy.deepcopy(networks).double(), scale

    def components(self, Z: FloatArray) -> FloatArray:
        """Of rows (n, D)."""
        with torch.no_grad():
            return self.networks.components(torch.tensor(self.scale.to(np.asarray(Z)))[None])[0].numpy()

    def rows(self, S: FloatArray) -> FloatArray:
        """Of components (n, D)."""
        with torch.no_grad():
            return self.scale.back(self.networks.rows(torch.tensor(np.asarray(S))[None])[0].numpy())


class NonlinearICA(TransformerMixin, BaseEstimator):
    """Independent components behind rows of several domains that share one invertible mixing (survey, section 7).

    Generalized contrastive learning: an invertible network is found whose components, one by one, tell the domain of a
    row. Components come in any order and in any scale. There should be at least 2D + 1 domains that differ enough.

    Parameters
    ----------
    n_starts : int, default=8
        Networks that are trained, all at once; the one with the least contrastive loss is kept.
    n_hidden : int, default=20
        Units of the two hidden layers of the classifiers.
    weight_decay : float, default=0.0
    epochs : int, default=100
    batch_size : int, default=64
    random_state : int, default=None

    Attributes
    ----------
    mechanism_ : `Mechanism`, in both directions
    losses_ : array of shape (n_starts,)
    domains_ : names of the domains

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
        """Learn from rows and the domain of each; `y` is not used."""
        forget_fit(self)
        Z = validate_data(self, Z, dtype=np.float64, ensure_min_features=2, ensure_min_samples=4)
        numbers, self.domains_ = check_domains(domain, len(Z), Z.shape[1], type(self).__name__)
        seeds = generator(self.random_state).integers(2**40, size=check_count("n_starts", self.n_starts))
        decay = check_range("weight_decay", self.weight_decay, 0)
        starts = [Start(0, check_count("n_hidden", self.n_hidden), decay, int(seed)) for seed in seeds]
        scale = scale_of(Z)
        found = learn(
            torch.tensor(scale.to(Z), dtype=torch.float32)[None],
            torch.tensor(numbers)[None],
            starts,
            epochs=check_count("epochs", self.epochs),
            every=self.epochs,
            batch_size=check_count("batch_size", self.batch_size),
        )[-1]
        self.losses_ = found.losses.double().numpy()
        if not np.isfinite(self.losses_).any():
            raise ConvergenceError("The loss of every network is NaN or infinite; look at the rows for wild values.")
        self.mechanism_ = Mechanism(found.mechanisms.only([int(np.nanargmin(self.losses_))]), scale)
        return self

    def transform(self, Z: Any) -> FloatArray:
        """Components of rows."""
        check_is_fitted(self)
        return self.mechanism_.components(validate_data(self, Z, dtype=np.float64, reset=False))

    def inverse_transform(self, S: Any) -> FloatArray:
        """Rows of components."""
        check_is_fitted(self)
        S = check_array(S, dtype=np.float64)
        if S.shape[1] != self.n_features_in_:
            raise InputError(f"There are {self.n_features_in_} components; got {S.shape[1]} columns.")
        return self.mechanism_.rows(S)
