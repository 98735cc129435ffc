"""The methods of sections 5 and 6 and their baselines, as phases for the loop."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from steelyard._validation import check_count, check_range
from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.training import one_step as onestep
from steelyard.deep.training import steps
from steelyard.deep.training.checkpoint import fingerprint
from steelyard.deep.training.phases import Begin, Method, Networks, Phase, Step, Task
from steelyard.errors import ParameterError


@dataclass(frozen=True)
class Variant:
    """The options of the survey's figure of static and dynamic importance weighting."""

    extractor: bool  # rows are matched by what a network makes of them, or as they are
    weights_change: bool  # weights are made in each step, or once
    extractor_changes: bool  # the network is the one that learns, or stays
    pretrained: bool


VARIANTS = {
    "IW": Variant(extractor=False, weights_change=False, extractor_changes=False, pretrained=False),
    "SIW": Variant(extractor=True, weights_change=False, extractor_changes=False, pretrained=True),
    "DIW1": Variant(extractor=True, weights_change=True, extractor_changes=False, pretrained=True),
    "DIW2": Variant(extractor=True, weights_change=True, extractor_changes=True, pretrained=False),
    "DIW3": Variant(extractor=True, weights_change=True, extractor_changes=True, pretrained=True),
}
BASELINES = {
    "uniform": steps.uniform,
    "random": steps.random,
    "clean_only": steps.clean_only,
    "reweight": steps.learned,
}
ROWS_AT_ONCE = 256  # of a matching that is done once, over all source rows


def baseline(name: str, model: nn.Module, epochs: int) -> Method:
    """Uniform and random weights, the clean rows alone, or learning to reweight."""
    if name not in BASELINES:
        raise ParameterError(f"There are {tuple(BASELINES)}; got {name!r}.")
    return Method(name, {"f": model}, [Phase(name, "f", check_count("epochs", epochs), BASELINES[name])])


def known_weights(model: nn.Module, weights: Tensor, epochs: int, *, normalized: bool = False) -> Method:
    """Weights of the source rows that were found elsewhere, or are known because the shift was made.

    `normalized`: to mean one in every batch, as the survey does to compare methods.
    """
    phase = Phase(
        "known", "f", check_count("epochs", epochs), partial(steps.known, weights=weights, normalized=normalized)
    )
    options = {"weights": fingerprint(torch.as_tensor(weights)), "normalised": normalized}
    return Method("known", {"f": model}, [phase], options)


def importance_weighting(
    model: nn.Module,
    epochs: int,
    *,
    variant: str = "DIW2",
    transform: str = "loss",
    preset: str = "normalised",
    pretrain: int = 10,
    warm_up: int = 0,
) -> Method:
    """Static and dynamic importance weighting (survey, section 6).

    Parameters
    ----------
    model : the classifier; a copy of it is pretrained where the variant's extractor stays
    epochs : int
        Of all the phases in which the classifier learns, `warm_up` among them.
    variant : {"IW", "SIW", "DIW1", "DIW2", "DIW3"}, default="DIW2"
        IW matches the inputs themselves, class by class, once. SIW matches once by a pretrained network, DIW1 in each
        step by that network, DIW2 in each step by the network that learns; DIW3 is DIW2 after pretraining it.
    transform, preset : see `DynamicWeights`
        The preset is that of the weights; for losses summed as the authors do, train with ``Settings(summed=True)``.
    pretrain : int, default=10
        Unweighted epochs of the extractor, where the variant has one that is pretrained.
    warm_up : int, default=0
        First epochs with weights of one (the authors have one).
    """
    if variant not in VARIANTS:
        raise ParameterError(f"variant must be one of {tuple(VARIANTS)}; got {variant!r}.")
    check_count("epochs", epochs)
    check_count("pretrain", pretrain, 0)
    if check_count("warm_up", warm_up, 0) >= epochs:
        raise ParameterError(f"warm_up must leave epochs with weights; got {warm_up} of {epochs}.")
    what = VARIANTS[variant]
    networks: Networks = {"f": model}
    phases = []
    if what.pretrained and what.extractor_changes:
        phases.append(Phase("pretrain", "f", pretrain, steps.uniform))
    elif what.pretrained:
        networks["extractor"] = copy.deepcopy(model)
        phases.append(Phase("pretrain", "extractor", pretrain, _uniform_extractor))
    if warm_up:
        phases.append(Phase("warm up", "f", warm_up, steps.uniform))
    seen_by = "extractor" if "extractor" in networks else "f"

    def begin(networks: Networks, task: Task) -> Step:
        by_class = transform == "features" or not what.extractor
        ratio = task.class_ratio.to(task.X.device) if by_class else None
        weigher = DynamicWeights("features" if by_class else "loss", preset=preset, class_ratio=ratio)
        if what.weights_change:
            return steps.dynamic(networks, task, weigher, seen_by)
        extractor = networks[seen_by] if what.extractor else None
        return steps.known(networks, task, match_once(task, weigher, extractor), weigher.preset.normalized)

    phases.append(Phase(variant, "f", epochs - warm_up, begin))
    name = variant if variant == "IW" else f"{variant}-{'L' if transform == 'loss' else 'F'}"
    return Method(name, networks, phases, {"preset": preset})


