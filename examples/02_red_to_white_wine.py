"""
Red to white wine: when weights cannot help
===========================================

Tasters have graded red wines, and grades of white wines are wanted. ``diagnose`` finds that almost half of the white
wines have no red one nearby. The warning of the fit has a stricter measure: nearly all white wines look more like white
than all but a few of the red ones do. No weights can represent them: here weights harm a line and hardly help trees,
and the effective sample size is a few dozen wines. It is better to have some white wines graded.

It needs the tables of wine quality of the UCI Machine Learning Repository in the folder ``STEELYARD_DATA``, and takes
about eight seconds; ``--full`` has boosted trees, too.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from steelyard import Target, WeightedRegressor, diagnose
from steelyard.datasets import natural_split
from steelyard.errors import DataNotFoundError, SteelyardWarning

SOURCE, TARGET, WEIGHTED = "#64748b", "#c2410c", "#0f766e"
try:
    red, white = natural_split("wine")
except DataNotFoundError as missing:
    raise SystemExit(str(missing)) from None
tables = [pa.table(dict(zip(wine.columns, wine.X.T, strict=True))) for wine in (red, white)]
print(diagnose(tables[0], target=tables[1]).reason, "\n")

models, errors = {"ridge": Ridge(), "trees": ExtraTreesRegressor(100, min_samples_leaf=2, random_state=0)}, {}
if "--full" in sys.argv:
    models["boosted trees"] = HistGradientBoostingRegressor(random_state=0)
with warnings.catch_warnings(record=True, action="always", category=SteelyardWarning) as told:  # of missing overlap
    for name, model in models.items():
        weighted = WeightedRegressor(model).fit(red.X, red.y, target=Target(white.X))
        fits = (model.fit(red.X, red.y), weighted)
        errors[name] = [np.mean((fit.predict(white.X) - white.y) ** 2) for fit in fits]
        print(f"{name:13} no weights {errors[name][0]:.2f}, weighted {errors[name][1]:.2f}")
print(
    f"Effective sample size: {weighted.effective_sample_size_:.0f} of {len(red.y)}. The fit warned:\n{told[0].message}"
)

_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for table, color, label in zip(tables, (SOURCE, TARGET), ("red, source", "white, target"), strict=True):
    x, y = table["total_sulfur_dioxide"], table["volatile_acidity"]
    left.scatter(x, y, s=5, color=color, alpha=0.3, lw=0, label=label)
left.set(xlabel="total sulfur dioxide, mg/l", ylabel="volatile acidity, g/l", xlim=(0, 300))
left.legend(frameon=False, markerscale=3)
for i, label in enumerate(("no weights", "weighted")):
    bars = [pair[i] for pair in errors.values()]
    right.bar(np.arange(len(bars)) + 0.36 * i, bars, 0.34, color=(SOURCE, WEIGHTED)[i], label=label)
right.axhline(np.var(white.y), color=TARGET, ls=":", lw=1, label="their mean")
right.set(ylim=(0, 1.1), ylabel="squared error, white wines", xticks=np.arange(len(errors)) + 0.18, xticklabels=errors)
right.legend(frameon=False, fontsize=8, loc="upper right", ncols=3)
plt.show()
