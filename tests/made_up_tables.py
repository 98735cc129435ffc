"""Tables with known density ratios that tests share with the study `weights-on-tables`."""

from experiments.studies.discrete_tables import (
    binary_columns,
    chance_of_one,
    labeled_ten_cells,
    ratio_of_counts,
    target_accuracy,
    ten_cells,
)

__all__ = ["binary_columns", "chance_of_one", "labeled_ten_cells", "ratio_of_counts", "target_accuracy", "ten_cells"]
