"""The survey's tables, each by one command: ``steelyard reproduce``."""

from steelyard.reproduce import (
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
from steelyard.reproduce.plan import Experiment

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