def match_once(task: Task, weigher: DynamicWeights, extractor: nn.Module | None) -> Tensor:
    """Weights of all source rows, matched `ROWS_AT_ONCE` at a time with as many target rows; None takes rows as is.

    The rows are dealt by the same shuffle each time.
    """
    device, goal_labels = task.X.device, task.target_labels()
    shuffle = torch.Generator().manual_seed(0)
    parts = torch.randperm(len(task.y), generator=shuffle).to(device).tensor_split(-(-len(task.y) // ROWS_AT_ONCE))
    weights = torch.ones(len(task.y), dtype=torch.float64, device=device)

    def view(X: Tensor, y: Tensor) -> Tensor:
        if extractor is None:
            return X.flatten(1)
        with steps.evaluating(extractor), torch.no_grad():
            if weigher.transform == "loss":
                return task.row_losses(extractor(X), y)
            return steps.halves(extractor, X[:8])[0](X)

    for rows in parts:
        goal = torch.randperm(len(goal_labels), generator=shuffle)[:ROWS_AT_ONCE].to(device)
        here, there = (task.X[rows], task.y[rows]), (task.target_X[goal], goal_labels[goal])
        labels = () if weigher.transform == "loss" else (here[1], there[1])
        weights[rows] = weigher(view(*here), view(*there), *labels).double()
    return weights


def one_step(
    f: nn.Module,
    g: nn.Module,
    *,
    rounds: int = 20,
    g_epochs: int = 5,
    f_epochs: int = 10,
    pretrain: int = 10,
    g_bound: float | None = None,
    g_penalty: float = 0.0,
    loss_bound: float = 1.0,
) -> Method:
    """Deep one-step (survey, section 5, algorithm 2): g is pretrained to tell target from source, then rounds of both.

    Parameters
    ----------
    f : the classifier
    g : a network with one output; its ``freeze_convolutions``, where it has that, is called after pretraining
    rounds, g_epochs, f_epochs : int
        Of a round: first g learns, then f.
    pretrain : int
        Epochs before the rounds, in which g learns to tell target from source.
    g_bound : float, default=None
        The G > 1 of the survey's theory, which no weight exceeds. None takes the output of g for the weight, as the
        survey does; where the ratio has no finite variance such a g blows up, or dies.
    g_penalty : float, default=0
        λ: times the squares of the weights of g, added to what g lowers, as in algorithm 1. With more of it weights
        are flatter.
    loss_bound : float, default=1
        The m of the bound. To g a loss counts as m at most.
    """
    check_count("rounds", rounds)
    if g_bound is not None and not check_range("g_bound", g_bound, 1) > 1:
        raise ParameterError("g_bound must be more than one, which is the mean of the ratio; got 1.")
    before = _pretraining(pretrain, g_penalty)
    by_g = partial(onestep.lower_bound_by_g, loss_bound=loss_bound, g_bound=g_bound, penalty=g_penalty)
    in_turn = [
        Phase("g", "g", check_count("g_epochs", g_epochs, 0), by_g),
        Phase("f", "f", check_count("f_epochs", f_epochs), partial(onestep.weighted_by_g, g_bound=g_bound)),
    ]
    options = {"loss_bound": loss_bound, "g_bound": g_bound, "g_penalty": g_penalty}
    return Method("one-step", {"f": f, "g": g}, [before, *(in_turn * rounds)], options)


def flattened(
    f: nn.Module, g: nn.Module, epochs: int, *, flattening: float = 0.5, pretrain: int = 10, g_penalty: float = 0.0
) -> Method:
    """EIWERM with a network ratio: weights r^γ with mean one in every batch, r the odds of the discriminator g."""
    begin = partial(onestep.weighted_by_odds, flattening=check_range("flattening", flattening, 0, 1))
    options = {"flattening": flattening, "g_penalty": g_penalty}
    return _two_step("EIWERM", f, g, epochs, _pretraining(pretrain, g_penalty), begin, options)


def relative(
    f: nn.Module, g: nn.Module, epochs: int, *, eta: float = 0.5, pretrain: int = 10, g_penalty: float = 0.0
) -> Method:
    """RIWERM with a network ratio: weights r/(ηr + 1 − η) with mean one in every batch, r the odds of g."""
    begin = partial(onestep.weighted_by_odds, eta=check_range("eta", eta, 0, 1))
    options = {"eta": eta, "g_penalty": g_penalty}
    return _two_step("RIWERM", f, g, epochs, _pretraining(pretrain, g_penalty), begin, options)


def _pretraining(epochs: int, penalty: float) -> Phase:
    """g learns to tell target from source."""
    begin = partial(onestep.discriminate, penalty=check_range("g_penalty", penalty, 0))
    return Phase("discriminate", "g", check_count("pretrain", epochs, 0), begin)


def _two_step(
    name: str, f: nn.Module, g: nn.Module, epochs: int, before: Phase, begin: Begin, options: dict[str, float]
) -> Method:
    return Method(name, {"f": f, "g": g}, [before, Phase(name, "f", check_count("epochs", epochs), begin)], options)


def _uniform_extractor(networks: Networks, task: Task) -> Step:
    return steps.uniform({"f": networks["extractor"]}, task)
