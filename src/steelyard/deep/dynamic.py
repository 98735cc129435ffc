"""Weights that are made and used inside each mini-batch: dynamic importance weighting."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.check import check_range
from steelyard.deep.matching import pose, solve
from steelyard.errors import InputError, NotFiniteError, ParameterError

TRANSFORMS = ("loss", "features")


@dataclass(frozen=True)
class Preset:
    """Settings of the matching that belong together."""

    w_max: float
    ridge: float
    normalised: bool  # mean weight one, and a mean of the weighted losses; else as solved, and their sum
    quantile: float  # of the distances in the training batch
    is_gamma: bool  # whether that quantile is γ itself, or a width σ with γ = 1/(2σ²)


PRESETS = {
    "normalised": Preset(w_max=50.0, ridge=1e-3, normalised=True, quantile=0.5, is_gamma=False),
    "authors": Preset(w_max=50.0, ridge=1e-5, normalised=False, quantile=0.01, is_gamma=True),
}


class DynamicWeights:
    """Weights of a training mini-batch that make it look like a validation mini-batch, by kernel mean matching.

    min ½wᵀKw − κᵀw over 0 ≤ w ≤ B, |mean(w) − 1| ≤ ε, with K and κ the Gaussian kernel of transformed rows (survey,
    section 6, algorithm 3). Nothing in it is differentiated: the weights are numbers.

    Parameters
    ----------
    transform : {"loss", "features"}, default="loss"
        What stands for a row: its loss, or the output of a hidden layer. Features are matched class by class and each
        class is multiplied by w_y, the ratio of its shares.
    preset : {"normalised", "authors"}, default="normalised"
        "normalised": the width is the median distance, weights have mean one, losses are averaged. "authors": as in
        the code the authors released (γ is the 1 % quantile of the distances, B = 50, ridge 1e-5, weights as solved,
        losses summed).
    class_ratio : tensor of shape (n_classes,), default=None
        w_y where it is known, from all labels; None takes it from the two mini-batches. A class that the validation
        batch lacks then has weight zero in the training batch; where w_y is known, its rows have weight w_y.
    w_max : float, default=None
        B; None is that of the preset.

    Examples
    --------
    The two lines in somebody's loop, where `criterion` has ``reduction="none"``:

    >>> import torch
    >>> from steelyard.deep import DynamicWeights
    >>> losses, validation_losses = torch.tensor([0.1, 0.2, 3.0, 4.0]), torch.tensor([0.1, 0.15, 0.2])
    >>> dynamic = DynamicWeights()
    >>> weights = dynamic(losses, validation_losses)
    >>> bool(weights[0] > 1.5 > weights[3])
    True
    >>> loss = dynamic.reduce(weights * losses)
    """

    def __init__(
        self,
        transform: str = "loss",
        *,
        preset: str = "normalised",
        class_ratio: Tensor | None = None,
        w_max: float | None = None,
    ) -> None:
        if transform not in TRANSFORMS:
            raise ParameterError(f"transform must be one of {TRANSFORMS}; got {transform!r}.")
        if preset not in PRESETS:
            raise ParameterError(f"preset must be one of {tuple(PRESETS)}; got {preset!r}.")
        if w_max is not None:
            check_range("w_max", w_max, 0, open_low=True)
        self.transform, self.preset, self.class_ratio = transform, PRESETS[preset], class_ratio
        self.w_max = self.preset.w_max if w_max is None else float(w_max)

    def __call__(
        self,
        train: Tensor,
        validation: Tensor,
        train_labels: Tensor | None = None,
        validation_labels: Tensor | None = None,
    ) -> Tensor:
        """Weights of the training rows, on their device and of their type.

        Parameters
        ----------
        train, validation : losses of shape (n,) and (m,), or features of shape (n, d) and (m, d)
        train_labels, validation_labels : class numbers, needed for features
        """
        with torch.no_grad():
            if self.transform == "loss":
                weights = self._by_loss(_rows(train, "training"), _rows(validation, "validation"))
            else:
                weights = self._by_class(train, validation, train_labels, validation_labels)
            if self.preset.normalised:
                weights = weights / weights.mean().clamp(min=1e-12)
        return weights.to(train.dtype)

    def reduce(self, weighted: Tensor) -> Tensor:
        """Weighted losses to the one that is differentiated: their mean, or with the authors' preset their sum."""
        return weighted.mean() if self.preset.normalised else weighted.sum()

    def _by_loss(self, train: Tensor, validation: Tensor) -> Tensor:
        return self._match(train[None], validation[None], None, None)[0]

    def _by_class(
        self, train: Tensor, validation: Tensor, labels: Tensor | None, validation_labels: Tensor | None
    ) -> Tensor:
        if labels is None or validation_labels is None:
            raise InputError('transform="features" matches class by class and needs the labels of both batches.')
        train, validation = _features(train, labels, "training"), _features(validation, validation_labels, "validation")
        n_classes = int(max(labels.max(), validation_labels.max())) + 1
        if self.class_ratio is not None:
            n_classes = len(self.class_ratio)
        classes = torch.arange(n_classes, device=labels.device)
        here, there = labels == classes[:, None], validation_labels == classes[:, None]  # (C, n), (C, m)
        counts, goal_counts = here.sum(dim=1), there.sum(dim=1)
        shares = goal_counts / len(validation_labels) / (counts / len(labels)).clamp(min=1e-12)
        ratio = shares if self.class_ratio is None else self.class_ratio.to(train)
        everything = train.expand(n_classes, *train.shape), validation.expand(n_classes, *validation.shape)
        matched = self._match(*everything, here, there)
        # A class without validation rows has nothing to match: its rows count the same.
        matched = torch.where((goal_counts > 0)[:, None], matched, torch.ones_like(matched))
        return (matched * here * ratio[:, None]).sum(dim=0)

    def _match(self, train: Tensor, validation: Tensor, here: Tensor | None, there: Tensor | None) -> Tensor:
        problems = pose(
            train,
            validation,
            self.gamma(train, here),
            w_max=self.w_max,
            ridge=self.preset.ridge,
            real=here,
            validation_real=there,
        )
        return solve(problems)

    def gamma(self, train: Tensor, here: Tensor | None = None) -> Tensor:
        """γ of each problem, from distances between training rows."""
        distances = torch.cdist(train.double(), train.double(), compute_mode="donot_use_mm_for_euclid_dist")
        n = train.shape[1]
        pairs = torch.triu_indices(n, n, 1, device=train.device)
        flat = distances[:, pairs[0], pairs[1]]
        if here is not None:
            both = here[:, pairs[0]] & here[:, pairs[1]]
            flat = torch.where(both, flat, torch.nan)
        found = torch.nanquantile(flat, self.preset.quantile, dim=1).nan_to_num(1.0)
        if self.preset.is_gamma:
            return found
        # Equal rows have no distance; any width will do.
        return 0.5 / torch.where(found > 0, found, torch.ones_like(found)).square()


def _rows(losses: Tensor, which: str) -> Tensor:
    """Losses as rows of one column."""
    if losses.ndim != 1:
        raise InputError(
            f"The {which} losses must be one a row; got a tensor of shape {tuple(losses.shape)}. Use the loss with "
            'reduction="none".'
        )
    _require_finite(losses, which, "losses")
    return losses.detach()[:, None]


def _features(values: Tensor, labels: Tensor, which: str) -> Tensor:
    if values.ndim != 2 or len(values) != len(labels):
        raise InputError(
            f"The {which} features must be one row for each of {len(labels)} labels; got a tensor of shape "
            f"{tuple(values.shape)}."
        )
    _require_finite(values, which, "features")
    return values.detach()


def _require_finite(values: Tensor, which: str, what: str) -> None:
    if not len(values):
        raise InputError(f"The {which} batch is empty; at least one row is needed.")
    if not bool(torch.isfinite(values).all()):
        raise NotFiniteError(f"The {which} {what} hold NaN or infinity; look at the model, or lower its learning rate.")
