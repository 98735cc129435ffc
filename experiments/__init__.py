"""The survey's tables and studies of our own, each by one command: ``python -m experiments``."""

from typing import Any

from experiments import (
    benchmark,
    calibration,
    choice,
    class_prior,
    coupling,
    digits,
    gasoline,
    images,
    images_choice,
    label_noise,
    promises,
    toy,
)
from experiments.engine.cells import Experiment
from experiments.engine.study import Study
from experiments.kernel_classifiers import EIWERMClassifier, ERMClassifier, RIWERMClassifier
from experiments.kernel_regressors import EIWERMRegressor, ERMRegressor, RIWERMRegressor
from experiments.studies import class_prior_losses, cvxopt_weights, gasoline_variants, weights_on_tables

__all__ = [
    "EXPERIMENTS",
    "STUDIES",
    "EIWERMClassifier",
    "EIWERMRegressor",
    "ERMClassifier",
    "ERMRegressor",
    "RIWERMClassifier",
    "RIWERMRegressor",
]

EXPERIMENTS: dict[str, Experiment[Any, Any]] = {
    e.name: e
    for e in (
        toy.EXPERIMENT,
        benchmark.EXPERIMENT,
        images.EXPERIMENT,
        images_choice.EXPERIMENT,
        class_prior.EXPERIMENT,
        label_noise.EXPERIMENT,
        gasoline.EXPERIMENT,
        coupling.EXPERIMENT,
        calibration.EXPERIMENT,
        choice.EXPERIMENT,
        promises.EXPERIMENT,
        digits.EXPERIMENT,
    )
}
STUDIES: dict[str, Study] = {
    s.name: s
    for s in (weights_on_tables.STUDY, class_prior_losses.STUDY, cvxopt_weights.STUDY, gasoline_variants.STUDY)
}
