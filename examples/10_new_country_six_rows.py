"""
A new country with six rows
===========================

Gasoline demand is known in seventeen countries for nineteen years, and in a new one for six. Causal mechanism transfer
(survey, section 7) assumes that one invertible mechanism made the rows of all countries from independent causes: it
learns the mechanism from the other countries, and combines the causes of the six rows to synthetic rows. Where
leave-one-out on the six rows says that this does not help, the result is the fit to these rows alone.

Without the gasoline panel in ``STEELYARD_DATA`` a made-up panel takes its place. It takes about fifteen seconds, for
the first three countries; ``--full`` has all eighteen. It needs PyTorch (``pip install 'steelyard[deep]'``).
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch

from steelyard import Target
from steelyard.baselines import SourceAndTargetRegressor, TargetOnlyRegressor
from steelyard.causal import CausalTransferRegressor
from steelyard.datasets import independent_component_shift, load_gasoline
from steelyard.errors import DataNotFoundError, NothingTransferredWarning

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
warnings.simplefilter("ignore", NothingTransferredWarning)  # its result is that of the six rows alone
torch.set_num_threads(1)  # so small a net is slower with more
n_countries, n_seeds = (18, 4) if "--full" in sys.argv else (3, 2)
try:
    panel = load_gasoline()
    Z, country, years = panel.Z, panel.country, {name: splits[0] for name, splits in panel.train_years.items()}
    labeled = np.array([year in years[name] for name, year in zip(country, panel.year, strict=True)])
except DataNotFoundError:
    print("The gasoline panel is not in the data folder: this is a made-up panel.")
    Z, country, _ = independent_component_shift(18, 19, 4, random_state=0)
    labeled = np.tile(np.arange(19) % 3 == 1, 18)

small = {"n_hidden": 10, "weight_decay": 0.01, "n_seeds": n_seeds, "epochs": 100, "random_state": 0, "progress": False}
X, y, errors = Z[:, :-1], Z[:, -1], {}
for name in np.unique(country)[:n_countries]:
    others, few, test = country != name, (country == name) & labeled, (country == name) & ~labeled
    models = SourceAndTargetRegressor(), TargetOnlyRegressor(), CausalTransferRegressor(**small)
    for model in models[:2]:
        model.fit(X[others], y[others], target=Target(X[few], y[few]))
    models[2].fit(X[others], y[others], domain=country[others], target=Target(X[few], y[few]))
    errors[str(name)] = [np.mean((model.predict(X[test]) - y[test]) ** 2) for model in models]
    print(f"{name}: all rows {errors[str(name)][0]:.4f}, six rows {errors[str(name)][1]:.4f}, ", end="")
    print(f"causal transfer {errors[str(name)][2]:.4f} with {len(models[2].synthetic_)} synthetic rows")
gain = np.exp(np.mean([np.log(found[2] / found[1]) for found in errors.values()]))
print(f"Error of causal transfer over that of the six rows alone, geometric mean: {gain:.2f}")

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for i, label in enumerate(("source and target rows pooled", "the six rows alone", "causal transfer")):
    bars = [found[i] for found in errors.values()]
    axes.plot(list(errors), bars, "so^"[i], ms=9, color=(SOURCE, TARGET, WEIGHTED)[i], label=label)
axes.set(yscale="log", ylabel="mean squared error, thirteen other years", xmargin=0.15)
axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 1.25), ncols=2)
plt.show()
