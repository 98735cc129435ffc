"""The methods of sections 5 and 6 of the survey and their baselines, as phases for the training loop."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from steelyard._validation import check_count, check_range
from steelyard.deep.dynamic import DynamicWeights
from steelyard.deep.training import steps, weight_network
from steelyard.deep.training.checkpoint import fingerprint
from steelyard.deep.training.class_shares import ClassShares
from steelyard.deep.training.data import TrainingData
from steelyard.deep.training.modes import EVALUATION, check_weight_mode, evaluating, scores_and_features
from steelyard.deep.training.phases import Networks, Phase, Step, TrainingMethod
from steelyard.errors import ParameterError


@dataclass(frozen=True)
class Variant:
    """Options that distinguish static and dynamic importance weighting in the survey's figure."""

    extractor: bool  # rows are matched by what a network computes from them, or by their inputs
    weights_change: bool  # weights are computed in each step, or once
    extractor_changes: bool  # the network is the classifier that is trained, or a fixed one
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
ROWS_AT_ONCE = 256  # rows per matching problem where all source rows are matched once


def baseline(name: str, model: nn.Module, epochs: int) -> TrainingMethod:
    """A baseline: uniform or random weights, the clean target rows alone, or learning to reweight.

    Parameters
    ----------
    name : {"uniform", "random", "clean_only", "reweight"}
        "uniform": every weight one. "random": max(0, N(0, 1)) with mean one. "clean_only": the labeled target rows
        alone. "reweight": learning to reweight, see `learned_weights`.
    model : torch.nn.Module
        The classifier.
    epochs : int
        Number of epochs.

    Returns
    -------
    method : TrainingMethod

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import baseline
    >>> baseline("reweight", torch.nn.Linear(2, 3), epochs=5).epochs
    5
    """
    if name not in BASELINES:
        raise ParameterError(f"name must be one of {tuple(BASELINES)}; got {name!r}.")
    return TrainingMethod(name, {"f": model}, [Phase(name, "f", check_count("epochs", epochs), BASELINES[name])])


def fixed_weights(model: nn.Module, weights: Tensor, epochs: int, *, normalized: bool = False) -> TrainingMethod:
    """Training with fixed importance weights, estimated before or known because the shift was simulated.

    Parameters
    ----------
    model : torch.nn.Module
        The classifier.
    weights : tensor of shape (n,)
        One non-negative weight per source row.
    epochs : int
        Number of epochs.
    normalized : bool, default=False
        Divide the weights by their mean in every batch, as the survey does to compare methods.

    Returns
    -------
    method : TrainingMethod

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import fixed_weights
    >>> fixed_weights(torch.nn.Linear(2, 3), torch.ones(100), epochs=5).name
    'fixed'
    """
    phase = Phase(
        "fixed", "f", check_count("epochs", epochs), partial(steps.fixed, weights=weights, normalized=normalized)
    )
    options = {"weights": fingerprint(torch.as_tensor(weights)), "normalized": normalized}
    return TrainingMethod("fixed", {"f": model}, [phase], options)


