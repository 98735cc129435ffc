"""Importance weights that are computed and used inside each mini-batch: dynamic importance weighting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from steelyard._validation import check_range
from steelyard.deep._matching.choice import MatchingRule, gamma_of, match_classes, match_losses
from steelyard.deep._reduction import REDUCTIONS
from steelyard.errors import InputError, NotFiniteError, ParameterError

TRANSFORMS = ("loss", "features")
# A width is at least this share of the range of the training losses. When a network has learned most rows, the median
# distance is almost zero: such a kernel would resolve small losses, ignore all large ones, and have no small factor.
NARROWEST = 1 / 8
PRESETS = {
    "normalized": MatchingRule(w_max=50.0, reg=1e-3, normalized=True, quantile=0.5, is_gamma=False, as_cvxopt=False),
    "authors": MatchingRule(w_max=50.0, reg=1e-5, normalized=False, quantile=0.01, is_gamma=True, as_cvxopt=True),
}


class DynamicWeights:
    """Importance weights that match a training mini-batch to a validation mini-batch, by kernel mean matching (KMM).

    min ½wᵀKw − κᵀw over 0 ≤ w ≤ B, |mean(w) − 1| ≤ ε, with K and κ the Gaussian kernel of transformed rows (survey,
    section 6, algorithm 3). The weights are constants: no gradient flows through them.

    Parameters
    ----------
    transform : {"loss", "features"}, default="loss"
        What represents a row: its loss, or the output of a hidden layer. Features are matched class by class, and the
        weights of each class are multiplied by w_y, the ratio of its shares in validation and training rows.
    preset : {"normalized", "authors"}, default="normalized"
        "normalized": the kernel width is the median distance (for losses at least an eighth of their range), weights
        have mean one, losses are averaged. "authors": as in the code that the authors released (γ is the 1 % quantile
        of the distances, B = 50, regularization strength 1e-5, weights as solved, losses summed). With a kernel that
        wide cvxopt, which they use, stops far from the optimal weights; for losses the same iterations are made and
        give its weights.
    class_ratio : tensor of shape (n_classes,), default=None
        w_y computed from all labels; None computes it from the two mini-batches. Then a class that the validation batch
        lacks has weight zero in the training batch; with a given `class_ratio` its rows have weight w_y.
    w_max : float, default=None
        B, more than one; None is that of the preset.

    Attributes
    ----------
    preset : MatchingRule
        Settings of the matching.
    reduction : {"mean", "sum"}
        How `reduce` combines the weighted losses.
    n_calls : int
        Number of batches weighted so far.

    Notes
    -----
    On a CPU losses are matched in a fraction of a millisecond where numba is installed (extra ``deep``); without it,
    and for features, PyTorch does it. On a GPU, for batches of up to 256 rows, a Triton kernel does it and the host
    never waits (the first call compiles for about twenty seconds, once per machine); there, NaN in the losses gives NaN
    weights instead of an error, and labels are not checked.

    Examples
    --------
    The two lines to add to a training loop, with one loss per row (``reduction="none"``). With dropout or batch-norm,
    compute both losses for the weights in evaluation mode, and those of the validation rows without gradients:

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
        preset: str = "normalized",
        class_ratio: Tensor | None = None,
        w_max: float | None = None,
    ) -> None:
        if transform not in TRANSFORMS:
            raise ParameterError(f"transform must be one of {TRANSFORMS}; got {transform!r}.")
        if preset not in PRESETS:
            raise ParameterError(f"preset must be one of {tuple(PRESETS)}; got {preset!r}.")
        if w_max is not None:
            check_range("w_max", w_max, 1, open_low=True)
        self.transform, self.preset = transform, PRESETS[preset]
        self.reduction = self.preset.reduction
        self.class_ratio = None if class_ratio is None else torch.as_tensor(class_ratio)
        self.w_max = self.preset.w_max if w_max is None else float(w_max)
        # The least width is for losses alone, and so is following cvxopt: the authors' code has no features.
        of_transform = {"narrowest": NARROWEST} if transform == "loss" else {"as_cvxopt": False}
        self._rule = replace(self.preset, w_max=self.w_max, **of_transform)
        self.n_calls = 0

    def __call__(
        self,
        train: Tensor,
        validation: Tensor,
        train_labels: Tensor | None = None,
        validation_labels: Tensor | None = None,
    ) -> Tensor:
        """Weights of the training rows.

        Parameters
        ----------
        train : tensor of shape (n,) or (n, d)
            Losses or features of the training batch.
        validation : tensor of shape (m,) or (m, d)
            Losses or features of the validation batch.
        train_labels, validation_labels : tensors of shape (n,) and (m,), default=None
            Class numbers from 0; needed for features.

        Returns
        -------
        weights : tensor of shape (n,)
            One weight per training row, with the device and type of `train`.
        """
        self.n_calls += 1
        if train.device != validation.device:
            raise InputError(f"The training batch is on {train.device}, the validation batch on {validation.device}.")
        # Matched on the CPU where the device supports neither float64 nor Triton.
        device = train.device if train.device.type in ("cpu", "cuda") else torch.device("cpu")
        with torch.no_grad():
            batches = train.detach().to(device), validation.detach().to(device)
            if self.transform == "loss":
                weights = self._by_loss(*batches)
            else:
                labels = (None if y is None else y.to(device) for y in (train_labels, validation_labels))
                weights = self._by_class(*batches, *labels)
        return weights.to(train.device, train.dtype)

    def reduce(self, weighted: Tensor) -> Tensor:
        """The loss to differentiate: the mean of the weighted losses, or their sum with the authors' preset.

        Parameters
        ----------
        weighted : tensor of shape (n,)
            Weights times losses.

        Returns
        -------
        loss : tensor, one number
        """
        return REDUCTIONS[self.reduction](weighted)

    def gamma(self, train: Tensor, real: Tensor | None = None) -> Tensor:
        """γ of the Gaussian kernel exp(−γ‖z − z'‖²), from distances between training rows.

        Parameters
        ----------
        train : tensor of shape (P, n, d)
            Losses (d = 1) or features of P training batches.
        real : boolean tensor of shape (P, n), default=None
            False for rows that only pad a batch.

        Returns
        -------
        gamma : tensor of shape (P,)
        """
        return gamma_of(train, self._rule, real)

    def _by_loss(self, train: Tensor, validation: Tensor) -> Tensor:
        for losses, which in ((train, "training"), (validation, "validation")):
            if losses.ndim != 1:
                raise InputError(
                    f"The {which} losses must be one number per row; got a tensor of shape {tuple(losses.shape)}. Use "
                    'the loss with reduction="none".'
                )
            self._require_usable(losses, which, "losses")
        return match_losses(train, validation, self._rule)

    def _by_class(
        self, train: Tensor, validation: Tensor, labels: Tensor | None, validation_labels: Tensor | None
    ) -> Tensor:
        if labels is None or validation_labels is None:
            raise InputError('transform="features" matches class by class and needs the labels of both batches.')
        for values, y, which in ((train, labels, "training"), (validation, validation_labels, "validation")):
            if values.ndim != 2 or len(values) != len(y):
                raise InputError(
                    f"The {which} features must be one row for each of {len(y)} labels; got a tensor of shape "
                    f"{tuple(values.shape)}."
                )
            self._require_usable(values, which, "features")
        if train.shape[1] != validation.shape[1]:
            raise InputError(
                f"Training rows have {train.shape[1]} features, validation rows {validation.shape[1]}; take both from "
                "the same network."
            )
        classes = torch.arange(self._n_classes(labels, validation_labels), device=labels.device)
        members, validation_members = labels == classes[:, None], validation_labels == classes[:, None]
        counts, validation_counts = members.sum(dim=1), validation_members.sum(dim=1)
        shares = validation_counts / len(validation_labels) / (counts / len(labels)).clamp(min=1e-12)
        ratio = shares if self.class_ratio is None else self.class_ratio.to(shares)
        matched = match_classes(train, validation, members, validation_members, self._rule)
        # A class without validation rows has nothing to match: its rows have equal weights.
        matched = torch.where((validation_counts > 0)[:, None], matched, torch.ones_like(matched))
        weights = (matched * members * ratio[:, None]).sum(dim=0)
        if not train.is_cuda and not bool(weights.any()):
            raise InputError(
                f"Every weight is zero in call {self.n_calls}: no class of the training batch is in the validation "
                "batch. Take larger batches, or give class_ratio."
            )
        return self._rule.scale(weights)

    def _n_classes(self, labels: Tensor, validation_labels: Tensor) -> int:
        """The length of `class_ratio`, or the largest label plus one, which on a GPU makes the host wait."""
        if not labels.is_cuda and int(min(labels.min(), validation_labels.min())) < 0:
            raise InputError(f"Labels count from 0; got {int(min(labels.min(), validation_labels.min()))}.")
        if self.class_ratio is None:
            return int(max(labels.max(), validation_labels.max())) + 1
        n_classes = len(self.class_ratio)
        if not labels.is_cuda and int(max(labels.max(), validation_labels.max())) >= n_classes:
            raise InputError(
                f"Labels go up to {int(max(labels.max(), validation_labels.max()))} in call {self.n_calls}, but "
                f"class_ratio has {n_classes} classes."
            )
        return n_classes

    def _require_usable(self, values: Tensor, which: str, what: str) -> None:
        if not len(values):
            raise InputError(f"The {which} batch is empty in call {self.n_calls}; at least one row is needed.")
        if values.is_cuda:  # a check would make the host wait in every step
            return
        # NumPy is several times faster than PyTorch for one batch, but has no bfloat16.
        finite = torch.isfinite(values) if values.dtype == torch.bfloat16 else np.isfinite(values.numpy())
        if not bool(finite.all()):
            raise NotFiniteError(
                f"The {which} {what} hold NaN or infinity in call {self.n_calls}; check the model, or lower its "
                "learning rate."
            )
