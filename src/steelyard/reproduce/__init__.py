"""The survey's tables, each by one command: ``steelyard reproduce``."""

from steelyard.reproduce import (
    benchmark,
    calibration,
    choice,
    class_prior,
    coupling,
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
        coupling.EXPERIMENT,
        calibration.EXPERIMENT,
        choice.EXPERIMENT,
    )
}

# What the survey has beyond these, for `--list`.
LATER = {
    "gasoline": "Table 7: OECD gasoline demand, causal mechanism transfer (section 7).",
}