def importance_weighting(
    model: nn.Module,
    epochs: int,
    *,
    variant: str = "DIW2",
    transform: str = "loss",
    preset: str = "normalized",
    pretrain: int = 10,
    warm_up: int = 0,
    weight_mode: str = EVALUATION,
    class_shares: Tensor | None = None,
) -> TrainingMethod:
    """Static and dynamic importance weighting (survey, section 6).

    Parameters
    ----------
    model : torch.nn.Module
        The classifier; a duplicate of it is pretrained where the variant's feature extractor is fixed.
    epochs : int
        Epochs of all phases that train the classifier with weights, `warm_up` included.
    variant : {"IW", "SIW", "DIW1", "DIW2", "DIW3"}, default="DIW2"
        IW matches the inputs themselves, class by class, once. SIW matches once by a pretrained network, DIW1 in each
        step by that network, DIW2 in each step by the network that is trained; DIW3 is DIW2 after pretraining.
    transform : {"loss", "features"}, default="loss"
        What represents a row in the matching: its loss, or the input of the network's last linear layer. See
        `DynamicWeights` and `scores_and_features`.
    preset : {"normalized", "authors", "median"}, default="normalized"
        Settings of the matching, see `DynamicWeights`. The preset applies to the weights alone; to sum the losses as
        the authors do, train with ``TrainingConfig(reduction="sum")``.
    pretrain : int, default=10
        Unweighted epochs of the extractor, for variants that pretrain it.
    warm_up : int, default=0
        First epochs with uniform weights (the authors use one).
    weight_mode : {"evaluation", "batch", "refreshed"}, default="evaluation"
        By which statistics batch-norm computes the losses or features for dynamic weights. "evaluation": its running
        means, as in evaluation mode; they lag behind the parameters while the learning rate is high. "batch": those of
        each of the two batches. "refreshed": those of the training batch, with the parameters as they are now, for both
        batches. Dropout is off in all three, and the running means stay as they are.
    class_shares : tensor of shape (n_classes,), default=None
        For weights by loss: the weights of each class are scaled so that the classes have these shares of the weights,
        averaged over recent batches. None leaves them as matched. Features are matched class by class, with shares of
        their own.

    Returns
    -------
    method : TrainingMethod

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import importance_weighting
    >>> method = importance_weighting(torch.nn.Linear(2, 3), epochs=5, variant="DIW3", pretrain=2, warm_up=1)
    >>> [(phase.name, phase.epochs) for phase in method.phases]
    [('pretrain', 2), ('warm up', 1), ('DIW3', 4)]
    """
    if variant not in VARIANTS:
        raise ParameterError(f"variant must be one of {tuple(VARIANTS)}; got {variant!r}.")
    check_count("epochs", epochs)
    check_count("pretrain", pretrain, 0)
    check_weight_mode(weight_mode)
    if check_count("warm_up", warm_up, 0) >= epochs:
        raise ParameterError(f"warm_up must leave epochs with weights; got {warm_up} of {epochs}.")
    options = VARIANTS[variant]
    networks: Networks = {"f": model}
    if class_shares is not None and options.extractor and transform == "loss":
        networks["class shares"] = ClassShares(class_shares)
    phases = []
    if options.pretrained and options.extractor_changes:
        phases.append(Phase("pretrain", "f", pretrain, steps.uniform))
    elif options.pretrained:
        networks["extractor"] = copy.deepcopy(model)
        phases.append(Phase("pretrain", "extractor", pretrain, partial(steps.uniform, network="extractor")))
    if warm_up:
        phases.append(Phase("warm up", "f", warm_up, steps.uniform))
    extractor = "extractor" if "extractor" in networks else "f"

    def begin(networks: Networks, data: TrainingData) -> Step:
        weigher = _weigher(data, options, transform, preset)
        if options.weights_change:
            return steps.dynamic(networks, data, weigher, extractor, weight_mode)
        matched = match_once(data, weigher, networks[extractor] if options.extractor else None)
        weights = _of_all_rows(networks, data, matched)
        return steps.fixed(networks, data, weights, weigher.preset.normalized)

    phases.append(Phase(variant, "f", epochs - warm_up, begin))
    name = variant if variant == "IW" else f"{variant}-{'L' if transform == 'loss' else 'F'}"
    settings = {"preset": preset} | ({} if weight_mode == EVALUATION else {"weight_mode": weight_mode})
    return TrainingMethod(name, networks, phases, settings)


def _weigher(data: TrainingData, options: Variant, transform: str, preset: str) -> DynamicWeights:
    by_class = transform == "features" or not options.extractor
    ratio = data.class_ratio.to(data.X.device) if by_class else None
    # A run is trained on one process, whatever other processes train.
    return DynamicWeights("features" if by_class else "loss", preset=preset, class_ratio=ratio, process_group=False)


