"""Importance weights that are computed and used inside each mini-batch: dynamic importance weighting."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from steelyard._validation import check_count, check_range
from steelyard.deep._distributed import BatchPair, ProcessGroup, Share, gather, shared_group
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
    "median": MatchingRule(w_max=50.0, reg=1e-5, normalized=True, quantile=0.5, is_gamma=True, as_cvxopt=True),
}


class DynamicWeights:
    """Importance weights that match a training mini-batch to a validation mini-batch, by kernel mean matching (KMM).

    min ½wᵀKw − κᵀw over 0 ≤ w ≤ B, 1 − ε ≤ mean(w) ≤ 1 + ε, with K and κ the Gaussian kernel of transformed rows
    (survey, section 6, algorithm 3). The weights are constants: no gradient flows through them.

    Parameters
    ----------
    transform : {"loss", "features"}, default="loss"
        What represents a row: its loss, or the output of a hidden layer, such as the features that
        `scores_and_features` returns beside the scores. Features are matched class by class, and the
        weights of each class are multiplied by w_y, the ratio of its shares in validation and training rows.
    preset : {"normalized", "authors", "median"}, default="normalized"
        "normalized": the kernel width is the median distance (for losses at least an eighth of their range), weights
        have mean one, losses are averaged. "authors": as in the code that the authors released (γ is the 1 % quantile
        of the distances, B = 50, regularization strength 1e-5, weights as solved, losses summed). "median": as in
        later code of theirs (γ is the median distance, the rest as "authors", but weights have mean one and losses are
        averaged). With a kernel as wide as those two give for losses, cvxopt, which they use, stops far from the
        optimal weights; for losses the same iterations are made and give its weights.
    class_ratio : tensor of shape (n_classes,), default=None
        w_y computed from all labels; None computes it from the two mini-batches. Then a class that the validation batch
        lacks has weight zero in the training batch; with a given `class_ratio` its rows have weight w_y.
    w_max : float, default=None
        B, more than one; None is that of the preset.
    process_group : torch.distributed.ProcessGroup or False, default=None
        The processes that share each batch, as under torchrun: their losses are gathered, and every process gets its
        part of the weights of the whole batch. None is the default group where `torch.distributed` is initialized;
        False weights the rows of each process alone.

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

    Losses may be in half precision, as under ``torch.autocast``: they are matched in float64, and their weights are
    float32, so that neither weights nor the sum of weighted losses is rounded or overflows. A ``GradScaler`` scales
    what `reduce` returns.

    With several processes each call gathers the losses of both batches (2 KB for 256 rows of each) and is matched on
    every process to the same weights; on a GPU the host then waits. Processes may hold different numbers of rows, and
    the same validation rows or different ones. `reduce` allows for gradients that are averaged over the processes, as
    ``DistributedDataParallel`` does, so that a step is that of one process with the whole batch; run the network on
    the validation rows without gradients.

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

    Gradient accumulation: first the losses of all micro-batches without gradients, then the weights of the whole batch,
    then one micro-batch after the other with its part of them.

    >>> net = torch.nn.Linear(2, 1)
    >>> def losses_of(X, y):
    ...     return (net(X)[:, 0] - y).square()
    >>> X, y, clean_X, clean_y = torch.randn(8, 2), torch.randn(8), torch.randn(5, 2), torch.randn(5)
    >>> micro_batches = list(zip(X.split(4), y.split(4)))
    >>> with torch.no_grad():
    ...     losses = torch.cat([losses_of(*rows) for rows in micro_batches])
    ...     weights = dynamic(losses, losses_of(clean_X, clean_y))
    >>> for rows, part in zip(micro_batches, weights.split(4)):
    ...     dynamic.reduce(part * losses_of(*rows), n_rows=len(weights)).backward()
    """

    def __init__(
        self,
        transform: str = "loss",
        *,
        preset: str = "normalized",
        class_ratio: Tensor | None = None,
        w_max: float | None = None,
        process_group: ProcessGroup | Literal[False] | None = None,
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
        self.process_group = process_group
        self.n_calls = 0
        self._share: Share | None = None

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
            One weight per training row, with the device and type of `train`; float32 where that is half precision.
        """
        self.n_calls += 1
        group = shared_group(self.process_group)
        batch = BatchPair(train.detach(), validation.detach())
        if self.transform == "features" and train_labels is not None and validation_labels is not None:
            batch = replace(batch, labels=(train_labels, validation_labels))
        problem = self._problem(batch)
        # Matched on the CPU where the device supports neither float64 nor Triton.
        device = train.device if train.device.type in ("cpu", "cuda") else torch.device("cpu")
        with torch.no_grad():
            if group is not None:
                batch, self._share = gather(batch, problem, self._must_agree(batch), group)
            elif problem is not None:
                raise problem
            batches = batch.train.to(device), batch.validation.to(device)
            if batch.labels is None:
                weights = self._by_loss(*batches)
            else:
                weights = self._by_class(*batches, *(y.to(device) for y in batch.labels))
        if group is not None and self._share is not None:
            weights = weights[self._share.start : self._share.start + self._share.n_rows]
        return weights.to(train.device, torch.promote_types(train.dtype, torch.float32))

    def reduce(self, weighted: Tensor, n_rows: int | None = None) -> Tensor:
        """The loss to differentiate: the mean of the weighted losses, or their sum with the authors' preset.

        Where several processes share a batch, these are the mean and the sum over all of it once the gradients are
        averaged over the processes; then `reduce` follows the call that gave the weights.

        Parameters
        ----------
        weighted : tensor of shape (n,)
            Weights times losses.
        n_rows : int, default=None
            With gradient accumulation, where `weighted` is of one micro-batch: rows of all micro-batches of the step
            on this process. None is the length of `weighted`.

        Returns
        -------
        loss : tensor, one number
        """
        given = weighted.numel()
        n_rows = given if n_rows is None else check_count("n_rows", n_rows, 0)
        if n_rows < given:
            raise ParameterError(f"n_rows must count the rows of all micro-batches; got {n_rows} for {given} of them.")
        if shared_group(self.process_group) is None:
            is_part = n_rows > given and self.reduction == "mean"
            return weighted.sum() / n_rows if is_part else REDUCTIONS[self.reduction](weighted)
        share = self._share
        if share is None or share.n_rows != n_rows:
            raise InputError(
                f"{n_rows} weighted losses on this process, but its last call weighted "
                f"{'none' if share is None else share.n_rows}; reduce after the call that gave the weights. For a "
                "micro-batch give n_rows, the rows of all micro-batches; for losses without weights take losses.mean()."
            )
        # The gradients are averaged over the processes, and the batch is that of all of them.
        factor = share.processes / share.total if self.reduction == "mean" else share.processes
        return weighted.sum() * factor

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

    def _problem(self, batch: BatchPair) -> InputError | None:
        """What is wrong with the form of a batch, before any other process knows of it."""
        pairs = ((batch.train, "training"), (batch.validation, "validation"))
        if batch.train.device != batch.validation.device:
            return InputError(
                f"The training batch is on {batch.train.device}, the validation batch on {batch.validation.device}."
            )
        if self.transform == "loss":
            for losses, which in pairs:
                if losses.ndim != 1:
                    return InputError(
                        f"The {which} losses must be one number per row; got a tensor of shape {tuple(losses.shape)}. "
                        'Use the loss with reduction="none".'
                    )
            return None
        if batch.labels is None:
            return InputError('transform="features" matches class by class and needs the labels of both batches.')
        for (values, which), y in zip(pairs, batch.labels, strict=True):
            if values.ndim != 2 or len(values) != len(y):
                return InputError(
                    f"The {which} features must be one row for each of {len(y)} labels; got a tensor of shape "
                    f"{tuple(values.shape)}."
                )
        if batch.train.shape[1] != batch.validation.shape[1]:
            return InputError(
                f"Training rows have {batch.train.shape[1]} features, validation rows {batch.validation.shape[1]}; "
                "take both from the same network."
            )
        return None

    def _must_agree(self, batch: BatchPair) -> dict[str, int]:
        """Numbers that are the same on all processes that share a batch."""
        ratio = None if self.class_ratio is None else self.class_ratio.tolist()
        return {
            "call": self.n_calls,
            "settings": zlib.crc32(repr((self.transform, self._rule, ratio)).encode()),
            "type": zlib.crc32(str(batch.train.dtype).encode()),
            "width": batch.train.shape[1] if batch.train.ndim == 2 else 1,
        }

    def _by_loss(self, train: Tensor, validation: Tensor) -> Tensor:
        for losses, which in ((train, "training"), (validation, "validation")):
            self._require_usable(losses, which, "losses")
        return match_losses(train, validation, self._rule)

    def _by_class(self, train: Tensor, validation: Tensor, labels: Tensor, validation_labels: Tensor) -> Tensor:
        for values, which in ((train, "training"), (validation, "validation")):
            self._require_usable(values, which, "features")
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
