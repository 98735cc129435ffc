"""The survey's tables and our own studies, each by one command: ``python -m experiments``."""

from experiments import (
    benchmark,
    calibration,
    choice,
    class_prior,
    coupling,
    gasoline,
    images,
    images_choice,
    label_noise,
    toy,
)
from experiments.engine.cells import Experiment

EXPERIMENTS: dict[str, Experiment] = {
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
    )
}