def weigh_every_row(networks: Networks, data: TrainingData, variant: str, transform: str, preset: str) -> Tensor:
    """Weights of all source rows by trained networks in evaluation mode, in batches against all target rows."""
    options = VARIANTS[variant]
    extractor = networks.get("extractor", networks["f"]) if options.extractor else None
    weigher = _weigher(data, options, transform, preset)
    return _of_all_rows(networks, data, match_once(data, weigher, extractor, len(data.target_labels())))


def _of_all_rows(networks: Networks, data: TrainingData, weights: Tensor) -> Tensor:
    shares = networks.get("class shares")
    return weights if not isinstance(shares, ClassShares) else shares.of_all_rows(weights, data.y)


def match_once(
    data: TrainingData, weigher: DynamicWeights, extractor: nn.Module | None, n_target: int = ROWS_AT_ONCE
) -> Tensor:
    """Weights of all source rows, matched `ROWS_AT_ONCE` at a time; without an extractor the inputs are matched.

    Each part is matched to `n_target` target rows. A shuffle with a fixed seed assigns the rows to the parts.
    """
    device, y_target = data.X.device, data.target_labels()
    shuffle = torch.Generator().manual_seed(0)
    parts = torch.randperm(len(data.y), generator=shuffle).to(device).tensor_split(-(-len(data.y) // ROWS_AT_ONCE))
    weights = torch.ones(len(data.y), dtype=torch.float64, device=device)

    def extract(X: Tensor, y: Tensor) -> Tensor:
        if extractor is None:
            return X.flatten(1)
        with evaluating(extractor), torch.no_grad():
            if weigher.transform == "loss":
                return data.row_losses(extractor(X), y)
            return scores_and_features(extractor, X)[1]

    targets = zip(torch.split(data.X_target, 2000), torch.split(y_target, 2000), strict=True)
    of_targets = torch.cat([extract(*part) for part in targets])
    for rows in parts:
        chosen = torch.randperm(len(y_target), generator=shuffle)[:n_target].to(device)
        labels = () if weigher.transform == "loss" else (data.y[rows], y_target[chosen])
        weights[rows] = weigher(extract(data.X[rows], data.y[rows]), of_targets[chosen], *labels).double()
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
    g_reg: float = 0.0,
    loss_bound: float = 1.0,
) -> TrainingMethod:
    """Deep one-step (survey, section 5, algorithm 2): g is pretrained as a domain classifier, then rounds of g and f.

    Parameters
    ----------
    f : torch.nn.Module
        The classifier.
    g : torch.nn.Module
        The weight network, with one output; its method ``freeze_convolutions``, if any, is called after pretraining.
    rounds : int, default=20
        Number of rounds; in each, first g is trained, then f.
    g_epochs, f_epochs : int, default=5 and 10
        Epochs of g and of f per round.
    pretrain : int, default=10
        Epochs before the rounds in which g is trained to classify target against source.
    g_bound : float, default=None
        The bound G > 1 of the survey's theory on the weights. None takes the output of g as the weight, as the survey
        does; where the density ratio has no finite variance such a g diverges or collapses to zero.
    g_reg : float, default=0
        Regularization strength λ on the squares of the weights of g, as in algorithm 1; larger values give flatter
        weights.
    loss_bound : float, default=1
        The m of the bound. In the steps of g a loss counts as at most m.

    Returns
    -------
    method : TrainingMethod

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import one_step
    >>> one_step(torch.nn.Linear(2, 3), torch.nn.Linear(2, 1), rounds=2, pretrain=1, g_bound=3.0).epochs
    31
    """
    check_count("rounds", rounds)
    if g_bound is not None and not check_range("g_bound", g_bound, 1) > 1:
        raise ParameterError("g_bound must be more than one, which is the mean of the ratio; got 1.")
    g_step = partial(weight_network.minimize_bound, loss_bound=loss_bound, g_bound=g_bound, reg=g_reg)
    ratio = partial(weight_network.bounded_ratio, bound=g_bound)
    in_turn = [
        Phase("g", "g", check_count("g_epochs", g_epochs, 0), g_step),
        Phase("f", "f", check_count("f_epochs", f_epochs), partial(weight_network.weight_by, ratio=ratio)),
    ]
    options = {"loss_bound": loss_bound, "g_bound": g_bound, "g_reg": g_reg}
    phases = [_pretraining(pretrain, g_reg), *(in_turn * rounds)]
    return TrainingMethod("one-step", {"f": f, "g": g}, phases, options)


def flattened_weighting(
    f: nn.Module, g: nn.Module, epochs: int, *, flattening: float = 0.5, pretrain: int = 10, g_reg: float = 0.0
) -> TrainingMethod:
    """EIWERM with a domain classifier g: weights r^γ with mean one in every batch, r the density ratio.

    Parameters
    ----------
    f : torch.nn.Module
        The classifier.
    g : torch.nn.Module
        The domain classifier, with one output; r is its odds.
    epochs : int
        Epochs of f.
    flattening : float, default=0.5
        The exponent γ in [0, 1]; 0 gives uniform weights, 1 the density ratio.
    pretrain : int, default=10
        Epochs before in which g is trained to classify target against source.
    g_reg : float, default=0
        Regularization strength λ on the squares of the weights of g.

    Returns
    -------
    method : TrainingMethod

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import flattened_weighting
    >>> flattened_weighting(torch.nn.Linear(2, 3), torch.nn.Linear(2, 1), epochs=5, pretrain=1).name
    'EIWERM'
    """
    ratio = partial(weight_network.relative_ratio, flattening=check_range("flattening", flattening, 0, 1))
    begin = partial(weight_network.weight_by, ratio=ratio)
    phases = [_pretraining(pretrain, g_reg), Phase("EIWERM", "f", check_count("epochs", epochs), begin)]
    return TrainingMethod("EIWERM", {"f": f, "g": g}, phases, {"flattening": flattening, "g_reg": g_reg})


def relative_weighting(
    f: nn.Module, g: nn.Module, epochs: int, *, eta: float = 0.5, pretrain: int = 10, g_reg: float = 0.0
) -> TrainingMethod:
    """RIWERM with a domain classifier: the relative density ratio r/(ηr + 1 − η) with mean one in every batch.

    Parameters
    ----------
    f : torch.nn.Module
        The classifier.
    g : torch.nn.Module
        The domain classifier, with one output; r is its odds.
    epochs : int
        Epochs of f.
    eta : float, default=0.5
        η in [0, 1]; 0 gives the density ratio, 1 uniform weights.
    pretrain : int, default=10
        Epochs before in which g is trained to classify target against source.
    g_reg : float, default=0
        Regularization strength λ on the squares of the weights of g.

    Returns
    -------
    method : TrainingMethod

    Examples
    --------
    >>> import torch
    >>> from steelyard.deep.training import relative_weighting
    >>> relative_weighting(torch.nn.Linear(2, 3), torch.nn.Linear(2, 1), epochs=5, pretrain=1).epochs
    6
    """
    ratio = partial(weight_network.relative_ratio, eta=check_range("eta", eta, 0, 1))
    begin = partial(weight_network.weight_by, ratio=ratio)
    phases = [_pretraining(pretrain, g_reg), Phase("RIWERM", "f", check_count("epochs", epochs), begin)]
    return TrainingMethod("RIWERM", {"f": f, "g": g}, phases, {"eta": eta, "g_reg": g_reg})


def _pretraining(epochs: int, reg: float) -> Phase:
    """The phase in which g is trained as a domain classifier."""
    begin = partial(weight_network.classify_domains, reg=check_range("g_reg", reg, 0))
    return Phase("domain classifier", "g", check_count("pretrain", epochs, 0), begin)
