"""Data sets for distribution shift.

* toy problems with a known density ratio: `sinc_toy`, `gaussian_pair` (a `GaussianPair`), `mixed_tables` (a
  `MixedTables`)
* generators for each kind of shift: `biased_split`, `natural_split`, `label_noise`, `instance_dependent_noise`,
  `class_prior_shift`, `class_conditional_shift`, `rotate`, `full_distribution_shift`, `independent_component_shift`
* loaders of published data, from files in `data_folder`: `load_table` (a `Table`, one of `table_names`), `load_images`
  (`Images`), `load_gasoline` (a `Gasoline`)
"""

from steelyard.datasets.gasoline import Gasoline, load_gasoline
from steelyard.datasets.images import Images, load_images
from steelyard.datasets.instance_noise import instance_dependent_noise
from steelyard.datasets.loaders import Table, data_folder, load_table, table_names
from steelyard.datasets.mixed import MixedTables, mixed_tables
from steelyard.datasets.shifts import (
    biased_split,
    class_conditional_shift,
    class_prior_shift,
    full_distribution_shift,
    independent_component_shift,
    label_noise,
    natural_split,
    rotate,
)
from steelyard.datasets.toy import GaussianPair, gaussian_pair, sinc_toy

__all__ = [
    "Gasoline",
    "GaussianPair",
    "Images",
    "MixedTables",
    "Table",
    "biased_split",
    "class_conditional_shift",
    "class_prior_shift",
    "data_folder",
    "full_distribution_shift",
    "gaussian_pair",
    "independent_component_shift",
    "instance_dependent_noise",
    "label_noise",
    "load_gasoline",
    "load_images",
    "load_table",
    "mixed_tables",
    "natural_split",
    "rotate",
    "sinc_toy",
    "table_names",
]
