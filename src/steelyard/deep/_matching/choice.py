"""Which solver matches a mini-batch: one function for losses, one for features class by class."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from steelyard._progress import LOG
from steelyard.deep._matching.dense import pose, solve, solve_as_cvxopt
from steelyard.errors import InputError

HAS_NUMBA, HAS_TRITON = (find_spec(name) is not None for name in ("numba", "triton"))
TRITON_ROWS = 256  # largest batch that was tested on a GPU; larger ones are matched by PyTorch, and the host waits


@dataclass(frozen=True)
class MatchingRule:
    """Settings of the matching of one mini-batch."""

    w_max: float
    reg: float
    normalized: bool  # weights with mean one, for a mean of the weighted losses; else as solved, for their sum
    quantile: float  # of the distances in the training batch
    is_gamma: bool  # whether that quantile is γ itself, or a width σ with γ = 1/(2σ²)
    as_cvxopt: bool  # losses are matched to where cvxopt stops, not to the optimum
    narrowest: float = 0.0  # least width, as a share of the range of the training losses

    @property
    def reduction(self) -> str:
        """Reduction of the weighted losses that belongs to these weights."""
        return "mean" if self.normalized else "sum"

    def scale(self, weights: Tensor) -> Tensor:
        """Weights divided by their mean, if the rule says so."""
        return weights / weights.mean().clamp(min=1e-12) if self.normalized else weights


def match_losses(train: Tensor, validation: Tensor, rule: MatchingRule) -> Tensor:
    """Weights of training losses (n,) that match validation losses (m,), scaled by the rule."""
    if not train.is_cuda and HAS_NUMBA:
        from steelyard.deep._matching.line import weigh
        from steelyard.deep._matching.pair_quantile import pair_quantile

        if not weigh.signatures:
            LOG.info("numba compiles the matching of losses, once in a process; it keeps the result in its cache")
        z = train.double().numpy()
        weights, solved = weigh(
            z,
            validation.double().numpy(),
            pair_quantile(z, rule.quantile),
            rule.is_gamma,
            rule.narrowest,
            rule.w_max,
            rule.reg,
            rule.as_cvxopt,
            rule.normalized,
        )
        if solved:  # otherwise the kernel is most likely too narrow
            return torch.from_numpy(weights)
    if _fits_triton(train, validation):
        from steelyard.deep._matching.triton_kernels import match_lines

        return rule.scale(
            match_lines(
                train[None],
                validation[None],
                quantile=rule.quantile,
                is_gamma=rule.is_gamma,
                narrowest=rule.narrowest,
                w_max=rule.w_max,
                reg=rule.reg,
                as_cvxopt=rule.as_cvxopt,
            )[0]
        )
    return rule.scale(_match_densely(train[None, :, None], validation[None, :, None], rule)[0])


def match_classes(
    train: Tensor, validation: Tensor, members: Tensor, validation_members: Tensor, rule: MatchingRule
) -> Tensor:
    """Weights (C, n) as solved for the training rows of each class, zero outside the class.

    `members` (C, n) and `validation_members` (C, m) say which rows belong to each class.
    """
    if _fits_triton(train, validation):
        from steelyard.deep._matching.triton_kernels import match_classes as match_on_gpu

        return match_on_gpu(
            train,
            validation,
            members,
            validation_members,
            quantile=rule.quantile,
            is_gamma=rule.is_gamma,
            w_max=rule.w_max,
            reg=rule.reg,
        )
    (rows, real), (validation_rows, validation_real) = _padded(members), _padded(validation_members)
    weights = _match_densely(train[rows], validation[validation_rows], rule, real, validation_real)
    spread = torch.zeros(members.shape, dtype=weights.dtype, device=weights.device)
    return spread.scatter_add(1, rows, weights * real)


def gamma_of(train: Tensor, rule: MatchingRule, real: Tensor | None = None) -> Tensor:
    """γ of each problem (P,) from distances between its training rows (P, n, d); `real` leaves out padding."""
    distances = torch.cdist(train.double(), train.double(), compute_mode="donot_use_mm_for_euclid_dist")
    n = train.shape[1]
    pairs = torch.triu_indices(n, n, 1, device=train.device)
    flat = distances[:, pairs[0], pairs[1]]
    if real is not None:
        both = real[:, pairs[0]] & real[:, pairs[1]]
        flat = torch.where(both, flat, torch.nan)
    if not flat.shape[1]:
        return torch.ones_like(distances[:, 0, 0])  # a single row has no distance; any width serves
    found = torch.nanquantile(flat, rule.quantile, dim=1).nan_to_num(1.0)
    if rule.is_gamma:
        return found
    if rule.narrowest:
        found = torch.maximum(found, rule.narrowest * flat.amax(dim=1))
    return 0.5 / torch.where(found > 0, found, torch.ones_like(found)).square()


def _fits_triton(train: Tensor, validation: Tensor) -> bool:
    return train.is_cuda and HAS_TRITON and max(len(train), len(validation)) <= TRITON_ROWS


def _match_densely(
    train: Tensor,
    validation: Tensor,
    rule: MatchingRule,
    real: Tensor | None = None,
    validation_real: Tensor | None = None,
) -> Tensor:
    if train.is_cuda and torch.cuda.is_current_stream_capturing():
        raise InputError(
            f"Batches of {train.shape[1]} and {validation.shape[1]} rows cannot be weighted inside a CUDA graph: take "
            f"at most {TRITON_ROWS} rows of each, and install triton."
        )
    problems = pose(
        train,
        validation,
        gamma_of(train, rule, real),
        w_max=rule.w_max,
        reg=rule.reg,
        real=real,
        validation_real=validation_real,
    )
    return solve_as_cvxopt(problems) if rule.as_cvxopt else solve(problems)


def _padded(members: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers (C, k) of each class from masks (C, n), padded to the largest class, and which of them are real."""
    k = max(int(members.sum(dim=1).max()), 1)
    # A stable sort of "not in the class" brings the rows of the class to the front.
    rows = torch.argsort((~members).to(torch.uint8), dim=1, stable=True)[:, :k]
    return rows, members.gather(1, rows)
