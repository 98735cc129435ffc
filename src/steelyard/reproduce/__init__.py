"""The survey's tables, each by one command: ``steelyard reproduce``."""

from steelyard.reproduce import benchmark, calibration, choice, coupling, toy
from steelyard.reproduce.plan import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (toy.EXPERIMENT, benchmark.EXPERIMENT, coupling.EXPERIMENT, calibration.EXPERIMENT, choice.EXPERIMENT)
}

# What the survey has beyond these, for `--list`.
LATER = {
    "images": "Table 3: rotated images, deep one-step (section 5.3.3).",
    "class-prior": "Tables 4 and 5: class-prior shift, dynamic importance weighting (section 6).",
    "label-noise": "Table 6 and its figures: label noise, dynamic importance weighting (section 6).",
    "gasoline": "Table 7: OECD gasoline demand, causal mechanism transfer (section 7).",
}
