"""Weights that are made and used inside each mini-batch: dynamic importance weighting."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from steelyard._validation import check_range
from steelyard.deep._matching.dense import pose, solve, solve_as_cvxopt
from steelyard.errors import InputError, NotFiniteError, ParameterError

TRANSFORMS = ("loss", "features")
# A width is at least this share of the range of the training losses. When a network has learned most of its rows the
# median distance is next to nothing: such a kernel would tell small losses apart and see none of the large ones, and no
# solver would have a small factor of it.
NARROWEST = 1 / 8
HAS_NUMBA, HAS_TRITON = (find_spec(name) is not None for name in ("numba", "triton"))
LARGEST_OF_KERNEL = 256  # rows of a batch that were tried on a GPU; more are matched by PyTorch, and the host waits


@dataclass(frozen=True)
class Preset:
    """Settings of the matching that belong together."""

    w_max: float
    ridge: float
    normalized: bool  # mean weight one, and a mean of the weighted losses; else as solved, and their sum
    quantile: float  # of the distances in the training batch
    is_gamma: bool  # whether that quantile is γ itself, or a width σ with γ = 1/(2σ²)
    as_cvxopt: bool  # losses are matched to where cvxopt stops, not to the optimum


PRESETS = {
    "normalised": Preset(w_max=50.0, ridge=1e-3, normalized=True, quantile=0.5, is_gamma=False, as_cvxopt=False),
    "authors": Preset(w_max=50.0, ridge=1e-5, normalized=False, quantile=0.01, is_gamma=True, as_cvxopt=True),
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
        "normalised": the width is the median distance (of losses an eighth of their range at least), weights have mean
        one, losses are averaged. "authors": as in the code the authors released (γ is the 1 % quantile of the
        distances, B = 50, ridge 1e-5, weights as solved, losses summed). With so wide a kernel cvxopt, which they use,
        stops far from the weights of the optimum; for losses the same steps are taken, and end at its weights.
    class_ratio : tensor of shape (n_classes,), default=None
        w_y where it is known, from all labels; None takes it from the two mini-batches. A class that the validation
        batch lacks then has weight zero in the training batch; where w_y is known, its rows have weight w_y.
    w_max : float, default=None
        B, more than one; None is that of the preset.

    Notes
    -----
    On a CPU losses are matched in a fraction of a millisecond where numba is installed (extra ``deep``), otherwise and
    for features by PyTorch. On a GPU, for batches of up to 256 rows, a Triton kernel does it and nothing waits for the
    host (the first call compiles for about twenty seconds, once a machine); there, NaN in the losses gives NaN weights
    instead of an error, and labels are not checked.

    Examples
    --------
    The two lines in somebody's loop, where the losses come one a row (``reduction="none"``). With dropout or batch-norm
    both losses are computed in evaluation mode, and those of the validation rows without a graph:

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
            check_range("w_max", w_max, 1, open_low=True)
        self.transform, self.preset = transform, PRESETS[preset]
        self.class_ratio = None if class_ratio is None else torch.as_tensor(class_ratio)
        self.w_max = self.preset.w_max if w_max is None else float(w_max)
        self.n_calls = 0

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
        self.n_calls += 1
        if train.device != validation.device:
            raise InputError(f"The training batch lies on {train.device}, the validation batch on {validation.device}.")
        # Matched on the host where the device has neither float64 nor Triton.
        place = train.device if train.device.type in ("cpu", "cuda") else torch.device("cpu")
        with torch.no_grad():
            here, there = train.detach().to(place), validation.detach().to(place)
            if self.transform == "loss":
                weights = self._by_loss(here, there)
            else:
                labels = (None if y is None else y.to(place) for y in (train_labels, validation_labels))
                weights = self._by_class(here, there, *labels)
        return weights.to(train.device, train.dtype)

    def reduce(self, weighted: Tensor) -> Tensor:
        """Weighted losses to the one that is differentiated: their mean, or with the authors' preset their sum."""
        return weighted.mean() if self.preset.normalized else weighted.sum()

    def _by_loss(self, train: Tensor, validation: Tensor) -> Tensor:
        for losses, which in ((train, "training"), (validation, "validation")):
            if losses.ndim != 1:
                raise InputError(
                    f"The {which} losses must be one a row; got a tensor of shape {tuple(losses.shape)}. Use the loss "
                    'with reduction="none".'
                )
            self._require_usable(losses, which, "losses")
        if not train.is_cuda and HAS_NUMBA:
            return self._match_line(train, validation)
        return self._scaled(self._match_losses(train, validation))

    def _scaled(self, weights: Tensor) -> Tensor:
        """Mean one, where the preset says so."""
        return weights / weights.mean().clamp(min=1e-12) if self.preset.normalized else weights

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
                f"Training rows have {train.shape[1]} features, validation rows {validation.shape[1]}; one network "
                "gives both."
            )
        n_classes = self._n_classes(labels, validation_labels)
        classes = torch.arange(n_classes, device=labels.device)
        here, there = labels == classes[:, None], validation_labels == classes[:, None]  # (C, n), (C, m)
        counts, goal_counts = here.sum(dim=1), there.sum(dim=1)
        shares = goal_counts / len(validation_labels) / (counts / len(labels)).clamp(min=1e-12)
        ratio = shares if self.class_ratio is None else self.class_ratio.to(shares)
        matched = self._match_classes(train, validation, here, there)
        # A class without validation rows has nothing to match: its rows count the same.
        matched = torch.where((goal_counts > 0)[:, None], matched, torch.ones_like(matched))
        weights = (matched * here * ratio[:, None]).sum(dim=0)
        if not train.is_cuda and not bool(weights.any()):
            raise InputError(
                f"Every weight is zero in call {self.n_calls}: no class of the training batch is in the validation "
                "batch. Take larger batches, or give class_ratio."
            )
        return self._scaled(weights)

    def _n_classes(self, labels: Tensor, validation_labels: Tensor) -> int:
        """As many as there are ratios; otherwise by the largest label, for which a GPU is waited for."""
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

    def _match_losses(self, train: Tensor, validation: Tensor) -> Tensor:
        """Weights as solved, by Triton or PyTorch."""
        if train.is_cuda and HAS_TRITON and max(train.shape[-1], validation.shape[-1]) <= LARGEST_OF_KERNEL:
            from steelyard.deep._matching.triton_kernels import match_lines

            return match_lines(
                train[None],
                validation[None],
                quantile=self.preset.quantile,
                is_gamma=self.preset.is_gamma,
                narrowest=NARROWEST,
                w_max=self.w_max,
                ridge=self.preset.ridge,
                as_cvxopt=self.preset.as_cvxopt,
            )[0]
        return self._match_densely(train[None, :, None], validation[None, :, None], None, None)[0]

    def _match_line(self, train: Tensor, validation: Tensor) -> Tensor:
        """Weights of one problem on a CPU, scaled as the preset says."""
        from steelyard.deep._matching.line import weigh

        rule, z, v = self.preset, train.double().numpy(), validation.double().numpy()
        weights, solved = weigh(
            z, v, rule.quantile, rule.is_gamma, NARROWEST, self.w_max, rule.ridge, rule.as_cvxopt, rule.normalized
        )
        if not solved:  # most likely the kernel is too narrow
            return self._scaled(self._match_losses(train, validation))
        return torch.from_numpy(weights)

    def _match_classes(self, train: Tensor, validation: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """(C, n) weights of rows in each class, zero elsewhere."""
        if train.is_cuda and HAS_TRITON and max(len(train), len(validation)) <= LARGEST_OF_KERNEL:
            from steelyard.deep._matching.triton_kernels import match_classes

            return match_classes(
                train,
                validation,
                here,
                there,
                quantile=self.preset.quantile,
                is_gamma=self.preset.is_gamma,
                w_max=self.w_max,
                ridge=self.preset.ridge,
            )
        # Rows of each class side by side, filled up to the largest class.
        (rows, real), (goal_rows, goal_real) = _side_by_side(here), _side_by_side(there)
        weights = self._match_densely(train[rows], validation[goal_rows], real, goal_real)
        spread = torch.zeros(here.shape, dtype=weights.dtype, device=weights.device)
        return spread.scatter_add(1, rows, weights * real)

    def _match_densely(self, train: Tensor, validation: Tensor, real: Tensor | None, goal: Tensor | None) -> Tensor:
        if train.is_cuda and torch.cuda.is_current_stream_capturing():
            raise InputError(
                f"Batches of {train.shape[1]} and {validation.shape[1]} rows cannot be weighted inside a CUDA graph: "
                f"take at most {LARGEST_OF_KERNEL} rows of each, and install triton."
            )
        problems = pose(
            train,
            validation,
            self.gamma(train, real),
            w_max=self.w_max,
            ridge=self.preset.ridge,
            real=real,
            validation_real=goal,
        )
        # Of features there is no code of the authors.
        return solve_as_cvxopt(problems) if self.preset.as_cvxopt and self.transform == "loss" else solve(problems)

    def gamma(self, train: Tensor, here: Tensor | None = None) -> Tensor:
        """γ of each problem, from distances between training rows."""
        distances = torch.cdist(train.double(), train.double(), compute_mode="donot_use_mm_for_euclid_dist")
        n = train.shape[1]
        pairs = torch.triu_indices(n, n, 1, device=train.device)
        flat = distances[:, pairs[0], pairs[1]]
        if here is not None:
            both = here[:, pairs[0]] & here[:, pairs[1]]
            flat = torch.where(both, flat, torch.nan)
        if not flat.shape[1]:
            return torch.ones_like(distances[:, 0, 0])  # one row has no distance; any width will do
        found = torch.nanquantile(flat, self.preset.quantile, dim=1).nan_to_num(1.0)
        if self.preset.is_gamma:
            return found
        if self.transform == "loss":
            found = torch.maximum(found, NARROWEST * flat.amax(dim=1))
        return 0.5 / torch.where(found > 0, found, torch.ones_like(found)).square()

    def _require_usable(self, values: Tensor, which: str, what: str) -> None:
        if not len(values):
            raise InputError(f"The {which} batch is empty in call {self.n_calls}; at least one row is needed.")
        # On a GPU this look would make the host wait for every step.
        if not values.is_cuda and not _is_finite(values):
            raise NotFiniteError(
                f"The {which} {what} hold NaN or infinity in call {self.n_calls}; look at the model, or lower its "
                "learning rate."
            )


def _is_finite(values: Tensor) -> bool:
    if values.dtype == torch.bfloat16:  # which numpy does not have
        return bool(torch.isfinite(values).all())
    return bool(np.isfinite(values.numpy()).all())  # several times faster than PyTorch for a batch


def _side_by_side(masks: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers (C, k) of each mask (C, n), k those of the fullest, and which of them are real."""
    k = max(int(masks.sum(dim=1).max()), 1)
    # A stable sort of "not in the class" brings the rows of the class to the front.
    rows = torch.argsort((~masks).to(torch.uint8), dim=1, stable=True)[:, :k]
    return rows, masks.gather(1, rows)
